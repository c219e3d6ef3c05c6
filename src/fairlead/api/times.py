"""Times and durations as objects have them: RFC 3339, in UTC, to the second, as Kubernetes does."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache


def wire_time(moment: datetime) -> str:
    """Write an aware ``moment``."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"


def parsed_time(text: str | None) -> datetime | None:
    """Return the moment that RFC 3339 text says; None for anything else, and for a time without a zone."""
    try:
        time = datetime.fromisoformat(text or "")
        return time.astimezone(UTC) if time.tzinfo is not None else None
    except (ValueError, OverflowError):  # a zone may lead out of the years 1 to 9999
        return None


_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
#: Fifteen digits are the most that the schema accepts.
_PART = re.compile(r"([0-9]{1,15})(h|ms|m|s)")
#: Durations of our kinds have one part; those of Gateway API (GEP-2257) up to four, each of at most five digits.
_GATEWAY = re.compile(r"(?:[0-9]{1,5}(?:h|ms|m|s)){1,4}")
_MOST = 99_999
#: A hundred years, which can be added to any time of an object.
_LONGEST_S = 100 * 365 * 86_400.0


@lru_cache(maxsize=256)
def seconds_from_duration(text: str) -> float:
    """Convert a duration of our kinds to seconds, at most a hundred years; ValueError names what is wrong with it."""
    return min(_milliseconds(text, _PART, "is not a duration such as 500ms, 30s, 5m or 1h") / 1000, _LONGEST_S)


def duration_ms(text: str) -> int:
    """Convert a duration of Gateway API to milliseconds; ValueError names what is wrong with it."""
    problem = "is not a duration: write numbers with h, m, s or ms, such as 1h30m or 500ms"
    return _milliseconds(text, _GATEWAY, problem)


def _milliseconds(text: str, form: re.Pattern[str], problem: str) -> int:
    if not form.fullmatch(text):
        raise ValueError(f"{text!r} {problem}")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def gateway_duration(milliseconds: int) -> str:
    """Return milliseconds as a duration of Gateway API.

    Raises:
        ValueError: more than 99,999 hours, which one part of a duration cannot hold.
    """
    parts: list[str] = []
    rest = milliseconds
    for unit, size in _UNITS_MS.items():
        number, rest = divmod(rest, size)
        if not 0 <= number <= _MOST:
            raise ValueError(f"{milliseconds} ms is not between 0 and {_MOST:,} hours")
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"
