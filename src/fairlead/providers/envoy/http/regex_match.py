"""Matches an expression of RE2 with a whole text, in a time that no expression can make long.

Python's own ``re`` backtracks: ``(a+)+b`` takes it minutes for 28 characters, and members write the expressions. Here
every part of an expression leads from a set of positions in the text to the next set. In: a pattern that
``invalid_regex`` lets pass, and a text. Out: what Envoy decides; both are compared as bytes.
"""

from __future__ import annotations

import re
from typing import Any

from fairlead.providers.envoy.http.re2_syntax import as_python, parse_tree
from fairlead.providers.envoy.http.regex import NO_END, WORD, bytes_of

_NEWLINE = ord("\n")
_SCOPES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|\(\?(?P<flags>[ims-]+)\)|[()|]|[^\\\[()|]+", re.DOTALL)


def matches_whole(pattern: str, text: str) -> bool:
    """Return whether ``pattern`` matches all of ``text``."""
    parsed = parse_tree(_scoped(as_python(pattern, flags=True)))
    data = text.encode(errors="surrogatepass")
    return len(data) in _ends(parsed, {0}, data, parsed.state.flags)


def _scoped(pattern: str) -> str:
    """Return a pattern with ``(?i)`` as ``(?i:..)`` around all that it holds for: the rest of its group."""
    written: list[str] = []
    groups: list[list[str]] = [[]]
    for token in _SCOPES.finditer(pattern):
        text = token[0]
        if token["flags"]:
            text = f"(?{token['flags']}:"
            groups[-1].append(text)
        elif text == "(":
            groups.append([])
        elif text == ")":
            text += ")" * len(groups.pop())
        elif text == "|":
            text = f"{')' * len(groups[-1])}|{''.join(groups[-1])}"
        written.append(text)
    return "".join(written) + ")" * len(groups[0])


def _ends(parsed: Any, starts: set[int], data: bytes, flags: int) -> set[int]:
    """Return where a match can end that begins at one of ``starts``."""
    for operation, argument in parsed:
        if not starts:
            break
        starts = _after(str(operation), argument, starts, data, flags)
    return starts


def _after(operation: str, argument: Any, starts: set[int], data: bytes, flags: int) -> set[int]:
    match operation:
        case "AT":
            return {at for at in starts if _holds(str(argument), at, data, flags)}
        case "BRANCH":
            return set().union(*(_ends(each, starts, data, flags) for each in argument[1]))
        case "SUBPATTERN":
            _, added, removed, inside = argument
            return _ends(inside, starts, data, (flags | added) & ~removed)
        case "MAX_REPEAT" | "MIN_REPEAT":
            return _repeated(argument, starts, data, flags)
        case _:
            wanted = _bytes(operation, argument, flags)
            return {at + 1 for at in starts if at < len(data) and data[at] in wanted}


def _repeated(argument: Any, starts: set[int], data: bytes, flags: int) -> set[int]:
    least, most, inside = argument
    for _ in range(int(least)):
        starts = _ends(inside, starts, data, flags)
    reached, new = set(starts), starts
    left = len(data) + 1 if str(most) == NO_END else int(most) - int(least)
    while new and left > 0:
        new = _ends(inside, new, data, flags) - reached
        reached |= new
        left -= 1
    return reached


def _bytes(operation: str, argument: Any, flags: int) -> frozenset[int]:
    """Return the bytes that one character of an expression stands for."""
    every = frozenset(range(256))
    match operation:
        case "ANY":
            return every if flags & re.DOTALL else every - {_NEWLINE}
        case "LITERAL":
            return _any_case(frozenset({argument}), flags)
        case "NOT_LITERAL":
            return every - _any_case(frozenset({argument}), flags)
        case _:  # a set
            kept = argument[1:] if str(argument[0][0]) == "NEGATE" else argument
            listed = _any_case(bytes_of(kept), flags)
            return every - listed if kept is not argument else listed


def _any_case(listed: frozenset[int], flags: int) -> frozenset[int]:
    if not flags & re.IGNORECASE:
        return listed
    return listed | frozenset(bytes(listed).upper()) | frozenset(bytes(listed).lower())


def _holds(place: str, at: int, data: bytes, flags: int) -> bool:
    """Return whether ``at`` is a place such as the end of the text."""
    if place in {"AT_BOUNDARY", "AT_NON_BOUNDARY"}:
        before = at > 0 and data[at - 1] in WORD
        after = at < len(data) and data[at] in WORD
        return (before != after) == (place == "AT_BOUNDARY")
    lines = bool(flags & re.MULTILINE)
    if place.startswith("AT_BEGINNING"):
        return at == 0 or (lines and place == "AT_BEGINNING" and data[at - 1] == _NEWLINE)
    return at == len(data) or (lines and place == "AT_END" and data[at] == _NEWLINE)
