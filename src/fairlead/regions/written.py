"""Which PoolServices are there, what we have just written included?

A cache shows a write a moment after it was made. Deciding on the state before would write the same thing twice, so
the answer of each write stands until the cache moves on from what it showed when we wrote.
In: a cache, and what was written. Out: PoolServices. Never: believes its own writes longer than that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.poolservice import PoolService
from fairlead.kube.cache import WatchCache
from fairlead.regions.identity import RegionKey, region_of
from fairlead.regions.source import ServiceKey


class Written:
    """PoolServices by name and by Service. The cache must have an index ``service`` of their regions' Services."""

    def __init__(self, cache: WatchCache[PoolService]) -> None:
        self._cache = cache
        self._ahead: dict[tuple[str, str], tuple[PoolService, str]] = {}
        cache.on_change(self._moved)

    def get(self, namespace: str, name: str) -> PoolService | None:
        """Return one PoolService."""
        ahead = self._ahead.get((namespace, name))
        cached = self._cache.get(namespace, name)
        if ahead is not None and ahead[1] == _version(cached):
            return ahead[0]
        return cached

    def of_service(self, key: ServiceKey) -> list[tuple[RegionKey, PoolService]]:
        """Return the PoolServices of one Service with the region that each is for, sorted by name."""
        names = {one.metadata.name for one in self._cache.by_index("service", key)}
        names |= {name for (namespace, name) in self._ahead if namespace == key[0]}
        found: list[tuple[RegionKey, PoolService]] = []
        for name in sorted(names):
            one = self.get(key[0], name)
            region = region_of(one) if one is not None else None
            if one is not None and region is not None and region.service_key == key:
                found.append((region, one))
        return found

    def wrote(self, obj: PoolService, *, before: PoolService | None) -> None:
        """Take note of the answer to a create or update."""
        seen = _version(self._cache.get(*obj.key))
        # The cache may have been faster than the answer; then there is nothing to bridge.
        if seen == _version(before) and seen != obj.metadata.resource_version:
            self._ahead[obj.key] = (obj, seen)

    def deleted(self, obj: PoolService, *, at: str) -> None:
        """Take note that a delete was accepted."""
        seen = self._cache.get(*obj.key)
        if seen is not None and not seen.deleting and seen.metadata.uid == obj.metadata.uid:
            meta = msgspec.structs.replace(seen.metadata, deletion_timestamp=at)
            self._ahead[obj.key] = (msgspec.structs.replace(seen, metadata=meta), _version(seen))

    def _moved(self, old: PoolService | None, new: PoolService | None) -> None:
        for one in (old, new):
            if one is not None:
                self._ahead.pop(one.key, None)


def regions_index(one: PoolService) -> Iterable[ServiceKey]:
    """Index a PoolService by the Service that it is for."""
    region = region_of(one)
    return () if region is None else (region.service_key,)


def _version(one: PoolService | None) -> str:
    return one.metadata.resource_version if one is not None else ""
