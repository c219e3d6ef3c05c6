"""The interface of durable storage, and its implementation for a server in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fairlead.apiserver.store.entry import BucketEntry


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
