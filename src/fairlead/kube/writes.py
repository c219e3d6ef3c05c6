"""Writes of objects: an apply that sends no request without a change, an overlay of own writes, and finalizers.

    same content as we applied last, and the object has not changed since   no request
    anything else                                                           one apply; the server ignores a no-op

In: objects as JSON; a cache of what is there, when there is one. Out: whether the object changed.
Never: writes an object twice because the cache has not seen the first write yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from fairlead.api.meta import AnyResource, JSONObject, KubeObject, ObjectKey, Resource, is_newer
from fairlead.errors import NotFound
from fairlead.kube.cache import AnyCache, ObjectStore, WatchCache
from fairlead.kube.cluster import Cluster


async def hold(cluster: Cluster, resource: Resource[T], obj: T, finalizer: str, *, manager: str) -> T:
    """Add ``finalizer`` to ``obj``, as its last one; return the object with it.

    Raises:
        Conflict: the object has changed since it was read.
        NotFound: it is gone.
    """
    if obj.held_by(finalizer):
        return obj
    return await _write(cluster, resource, obj, [*(obj.metadata.finalizers or ()), finalizer], manager=manager)


async def release(cluster: Cluster, resource: Resource[T], obj: T, finalizer: str, *, manager: str) -> T:
    """Remove ``finalizer`` from ``obj``; return the object without it, or ``obj`` when it is gone already.

    Raises:
        Conflict: the object has changed since it was read.
    """
    if not obj.held_by(finalizer):
        return obj
    others = [name for name in obj.metadata.finalizers or () if name != finalizer]
    try:
        return await _write(cluster, resource, obj, others, manager=manager)
    except NotFound:
        return obj


async def _write(cluster: Cluster, resource: Resource[T], obj: T, finalizers: list[str], *, manager: str) -> T:
    return await patch_version(cluster, resource, obj, {"metadata": {"finalizers": finalizers}}, manager=manager)


async def patch_version(
    cluster: Cluster, resource: Resource[T], obj: T, patch: JSONObject, *, manager: str, subresource: str = ""
) -> T:
    """Merge ``patch`` into the version of ``obj`` that it was made from; lists are replaced as a whole.

    Raises:
        Conflict: the object has changed since it was read.
        NotFound: it is gone.
    """
    meta = obj.metadata
    body: JSONObject = {**patch, "metadata": {"resourceVersion": meta.resource_version, **patch.get("metadata", {})}}
    return await cluster.merge_patch(
        resource, meta.namespace, meta.name, body, subresource=subresource, manager=manager
    )


_ENCODER = msgspec.json.Encoder(order="deterministic")


class _Applied(msgspec.Struct):
    digest: bytes
    version: str  # what the server answered to our apply
    before: str  # what the cache showed when we applied: it may go on showing that for a moment
    at_s: float


class Applier:
    """Applies objects as one field manager, and remembers what it has applied."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        manager: str,
        caches: Mapping[AnyResource, AnyCache] | None = None,
    ) -> None:
        self._cluster = cluster
        self._manager = manager
        self._caches = dict(caches or {})
        self._applied: dict[tuple[str, str, str], _Applied] = {}

    async def ensure(self, resource: AnyResource, obj: JSONObject) -> bool:
        """Apply ``obj`` unless that would change nothing; return whether the object has changed.

        Without a synced cache for the resource, what others did since our last apply goes unnoticed.
        """
        meta: JSONObject = obj["metadata"]
        namespace = str(meta.get("namespace") or self._cluster.namespace) if resource.namespaced else ""
        key = (resource.full_name, namespace, str(meta["name"]))
        digest = hashlib.blake2b(_ENCODER.encode(obj), digest_size=16).digest()
        cache = self._caches.get(resource)
        seen = self._seen(cache, key)
        last = self._applied.get(key)
        if last is not None and last.digest == digest and self._stands(last, seen, cache):
            return False
        done = await self._cluster.apply(resource, obj, manager=self._manager)
        version = done.metadata.resource_version
        known = seen if seen is not None else (last.version if last is not None else "")
        self._applied[key] = _Applied(digest, version, seen or "", self._cluster.clock.monotonic())
        return version != known

    def forget(self, resource: AnyResource, namespace: str, name: str) -> None:
        """Forget an object, for example after deleting it, so that the next ``ensure`` writes."""
        self._applied.pop((resource.full_name, namespace if resource.namespaced else "", name), None)

    def _seen(self, cache: AnyCache | None, key: tuple[str, str, str]) -> str | None:
        """Return the version that the cache shows: empty when the object is not there, None without a cache."""
        if cache is None or not cache.synced:
            return None
        obj: KubeObject | None = cache.get(key[1], key[2])
        return obj.metadata.resource_version if obj is not None else ""

    def _stands(self, last: _Applied, seen: str | None, cache: AnyCache | None) -> bool:
        if seen is None or cache is None:
            return True
        if seen == last.version:
            # The cache has caught up: from now on the state before our write would be news.
            last.before = last.version
            return True
        # A cache that was current later and still shows that: our write was undone meanwhile.
        heard_s = cache.clock.monotonic() - cache.age_s
        return seen == last.before and heard_s <= last.at_s + LAG_S


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
        self._answers: ObjectStore[T] = ObjectStore(cache.indexes)
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
        shown = _version(self._cache.get(*obj.key))
        if shown not in older and not is_newer(_version(obj), than=shown):
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
        shown = _version(self._cache.get(*key))
        # Another field manager may have written between two writes of ours: its version is older than the second.
        is_older = shown in write.older or is_newer(_version(self._answers.get(key)), than=shown)
        if is_older and heard_s <= write.at_s + LAG_S:
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
