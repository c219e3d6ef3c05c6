"""Log a message at most once every few seconds, with the number of suppressed repeats."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 10.0


class RareLog:
    """The rate limit of one log message that clients can trigger at any rate."""

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next_s = -1.0
        self._others = 0

    def due(self) -> int | None:
        """Return how many messages were suppressed since the last one, or None when this one is suppressed, too."""
        now_s = self._clock()
        if now_s < self._next_s:
            self._others += 1
            return None
        others, self._others, self._next_s = self._others, 0, now_s + self._every_s
        return others
