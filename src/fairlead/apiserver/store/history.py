"""The last events of one kind, bounded in number and in bytes, for watches to catch up on."""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from fairlead.apiserver.store.entry import WatchEvent

MAX_EVENTS = 4096
MAX_BYTES = 32 * 1024 * 1024


class EventHistory:
    """Recent events by resourceVersion; all events after the resourceVersion ``oldest`` are there."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest
        self._events: deque[WatchEvent] = deque()
        self._bytes = 0

    def add(self, event: WatchEvent) -> None:
        """Append an event and drop the oldest ones above the limits."""
        self._events.append(event)
        self._bytes += len(event.entry.raw)
        while len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._forget()

    def after(self, rv: int) -> list[WatchEvent] | None:
        """Return the events after ``rv``, oldest first, or None when some of them have been dropped."""
        if rv < self.oldest:
            return None
        newer = list(takewhile(lambda event: event.rv > rv, reversed(self._events)))
        newer.reverse()
        return newer

    def compact(self, rv: int) -> None:
        """Drop all events up to ``rv``."""
        while self._events and self._events[0].rv <= rv:
            self._forget()
        self.oldest = max(self.oldest, rv)

    def _forget(self) -> None:
        event = self._events.popleft()
        self._bytes -= len(event.entry.raw)
        self.oldest = event.rv
