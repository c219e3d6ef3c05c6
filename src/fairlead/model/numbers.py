"""Whole numbers in text that others write: annotations, parameters, names. Pure.

``str.isdigit`` accepts what ``int`` does not (a superscript two), and ``int`` refuses to read thousands of digits.
"""

from __future__ import annotations

_MOST_DIGITS = 18


def whole_number(text: str, *, most: int = 10**_MOST_DIGITS - 1, least: int = 0) -> int | None:
    """Return the number that ``text`` is, in ASCII digits alone; None when it is none from ``least`` to ``most``."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if least <= number <= most else None
