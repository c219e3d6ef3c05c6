"""The objects that can be members: each kind that some load balancer names is watched while it is served.

    Machine                     always
    any other (group, kind)     from when a load balancer first names it; discovery has its plural and versions

In: a cluster. Out: objects by namespace and Cluster, and a call for each change. Never: takes a kind that is
not served for objects that are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from fairlead.api.capiside import TargetKind
from fairlead.api.clusterapi import CLUSTER_API_GROUP, CLUSTER_API_VERSIONS, CLUSTERS, MACHINES, Cluster, TargetObject
from fairlead.api.meta import KubeObject, Resource
from fairlead.capi.kinds import NamedKinds
from fairlead.capi.view import DEFAULT_KIND
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.discovery import Discovery, OptionalCache

Changed = Callable[[TargetObject | None, TargetObject | None], None]


class Targets:
    """The caches of Clusters, Machines and of every other kind that is asked for."""

    def __init__(self, cluster: ApiCluster, *, changed: Changed, look_s: float, looked: Callable[[], None]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._looked = looked
        self.clusters: OptionalCache[Cluster] = OptionalCache(cluster, CLUSTERS, indexes={"namespace": _namespace})
        self.machines = self._cache(DEFAULT_KIND, MACHINES)
        self._kinds = NamedKinds(
            cluster, TargetObject, field="spec.targetKind", make=self._cache, looked=looked, look_s=look_s
        )
        self._caches = self._kinds.caches
        self._caches[DEFAULT_KIND] = self.machines
        self.discovery = Discovery(
            cluster,
            CLUSTER_API_GROUP,
            {self.clusters: CLUSTER_API_VERSIONS, self.machines: CLUSTER_API_VERSIONS},
            looked=looked,
            look_s=look_s,
        )

    @property
    def problem(self) -> str:
        """Return why Clusters and Machines cannot be followed, empty when they can."""
        if self.discovery.problem:
            return self.discovery.problem
        if self.discovery.asked and not (self.clusters.served and self.machines.served):
            return (
                f"{self._cluster.name} does not serve clusters.{CLUSTER_API_GROUP} and machines.{CLUSTER_API_GROUP}: "
                "install Cluster API (clusterctl init); waiting for it"
            )
        return next((cache.problem for cache in (self.clusters, self.machines) if cache.problem), "")

    def incomplete(self, kind: TargetKind) -> str:
        """Return why objects of ``kind`` are not all known, empty when they are; starts to watch the kind."""
        if not self.discovery.asked or not self.clusters.synced:
            return self.problem or "Cluster API has not been looked for yet"
        if missing := self._kinds.incomplete(kind):
            return missing
        if (cache := self._caches[kind]).broken:
            (namespace, name), why = next(iter(sorted(cache.broken.items())))
            return f"{kind} {namespace}/{name} cannot be read: {why}"
        return ""

    def of_cluster(self, kind: TargetKind, namespace: str, cluster: str) -> Sequence[TargetObject]:
        """Return the objects of a Cluster."""
        cache = self._caches.get(kind)
        return cache.by_index("cluster", (namespace, cluster)) if cache is not None else ()

    def in_namespace(self, kind: TargetKind, namespace: str) -> Sequence[TargetObject]:
        """Return all objects in a namespace."""
        cache = self._caches.get(kind)
        return cache.by_index("namespace", namespace) if cache is not None else ()

    def resource(self, kind: TargetKind) -> Resource[TargetObject] | None:
        """Return how objects of ``kind`` are addressed, None when it is not served."""
        cache = self._caches.get(kind)
        return cache.resource if cache is not None else None

    @property
    def caches(self) -> Mapping[str, OptionalCache[TargetObject] | OptionalCache[Cluster]]:
        """Return every cache by the full name of its kind."""
        own = {str(kind): cache for kind, cache in self._caches.items()}
        return {CLUSTERS.full_name: self.clusters, **own}

    async def run(self) -> None:
        """Follow what is served, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.discovery.run())
            group.create_task(self.clusters.run())
            group.create_task(self.machines.run())
            group.create_task(self._wake_when_read())
            group.create_task(self._kinds.run())

    async def _wake_when_read(self) -> None:
        await self.clusters.wait_synced()
        await self.machines.wait_synced()
        self._looked()

    def _cache(self, _kind: TargetKind, resource: Resource[TargetObject]) -> OptionalCache[TargetObject]:
        cache: OptionalCache[TargetObject] = OptionalCache(
            self._cluster,
            resource,
            indexes={"namespace": _namespace, "cluster": _cluster_of},
        )
        cache.on_change(self._changed)
        return cache


def _namespace(obj: KubeObject) -> list[str]:
    return [obj.metadata.namespace]


def _cluster_of(obj: TargetObject) -> list[tuple[str, str]]:
    return [(obj.metadata.namespace, obj.cluster)]
