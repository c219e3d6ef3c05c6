"""The interface of durable storage, and the journal of a server that keeps nothing."""

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
        """Store an object; on return it survives the death of the process. Or raise 507, and change nothing."""
        ...

    def delete(self, bucket: str, entry: BucketEntry) -> None:
        """Forget an object; ``entry.rv`` is the resourceVersion of the deletion. Fails like ``put``."""
        ...

    async def tidy(self) -> None:
        """Do maintenance that must not hold up a write."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class MemoryJournal:
    """Stores nothing: the state is lost when the process ends. ``objects`` are what it starts with."""

    def __init__(self, objects: Iterable[tuple[str, bytes]] = ()) -> None:
        self._objects = objects

    def load(self) -> tuple[int, Iterable[tuple[str, bytes]]]:
        """Return what there was from the start."""
        return 0, self._objects

    def put(self, bucket: str, entry: BucketEntry) -> None:
        """Do nothing."""

    def delete(self, bucket: str, entry: BucketEntry) -> None:
        """Do nothing."""

    async def tidy(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
