"""Regular expressions of routes, compiled and matched by RE2, the engine of Envoy itself.

Envoy refuses a whole route configuration for one expression that it does not compile, so each is compiled here before.
It has RE2 match bytes (the encoding is Latin-1), and limits how many instructions RE2 makes of an expression, which
writes repetitions out. However an expression was written, matching takes time in proportion to the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from fairlead.providers.envoy.bootstrap import MAX_REGEX_SIZE

_MAX_LENGTH = 1024
_SYNTAX = "its syntax, without lookaround and backreferences: https://github.com/google/re2/wiki/Syntax"
#: Each costs Envoy's main thread up to half a millisecond.
_MAX_CLASSES = 8
_CLASS = re.compile(r"\\[pP]")
#: Beside it RE2 looks for the other case of each character of a class: up to 22 ms for one, in Envoy's main thread.
_ANY_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_OPTIONS.log_errors = False


@lru_cache(maxsize=4096)
def invalid_regex(pattern: str) -> str:
    """Return what is wrong with a user's pattern; empty when nothing is."""
    if len(pattern) > _MAX_LENGTH:
        return f"it is longer than {_MAX_LENGTH} characters"
    classes = len(_CLASS.findall(pattern))
    if classes and _ANY_CASE.search(pattern):
        return r"a Unicode class such as \pL beside (?i) takes Envoy too long to compile; list characters, as in [a-z]"
    if classes > _MAX_CLASSES:
        return rf"more than {_MAX_CLASSES} Unicode classes such as \pL take Envoy too long to compile; list characters"
    try:
        size = _size(pattern)
    except re2.error as error:
        return f"RE2 says {error.args[0].decode(errors='replace')!r}; {_SYNTAX}"
    if size <= MAX_REGEX_SIZE:
        return ""
    return (
        f"RE2 makes {size} instructions of it, Envoy takes {MAX_REGEX_SIZE}; "
        "use smaller repetition counts, or fewer and smaller classes in what is repeated"
    )


def invalid_expression(pattern: str) -> str:
    """Return what is wrong with a pattern that is made here of a user's text; empty when nothing is."""
    try:
        is_taken = _size(pattern) <= MAX_REGEX_SIZE
    except re2.error:  # even more of it than RE2 itself takes
        is_taken = False
    return "" if is_taken else "it is too long: Envoy compares it as a regular expression, and limits these"


def steps_of(pattern: str) -> int:
    """Return how many instructions RE2 makes of a pattern; 0 when it makes nothing of it, and Envoy refuses it."""
    try:
        return _size(pattern)
    except re2.error:
        return 0


def matches_whole(pattern: str, text: str) -> bool:
    """Return whether a pattern that ``invalid_regex`` lets pass matches all of ``text``."""
    return _compiled(pattern).fullmatch(_bytes(text)) is not None


def _size(pattern: str) -> int:
    return _compiled(pattern).programsize


def _compiled(pattern: str) -> Any:
    return re2.compile(_bytes(pattern), _OPTIONS)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
