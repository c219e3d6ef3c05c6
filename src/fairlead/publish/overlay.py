"""What is present, our own last writes included? A watch cache shows a write a moment after it was answered.

In: a cache, and the answers to writes. Out: the newer of the two, by name or by an index. An answer stands as long as
the cache shows the version that it showed when the write was made. Never believes its own writes longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from fairlead.api.meta import KubeObject
from fairlead.kube.cache import WatchCache

T = TypeVar("T", bound=KubeObject)
Key = tuple[str, str]


class Overlay(Generic[T]):
    """A watch cache with the answers to our own writes on top; ``index`` names one of the cache's indexes."""

    def __init__(
        self, cache: WatchCache[T], *, index: str = "", values: Callable[[T], Iterable[Hashable]] = lambda _: ()
    ) -> None:
        self._cache = cache
        self._index = index
        self._values = values
        self._ahead: dict[Key, T] = {}
        self._groups: dict[Hashable, set[Key]] = {}
        cache.on_change(self._cache_changed)

    def __len__(self) -> int:
        return len(self._ahead)

    def get(self, namespace: str, name: str) -> T | None:
        """Return one object."""
        ahead = self._ahead.get((namespace, name))
        return self._cache.get(namespace, name) if ahead is None else ahead

    def by_index(self, value: Hashable) -> list[T]:
        """Return the objects with this value of the index, sorted by key."""
        keys = {obj.key for obj in self._cache.by_index(self._index, value)} | self._groups.get(value, set())
        return [obj for key in sorted(keys) if (obj := self.get(*key)) is not None]

    def cached_version(self, namespace: str, name: str) -> str:
        """Return the resourceVersion that the cache shows, empty for none: to be read before a write."""
        cached = self._cache.get(namespace, name)
        return "" if cached is None else cached.metadata.resource_version

    def wrote(self, answer: T, *, cached_version: str) -> None:
        """Remember the answer to a write, unless the cache has moved on from what it showed before."""
        version = self.cached_version(*answer.key)
        if version == cached_version and version != answer.metadata.resource_version:
            self._put(answer)

    def deleted(self, obj: T, *, at: str) -> None:
        """Remember that a delete was accepted; ``at`` is a deletionTimestamp."""
        cached = self._cache.get(*obj.key)
        if cached is None:
            self._drop(obj.key)
        elif not cached.deleting and cached.metadata.uid == obj.metadata.uid:
            meta = msgspec.structs.replace(cached.metadata, deletion_timestamp=at)
            self._put(msgspec.structs.replace(cached, metadata=meta))

    def clear(self) -> None:
        """Forget every answer."""
        self._ahead.clear()
        self._groups.clear()

    def _cache_changed(self, old: T | None, new: T | None) -> None:
        for obj in (old, new):
            if obj is not None:
                self._drop(obj.key)

    def _put(self, obj: T) -> None:
        self._drop(obj.key)
        self._ahead[obj.key] = obj
        for value in self._values(obj):
            self._groups.setdefault(value, set()).add(obj.key)

    def _drop(self, key: Key) -> None:
        dropped = self._ahead.pop(key, None)
        for value in self._values(dropped) if dropped is not None else ():
            group = self._groups[value]
            group.discard(key)
            if not group:
                del self._groups[value]
