"""Filter, rename and queue the events of a bucket for one watch, within bounds.

An object that enters the selection is ADDED, one that leaves it is DELETED. The queue is bounded in events and
bytes, and so are all queues of a user together: a client that reads too slowly is cut off and lists again, rather than
the server growing. Never blocks, never raises.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable

import structlog

from podless.selectors import Selection
from podless.store.entry import BucketEntry, WatchEvent, entry_of

_log = structlog.get_logger(__name__)
MAX_EVENTS, MAX_BYTES = 16_384, 64 * 1024 * 1024
#: In the queues of all watches of one user.
MAX_USER_BYTES = 128 * 1024 * 1024
#: Taken out of a queue at once: what is taken counts no more while it waits to be sent.
_AT_ONCE_BYTES = 1024 * 1024


class Queued:
    """How many bytes wait in all queues of one user."""

    def __init__(self) -> None:
        self.size = 0


class Watcher:
    """One open watch; ``cut_off`` ends a connection whose client is too slow."""

    def __init__(self, selection: Selection, cut_off: Callable[[], None], queued: Queued | None = None) -> None:
        self._selection = selection
        self._namespace_only = selection.everything
        self._cut_off = cut_off
        self._pending: deque[tuple[str, WatchEvent]] = deque()
        self._bytes = 0
        self._of_user = queued or Queued()
        self._limit = MAX_USER_BYTES if queued is not None else MAX_BYTES
        self._wake = asyncio.Event()
        self.closed = False

    @property
    def pending(self) -> int:
        """Return how many events are queued."""
        return len(self._pending)

    @property
    def namespace(self) -> str:
        """The namespace that the watch is about; empty for all."""
        return self._selection.namespace

    def selects(self, entry: BucketEntry) -> bool:
        """Return whether the watch is about ``entry``."""
        return self._selection.matches(entry)

    def offer(self, event: WatchEvent) -> None:
        """Queue an event if it concerns this watch; one that cannot be judged ends this watch, and no other."""
        if self.closed:
            return
        try:
            self._offer(event)
        except Exception:  # noqa: BLE001 - the write is stored, and other watches have to hear of it
            _log.error("watch ended: an event could not be filtered", trace=traceback.format_exc())
            self.close()
            self._cut_off()

    def _offer(self, event: WatchEvent) -> None:
        if self._namespace_only:
            if self._selection.namespace and event.entry.namespace != self._selection.namespace:
                return
            self._queue(event.type, event)
            return
        now = event.type != "DELETED" and self._selection.matches(event.entry)
        before = event.previous is not None and self._selection.matches(event.previous)
        if now:
            self._queue("MODIFIED" if before else "ADDED", event)
        elif before and event.type == "DELETED":
            self._queue("DELETED", event)
        elif before and event.previous is not None:
            # It left the selection: show its last selected state, under the resourceVersion of the change.
            left = entry_of(event.previous.obj(), event.rv)
            self._queue("DELETED", WatchEvent(event.rv, "DELETED", left, event.previous))

    def _queue(self, type_: str, event: WatchEvent) -> None:
        self._pending.append((type_, event))
        self._count(len(event.entry.raw))
        if len(self._pending) > MAX_EVENTS or self._bytes > MAX_BYTES or self._of_user.size > self._limit:
            self.close()
            self._cut_off()
        self._wake.set()

    def finish(self) -> None:
        """End the watch once what is queued has been sent."""
        self.closed = True
        self._wake.set()

    def close(self) -> None:
        """End the watch; what is queued is dropped."""
        self.closed = True
        self._pending.clear()
        self._count(-self._bytes)
        self._wake.set()

    def _count(self, more: int) -> None:
        self._bytes += more
        self._of_user.size += more

    async def next(self, timeout_s: float) -> list[tuple[str, WatchEvent]]:
        """Wait for events and return the oldest that are queued; empty after ``timeout_s``."""
        if not self._pending and not self.closed:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return []
        events: list[tuple[str, WatchEvent]] = []
        taken = 0
        while self._pending and taken < _AT_ONCE_BYTES:
            events.append(self._pending.popleft())
            taken += len(events[-1][1].entry.raw)
        self._count(-taken)
        return events
