"""The watch caches of regions: one for each kind, the pool of each node, and our own last writes of PoolServices.

In: a Cluster. Out: typed objects. ``changes`` keeps pools and membership current. Never decides what to do about a key.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, Endpoint, EndpointSlice, Node
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_BACKENDS, ANNOTATION_TARGET, LABEL_SERVICE_NAME, LOAD_BALANCER_CLASS_PREFIX
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.publish.objects import conditions_of, node_status
from fairlead.regions.backends import Backends, PoolNode, build_backends, decode_backends, pool_node
from fairlead.regions.identity import RegionKey, region_of
from fairlead.regions.pools import Membership, Pool, pool_from_object
from fairlead.regions.source import SOURCE_SERVICES, ServiceKey, SourceService, source_from_whole

_BY_SERVICE = "service"


class Inventory:
    """The caches of layer 1. ``node_pools`` are those of each kind of pools, a later one counts before an earlier."""

    def __init__(self, cluster: Cluster) -> None:
        self.services: WatchCache[SourceService] = WatchCache(
            cluster, SOURCE_SERVICES, transform=source_from_whole, indexes={"selector": _selectors_of}
        )
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            cluster,
            ENDPOINT_SLICES,
            label_selector=LABEL_SERVICE_NAME,
            transform=compact_slice,
            indexes={_BY_SERVICE: lambda each: [service_of_slice(each)], "node": _nodes_of_slice},
        )
        self.nodes: WatchCache[Node] = WatchCache(cluster, NODES, transform=compact_node)
        self.pool_services: WatchCache[PoolService] = WatchCache(
            cluster,
            POOL_SERVICES,
            indexes={_BY_SERVICE: services_of, "pool": lambda each: [each.spec.nodepool_name]},
        )
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(cluster, LOAD_BALANCER_CLASSES)
        self.node_pools: list[AnyCache] = []
        self.written = Overlay(self.pool_services)
        self.membership = Membership()
        self.pools: dict[str, Pool] = {}

    @property
    def caches(self) -> dict[str, AnyCache]:
        """Return every cache by the full name of its kind."""
        all_caches: list[AnyCache] = [
            self.services, self.slices, self.nodes, self.pool_services, self.classes, *self.node_pools,
        ]  # fmt: skip
        return {cache.resource.full_name: cache for cache in all_caches}

    @property
    def problem(self) -> str:
        """Return why the view may be older than the cluster's state; empty when all is well."""
        return "; ".join(cache.problem for cache in self.caches.values() if cache.problem)

    def pool(self, name: str) -> Pool | None:
        """Return one pool."""
        return self.pools.get(name)

    def read_pool(self, name: str) -> Pool | None:
        """Return the pool of this name from the caches; where both kinds have one, OpenYurt's counts."""
        for cache in reversed(self.node_pools):
            obj = cache.get("", name)
            if obj is not None:
                return pool_from_object(cache.resource, obj)
        return None

    def service(self, key: ServiceKey) -> SourceService | None:
        """Return one Service."""
        return self.services.get(*key)

    def is_managed(self, key: ServiceKey) -> bool:
        """Return whether layer 1 manages a Service."""
        service = self.service(key)
        return service is not None and service.managed

    def slices_of(self, key: ServiceKey) -> list[EndpointSlice]:
        """Return the EndpointSlices of one Service."""
        return list(self.slices.by_index(_BY_SERVICE, key))

    def pool_services_of(self, key: ServiceKey) -> list[tuple[RegionKey, PoolService]]:
        """Return the PoolServices of one Service with the region that each is for, sorted by name."""
        pairs = ((region_of(each), each) for each in self.written.by_index(_BY_SERVICE, key))
        return [(region, each) for region, each in pairs if region is not None and region.service_key == key]

    def nodes_in(self, pool: str) -> list[PoolNode]:
        """Return the nodes of a pool that may take traffic, sorted by name."""
        nodes = (self.nodes.get("", name) for name in sorted(self.membership.nodes_of(pool)))
        return [entry for node in nodes if node is not None and (entry := pool_node(node)) is not None]

    def uses_nodes(self, service: SourceService) -> bool:
        """Say whether nodes may be its backends: always for another class, for ours only where nodes are asked for."""
        name = service.spec.load_balancer_class or ""
        if not name.startswith(LOAD_BALANCER_CLASS_PREFIX):
            return True
        target = service.annotation(ANNOTATION_TARGET)
        if target:
            return target == "Node"
        of_class = self.classes.get("", name.removeprefix(LOAD_BALANCER_CLASS_PREFIX))
        return of_class is not None and of_class.spec.targets == "Node"

    def backends(self, service: SourceService, pool: str, present: list[PoolService]) -> Backends:
        """Collect the backends of one region; ``present`` says where endpoints of lost nodes were."""
        slices = self.slices_of(service.key)
        nodes = {endpoint.node_name for each in slices for endpoint in each.endpoints or () if endpoint.node_name}
        nodes_missing = any(not self.membership.knows(node) for node in nodes)
        before = decode_backends(present[0].annotation(ANNOTATION_BACKENDS)) if nodes_missing and present else None
        return build_backends(
            pool,
            slices,
            self.membership,
            before=before,
            nodes=self.nodes_in(pool) if self.uses_nodes(service) else None,
        )

    def service_keys(self) -> list[ServiceKey]:
        """Return every Service that is, or was, ours, and every Service that some PoolService is for."""
        keys: set[ServiceKey] = {service.key for service in self.services.values() if service.concerns_us}
        keys |= {key for pool_service in self.pool_services.values() for key in services_of(pool_service)}
        return sorted(keys)


def services_of(pool_service: PoolService) -> Iterable[ServiceKey]:
    """Return the Service that a PoolService is for, if any."""
    region = region_of(pool_service)
    return () if region is None else (region.service_key,)


def _selectors_of(service: SourceService) -> list[str]:
    return [service.selector] if service.managed else []


def _nodes_of_slice(endpoint_slice: EndpointSlice) -> set[str]:
    return {endpoint.node_name for endpoint in endpoint_slice.endpoints or () if endpoint.node_name}


def service_of_slice(endpoint_slice: EndpointSlice) -> ServiceKey:
    """Return the Service that an EndpointSlice belongs to."""
    return (endpoint_slice.metadata.namespace, endpoint_slice.label(LABEL_SERVICE_NAME))


def compact_slice(raw: EndpointSlice) -> EndpointSlice:
    """Keep of a slice what regions read."""
    endpoints = [
        Endpoint(
            addresses=endpoint.addresses[:1],
            conditions=conditions_of(endpoint.conditions),
            node_name=endpoint.node_name,
        )
        for endpoint in raw.endpoints or ()
        if endpoint.addresses
    ]
    labels = {LABEL_SERVICE_NAME: raw.label(LABEL_SERVICE_NAME)}
    return msgspec.structs.replace(raw, metadata=_compact_meta(raw.metadata, labels), endpoints=endpoints)


def compact_node(raw: Node) -> Node:
    """Keep of a node what regions read: heartbeats change nothing of it."""
    meta = _compact_meta(raw.metadata, raw.metadata.labels)
    return Node(metadata=meta, spec=raw.spec, status=node_status(raw.status))


def _compact_meta(meta: ObjectMeta, labels: dict[str, str] | None) -> ObjectMeta:
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=labels,
    )
