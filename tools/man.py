"""Writes the man pages, one for the program and one for each command, from the command line itself.

In: the commands and options as typer has them. Out: roff by file name; ``python -m tools.man`` writes them to
build/man, from where they become part of the wheel.
Source: man-pages(7), groff_man(7)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[1] / "build" / "man"
_MARKUP = re.compile(r"\[/?(?:cyan|bold|green)\]")


def pages() -> dict[str, str]:
    """Return every page by file name, such as ``fairlead-status.1``."""
    import typer

    from fairlead.cli.main import app

    root: Any = typer.main.get_command(app)
    commands = dict(_commands(root, "fairlead"))
    made = {f"{path.replace(' ', '-')}.1": _page(path, command, commands) for path, command in commands.items()}
    return {"fairlead.1": _page("fairlead", root, commands), **made}


def _commands(group: Any, path: str) -> Iterable[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")


def _page(path: str, command: Any, commands: dict[str, Any]) -> str:
    from fairlead import __version__

    title = path.replace(" ", "-")
    first, _, rest = _plain(command.help).partition(". ")
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    inner = {name: each for name, each in commands.items() if name.rpartition(" ")[0] == path}
    usage = "".join(f" {_argument(each)}" for each in arguments)
    usage += " COMMAND" if inner else ""
    lines = [
        '.\\" Written by tools/man.py from the command line.',
        f'.TH "{title.upper()}" "1" "" "Fairlead {__version__}" "Fairlead"',
        f".SH NAME\n{_roff(title)} \\- {_roff(first.rstrip('.'))}",
        f'.SH SYNOPSIS\n.B "{path}"\n{_roff(usage.strip())} [OPTIONS]',
    ]
    if rest:
        lines.append(f".SH DESCRIPTION\n{_roff(rest)}")
    if inner:
        lines.append(".SH COMMANDS")
        lines += [
            f".TP\n.B {_roff(name)}\n{_roff(_plain(each.short_help or each.help))}" for name, each in inner.items()
        ]
    if options or arguments:
        lines.append(".SH OPTIONS")
        lines += [f".TP\n.B {_roff(_head(each))}\n{_roff(_plain(each.help))}" for each in (*arguments, *options)]
    lines.append(f".SH EXIT STATUS\n{_roff(_plain(command.epilog))}" if command.epilog else "")
    others = ", ".join(f".BR {_roff(name.replace(' ', '-'))} (1)" for name in ("fairlead", *inner) if name != path)
    lines.append(f".SH SEE ALSO\n{others.replace(', ', chr(10))}" if others else "")
    return "\n".join(filter(None, lines)) + "\n"


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar) if parameter.required else f"[{parameter.metavar}]"
    return f"{name}..." if parameter.nargs != 1 else name


def _head(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    choices = type(parameter.default) if isinstance(parameter.default, Enum) else ()
    value = parameter.metavar or "|".join(str(choice.value) for choice in choices)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if isinstance(parameter.default, bool) else f"{names} {value or ''}".rstrip()


def _plain(text: str | None) -> str:
    return " ".join(_MARKUP.sub("", text or "").split())


def _roff(text: str) -> str:
    """Return text in which nothing is a request or an escape, and a dash is what can be typed."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main() -> None:
    """Write the pages, and nothing else, to ``build/man``."""
    OUT.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in OUT.iterdir():
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (OUT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
