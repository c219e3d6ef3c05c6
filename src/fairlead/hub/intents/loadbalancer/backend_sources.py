"""The pods, Services and nodes that BackendGroups select from; read only when some group needs them.

In: a Cluster, and what is needed. Out: objects, and calls of ``changed`` with the namespace whose groups are concerned
(empty: all of them). Never: a full Pod in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.kubernetes import NODES, PODS, SERVICES, Node, Pod, Service
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import LABEL_EXCLUDE_NODE
from fairlead.hub.inventory import first_broken
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.translate.loadbalancer import is_node_ready


class BackendSources:
    """The caches of what BackendGroups can select."""

    def __init__(self, cluster: Cluster, *, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self.pods: WatchCache[Pod] = WatchCache(
            cluster, PODS, transform=_lean, indexes={"namespace": lambda pod: [pod.metadata.namespace]}
        )
        self.services: WatchCache[Service] = WatchCache(cluster, SERVICES, transform=_lean)
        self.nodes: WatchCache[Node] = WatchCache(cluster, NODES, transform=_lean)
        self._wanted: dict[str, AnyCache] = {}
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        for cache in (self.pods, self.services, self.nodes):
            cache.on_change(self._object_changed)
            cache.broken.on_change(lambda obj: self._changed(obj.namespace))

    def need(self, group: BackendGroup) -> str:
        """Make sure that what ``group`` selects from is read; returns why that is incomplete, empty when it is not."""
        needed = self._needed(group)
        for name, cache in needed.items():
            if name not in self._wanted:
                self._wanted[name] = cache
                self._wake.set()
        return "; ".join(
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in needed.items()
            if cache.problem or not cache.synced
        )

    def unreadable(self, group: BackendGroup) -> str:
        """Return which object that ``group`` may select cannot be decoded, empty when there is none."""
        for cache in self._needed(group).values():
            bad = sorted(key for key in cache.broken if key[0] in ("", group.metadata.namespace))
            if bad:
                return first_broken(cache.resource.kind, cache, bad)
        return ""

    def _needed(self, group: BackendGroup) -> dict[str, AnyCache]:
        needed: dict[str, AnyCache] = {"pods": self.pods} if group.spec.pods is not None else {}
        return needed | ({"services": self.services, "nodes": self.nodes} if group.spec.service is not None else {})

    def pods_of(self, group: BackendGroup) -> tuple[Pod, ...]:
        """Return the pods that ``group`` selects, ready or not, ordered by name."""
        wanted = group.spec.pods
        if wanted is None:
            return ()
        pods = self.pods.by_index("namespace", group.metadata.namespace)
        if wanted.by_name is not None:
            return tuple(pod for pod in pods if pod.metadata.name in wanted.by_name)
        if wanted.by_label is None:
            return ()
        selector, excluded = wanted.by_label.selector, set(wanted.by_label.except_ or ())
        return tuple(pod for pod in pods if _matches(pod, selector) and pod.metadata.name not in excluded)

    def nodes_of(self, group: BackendGroup) -> tuple[Node, ...]:
        """Return the nodes at which a Service's node port may be used, ready or not, ordered by name."""
        if group.spec.service is None:
            return ()
        selector = group.spec.service.node_selector or {}
        nodes = sorted(self.nodes.values(), key=lambda node: node.key)
        return tuple(node for node in nodes if _matches(node, selector) and not node.label(LABEL_EXCLUDE_NODE))

    def service_of(self, group: BackendGroup) -> Service | None:
        """Return the Service that ``group`` names."""
        wanted = group.spec.service
        return self.services.get(group.metadata.namespace, wanted.name) if wanted is not None else None

    async def wait_synced(self, groups: Iterable[BackendGroup], timeout_s: float) -> None:
        """Return once all that ``groups`` select from has been read; ``run`` must be running."""
        for group in groups:
            self.need(group)
        for cache in list(self._wanted.values()):
            await cache.wait_synced(timeout_s)

    async def run(self) -> None:
        """Read what is needed, from when it is needed on."""
        async with asyncio.TaskGroup() as group:
            while True:
                for name, cache in self._wanted.items():
                    if name not in self._running:
                        self._running.add(name)
                        group.create_task(cache.run())
                        group.create_task(self._wake_when_synced(cache))
                await self._wake.wait()
                self._wake.clear()

    async def _wake_when_synced(self, cache: AnyCache) -> None:
        await cache.wait_synced()
        self._changed("")

    def _object_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        changed = new or old
        if isinstance(old, Node) and isinstance(new, Node) and _same_node(old, new):
            return
        if changed is not None:
            self._changed(changed.metadata.namespace)


def _same_node(old: Node, new: Node) -> bool:
    """Return whether a change of a node can matter: its heartbeats do not."""
    ready = is_node_ready(old) == is_node_ready(new)
    return ready and old.metadata.labels == new.metadata.labels and old.status.addresses == new.status.addresses


def _matches(obj: KubeObject, selector: dict[str, str]) -> bool:
    return all(obj.label(key, "\0") == value for key, value in selector.items())


def _lean(obj: Any) -> Any:
    """Return an object without the metadata that is never read."""
    meta: ObjectMeta = obj.metadata
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(meta, annotations=None, finalizers=None, owner_references=None)
    )
