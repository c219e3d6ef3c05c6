"""Read your own writes: a watch cache, and on top of it what was written and the cache does not show yet.

    written, and the cache shows an older version            the server's answer to our write
    the cache shows any other version                        what the cache shows: our write, or something after it
    the cache was current 5 s later, and still older         what the cache shows: our write was undone meanwhile

A version is known to be older when the write was made from it, or when it is that of an earlier write of ours.
Versions are compared for equality only. In: a cache; answers of writes, and deletions. Out: objects.
Never: keeps an answer once the cache has moved on, or waits for the cache.
Source: https://pkg.go.dev/k8s.io/client-go/tools/cache#MutationCache
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from fairlead.api.meta import KubeObject, ObjectKey
from fairlead.kube.cache import WatchCache
from fairlead.kube.store import Store

T = TypeVar("T", bound=KubeObject)

#: A cache that was heard so much later than a write, in seconds, has the write.
LAG_S = 5.0


@dataclass
class _Write:
    older: set[str]  # resourceVersions that are older than what we wrote; empty means "no such object"
    at_s: float


class Overlay(Generic[T]):
    """The objects of ``cache`` with our own writes; its indexes are those of the cache."""

    def __init__(self, cache: WatchCache[T]) -> None:
        self._cache = cache
        self._writes: dict[ObjectKey, _Write] = {}
        self._answers: Store[T] = Store(cache.indexes)
        cache.on_change(self._changed)

    def __len__(self) -> int:
        """Return how many writes the cache does not show yet, as far as it is known."""
        return len(self._writes)

    def get(self, namespace: str, name: str) -> T | None:
        """Return the newest that is known of one object; one that we deleted has a deletionTimestamp."""
        key = ObjectKey(namespace, name)
        return self._answers.get(key) if self._is_ahead(key) else self._cache.get(namespace, name)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects with this value of an index, sorted by key."""
        objects = {obj.key: obj for obj in self._cache.by_index(name, value) if not self._is_ahead(obj.key)}
        objects |= {obj.key: obj for obj in self._answers.by_index(name, value) if self._is_ahead(obj.key)}
        return [objects[key] for key in sorted(objects)]

    def written(self, answer: T, *, before: T | None) -> T:
        """Remember the server's answer to a create, apply or patch; return it as the cache will show it.

        ``before``: the object that the write was made from, as ``get`` returned it; None when there was none.
        """
        obj = self._cache.transformed(answer)
        self._put(obj, (self._older(obj.key) | {_version(before)}) - {_version(obj)})
        return obj

    def deleted(self, obj: T, *, at: str) -> None:
        """Remember that the server has accepted the deletion of ``obj`` at this time (RFC 3339)."""
        if self._cache.get(*obj.key) is None:
            self._drop(obj.key)  # what the cache never showed will not be seen to go
            return
        meta = msgspec.structs.replace(obj.metadata, deletion_timestamp=obj.metadata.deletion_timestamp or at)
        self._put(msgspec.structs.replace(obj, metadata=meta), self._older(obj.key) | {_version(obj)})

    def _older(self, key: ObjectKey) -> set[str]:
        """Return the versions that are older than a write to what we wrote last."""
        write = self._writes.get(key)
        return write.older | {_version(self._answers.get(key))} if write is not None else set[str]()

    def _put(self, obj: T, older: set[str]) -> None:
        if _version(self._cache.get(*obj.key)) not in older:
            self._drop(obj.key)  # the cache was faster than the answer
            return
        self._writes[obj.key] = _Write(older, self._cache.clock.monotonic())
        self._answers.put(obj)

    def _is_ahead(self, key: ObjectKey) -> bool:
        """Say whether what we wrote is newer than what the cache shows, as far as it is known; forget it when not."""
        write = self._writes.get(key)
        if write is None:
            return False
        heard_s = self._cache.clock.monotonic() - self._cache.age_s
        if _version(self._cache.get(*key)) in write.older and heard_s <= write.at_s + LAG_S:
            return True
        self._drop(key)
        return False

    def _changed(self, old: T | None, new: T | None) -> None:
        obj = new or old
        if obj is not None:
            self._is_ahead(obj.key)

    def _drop(self, key: ObjectKey) -> None:
        self._writes.pop(key, None)
        self._answers.remove(key)


def _version(obj: KubeObject | None) -> str:
    return obj.metadata.resource_version if obj is not None else ""
