r"""A pattern in RE2 syntax as Python reads it.

Python's parser knows most of RE2. What only RE2 has is written in Python's way here: ``\Q..\E`` as escapes, ``\x{..}``
as a character, flags not at all (they change neither what may be repeated nor how often). A class of Unicode or POSIX
becomes one character of a private plane, which stands for it (``units_of``). In: a pattern. Out: a pattern that means
as much to Python; ``ValueError`` says what RE2 has not. Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re

#: How many instructions RE2 makes of a Unicode class, or of one without regard to case if these are fewer.
_CATEGORIES = {
    "C": 70, "Cc": 4, "Cf": 51, "Co": 17, "Cs": 3, "L": 1196, "Ll": 269, "Lm": 133, "Lo": 932, "Lt": 15, "Lu": 324,
    "M": 551, "Mc": 309, "Me": 12, "Mn": 573, "N": 233, "Nd": 86, "Nl": 31, "No": 149, "P": 330, "Pc": 13, "Pd": 37,
    "Pe": 115, "Pf": 15, "Pi": 15, "Po": 313, "Ps": 122, "S": 442, "Sc": 48, "Sk": 57, "Sm": 113, "So": 365, "Z": 15,
    "Yi": 1, "Zl": 3, "Zp": 3, "Zs": 14, "Any": 1,
}  # fmt: skip
_POSIX = frozenset(
    {
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "word", "xdigit",
    }
)  # fmt: skip
#: Unicode grows, and another version of RE2 may make less of a class.
_CAUTION = 0.9
_LAST_CHARACTER = 0x10FFFF
#: Stands for a class of n instructions: this character plus n.
_PLANE = 0xF0000
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


def as_python(pattern: str) -> str:
    """Return the pattern as Python reads it; ``ValueError`` names a class that RE2 has not."""
    parts: list[str] = []
    at, in_class = 0, False
    while token := _TOKEN.search(pattern, at):
        parts.append(_escaped(pattern[at : token.start()]))
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
            parts.append(_written(token))
            is_class = kind in {"unicode", "posix"} or (token["escape"] or " ") in "dDsSwW"
            if in_class and is_class and pattern[at : at + 1] == "-":
                parts.append(r"\-")  # no range begins with a class
                at += 1
    return "".join([*parts, _escaped(pattern[at:])])


def units_of(character: int) -> int:
    """Return how many instructions RE2 makes of a character, at least: as many as it has bytes, or of its class."""
    if character > _PLANE:
        return character - _PLANE
    return 1 if character < 0x80 else 2 if character < 0x800 else 3 if character < 0x10000 else 4


def _written(token: re.Match[str]) -> str:
    """Write what means the same inside and outside of a class."""
    match token.lastgroup:
        case "quoted":
            return re.escape(token["quoted"])
        case "unicode":
            return _placeholder(_unicode(token["unicode"]))
        case "hex":
            code = int(token["hex"], 16)
            if code > _LAST_CHARACTER:
                raise ValueError(f"RE2 has no character {token[0]}")
            return re.escape(_escaped(chr(code)))
        case "escape":
            return {"z": r"\Z", "C": _placeholder(1)}.get(token["escape"], token[0])
        case "posix":
            if token["posix"].strip("[:^]") not in _POSIX:
                raise ValueError(f"RE2 has no class {token['posix']}")
            return _placeholder(1)
        case "group":
            return f"(?P<{token['group']}>"
        case "flags":
            if len(token["flags"]) > 1:
                raise ValueError(f"nothing to repeat in {token[0]}")
            return "(?:" if token["flags"] == ":" else "(?:)"
        case "literal":
            return r"\{"
        case _:
            return ""


def _unicode(name: str) -> int:
    plain = name.strip("{}").removeprefix("^")
    if plain in _CATEGORIES:
        return max(1, int(_CATEGORIES[plain] * _CAUTION))
    if len(plain) <= 2:
        raise ValueError(f"RE2 has no class \\p{name}")
    return 1  # a script: Envoy knows whether there is one of this name


def _placeholder(units: int) -> str:
    return chr(_PLANE + units)


def _escaped(text: str) -> str:
    """Return text in which no character is taken for a class."""
    return "".join("\U000effff" if ord(character) > _PLANE else character for character in text)
