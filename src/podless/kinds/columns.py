"""The columns that ``kubectl get`` shows: the building blocks, and the columns of custom kinds.

Columns of custom kinds have a JSONPath, of the subset that CRDs use: fields (``.a.b``, ``['a.b']``, escaped dots),
indexes, slices of everything (``[*]``) and filters (``[?(@.x=="y")]``). A lookup never fails.
In: an object and the time. Out: cells. Ages are strings such as ``3d4h``, formatted as kube-apiserver does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import inf
from typing import Any, cast

from podless.kinds.kind import PrinterColumn
from podless.objects import Obj, at, encode, seconds

_DAY_S, _YEAR_S = 86400, 365 * 86400
#: (below how many seconds, unit in seconds, its letter, smaller unit in seconds, its letter)
_SPANS = (
    (120, 1, "s", 1, ""),
    (600, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 1, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (2 * _DAY_S, 3600, "h", 1, ""),
    (8 * _DAY_S, _DAY_S, "d", 3600, "h"),
    (2 * _YEAR_S, _DAY_S, "d", 1, ""),
    (8 * _YEAR_S, _YEAR_S, "y", _DAY_S, "d"),
    (inf, _YEAR_S, "y", 1, ""),
)


def human_duration(age_s: float) -> str:
    """Return a duration in seconds as kubectl prints it: one or two units, such as ``3d4h``."""
    total = int(age_s)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    _, unit_s, letter, minor_s, minor_letter = next(span for span in _SPANS if total < span[0])
    minor = total % unit_s // minor_s if minor_letter else 0
    return f"{total // unit_s}{letter}" + (f"{minor}{minor_letter}" if minor else "")


def age(text: object, now: float) -> str:
    """Return the age of an RFC 3339 time at ``now`` (Unix time in seconds), ``<unknown>`` without one."""
    moment = seconds(text)
    return "<unknown>" if moment is None else human_duration(now - moment)


def column(name: str, cell: Callable[[Obj], Any], *, wide: bool = False, format_: str = "") -> PrinterColumn:
    """Return a column whose cells do not depend on the time."""
    return PrinterColumn(name, lambda obj, _now: cell(obj), wide, format=format_)


def text(name: str, path: str, default: str = "<none>", *, wide: bool = False, format_: str = "") -> PrinterColumn:
    """Return a column that shows the value at ``path``."""
    steps = path.split(".")

    def cell(obj: Obj) -> Any:
        value = at(obj, *steps)
        return default if value in (None, "") else value

    return column(name, cell, wide=wide, format_=format_)


def count(name: str, path: str) -> PrinterColumn:
    """Return a column that shows the number at ``path``, or the length of the list or mapping there."""

    def cell(obj: Obj, _now: float) -> int:
        value = at(obj, *path.split("."))
        return len(cast("list[Any]", value)) if isinstance(value, (list, dict)) else int(value or 0)

    return PrinterColumn(name, cell, type="integer")


def since(name: str, path: str, *, wide: bool = False) -> PrinterColumn:
    """Return a column that shows how long ago the time at ``path`` was."""
    return PrinterColumn(name, lambda obj, now: age(at(obj, *path.split(".")), now), wide)


def selector(name: str, path: str, *, wide: bool = False) -> PrinterColumn:
    """Return a column that shows the labels at ``path``."""

    def cell(obj: Obj) -> str:
        labels = cast("Obj", at(obj, *path.split(".")) or {})
        return joined(f"{key}={value}" for key, value in sorted(labels.items()))

    return column(name, cell, wide=wide)


def joined(values: Iterable[Any], default: str = "<none>") -> str:
    """Return ``values`` joined by commas, or ``default`` when there are none."""
    return ",".join(str(value) for value in values) or default


NAME = text("Name", "metadata.name", format_="name")._replace(description="Name must be unique within a namespace.")
AGE = since("Age", "metadata.creationTimestamp")


def custom_columns(declared: list[Obj]) -> tuple[PrinterColumn, ...]:
    """Return the columns of a CRD version; raises ``ValueError`` for an unsupported JSONPath."""
    if not declared:
        return (NAME, AGE)
    return (NAME, *(_custom(column) for column in declared))


def _custom(column: Obj) -> PrinterColumn:
    steps, kind = parse_path(column["jsonPath"]), column.get("type", "string")

    def cell(obj: Obj, now: float) -> Any:
        values = find_values(steps, obj)
        if not values or values[0] is None:
            return None
        if kind == "date":
            return age(values[0], now)
        if kind in {"integer", "number", "boolean"}:
            return values[0]
        return joined(values) if len(values) > 1 else _plain(values[0])

    wide = bool(column.get("priority"))
    return PrinterColumn(column["name"], cell, wide, kind, column.get("format", ""), column.get("description", ""))


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    # As kube-apiserver does: lists and mappings are shown as JSON.
    return value if isinstance(value, str) else encode(value).decode()


_TOKEN = re.compile(
    r"""\.?\['(?P<quoted>[^']*)'\]|\.?\[\?\(@(?P<left>[^=!<>)]*)(?:(?P<op>==|!=)\s*(?P<right>"[^"]*"|'[^']*'|[^)]*))?\)\]"""
    r"""|\.?\[(?P<index>-?\d+|\*)\]|\.(?P<star>\*)|\.(?P<field>(?:\\.|[^.\[\\])+)"""
)
Step = Callable[[list[Any]], list[Any]]


@lru_cache(maxsize=1024)
def parse_path(path: str) -> tuple[Step, ...]:
    """Parse a JSONPath; raises ``ValueError`` when it is not in the supported subset."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{path!r} is not a JSON path that this server reads")
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def find_values(steps: Iterable[Step], value: Any) -> list[Any]:
    """Return the values at the path, in document order."""
    values = [value]
    for step in steps:
        values = step(values)
    return values


def _step(match: re.Match[str]) -> Step:
    groups = match.groupdict()
    if groups["left"] is not None:
        return _filter(
            parse_path(groups["left"].strip()), groups["op"] or "", (groups["right"] or "").strip().strip("\"'")
        )
    if groups["index"] == "*" or groups["star"]:
        return lambda values: [item for value in values for item in _members(value)]
    if groups["index"] is not None:
        return _at(int(groups["index"]))
    name = groups["quoted"] if groups["quoted"] is not None else re.sub(r"\\(.)", r"\1", groups["field"])
    return lambda values: [cast("Obj", value)[name] for value in values if isinstance(value, dict) and name in value]


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("Obj", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _at(index: int) -> Step:
    def pick(values: list[Any]) -> list[Any]:
        lists = [cast("list[Any]", value) for value in values if isinstance(value, list)]
        return [items[index] for items in lists if -len(items) <= index < len(items)]

    return pick


def _filter(left: Sequence[Step], operator: str, right: str) -> Step:
    def holds(item: Any) -> bool:
        texts = [value if isinstance(value, str) else str(value).lower() for value in find_values(left, item)]
        if not operator:
            return bool(texts)
        return (right in texts) is (operator == "==")

    return lambda values: [item for value in values for item in _members(value) if holds(item)]
