"""Server-side apply that sends no request when nothing has changed.

    same content as we applied last, and the object has not changed since   no request
    anything else                                                           one apply; the server ignores a no-op

In: objects as JSON; a cache of what is there, when there is one. Out: whether the object changed.
Never: writes an object twice because the cache has not seen the first write yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.overlay import LAG_S

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
        caches: Mapping[AnyResource, WatchCache[Any]] | None = None,
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

    def _seen(self, cache: WatchCache[Any] | None, key: tuple[str, str, str]) -> str | None:
        """Return the version that the cache shows: empty when the object is not there, None without a cache."""
        if cache is None or not cache.synced:
            return None
        obj: KubeObject | None = cache.get(key[1], key[2])
        return obj.metadata.resource_version if obj is not None else ""

    def _stands(self, last: _Applied, seen: str | None, cache: WatchCache[Any] | None) -> bool:
        if seen is None or cache is None:
            return True
        if seen == last.version:
            # The cache has caught up: from now on the state before our write would be news.
            last.before = last.version
            return True
        # A cache that was current later and still shows that: our write was undone meanwhile.
        heard_s = cache.clock.monotonic() - cache.age_s
        return seen == last.before and heard_s <= last.at_s + LAG_S
