"""Checks whether Envoy would compile a regular expression.

In: a pattern in RE2 syntax. Out: a sentence, empty when it is accepted. Envoy refuses a whole route
configuration for one bad pattern, so what can be known is found here. RE2 matches in linear time: no pattern that
Envoy takes is catastrophic, and those that need backtracking (backreferences, lookaround) do not exist in it. Its cost
is its size: RE2 writes a repetition out, and Envoy limits the instructions that come of it. They are counted here as
few as they may be: what Envoy takes is not refused.
Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from fairlead.providers.envoy.bootstrap import MAX_REGEX_SIZE
from fairlead.providers.envoy.http.re2_syntax import as_python, is_parse_tree, parse_tree

#: RE2's own limit of ``x{n}``.
_MAX_REPEAT = 1000
_MAX_LENGTH = 1024
_BYTES = frozenset(range(256))
#: The bytes of a word, as RE2 has it.
WORD = frozenset(map(ord, string.ascii_letters + string.digits + "_"))
_CATEGORIES = {
    "CATEGORY_DIGIT": frozenset(map(ord, string.digits)),
    "CATEGORY_SPACE": frozenset(b" \t\n\f\r"),
    "CATEGORY_WORD": WORD,
}
#: What RE2 adds to every pattern.
_AROUND = 8
#: The upper bound of a repetition that has none.
NO_END = "MAXREPEAT"
#: Python has these, RE2 has not.
_ONLY_PYTHON = re.compile(r"(?<!\\)(?:\\\\)*(?P<what>\\[ZuUN]|\(\?#|\(\?[aiLmsux-]*[aLux])")
_QUOTED = re.compile(r"\\Q.*?(?:\\E|\Z)", re.DOTALL)
_REFUSED = {
    "ASSERT": "lookahead or lookbehind",
    "ASSERT_NOT": "negative lookahead or lookbehind",
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}


@lru_cache(maxsize=4096)
def invalid_regex(pattern: str) -> str:
    """Return what is wrong with a pattern; empty when nothing is."""
    if len(pattern) > _MAX_LENGTH:
        return f"it is longer than {_MAX_LENGTH} characters"
    if (other := _ONLY_PYTHON.search(_QUOTED.sub("", pattern))) is not None:
        return f"RE2 has no {other['what']}"
    try:
        parsed = parse_tree(as_python(pattern))
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        return str(error)
    return next(_problems(parsed, 1), "") or _too_big(_units(parsed))


def invalid_expression(pattern: str) -> str:
    """Return what is wrong with a pattern that is made here of a user's text; empty when nothing is."""
    parsed = parse_tree(as_python(pattern))
    units = _units(parsed, at_most=True) + _AROUND
    return (
        "" if units <= MAX_REGEX_SIZE else "it is too long: Envoy compares it as a regular expression, and limits these"
    )


def _too_big(units: int) -> str:
    if units < MAX_REGEX_SIZE:  # there is always one more
        return ""
    return (
        f"RE2 makes more than {units} instructions of it, Envoy takes {MAX_REGEX_SIZE}; "
        "use smaller repetition counts, or fewer and smaller classes in what is repeated"
    )


def _problems(parsed: Any, repeated: int) -> Iterator[str]:
    for operation, argument in parsed:
        name = str(operation)
        if name in _REFUSED:
            yield f"RE2 has no {_REFUSED[name]}"
        times = repeated
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            bounded = int(argument[0]) if str(argument[1]) == NO_END else int(argument[1])
            times = repeated * max(1, bounded)
            if times > _MAX_REPEAT:
                yield f"it repeats {times} times, RE2 allows {_MAX_REPEAT}"
        for inner in _inside(argument):
            yield from _problems(inner, times)


def _units(parsed: Any, *, at_most: bool = False) -> int:
    """Return how many instructions RE2 makes of a parsed pattern, at least; or at most, of one without sets."""
    units = 0
    for operation, argument in parsed:
        match str(operation):
            case "LITERAL":
                units += 1
            case "NOT_LITERAL":
                units += _ranges(_BYTES - {argument})
            case "ANY":
                units += 2 if at_most else 1  # all bytes, or all but the end of a line
            case "IN":
                units += _ranges(bytes_of(argument))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most = int(argument[0]), argument[1]
                times = max(1, least) if str(most) == NO_END else int(most)
                units += times * (_units(argument[2], at_most=at_most) + at_most)
            case "BRANCH":
                # What alternatives have in common RE2 writes once.
                each = [_units(alternative, at_most=at_most) for alternative in argument[1]]
                units += sum(each) + len(each) if at_most else max(each)
            case "SUBPATTERN":
                units += _units(argument[3], at_most=at_most) + (2 if argument[0] is not None else 0)
            case _:  # where it matches, at no character
                units += at_most
    return units


def bytes_of(members: Any) -> frozenset[int]:
    """Return which bytes a set has."""
    kinds = [(str(operation), argument) for operation, argument in members]
    present = frozenset[int]().union(*(_members(kind, argument) for kind, argument in kinds))
    return _BYTES - present if kinds[0][0] == "NEGATE" else present & _BYTES


def _members(kind: str, argument: Any) -> Iterable[int]:
    match kind:
        case "LITERAL":
            return (argument,)
        case "RANGE":
            return range(argument[0], argument[1] + 1)
        case "CATEGORY":
            name = str(argument)
            return _CATEGORIES.get(name) or _BYTES - _CATEGORIES[name.replace("_NOT_", "_")]
        case _:
            return ()


def _ranges(present: frozenset[int]) -> int:
    """Return how many instructions a set of bytes is: its ranges; letters of both cases may be in common."""
    first = [byte for byte in present if byte - 1 not in present]
    upper = [byte for byte in first if ord("A") <= byte <= ord("Z") and _end(byte, present) <= ord("Z")]
    return max(1, len(first) - len(upper))


def _end(byte: int, present: frozenset[int]) -> int:
    while byte + 1 in present:
        byte += 1
    return byte


def _inside(argument: Any) -> Iterator[Any]:
    """Yield the patterns inside an operation's argument."""
    if is_parse_tree(argument):
        yield argument
    elif isinstance(argument, list | tuple):
        for each in argument:
            yield from _inside(each)
