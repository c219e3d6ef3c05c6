r"""A pattern as Envoy's RE2 reads it, written for Python.

Envoy has RE2 match bytes: a pattern is the bytes of its UTF-8, each of them a character of Latin-1, and Unicode classes
have of their characters those of Latin-1 only. Python's parser knows most of the syntax. What only RE2 has is written
in Python's way here: ``\Q..\E`` as escapes, ``\x{..}`` as a character, classes as their ranges, flags only where
they are asked for (they change neither what may be repeated nor how often). In: a pattern. Out: one that means as much
to Python; ``ValueError`` says what RE2 has not. Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from typing import Any

_BYTES = [chr(byte) for byte in range(256)]
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(_BYTES[:128]),
    "blank": " \t",
    "cntrl": "".join(_BYTES[:32]) + "\x7f",
    "digit": string.digits,
    "graph": "".join(_BYTES[33:127]),
    "lower": string.ascii_lowercase,
    "print": "".join(_BYTES[32:127]),
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
}
#: The first letters of all categories of Unicode, and the categories.
_CATEGORIES = frozenset(
    {
        "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No",
        "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
    }
)  # fmt: skip
#: Stands for a character that no byte is: a set must have a member.
_NONE = "\u0100"
_TOKEN = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
    |\\(?P<negated>[pP])(?P<unicode>\{[^}]*\}|.|\Z)
    |\\x\{(?P<hex>[0-9A-Fa-f]+)\}
    |\\(?P<escape>.)
    |(?P<posix>\[:\^?[a-z]+:\])
    |(?P<open>\[\^?\]?)
    |(?P<close>\])
    |\(\?<(?P<group>[A-Za-z_]\w*)>
    |\(\?(?:[imsU]+(?:-[imsU]+)?|-[imsU]+)(?P<flags>:|\)[*+?{]?)
    |(?P<literal>\{(?=,))""",
    re.VERBOSE | re.DOTALL,
)


def parse_tree(pattern: str) -> Any:
    """Return what Python's own parser makes of a pattern that ``as_python`` wrote; ``re.error`` where it cannot."""
    return parser.parse(pattern)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def is_parse_tree(value: object) -> bool:
    """Return whether ``value`` is a parse tree, or a part of one."""
    return isinstance(value, parser.SubPattern)  # pyright: ignore[reportUnknownMemberType]


def as_python(pattern: str, *, flags: bool = False) -> str:
    """Return the pattern as Python reads it; ``ValueError`` names a class that RE2 has not.

    ``flags``: with those that change what matches; Python takes ``(?i)`` at the beginning of a pattern only.
    """
    pattern = pattern.encode(errors="surrogatepass").decode("latin-1")
    parts: list[str] = []
    at, in_class = 0, False
    while token := _TOKEN.search(pattern, at):
        parts.append(pattern[at : token.start()])
        at = token.end()
        kind = token.lastgroup
        # Inside of a class brackets and parentheses are characters.
        if kind == "open" and not in_class:
            in_class = True
            parts.append(token[0])
        elif kind == "close":
            in_class = False
            parts.append("]")
        elif in_class and kind in {"open", "group", "flags", "literal"}:
            parts.append(re.escape(token[0][0]))
            at = token.start() + 1
        elif not in_class and kind == "posix":
            in_class = True
            parts.append("[")
            at = token.start() + 1
        elif in_class and kind == "quoted":
            raise ValueError("RE2 has no \\Q inside of a class")
        else:
            parts.append(_written(token, in_class=in_class, flags=flags))
            is_class = kind in {"unicode", "posix"} or (token["escape"] or " ") in "dDsSwW"
            if in_class and is_class and pattern[at : at + 1] == "-":
                parts.append(r"\-")  # no range begins with a class
                at += 1
    return "".join([*parts, pattern[at:]])


def _written(token: re.Match[str], *, in_class: bool, flags: bool) -> str:
    """Write in Python's way what only RE2 has."""
    match token.lastgroup:
        case "quoted":
            return re.escape(token["quoted"])
        case "unicode":
            return _set(_unicode(token["negated"], token["unicode"]), in_class=in_class)
        case "hex":
            code = int(token["hex"], 16)
            if code > 0xFF:
                raise ValueError(f"Envoy matches bytes, {token[0]} is none; write the character itself")
            return re.escape(chr(code))
        case "escape":
            escapes = {"z": r"\Z", "C": _set(_BYTES, in_class=in_class)}
            return escapes.get(token["escape"], token[0])
        case "posix":
            name = token["posix"].strip("[:^]")
            if name not in _POSIX:
                raise ValueError(f"RE2 has no class {token['posix']}")
            negated = "^" in token["posix"]
            return _set([each for each in _BYTES if (each in _POSIX[name]) != negated], in_class=True)
        case "group":
            return f"(?P<{token['group']}>"
        case "flags":
            if len(token["flags"]) > 1:
                raise ValueError(f"nothing to repeat in {token[0]}")
            # How greedy it is does not change what matches.
            kept = token[0][2:-1].replace("U", "").rstrip("-") if flags else ""
            return f"(?{kept}{token['flags']}" if kept else f"(?:{token['flags'].strip(':')}"
        case _:
            return r"\{"


def _unicode(sign: str, name: str) -> list[str]:
    """Return the bytes of a Unicode class; of a script none, though Envoy knows some."""
    plain = name.strip("{}")
    negated = (sign == "P") != plain.startswith("^")
    plain = plain.removeprefix("^")
    if len(plain) <= 2 and plain not in _CATEGORIES and plain != "Yi":
        raise ValueError(f"RE2 has no class \\{sign}{name}")
    if plain not in _CATEGORIES and plain != "Any":
        return []
    return [each for each in _BYTES if (plain == "Any" or unicodedata.category(each).startswith(plain)) != negated]


def _set(characters: Iterable[str], *, in_class: bool) -> str:
    """Return a set for Python, or its members for a set that it is a part of."""
    members = "".join([*map(re.escape, characters), _NONE])
    return members if in_class else f"[{members}]"
