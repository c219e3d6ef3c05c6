"""Text that others wrote, as it may be shown on a terminal or in a log line.

In: any text: names, messages and addresses that tenants, providers and API servers have written. Out: the same with
every character that moves the cursor, changes colours, begins a line or reorders text written out as an escape.
Never: changes a text that has none of them; escaping twice is escaping once.
"""

from __future__ import annotations

import re
import unicodedata

#: Controls (Cc), format characters such as direction marks (Cf), lone surrogates (Cs), ends of lines (Zl, Zp).
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: All that is not printable ASCII is looked at; most texts have nothing of it.
_NOT_PLAIN = re.compile(r"[^ -~]")


def legible(text: str) -> str:
    """Return ``text`` as one line that a terminal prints as it is; its escapes are those of Python."""
    return _NOT_PLAIN.sub(lambda match: _escaped(match[0]), text)


def legible_json(text: str) -> str:
    """Return a JSON text with the same characters as escapes of JSON, so that it reads back as the same value."""
    return _NOT_PLAIN.sub(lambda match: _escaped_json(match[0]), text)


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE:
        return char
    code = ord(char)
    return _NAMED.get(char) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _escaped_json(char: str) -> str:
    if char == "\n" or unicodedata.category(char) not in _UNSAFE:
        return char  # a line end can only be layout: in strings JSON has escaped it already
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
