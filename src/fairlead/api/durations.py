"""Kubernetes-style durations of one unit, such as ``30s``: what our schemas admit."""

from __future__ import annotations

import re

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATTERN = re.compile(r"([0-9]+)(ms|s|m|h)")


def seconds_from_duration(text: str) -> float:
    """Convert ``text`` to seconds; ValueError names what is wrong with it."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s, 5m or 1h")
    return int(match[1]) * _UNITS_S[match[2]]
