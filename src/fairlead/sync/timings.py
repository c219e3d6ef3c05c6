"""Durations and results of a provider's calls, counted where they are made and read by metrics.

In: one call with its result and its seconds. Out: counts by (method, result), in buckets a scrape can show.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

#: Upper ends of the buckets, in seconds; the last one is open.
BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, float("inf"))


class Timings:
    """The calls of one provider."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def add(self, method: str, result: str, seconds: float) -> None:
        """Count one call."""
        key = (method, result)
        counts = self._counts.setdefault(key, [0] * len(BUCKETS_S))
        counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._counts))

    def total(self, method: str, result: str) -> int:
        """Return how many calls there were."""
        return sum(self._counts.get((method, result), ()))

    def seconds(self, method: str, result: str) -> float:
        """Return the seconds of all of them together."""
        return self._seconds.get((method, result), 0.0)

    def cumulative(self, method: str, result: str) -> list[tuple[str, float]]:
        """Return for each bucket how many calls took no longer, as Prometheus counts."""
        ends = [f"{end:g}" if end != BUCKETS_S[-1] else "+Inf" for end in BUCKETS_S]
        return list(zip(ends, map(float, accumulate(self._counts[method, result])), strict=True))
