"""Durations of Gateway API, such as 500ms or 1h30m, in milliseconds.

In: text. Out: milliseconds. Source: https://gateway-api.sigs.k8s.io/geps/gep-2257/
"""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]{1,5})(h|ms|m|s)")
_WHOLE = re.compile(r"(?:[0-9]{1,5}(?:h|ms|m|s)){1,4}")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration.

    Raises:
        ValueError: it is none.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration: write numbers with h, m, s or ms, such as 1h30m or 500ms")
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
