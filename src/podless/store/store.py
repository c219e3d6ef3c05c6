"""The state, and the one place where objects change.

    put / delete ─► journal (durable, may fail) ─► memory ─► history ─► watchers

Everything between reading an object and storing its successor happens without an ``await``, so writes are serial and
compare-and-swap needs no lock. resourceVersions are one counter for all kinds; it is stored with every change and
only grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from podless.bounds import MAX_OBJECT_BYTES
from podless.failure import forbidden, too_large
from podless.objects import Obj
from podless.store.bucket import Bucket
from podless.store.entry import BucketEntry, WatchEvent, entry_from_raw, entry_of

Observer = Callable[[str, BucketEntry | None, BucketEntry | None], None]
"""Called as (bucket, before, after) for every change, and for every object at start."""


class ObjectStore:
    """The buckets of all kinds, stored in a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._buckets: dict[str, Bucket] = {}
        self._observers: list[Observer] = []
        self._bytes: Counter[str] = Counter()
        self.rv = 0

    def load(self) -> None:
        """Read the state from the journal; older resourceVersions are expired from then on."""
        self.rv, rows = self._journal.load()
        entries = [(name, entry_from_raw(raw)) for name, raw in rows]
        self.rv = max([self.rv, *(entry.rv for _, entry in entries)])
        for name, entry in entries:
            self.bucket(name).set(entry)
            self._bytes[entry.namespace] += len(entry.raw)
            for observer in self._observers:
                observer(name, None, entry)

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` at every change; it must not raise."""
        self._observers.append(observer)

    def bucket(self, name: str) -> Bucket:
        """Return the bucket of a stored kind, empty when it is new."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name, self.rv)
        return bucket

    def buckets(self) -> list[Bucket]:
        """Return every bucket."""
        return list(self._buckets.values())

    def put(self, name: str, obj: Obj, *, bounded: bool = False, quota_bytes: int = 0) -> BucketEntry:
        """Store ``obj`` under a new resourceVersion.

        Raises:
            ApiFailure: 507, it cannot be stored; with ``bounded`` 413, it is too large and larger than before; 403, its
                namespace would exceed ``quota_bytes`` (0: no limit) and grow.
        """
        bucket = self.bucket(name)
        entry = entry_of(obj, self.rv + 1)
        before = bucket.entries.get(entry.key)
        if bounded and len(entry.raw) > max(MAX_OBJECT_BYTES, len(before.raw) if before else 0):
            raise too_large(MAX_OBJECT_BYTES, f"bytes for one object, and this one would take {len(entry.raw)}")
        grows = len(entry.raw) - (len(before.raw) if before else 0)
        if quota_bytes and grows > 0 and (total := self._bytes[entry.namespace] + grows) > quota_bytes:
            plural, _, group = name.partition(".")
            why = f"exceeded quota: namespace {entry.namespace} would have {total} bytes in its objects, and may have"
            raise forbidden(plural, group, entry.name, f"{why} {quota_bytes}: delete objects that are not needed")
        self._journal.put(name, entry)
        self._publish(bucket, WatchEvent(entry.rv, "MODIFIED" if before else "ADDED", entry, before))
        return entry

    def delete(self, name: str, obj: Obj) -> BucketEntry:
        """Remove an object; ``obj`` is its last state, which gets a new resourceVersion."""
        bucket = self.bucket(name)
        entry = entry_of(obj, self.rv + 1)
        before = bucket.entries.get(entry.key)
        self._journal.delete(name, entry)
        self._publish(bucket, WatchEvent(entry.rv, "DELETED", entry, before))
        return entry

    def _publish(self, bucket: Bucket, event: WatchEvent) -> None:
        self.rv = event.rv
        bucket.apply(event)
        size = 0 if event.type == "DELETED" else len(event.entry.raw)
        self._bytes[event.entry.namespace] += size - (len(event.previous.raw) if event.previous else 0)
        if not self._bytes[event.entry.namespace]:
            del self._bytes[event.entry.namespace]
        for observer in self._observers:
            observer(bucket.name, event.previous, None if event.type == "DELETED" else event.entry)

    def compact(self) -> None:
        """Drop the history of all buckets: watches from older resourceVersions get 410."""
        for bucket in self._buckets.values():
            bucket.history.compact(self.rv)

    async def checkpoint(self) -> None:
        """Run the maintenance of the journal."""
        await self._journal.checkpoint()

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()


class Journal(Protocol):
    """Durable storage of the current state; one writer, called from one thread."""

    def load(self) -> tuple[int, Iterable[tuple[str, bytes]]]:
        """Return the last resourceVersion and every (bucket, JSON of an object)."""
        ...

    def put(self, bucket: str, entry: BucketEntry) -> None:
        """Store an object durably before returning, or raise 507 and change nothing."""
        ...

    def delete(self, bucket: str, entry: BucketEntry) -> None:
        """Delete an object; ``entry.rv`` is the resourceVersion of the deletion. Raises as ``put`` does."""
        ...

    async def checkpoint(self) -> None:
        """Run the maintenance that is too slow for a write."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class MemoryJournal:
    """A journal that stores nothing; ``objects`` is the initial state, as (bucket, JSON)."""

    def __init__(self, objects: Iterable[tuple[str, bytes]] = ()) -> None:
        self._objects = objects

    def load(self) -> tuple[int, Iterable[tuple[str, bytes]]]:
        """Return resourceVersion and objects of the initial state."""
        return 0, self._objects

    def put(self, bucket: str, entry: BucketEntry) -> None:
        """Do nothing."""

    def delete(self, bucket: str, entry: BucketEntry) -> None:
        """Do nothing."""

    async def checkpoint(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
