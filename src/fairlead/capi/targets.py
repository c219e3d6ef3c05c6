"""The objects that can be members: each kind that some load balancer names is watched while it is served.

    Machine                     always
    any other (group, kind)     from when a load balancer first names it; discovery has its plural and versions

In: a cluster. Out: objects by namespace and Cluster, and a call for each change. Never: takes a kind that is
not served for objects that are gone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from fairlead.api.capiside import TargetKind
from fairlead.api.clusterapi import CLUSTER_API_GROUP, CLUSTER_API_VERSIONS, CLUSTERS, MACHINES, Cluster, TargetObject
from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.served import Discovery, OptionalCache

MACHINE = TargetKind()
Changed = Callable[[TargetObject | None, TargetObject | None], None]
log = structlog.get_logger(__name__)


class _KindRow(Wire, frozen=True):
    name: str = ""
    kind: str = ""


class _Kinds(Wire, frozen=True):
    resources: list[_KindRow] | None = None


class _Version(Wire, frozen=True):
    version: str = ""


class _Group(Wire, frozen=True):
    versions: list[_Version] | None = None


class Targets:
    """The caches of Clusters, Machines and of every other kind that is asked for."""

    def __init__(self, cluster: ApiCluster, *, changed: Changed, look_s: float, looked: Callable[[], None]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._look_s = look_s
        self._looked = looked
        self.clusters: OptionalCache[Cluster] = OptionalCache(cluster, CLUSTERS, indexes={"namespace": _namespace})
        self.machines = self._cache(MACHINES)
        self._caches: dict[TargetKind, OptionalCache[TargetObject]] = {MACHINE: self.machines}
        self._missing: dict[TargetKind, str] = {}
        self._wanted: asyncio.Queue[TargetKind] = asyncio.Queue()
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
        """Return why objects of ``kind`` are not all known; empty when they are. What is not followed yet will be."""
        if not self.discovery.asked or not self.clusters.synced:
            return self.problem or "Cluster API has not been looked for yet"
        cache = self._caches.get(kind)
        if cache is None:
            if kind not in self._missing:
                self._missing[kind] = f"{kind} has not been looked for yet"
                self._wanted.put_nowait(kind)
            return self._missing[kind]
        if not cache.synced:
            return cache.problem or f"{kind} has not been read yet"
        if cache.broken:
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
            while True:
                kind = await self._wanted.get()
                group.create_task(self._follow(kind, group))

    async def _wake_when_read(self) -> None:
        await self.clusters.wait_synced()
        await self.machines.wait_synced()
        self._looked()

    async def _follow(self, kind: TargetKind, group: asyncio.TaskGroup) -> None:
        """Find a kind, again and again until it is served, and follow its objects from then on."""
        while True:
            try:
                resource = await find_kind(self._cluster, kind)
                self._missing[kind] = f"spec.targetKind: {self._cluster.name} does not serve {kind}; install it"
                if resource is not None:
                    break
            except FairleadError as error:
                self._missing[kind] = error.sentence
                log.warning("a kind of members cannot be looked for", kind=str(kind), sentence=error.sentence)
            self._looked()
            await self._cluster.clock.sleep(self._look_s)
        cache = self._caches[kind] = self._cache(resource)
        cache.serve(resource.version)
        group.create_task(cache.run())
        await cache.wait_synced()
        self._looked()

    def _cache(self, resource: Resource[TargetObject]) -> OptionalCache[TargetObject]:
        cache: OptionalCache[TargetObject] = OptionalCache(
            self._cluster,
            resource,
            indexes={"namespace": _namespace, "cluster": _cluster_of},
        )
        cache.on_change(self._changed)
        return cache


async def find_kind(cluster: ApiCluster, kind: TargetKind) -> Resource[TargetObject] | None:
    """Return how objects of ``kind`` are addressed, by its newest version; None when it is not served."""
    try:
        body = await cluster.raw("GET", f"/apis/{kind.api_group}")
    except NotFound:
        return None
    group = msgspec.json.decode(body, type=_Group)
    for version in sorted((each.version for each in group.versions or ()), key=_age):
        body = await cluster.raw("GET", f"/apis/{kind.api_group}/{version}")
        for row in msgspec.json.decode(body, type=_Kinds).resources or ():
            if row.kind == kind.kind and "/" not in row.name:
                return Resource(kind.api_group, version, kind.kind, row.name, True, TargetObject)
    return None


def _namespace(obj: KubeObject) -> list[str]:
    return [obj.metadata.namespace]


def _cluster_of(obj: TargetObject) -> list[tuple[str, str]]:
    return [(obj.metadata.namespace, obj.cluster)]


def _age(version: str) -> tuple[int, int, int]:
    """Return a key that sorts versions as Kubernetes does: v2, v1, v2beta1, v1beta2, v1beta1, v1alpha1."""
    parts = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if parts is None:
        return (3, 0, 0)
    return ({None: 0, "beta": 1, "alpha": 2}[parts[2]], -int(parts[1]), -int(parts[3] or 0))
