"""Writes docs/reference and the charts' copies from the source, so that none drifts: ``python -m tools.generate``.

In: wire types, names, conditions, metric registries, the command line. Out: a page each, and files of ``tools.charts``.
With ``--check`` it writes nothing, and fails when a page is not what it would write.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from tools import charts, descriptions
from tools.registries import registries

REFERENCE = charts.ROOT / "docs" / "reference"
SOURCE = charts.ROOT / "src" / "fairlead"

_HEAD = "<!-- Written by `make docs` from the source. Change the source, not this page. -->\n\n"


def pages() -> dict[str, str]:
    """Return every page of the reference by file name."""
    made: dict[str, Callable[[], str]] = {
        "README.md": _contents,
        "resources.md": _resources,
        "annotations-and-labels.md": _names,
        "conditions.md": _conditions,
        "events.md": _events,
        "metrics.md": _metrics,
        "command-line.md": _command_line,
    }
    return {name: _HEAD + make().rstrip() + "\n" for name, make in made.items()}


def _contents() -> str:
    return (
        "# Reference\n\nThese pages are written from the source by `make docs`, and a test holds them to it.\n\n"
        "* [Command line](command-line.md): every command, flag and exit code\n"
        "* [Resources](resources.md): the kinds of `fairlead.dev`, field by field\n"
        "* [Annotations and labels](annotations-and-labels.md)\n"
        "* [Conditions](conditions.md): types and reasons\n"
        "* [Events](events.md)\n"
        "* [Metrics](metrics.md)\n"
    )


# --- resources --------------------------------------------------------------------------------------------------


def _resources() -> str:
    from fairlead.api.kinds import all_crds

    parts = [
        "# Resources\n\nAll kinds are in `fairlead.dev/v1alpha1`. `kubectl get fairlead` lists those of a namespace.\n"
        "`fairlead crds` prints the CustomResourceDefinitions; a hub that may installs them itself."
    ]
    for crd in all_crds():
        spec = crd["spec"]
        version = spec["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        names = spec["names"]
        parts.append(f"## {names['kind']}\n\n{_text(schema['description'])}")
        parts.append(
            f"Scope: {spec['scope']}. Plural: `{names['plural']}`. Short: {_codes(names['shortNames'])}. "
            f"Columns: {', '.join(column['name'] for column in version['additionalPrinterColumns'])}."
        )
        for part in ("spec", "status"):
            node = schema["properties"].get(part)
            if node is None:
                continue
            if node.get("description"):
                parts.append(f"**{part}**: {_text(node['description'])}")
            parts.append(_table(("field", "type", "default", "limits", "meaning"), _fields(node, part)))
            rules = [rule["message"] for rule in node.get("x-kubernetes-validations", ())]
            if rules:
                parts.append("Rules:\n\n" + "\n".join(f"* {_text(rule)}" for rule in rules))
    return "\n\n".join(parts)


def _fields(node: dict[str, Any], path: str) -> Iterable[tuple[str, ...]]:
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}"
        inner = child.get("items", child) if child.get("type") == "array" else child
        marks = "[]" if child.get("type") == "array" else ""
        required = "required" if name in node.get("required", ()) else ""
        # The description of an object is above its fields in the source.
        said = _text(child.get("description", ""))
        yield f"`{here}{marks}`", _type(child), _default(child), _limits(child, required), said
        if path.count(".") < 4 and here not in {"status.accepted", "status.conditions"}:
            yield from _fields(inner, here + marks)


def _type(node: dict[str, Any]) -> str:
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"map to {_type(node['additionalProperties'])}"
    if "enum" in node:
        return " \\| ".join(f"`{value}`" if value else "empty" for value in node["enum"])
    return str(node.get("type", "any"))


def _default(node: dict[str, Any]) -> str:
    return f"`{node['default']}`" if "default" in node else ""


_LIMITS = {
    "minimum": "at least {}", "maximum": "at most {}", "minLength": "at least {} characters",
    "maxLength": "at most {} characters", "minItems": "at least {} items", "maxItems": "at most {} items",
    "pattern": "matches `{}`",
}  # fmt: skip


def _limits(node: dict[str, Any], required: str) -> str:
    limits = [required] if required else []
    limits += [text.format(_text(str(node[key]))) for key, text in _LIMITS.items() if key in node]
    return ", ".join(limits)


# --- names ------------------------------------------------------------------------------------------------------

_CONSTANT = re.compile(r'^(ANNOTATION|LABEL|FINALIZER|TAINT)_[A-Z_]+ = f?"(.+)"$')
_SECTION = re.compile(r"^# --- (.+?) -+$")


def _names() -> str:
    from fairlead.api import names

    parts = ["# Annotations, labels and finalizers\n\nAll that Fairlead reads or writes outside the fields of objects."]
    bare: list[str] = []
    rows: list[tuple[str, ...]] = []
    title = ""
    comment: list[str] = []
    for line in [*(SOURCE / "api" / "names.py").read_text(encoding="utf-8").splitlines(), "# --- end ---"]:
        if section := _SECTION.match(line):
            if rows:
                parts.append(f"## {title[:1].upper()}{title[1:]}\n\n" + _table(("name", "kind", "meaning"), rows))
            title, rows, comment = section[1], [], []
        elif line.startswith("#:"):
            comment.append(line[2:].strip())
        elif constant := _CONSTANT.match(line):
            value = str(getattr(names, line.split(" ", 1)[0]))
            meaning = _rst(" ".join(comment)) or descriptions.NAMES.get(value, "")
            if not comment:
                bare.append(value)
            rows.append((f"`{value}`", constant[1].lower(), meaning))
            comment = []
        else:
            comment = []
    rows = []
    for module, constants in descriptions.NAMES_ELSEWHERE.items():
        rows += [
            (f"`{getattr(importlib.import_module(module), constant)}`", "annotation", text)
            for constant, text in constants.items()
        ]
    parts.append("## Others\n\n" + _table(("name", "kind", "meaning"), rows))
    _exactly(descriptions.NAMES, bare, "NAMES")
    return "\n\n".join(parts)


# --- conditions and Events --------------------------------------------------------------------------------------


def _conditions() -> str:
    from fairlead.model.condition import ConditionReason, ConditionType

    types = [name.value for name in ConditionType]
    reasons = [name.value for name in ConditionReason]
    _exactly(descriptions.CONDITIONS, types, "CONDITIONS")
    _exactly(descriptions.REASONS, reasons, "REASONS")
    return "\n\n".join(
        [
            "# Conditions\n\nThe first four words are the Gateway API's. `observedGeneration` says which version of "
            "the object a condition is about.",
            "## Types\n\n" + _described(("type", "when True"), types, descriptions.CONDITIONS),
            "## Reasons\n\n" + _described(("reason", "meaning"), reasons, descriptions.REASONS),
        ]
    )


def _described(head: tuple[str, str], names: Iterable[str], sentences: dict[str, str]) -> str:
    return _table(head, ((f"`{name}`", sentences[name]) for name in names))


def _events() -> str:
    from fairlead.agent import engine, events
    from fairlead.agent.sources.ingress import source as ingresses
    from fairlead.agent.sources.service import plan as warnings
    from fairlead.agent.sources.service import source as services
    from fairlead.agent.sources.service import status
    from fairlead.kube.events import NOT_READ

    constants = [
        events.ENSURED, events.NO_TARGETS, events.SERVING_STOPPED, events.NOT_SERVING,
        warnings.UNKNOWN_ANNOTATION, warnings.AFFINITY_TIMEOUT_IGNORED, warnings.SOURCE_RANGE_AMBIGUOUS,
        services.CONFLICTED, services.PROBES_NOT_READ, status.REMOVED,
        NOT_READ, engine.STATUS_REFUSED, engine.STATUS_CONFLICT,
        ingresses.ANNOTATIONS_IGNORED,
    ]  # fmt: skip
    _exactly(descriptions.EVENTS, constants, "EVENTS")
    rows = [(f"`{reason}`", *descriptions.EVENTS[reason]) for reason in constants]
    return "\n\n".join(
        [
            "# Events\n\nAn Event is written when something begins to hold, not every time it is looked at.",
            "## On a Service or Ingress, in the member\n\nWritten by `fairlead-agent`, in addition to the table: a "
            "Warning for each [reason](conditions.md#reasons) for which the agent rejects a Service. The hub's "
            "`Accepted` and `Programmed`, when False, are Warnings, too. So is `ResolvedRefs` with the reason "
            "`Invalid` or `UnsupportedAddressFamily`. `Resolved` (Normal) ends a Warning, also after a restart of the "
            "agent.",
            _table(("reason", "on", "type", "meaning"), rows),
            "## On a TCPLoadBalancer, at the hub\n\nWritten by `fairlead-hub`: `Programmed` (Normal) with the address "
            "when it begins to serve, and a Warning with the reason of each condition that turns bad. `Resolved` "
            "(Normal) ends a Warning whose condition turns good without an Event of its own. "
            "`Pending` is not an Event. An object that cannot be read has no conditions: the Warning `Invalid` has the "
            "reason, also while the object is being deleted.",
            "## On a LoadBalancer, BackendGroup or LoadBalancerClass, at the hub\n\nWritten by `fairlead-hub`: "
            "`Programmed` (Normal) when a LoadBalancer is in use; `Drain` and `Deregister` (Normal) with how many "
            "backends, and the reason of their removal; `Quarantined` (Warning) for a backend that is refused; "
            "a Warning with the provider's own reason (such as `BadConfiguration`, `DriverFail`, `HAProxyUnreachable`) "
            "when a call fails; and one with the reason of each other condition that turns bad.",
            "## On Services and PoolServices with regions\n\nSee [regions](../regions/reference.md).",
        ]
    )


# --- metrics ----------------------------------------------------------------------------------------------------


def _metrics() -> str:
    parts = [
        "# Metrics\n\nIn the Prometheus text format at `/metrics`, next to `/readyz` and `/livez`. "
        "Only `fairlead_traffic_*` name objects of users: at the most 100 load balancers, never a route or a path."
    ]
    for title, families in asyncio.run(registries()).items():
        rows = ((f"`{family.name}`", family.kind, _codes(family.labels), _text(family.text)) for family in families)
        parts.append(f"## {title}\n\n" + _table(("metric", "type", "labels", "meaning"), rows))
    return "\n\n".join(parts)


# --- command line -----------------------------------------------------------------------------------------------


def _command_line() -> str:
    import typer

    from fairlead.cli.main import app

    root: Any = typer.main.get_command(app)
    parts = ["# Command line\n\n" + _plain(root.help)]
    for path, command in _commands(root, "fairlead"):
        parts.append(f"## {path}\n\n{_plain(command.help)}")
        arguments = "".join(
            (f" {parameter.metavar}" if parameter.required else f" [{parameter.metavar}]")
            + ("..." if parameter.nargs != 1 else "")
            for parameter in command.params
            if parameter.param_type_name == "argument"
        )
        parts.append(f"```text\n{path}{arguments}{' [OPTIONS]' if command.params else ''}\n```")
        if command.params:
            parts.append(_table(("option", "default", "meaning"), (_option(parameter) for parameter in command.params)))
    return "\n\n".join([*parts, _exit_codes()])


def _exit_codes() -> str:
    from fairlead.cli.run import MEANINGS, OF_COMMANDS

    rows: list[tuple[str, str]] = []
    for code, text in MEANINGS.items():
        by_text: dict[str, list[str]] = {}
        for command, codes in OF_COMMANDS.items():
            if codes.get(code):
                by_text.setdefault(codes[code], []).append(f"`{command}`")
        own = [f"{', '.join(commands)}: {meant}" for meant, commands in by_text.items()]
        rows.append((str(code), "; ".join(filter(None, (text, *own))) + "."))
    return (
        "## Exit codes\n\nOf every command; with 0, 4, 5 and 6 it has done what was asked, and the code is its answer. "
        "An answer that needs attention counts even where other things could not be read.\n\n"
        + _table(("code", "meaning"), rows)
    )


def _commands(group: Any, path: str) -> Iterable[tuple[str, Any]]:
    for name, command in group.commands.items():
        if getattr(command, "invoke_without_command", True):
            yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")


def _option(parameter: Any) -> tuple[str, ...]:
    choices = type(parameter.default) if isinstance(parameter.default, Enum) else ()
    value = (parameter.metavar or "|".join(str(choice.value) for choice in choices)).replace("|", "\\|")
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`", "required" if parameter.required else "", _plain(parameter.help)
    name = ", ".join([*parameter.opts, *parameter.secondary_opts])
    shown = f"`{name}`" if isinstance(parameter.default, bool) else f"`{name}` {_text(value)}".rstrip()
    default = parameter.default
    text = str(getattr(default, "value", default))
    plain = (
        "required" if parameter.required else "" if text in {"None", "False", ""} or callable(default) else f"`{text}`"
    )
    return shown, plain, _plain(parameter.help)


# --- Markdown ---------------------------------------------------------------------------------------------------


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _text(text: str) -> str:
    """Keep text in angle brackets from being taken for HTML, and bars from ending cells."""
    return re.sub(r"<([\w-]+)>", r"&lt;\1&gt;", text).replace("|", "\\|").replace("\\\\|", "\\|")


def _rst(text: str) -> str:
    return text.replace("``", "`")


def _plain(text: str | None) -> str:
    """Drop the colours of rich, and the line breaks."""
    return " ".join(re.sub(r"\[/?(cyan|bold|green)\]", "`", text or "").split())


def _codes(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _exactly(known: dict[str, Any], there: Sequence[str], table: str) -> None:
    """Exit unless ``tools/descriptions.py`` has a sentence for each of ``there``, and for nothing else."""
    lacking, gone = [name for name in there if name not in known], sorted(set(known) - set(there))
    if lacking:
        raise SystemExit(f"tools/descriptions.py: {table} lacks a sentence for {', '.join(lacking)}; then: make docs")
    if gone:
        raise SystemExit(
            f"tools/descriptions.py: {table} describes {', '.join(gone)}, which the source does not have; remove it"
        )


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check say which ones differ."""
    made = pages()
    if "--check" not in arguments:
        REFERENCE.mkdir(exist_ok=True)
        for name, text in made.items():
            (REFERENCE / name).write_text(text, encoding="utf-8")
        for name, text in charts.files().items():
            (charts.ROOT / name).write_text(text, encoding="utf-8")
        return 0
    differ = [f"docs/reference/{name}" for name, text in made.items() if not _same(REFERENCE / name, text)]
    differ += [f"docs/reference/{file.name}" for file in REFERENCE.glob("*") if file.name not in made]
    differ += [name for name, text in charts.files().items() if not _same(charts.ROOT / name, text)]
    for name in differ:
        sys.stderr.write(f"{name} differs from the source; run: make docs\n")
    return 1 if differ else 0


def _same(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
