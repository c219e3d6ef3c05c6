"""The objects of one kind: lookups, lists, and events to watchers.

In: changes that the journal has already stored. Out: lookups, sorted lists and events. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from fairlead.apiserver.store.entry import BucketEntry, Key, WatchEvent
from fairlead.apiserver.store.history import EventHistory


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
