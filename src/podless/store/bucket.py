"""The objects of one kind: lookups, lists, and events to watchers.

In: changes that the journal has already stored. Out: lookups, sorted lists and events. No I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import Protocol

from podless.store.entry import BucketEntry, Key, WatchEvent


class EventSink(Protocol):
    """A receiver of the events of a bucket."""

    def offer(self, event: WatchEvent) -> None:
        """Receive an event; must not block or raise."""
        ...


class Bucket:
    """All objects of one stored kind."""

    def __init__(self, name: str, rv: int) -> None:
        self.name = name
        self.entries: dict[Key, BucketEntry] = {}
        self.history = EventHistory(rv)
        self.listeners: set[EventSink] = set()
        self._sorted: dict[str, list[Key]] = {}
        self._by_namespace: dict[str, dict[Key, BucketEntry]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, namespace: str, name: str) -> BucketEntry | None:
        """Return the entry or None."""
        return self.entries.get((namespace, name))

    def sorted_entries(self, namespace: str = "") -> list[BucketEntry]:
        """Return the entries of a namespace, empty for all of them, sorted by (namespace, name)."""
        pool = self._by_namespace.get(namespace, {}) if namespace else self.entries
        if not pool:
            return []  # no cache entry for a namespace that does not exist
        keys = self._sorted.get(namespace)
        if keys is None:
            keys = self._sorted[namespace] = sorted(pool)
        return [pool[key] for key in keys]

    def in_namespace(self, namespace: str) -> Collection[BucketEntry]:
        """Return the entries of a namespace as an unsorted live view of the bucket."""
        return self._by_namespace.get(namespace, {}).values()

    def __iter__(self) -> Iterator[BucketEntry]:
        return iter(list(self.entries.values()))

    def set(self, entry: BucketEntry) -> None:
        """Store ``entry`` without an event, while the state is loaded."""
        if entry.key not in self.entries:
            self._forget_order(entry.namespace)
        self.entries[entry.key] = entry
        self._by_namespace.setdefault(entry.namespace, {})[entry.key] = entry

    def apply(self, event: WatchEvent) -> None:
        """Apply a change and offer its event to the watchers."""
        entry = event.entry
        if event.type == "DELETED":
            del self.entries[entry.key]
            within = self._by_namespace[entry.namespace]
            del within[entry.key]
            if not within:
                del self._by_namespace[entry.namespace]
            self._forget_order(entry.namespace)
        else:
            self.set(entry)
        self.history.add(event)
        for listener in list(self.listeners):
            listener.offer(event)

    def _forget_order(self, namespace: str) -> None:
        self._sorted.pop(namespace, None)
        self._sorted.pop("", None)


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
