"""The JSONPath of printer columns: the subset that CRDs use.

Fields (``.a.b``, ``['a.b']``, escaped dots), indexes, slices of everything (``[*]``) and filters (``[?(@.x=="y")]``).
In: a path, parsed once. Out: the matching values, in document order; a lookup never fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from podless.objects import Obj

_TOKEN = re.compile(
    r"""\.?\['(?P<quoted>[^']*)'\]|\.?\[\?\(@(?P<left>[^=!<>)]*)(?:(?P<op>==|!=)\s*(?P<right>"[^"]*"|'[^']*'|[^)]*))?\)\]"""
    r"""|\.?\[(?P<index>-?\d+|\*)\]|\.(?P<star>\*)|\.(?P<field>(?:\\.|[^.\[\\])+)"""
)
Step = Callable[[list[Any]], list[Any]]


def parse(path: str) -> list[Step]:
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
    return steps


def find(steps: list[Step], value: Any) -> list[Any]:
    """Return the values at the path, in document order."""
    values = [value]
    for step in steps:
        values = step(values)
    return values


def _step(match: re.Match[str]) -> Step:
    groups = match.groupdict()
    if groups["left"] is not None:
        return _filter(parse(groups["left"].strip()), groups["op"] or "", (groups["right"] or "").strip().strip("\"'"))
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


def _filter(left: list[Step], operator: str, right: str) -> Step:
    def holds(item: Any) -> bool:
        texts = [value if isinstance(value, str) else str(value).lower() for value in find(left, item)]
        if not operator:
            return bool(texts)
        return (right in texts) is (operator == "==")

    return lambda values: [item for value in values for item in _members(value) if holds(item)]
