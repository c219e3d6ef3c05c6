"""The time at an API server. Ages are computed from it, because that server stamps the objects.

In: the ``Date`` header of its answers. Out: by how much this machine's clock is off, and the server's time now.
Never: asks the server anything; without an answer it is this machine's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from fairlead.runtime.clock import Clock

#: The header has whole seconds, and an answer takes a while: less than this is not a difference between two clocks.
NOTICEABLE_S = 30.0
_SLOW_S = 2.0
#: A date that is further away than a century is not the time of any clock.
_FURTHEST_S = 100 * 365.25 * 86_400


class ServerClock:
    """The clock of one API server, as far as its answers show."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = ""
        self._last_s = 0.0
        self._ahead_s: float | None = None

    @property
    def ahead_s(self) -> float | None:
        """Return by how many seconds the server's clock is ahead of this machine's; None before its first answer."""
        return self._ahead_s

    def now(self) -> datetime:
        """Return the server's time, in UTC."""
        return self._clock.now() + timedelta(seconds=self._ahead_s or 0.0)

    def follow(self, date: str | None, *, asked_s: float) -> None:
        """Take over the ``Date`` of an answer to a request that was sent at ``asked_s`` (monotonic)."""
        now_s = self._clock.monotonic()
        if not date or (date == self._last and now_s - self._last_s < 1.0):
            return
        slow = now_s - asked_s > _SLOW_S
        if slow and self._ahead_s is not None:
            return
        try:
            server = parsedate_to_datetime(date)
            # It was cut to the second; half a second is what is missing on average.
            server = server.replace(tzinfo=server.tzinfo or UTC) + timedelta(seconds=0.5)
            ahead_s = (server - self._clock.now()).total_seconds()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        if abs(ahead_s) > _FURTHEST_S:
            return
        self._last, self._last_s, self._ahead_s = date, now_s, ahead_s
