"""Checks whether Envoy would compile a regular expression.

In: a pattern in RE2 syntax. Out: a sentence, empty when nothing speaks against it. Envoy refuses a whole route
configuration for one bad pattern, so what can be known is found here. RE2 matches in linear time: no pattern that
Envoy takes is catastrophic, and those that need backtracking (backreferences, lookaround) do not exist in it.
Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from typing import Any

#: RE2's own limit of ``x{n}``.
_MAX_REPEAT = 1000
_MAX_LENGTH = 1024
#: RE2 has these, Python has not: a pattern with one of them cannot be read here, and is left to Envoy.
_ONLY_RE2 = re.compile(r"\\[pPQEzC]|\[\[:\^?[a-z]+:\]|\\x\{|\(\?<[A-Za-z_]|\(\?[imsU-]*U|.\(\?[ims-]+\)")
#: Python has these, RE2 has not.
_ONLY_PYTHON = re.compile(r"(?<!\\)(?:\\\\)*(?P<what>\\[ZuUN]|\(\?#|\(\?[aiLmsux-]*[aLux])")
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
    if _ONLY_RE2.search(pattern):
        return ""
    if (other := _ONLY_PYTHON.search(pattern)) is not None:
        return f"RE2 has no {other['what']}"
    try:
        parsed: Any = parser.parse(pattern)  # pyright: ignore[reportUnknownMemberType]
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return next(_problems(parsed, 1), "")


def _problems(parsed: Any, repeated: int) -> Iterator[str]:
    for operation, argument in parsed:
        name = str(operation)
        if name in _REFUSED:
            yield f"RE2 has no {_REFUSED[name]}"
        times = repeated
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            least, most = int(argument[0]), argument[1]
            bounded = least if str(most) == "MAXREPEAT" else int(most)
            times = repeated * max(1, bounded)
            if times > _MAX_REPEAT:
                yield f"it repeats {times} times, RE2 allows {_MAX_REPEAT}"
        for inner in _inside(argument):
            yield from _problems(inner, times)


def _inside(argument: Any) -> Iterator[Any]:
    """Yield the patterns inside an operation's argument."""
    if isinstance(argument, parser.SubPattern):  # pyright: ignore[reportUnknownMemberType]
        yield argument
    elif isinstance(argument, list | tuple):
        for each in argument:
            yield from _inside(each)
