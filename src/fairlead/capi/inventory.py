"""The caches of the controller, and which load balancers a change concerns.

    LoadBalancer, its BackendGroups     itself
    Cluster                             its load balancers
    an object of a member's kind        the load balancers of its Cluster, and those whose selector reaches it

Each kind of members and of infrastructure that some load balancer names is polled by discovery until it is served, and
watched from then on.
In: the management cluster, and the hub where that is another one. Out: views. Never: a load balancer without
``spec.clusterName``, or a kind that is not served taken for objects that are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec
import structlog

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup
from fairlead.api.capiside import ControlPlaneEndpoint, InfrastructureReference, TargetKind
from fairlead.api.clusterapi import (
    CLUSTER_API_GROUP,
    CLUSTER_API_VERSIONS,
    CLUSTER_POLICIES,
    CLUSTERS,
    MACHINES,
    CapiCluster,
    ClusterLoadBalancerPolicy,
    InfraLoadBalancer,
    TargetObject,
)
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import JSONObject, KubeObject, ObjectKey, Resource
from fairlead.api.names import LABEL_MEMBERS_OF, MANAGER_CAPI
from fairlead.api.selectors import BadSelector, from_label_selector
from fairlead.capi.view import DEFAULT_KIND, CapiView, Plane, Probe, selector_of, stays_in_cluster
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.discovery import Discovery, OptionalCache, find_kind

T = TypeVar("T", bound=KubeObject)

log = structlog.get_logger(__name__)


class CapiInventory:
    """The caches. ``wake`` is called with the key of each load balancer that a change concerns."""

    def __init__(
        self,
        cluster: ApiCluster,
        *,
        hub: ApiCluster | None = None,
        wake: Callable[[ObjectKey], None],
        look_s: float,
        wake_namespace: Callable[[str], None] = lambda _: None,
    ) -> None:
        hub = hub or cluster
        self._wake = wake
        #: The identity of the management cluster, where the hub is another one.
        self.management = ""
        self._wake_namespace = wake_namespace
        self.policies: WatchCache[ClusterLoadBalancerPolicy] = WatchCache(
            hub, CLUSTER_POLICIES, indexes={"namespace": lambda obj: [obj.metadata.namespace]}
        )
        self.load_balancers: WatchCache[LoadBalancer] = WatchCache(
            hub,
            LOAD_BALANCERS,
            indexes={
                "served": lambda obj: [bool(obj.spec.cluster_name)],
                # Those that a change of any object of the namespace may concern, whatever its Cluster.
                "across": lambda obj: (
                    [obj.metadata.namespace] if obj.spec.cluster_name and not stays_in_cluster(obj) else []
                ),
                "all in namespace": lambda obj: [obj.metadata.namespace],
                "cluster": lambda obj: [(obj.metadata.namespace, obj.spec.cluster_name)],
                "infrastructure": _infrastructure_of,
                "endpoint": lambda obj: [obj.spec.endpoint.place] if obj.spec.cluster_name else [],
            },
        )
        self.groups: WatchCache[BackendGroup] = WatchCache(hub, BACKEND_GROUPS, label_selector=LABEL_MEMBERS_OF)
        self.targets = Targets(cluster, changed=self._target_changed, look_s=look_s, looked=self._looked)
        self.infrastructures = Infrastructures(
            hub, changed=self._infrastructure_changed, looked=self._looked, look_s=look_s
        )
        self.load_balancers.on_change(self._load_balancer_changed)
        self.groups.on_object(self._group_changed)
        self.policies.on_object(lambda policy: wake_namespace(policy.metadata.namespace))
        self.targets.clusters.on_object(
            lambda cluster: wake_namespace(cluster.metadata.namespace),
            part=lambda cluster: (cluster.metadata.labels, cluster.metadata.annotations, *_endpoint_part(cluster)),
        )
        self.targets.clusters.on_object(self._cluster_changed, part=_endpoint_part)

    @property
    def caches(self) -> dict[str, AnyCache]:
        """Return every cache by the full name of its kind."""
        own: dict[str, AnyCache] = {
            LOAD_BALANCERS.full_name: self.load_balancers,
            BACKEND_GROUPS.full_name: self.groups,
            CLUSTER_POLICIES.full_name: self.policies,
        }
        return {**own, **self.targets.caches, **self.infrastructures.caches}

    def served(self) -> list[ObjectKey]:
        """Return the keys of all load balancers of Clusters."""
        return [obj.key for obj in self.load_balancers.by_index("served", True)]

    def view(
        self, key: ObjectKey, *, authority: str, probe: Probe | None, plane: Plane | None = None
    ) -> CapiView | None:
        """Return the view of a load balancer, None if there is none of this name with a Cluster."""
        obj = self.load_balancers.get(*key)
        if obj is None or not obj.spec.cluster_name:
            return None
        kind = obj.spec.target_kind or DEFAULT_KIND
        of_cluster = stays_in_cluster(obj)
        targets = self.targets
        cluster = targets.clusters.get(key.namespace, obj.spec.cluster_name)
        objects = (
            targets.of_cluster(kind, key.namespace, obj.spec.cluster_name)
            if of_cluster
            else targets.in_namespace(kind, key.namespace)
        )
        view = CapiView(
            obj,
            cluster,
            tuple(objects),
            incomplete=targets.incomplete(kind),
            claimed_by=self._claimed_by(obj),
            taken_by=self.taken_by(obj, cluster),
            authority=authority,
            probe=probe,
            plane=plane,
            management=self.management,
        )
        if (ref := obj.spec.infrastructure_ref) is not None:
            problem, foreign = (
                self.infrastructures.problem(key.namespace, ref),
                self.infrastructures.get(key.namespace, ref),
            )
            return msgspec.structs.replace(view, foreign=foreign, foreign_problem=problem)
        groups = {name: self.groups.get(key.namespace, name) for name in view.listeners}
        return msgspec.structs.replace(
            view, groups={name: group for name, group in groups.items() if group is not None}
        )

    async def run(self) -> None:
        """Watch everything until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.load_balancers.run())
            group.create_task(self.groups.run())
            group.create_task(self.policies.run())
            group.create_task(self.targets.run())
            group.create_task(self.infrastructures.run())

    async def wait_synced(self) -> None:
        """Return once our own kinds have been read."""
        await self.load_balancers.wait_synced()
        await self.groups.wait_synced()
        await self.policies.wait_synced()

    def namespaces(self) -> set[str]:
        """Return the namespaces in which Clusters may get a LoadBalancer automatically."""
        return {obj.metadata.namespace for cache in (self.policies, self.targets.clusters) for obj in cache.values()}

    def taken_by(self, obj: LoadBalancer, cluster: CapiCluster | None) -> str:
        """Return the load balancer of another Cluster that has the present or future endpoint of ``obj``."""
        mine = obj.spec.endpoint
        endpoint = mine if mine.given or cluster is None or obj.spec.additional else cluster.endpoint
        if not endpoint.given:
            return ""
        others = [
            other
            for other in self.load_balancers.by_index("endpoint", endpoint.place)
            if not other.deleting
            and (other.metadata.namespace, other.spec.cluster_name) != (obj.metadata.namespace, obj.spec.cluster_name)
        ]
        oldest = min(others, key=attrgetter("age_order"), default=None)
        if oldest is None or (mine.given and obj.age_order < oldest.age_order):
            return ""
        return str(oldest.key)

    def _claimed_by(self, obj: LoadBalancer) -> str:
        if obj.spec.additional:
            return ""
        rivals = self.load_balancers.by_index("cluster", (obj.metadata.namespace, obj.spec.cluster_name))
        claims = [rival for rival in rivals if not rival.spec.additional and not rival.deleting]
        oldest = min(claims, key=attrgetter("age_order"), default=obj)
        return "" if oldest.key == obj.key else oldest.metadata.name

    def _load_balancer_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        obj = new or old
        if obj is not None and (old is None or new is None):
            self._wake_namespace(obj.metadata.namespace)
        if obj is None or not obj.spec.cluster_name:
            return
        if old is None or new is None or old.spec != new.spec or old.deleting != new.deleting:
            same_cluster = ("cluster", (obj.metadata.namespace, obj.spec.cluster_name))
            same_endpoint = ("endpoint", obj.spec.endpoint.place)
            for index, value in (same_cluster, same_endpoint) if obj.spec.endpoint.given else (same_cluster,):
                for rival in self.load_balancers.by_index(index, value):
                    self._wake(rival.key)
        self._wake(obj.key)

    def _group_changed(self, group: BackendGroup) -> None:
        for name in group.spec.load_balancers:
            self._wake(ObjectKey(group.metadata.namespace, name))

    def _cluster_changed(self, cluster: CapiCluster) -> None:
        for obj in self.load_balancers.by_index("cluster", cluster.key):
            self._wake(obj.key)

    def _infrastructure_changed(self, kind: TargetKind, obj: InfraLoadBalancer) -> None:
        for load_balancer in self.load_balancers.by_index("infrastructure", (*obj.key, kind)):
            self._wake(load_balancer.key)

    def _target_changed(self, old: TargetObject | None, new: TargetObject | None) -> None:
        if old and new and _same_target(old, new):
            return
        for target in filter(None, (old, new)):
            namespace = target.metadata.namespace
            if target.cluster:
                for obj in self.load_balancers.by_index("cluster", (namespace, target.cluster)):
                    self._wake(obj.key)
            for obj in self.load_balancers.by_index("across", namespace):
                if _reaches(obj, target):
                    self._wake(obj.key)

    def _looked(self) -> None:
        for key in self.served():
            self._wake(key)
        for namespace in self.namespaces():
            self._wake_namespace(namespace)


def _infrastructure_of(obj: LoadBalancer) -> list[tuple[str, str, TargetKind]]:
    ref = obj.spec.infrastructure_ref
    return [(obj.metadata.namespace, ref.name, TargetKind(ref.api_group, ref.kind))] if ref is not None else []


def _endpoint_part(cluster: CapiCluster) -> tuple[object, ...]:
    """Return the part of a Cluster that its load balancers depend on."""
    return cluster.spec, cluster.paused, cluster.deleting


def _same_target(old: TargetObject, new: TargetObject) -> bool:
    before = msgspec.structs.replace(old.metadata, resource_version="", generation=0)
    return before == msgspec.structs.replace(new.metadata, resource_version="", generation=0) and (
        old.status == new.status and old.spec == new.spec
    )


def _reaches(obj: LoadBalancer, target: TargetObject) -> bool:
    try:
        return from_label_selector(msgspec.to_builtins(selector_of(obj))).matches(target.metadata.labels)
    except BadSelector:
        return False


Changed = Callable[[TargetKind, InfraLoadBalancer], None]


class Infrastructures:
    """The load balancers of other providers; ``changed`` is called with the kind and the object."""

    def __init__(self, hub: ApiCluster, *, changed: Changed, looked: Callable[[], None], look_s: float) -> None:
        self._hub = hub
        self._changed = changed
        self._kinds = NamedKinds(
            hub, InfraLoadBalancer, field="spec.infrastructureRef", make=self._cache, looked=looked, look_s=look_s
        )
        self._caches = self._kinds.caches

    @property
    def caches(self) -> Mapping[str, OptionalCache[InfraLoadBalancer]]:
        """Return every cache by the full name of its kind."""
        return {str(kind): cache for kind, cache in self._caches.items()}

    def get(self, namespace: str, ref: InfrastructureReference) -> InfraLoadBalancer | None:
        """Return the object that ``ref`` names, None when it does not exist or its kind is not watched yet."""
        cache = self._caches.get(_kind(ref))
        return cache.get(namespace, ref.name) if cache is not None else None

    def problem(self, namespace: str, ref: InfrastructureReference) -> str:
        """Return why the object that ``ref`` names cannot be read, empty when it can; starts to watch its kind."""
        kind = _kind(ref)
        if missing := self._kinds.incomplete(kind):
            return missing
        if (why := self._caches[kind].broken.get(ObjectKey(namespace, ref.name))) is not None:
            return f"{kind} {namespace}/{ref.name} cannot be read: {why}"
        return ""

    def is_absent(self, namespace: str, ref: InfrastructureReference) -> bool:
        """Return whether the object is known not to exist."""
        return not self.problem(namespace, ref) and self.get(namespace, ref) is None

    async def run(self) -> None:
        """Watch the referenced kinds until cancelled."""
        await self._kinds.run()

    async def set_owner(
        self, obj: InfraLoadBalancer, load_balancer: LoadBalancer, endpoint: ControlPlaneEndpoint | None
    ) -> None:
        """Set the owner reference of ``obj`` to its LoadBalancer, and copy the endpoint that is set there; once."""
        patch: JSONObject = {}
        owners = obj.metadata.owner_references or []
        if not any(reference.uid == load_balancer.metadata.uid for reference in owners):
            owner = LOAD_BALANCERS.owner(load_balancer.metadata, controller=True)
            patch["metadata"] = {"ownerReferences": [*map(msgspec.to_builtins, owners), msgspec.to_builtins(owner)]}
        if endpoint is not None and not obj.spec.endpoint.given:
            patch["spec"] = {"endpoint": {"host": endpoint.host, "port": endpoint.port}}
        if patch:
            patch.setdefault("metadata", {})["resourceVersion"] = obj.metadata.resource_version
            resource = self._resource(load_balancer)
            await self._hub.merge_patch(resource, *obj.key, patch, manager=MANAGER_CAPI)

    async def remove(self, obj: InfraLoadBalancer, load_balancer: LoadBalancer) -> None:
        """Delete ``obj``; its provider's finalizer holds it until its members are released."""
        if not obj.deleting:
            await self._hub.delete(self._resource(load_balancer), *obj.key)

    def _resource(self, load_balancer: LoadBalancer) -> Resource[InfraLoadBalancer]:
        ref = load_balancer.spec.infrastructure_ref
        cache = self._caches.get(_kind(ref)) if ref is not None else None
        if cache is None:
            raise NotFound(f"LoadBalancer {load_balancer.key}: the kind in spec.infrastructureRef is not watched yet")
        return cache.resource

    def _cache(self, kind: TargetKind, resource: Resource[InfraLoadBalancer]) -> OptionalCache[InfraLoadBalancer]:
        cache: OptionalCache[InfraLoadBalancer] = OptionalCache(self._hub, resource)
        cache.on_change(lambda old, new: self._seen(kind, old, new))
        return cache

    def _seen(self, kind: TargetKind, old: InfraLoadBalancer | None, new: InfraLoadBalancer | None) -> None:
        obj = new or old
        if obj is not None:
            self._changed(kind, obj)


def _kind(ref: InfrastructureReference) -> TargetKind:
    return TargetKind(ref.api_group, ref.kind)


TargetChanged = Callable[[TargetObject | None, TargetObject | None], None]


class Targets:
    """The caches of Clusters, Machines and of every other kind that is asked for."""

    def __init__(
        self, cluster: ApiCluster, *, changed: TargetChanged, look_s: float, looked: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._changed = changed
        self._looked = looked
        self.clusters: OptionalCache[CapiCluster] = OptionalCache(cluster, CLUSTERS, indexes={"namespace": _namespace})
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
        """Return why Clusters and Machines cannot be watched; empty if they can."""
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
            return self.problem or "Cluster API has not been discovered yet"
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
        """Return the resource of ``kind``, None if it is not served."""
        cache = self._caches.get(kind)
        return cache.resource if cache is not None else None

    @property
    def caches(self) -> Mapping[str, OptionalCache[TargetObject] | OptionalCache[CapiCluster]]:
        """Return every cache by the full name of its kind."""
        own = {str(kind): cache for kind, cache in self._caches.items()}
        return {CLUSTERS.full_name: self.clusters, **own}

    async def run(self) -> None:
        """Watch the served kinds until cancelled."""
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
            self._cluster, resource, indexes={"namespace": _namespace, "cluster": _cluster_of}
        )
        cache.on_change(self._changed)
        return cache


def _namespace(obj: KubeObject) -> list[str]:
    return [obj.metadata.namespace]


def _cluster_of(obj: TargetObject) -> list[tuple[str, str]]:
    return [(obj.metadata.namespace, obj.cluster)]


class NamedKinds(Generic[T]):
    """The caches of kinds that are named in ``field``; ``make`` returns a cache of one.

    ``looked`` is called when more is known of a kind: that it is not served, or all of its objects.
    """

    def __init__(
        self,
        cluster: Cluster,
        type_: type[T],
        *,
        field: str,
        make: Callable[[TargetKind, Resource[T]], OptionalCache[T]],
        looked: Callable[[], None],
        look_s: float,
    ) -> None:
        self._cluster = cluster
        self._type = type_
        self._field = field
        self._make = make
        self._looked = looked
        self._look_s = look_s
        self.caches: dict[TargetKind, OptionalCache[T]] = {}
        self._missing: dict[TargetKind, str] = {}
        self._wanted: asyncio.Queue[TargetKind] = asyncio.Queue()

    def incomplete(self, kind: TargetKind) -> str:
        """Return why objects of ``kind`` cannot be read, empty when they can; start to watch the kind if needed."""
        cache = self.caches.get(kind)
        if cache is None:
            if kind not in self._missing:
                self._missing[kind] = f"{self._field}: {kind} has not been discovered yet"
                self._wanted.put_nowait(kind)
            return self._missing[kind]
        return "" if cache.synced else cache.problem or f"{kind} has not been read yet"

    async def run(self) -> None:
        """Watch the referenced kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._follow(await self._wanted.get(), group))

    async def _follow(self, kind: TargetKind, group: asyncio.TaskGroup) -> None:
        """Poll for a kind until it is served, then watch its objects."""
        while True:
            try:
                resource = await find_kind(self._cluster, kind.api_group, kind.kind, self._type)
                self._missing[kind] = f"{self._field}: {self._cluster.name} does not serve {kind}; install it"
                if resource is not None:
                    break
            except FairleadError as error:
                self._missing[kind] = f"{self._field}: {error.sentence}"
                log.warning("a kind cannot be discovered", kind=str(kind), field=self._field, sentence=error.sentence)
            self._looked()
            await self._cluster.clock.sleep(self._look_s)
        cache = self.caches[kind] = self._make(kind, resource)
        cache.serve(resource.version)
        group.create_task(cache.run())
        await cache.wait_synced()
        self._looked()
