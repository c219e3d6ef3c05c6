"""The watch caches of regions, the pool of each node, the own last writes, and which keys a change concerns.

In: a Cluster. Out: typed objects; pools and membership that are kept current; calls with the keys of Services, regions
and pools that a change concerns. Never: decides what to do about a key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import msgspec

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, Endpoint, EndpointSlice, Node
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.meta import AnyResource, KubeObject, ObjectKey, ObjectMeta, only_status_changed
from fairlead.api.names import (
    ANNOTATION_BACKENDS,
    ANNOTATION_SERVICE,
    ANNOTATION_TARGET,
    LABEL_EXCLUDE_NODE,
    LABEL_SERVICE_NAME,
    LOAD_BALANCER_CLASS_PREFIX,
)
from fairlead.api.poolservice import NODE_POOLS, POOL_SERVICES, PoolService
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.publish.objects import conditions_of, node_status
from fairlead.regions.plan import (
    pool_service_matters,
    pools_of_slice_change,
    selectors_that_flip,
    service_matters,
    services_of_pool_service,
)
from fairlead.regions.source import (
    SOURCE_SERVICES,
    Backends,
    Membership,
    PoolNode,
    RegionKey,
    RegionPool,
    ServiceKey,
    SourceService,
    build_backends,
    claims_of,
    decode_backends,
    pool_from_object,
    pool_node,
    region_of,
    source_from_whole,
    source_in_document,
)

_BY_SERVICE = "service"


class RegionsInventory:
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
            indexes={_BY_SERVICE: lambda endpoint_slice: [service_of_slice(endpoint_slice)], "node": _nodes_of_slice},
        )
        self.nodes: WatchCache[Node] = WatchCache(cluster, NODES, transform=compact_node)
        self.pool_services: WatchCache[PoolService] = WatchCache(
            cluster,
            POOL_SERVICES,
            indexes={_BY_SERVICE: services_of, "pool": lambda pool_service: [pool_service.spec.nodepool_name]},
        )
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(cluster, LOAD_BALANCER_CLASSES)
        self.node_pools: list[AnyCache] = []
        self.written = Overlay(self.pool_services)
        self.membership = Membership()
        self.pools: dict[str, RegionPool] = {}

    @property
    def caches(self) -> dict[str, AnyCache]:
        """Return every cache by the full name of its kind."""
        all_caches: list[AnyCache] = [
            self.services, self.slices, self.nodes, self.pool_services, self.classes, *self.node_pools,
        ]  # fmt: skip
        return {cache.resource.full_name: cache for cache in all_caches}

    @property
    def problem(self) -> str:
        """Return why the view may be older than the cluster's state; empty if it is current."""
        return "; ".join(cache.problem for cache in self.caches.values() if cache.problem)

    def pool(self, name: str) -> RegionPool | None:
        """Return one pool."""
        return self.pools.get(name)

    def read_pool(self, name: str) -> RegionPool | None:
        """Return the pool of this name from the caches; where both kinds have one, OpenYurt's counts."""
        for cache in reversed(self.node_pools):
            obj = cache.get("", name)
            if obj is not None:
                return pool_from_object(cache.resource, obj)
        return None

    def service(self, key: ServiceKey) -> SourceService | None:
        """Return one Service."""
        return self.services.get(*key)

    def is_unread(self, key: ServiceKey) -> bool:
        """Return whether a Service exists and has never been readable."""
        return self.service(key) is None and ObjectKey(*key) in self.services.unread

    def service_in_effect(self, key: ServiceKey, pool_service: PoolService) -> SourceService | None:
        """Return one Service; while it cannot be read, the version that this PoolService carries."""
        if self.is_unread(key):
            return source_in_document(pool_service.annotation(ANNOTATION_SERVICE))
        return self.service(key)

    def is_managed(self, key: ServiceKey) -> bool:
        """Return whether layer 1 manages a Service; one that cannot be read is managed while it has PoolServices."""
        service = self.service(key)
        return service.managed if service is not None else self.is_unread(key)

    def slices_of(self, key: ServiceKey) -> list[EndpointSlice]:
        """Return the EndpointSlices of one Service."""
        return list(self.slices.by_index(_BY_SERVICE, key))

    def pool_services_of(self, key: ServiceKey) -> list[tuple[RegionKey, PoolService]]:
        """Return the PoolServices of one Service with the region that each is for, sorted by name."""
        pairs = ((region_of(pool_service), pool_service) for pool_service in self.written.by_index(_BY_SERVICE, key))
        return [
            (region, pool_service) for region, pool_service in pairs if region is not None and region.service_key == key
        ]

    def nodes_in(self, pool: str) -> list[PoolNode]:
        """Return the nodes of a pool that may take traffic, sorted by name."""
        names = sorted(self.membership.nodes_of(pool))
        return [entry for name in names if (entry := self._pool_node(name)) is not None]

    def _pool_node(self, name: str) -> PoolNode | None:
        node = self.nodes.get("", name)
        return pool_node(node) if node is not None else None

    def check_read(self, key: ServiceKey) -> None:
        """Check that the PoolServices of a Service and their NodePools have been readable.

        Raises:
            Retry: one has not; which regions the Service has is unknown.
        """
        for name, remains in self.pool_services.remains().items():
            region = region_of(remains.obj) if remains.obj is not None else None
            if name.namespace in ("", key[0]) and (region is None or region.service_key == key):
                self.pool_services.check_read(*name)
        for region, _ in self.pool_services_of(key):
            self.check_read_pool(region.pool)

    def check_read_pool(self, name: str) -> None:
        """Check that the NodePools of this name have been readable.

        Raises:
            Retry: one has not.
        """
        for cache in self.node_pools:
            cache.check_read("", name)

    def uses_nodes(self, service: SourceService, published: Backends | None = None) -> bool:
        """Return whether nodes may be backends: always for another class, for ours only if nodes are requested.

        While the class cannot be read, they may unless ``published`` has none.
        """
        name = service.spec.load_balancer_class or ""
        if not name.startswith(LOAD_BALANCER_CLASS_PREFIX):
            return True
        target = service.annotation(ANNOTATION_TARGET)
        if target:
            return target == "Node"
        of_class = self.classes.get("", name.removeprefix(LOAD_BALANCER_CLASS_PREFIX))
        if name.removeprefix(LOAD_BALANCER_CLASS_PREFIX) in _names(self.classes.unread):
            return published is None or bool(published.truncated) or published.nodes is not None
        return of_class is not None and of_class.spec.targets == "Node"

    def backends(
        self, service: SourceService, pool: str, present: list[PoolService], *, published: Backends | None = None
    ) -> Backends:
        """Collect the backends of one region; ``present`` says where endpoints of lost nodes were.

        ``published`` are the backends that layer 2 has, for a PoolService whose annotation is truncated. Without them,
        all nodes that cannot be read count, and the result stays truncated: it serves to detect changes.
        """
        slices = self.slices_of(service.key)
        names = _nodes_of_slices(slices)
        nodes_missing = any(not self.membership.knows(node) for node in names)
        if published is None:
            published = decode_backends(present[0].annotation(ANNOTATION_BACKENDS)) if present else None
        class_name = (service.spec.load_balancer_class or "").removeprefix(LOAD_BALANCER_CLASS_PREFIX)
        if published is None:
            self.classes.check_read("", class_name)
        before = published or Backends()
        # A node stays where it was published while the node, or the pool, cannot be read.
        unread, unread_pools = _names(self.nodes.unread), self.unread_pools
        undecided, elsewhere = unread, set[str]()
        if pool in unread_pools and not before.truncated:
            undecided = unread | before.node_names
        elif pool not in self.pools:
            undecided = unread | {name for name in names | before.node_names if not self.membership.pool_of(name)}
        elif unread_pools:
            elsewhere = self._nodes_elsewhere(service.key, unread_pools) - before.node_names
        kept = undecided if before.truncated else undecided & before.node_names
        kept = kept | self._new_unread(service.key, pool)
        known = {node.name: node for node in before.nodes or () if node.name in kept & unread}
        known |= {entry.name: entry for name in kept if (entry := self._pool_node(name)) is not None}
        nodes = {**known, **{node.name: node for node in self.nodes_in(pool) if node.name not in elsewhere}}
        built = build_backends(
            pool,
            slices,
            self.membership,
            before=published if nodes_missing else None,
            nodes=nodes.values() if self.uses_nodes(service, published) else None,
            kept=kept,
            elsewhere=elsewhere,
        )
        partial = bool(undecided) or class_name in _names(self.classes.unread)
        return msgspec.structs.replace(built, truncated=before.truncated if partial else "")

    @property
    def unread_pools(self) -> set[str]:
        """Return the pools that exist and have never been readable."""
        return _names(key for cache in self.node_pools for key in cache.unread) - self.pools.keys()

    def _new_unread(self, key: ServiceKey, pool: str) -> set[str]:
        """Return the nodes that cannot be read, have the labels of a pool, and are not published for a Service yet."""
        pools = self.pools.values()
        nodes = (remains.obj for remains in self.nodes.remains().values() if remains.obj and remains.has("metadata"))
        names = {node.metadata.name for node in nodes if claims_of(node, pools).owner == pool}
        return names - self._nodes_elsewhere(key, {name for name in self.pools if name != pool}) if names else names

    def _nodes_elsewhere(self, key: ServiceKey, pools: Collection[str]) -> set[str]:
        """Return the nodes that are published in ``pools`` for a Service: a pool there may be the older one."""
        published = (
            decode_backends(pool_service.annotation(ANNOTATION_BACKENDS))
            for region, pool_service in self.pool_services_of(key)
            if region.pool in pools
        )
        return set[str]().union(*(backends.node_names for backends in published if backends is not None))

    def service_keys(self) -> list[ServiceKey]:
        """Return every Service that is, or was, ours, and every Service that some PoolService is for."""
        keys: set[ServiceKey] = {service.key for service in self.services.values() if service.concerns_us}
        keys |= {key for pool_service in self.pool_services.values() for key in services_of(pool_service)}
        return sorted(keys)


def _names(keys: Iterable[ObjectKey]) -> set[str]:
    return {key.name for key in keys}


def services_of(pool_service: PoolService) -> Iterable[ServiceKey]:
    """Return the Service that a PoolService is for, if any."""
    region = region_of(pool_service)
    return () if region is None else (region.service_key,)


def _selectors_of(service: SourceService) -> list[str]:
    return [service.selector] if service.managed else []


def _nodes_of_slice(endpoint_slice: EndpointSlice) -> set[str]:
    return {endpoint.node_name for endpoint in endpoint_slice.endpoints or () if endpoint.node_name}


def _nodes_of_slices(slices: Iterable[EndpointSlice]) -> set[str]:
    return set[str]().union(*map(_nodes_of_slice, slices))


def service_of_slice(endpoint_slice: EndpointSlice) -> ServiceKey:
    """Return the Service that an EndpointSlice belongs to."""
    return (endpoint_slice.metadata.namespace, endpoint_slice.label(LABEL_SERVICE_NAME))


def compact_slice(raw: EndpointSlice) -> EndpointSlice:
    """Reduce a slice to the fields that regions read."""
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
    """Reduce a node to the fields that regions read, so that heartbeats change nothing."""
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


T = TypeVar("T")
Call = Callable[[T], None]


# --- changes ---------------------------------------------------------------------------------------------------------
#
# Dispatches changes of the inventory to the keys that they concern.
#
#     Service                             ─► on_service(key), on_access(key)
#     EndpointSlice, Node, NodePool       ─► on_region(key) for the affected regions, on_access when pools come and go
#     PoolService                         ─► on_access(key); on_service(key) when more than its status changed
#     NodePool                            ─► on_pools(name)


class Changes:
    """Connects the caches of an inventory to the controllers; created once, before the caches run."""

    def __init__(self, *, cluster: Cluster, inventory: RegionsInventory) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self.on_service: list[Call[ServiceKey]] = []
        self.on_access: list[Call[ServiceKey]] = []
        self.on_region: list[Call[RegionKey]] = []
        self.on_pools: list[Call[str]] = []
        inventory.services.on_change(self._service)
        inventory.slices.on_change(self._slice)
        inventory.nodes.on_change(self._node)
        inventory.pool_services.on_change(self._pool_service)
        inventory.classes.on_object(self._class, part=lambda obj: obj.spec.targets)
        self.add_node_pools(NODE_POOLS)

    def add_node_pools(self, kind: AnyResource) -> AnyCache:
        """Use pools of this kind, with precedence over kinds added earlier; the caller runs the cache."""
        cache: AnyCache = WatchCache(self._cluster, kind)
        cache.on_object(self._node_pool)
        self._inventory.node_pools.append(cache)
        return cache

    def drop_node_pools(self, cache: AnyCache) -> None:
        """Stop using pools of a kind; the caller has stopped the cache."""
        self._inventory.node_pools.remove(cache)
        for node_pool in list(cache.values()):
            self._node_pool(node_pool)

    def _service(self, old: SourceService | None, new: SourceService | None) -> None:
        service = new or old
        if service is not None and service_matters(old, new):
            _call(self.on_service, service.key)
            _call(self.on_access, service.key)

    def _pool_service(self, old: PoolService | None, new: PoolService | None) -> None:
        if not pool_service_matters(old, new):
            return
        for key in services_of_pool_service(old, new):
            _call(self.on_access, key)
            if not (old and new and only_status_changed(old, new)) or _addresses(old) != _addresses(new):
                _call(self.on_service, key)

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        membership = self._inventory.membership
        for key in {service_of_slice(version) for version in (old, new) if version is not None}:
            if self._inventory.is_managed(key):
                for pool in sorted(pools_of_slice_change(old, new, membership) | self._undecided_pools(key, old, new)):
                    _call(self.on_region, RegionKey(*key, pool))

    def _undecided_pools(self, key: ServiceKey, *versions: EndpointSlice | None) -> set[str]:
        """Return all pools of a Service with an endpoint on a node whose pool is unknown: any of them may list it."""
        inventory = self._inventory
        nodes = _nodes_of_slices(version for version in versions if version is not None)
        pools = {region.pool for region, _ in inventory.pool_services_of(key)}
        unread = inventory.unread_pools
        is_known = inventory.membership.pool_of if unread else inventory.membership.knows
        return pools & unread if all(is_known(node) for node in nodes) else pools

    def _node(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        if node is None:
            return
        name, membership = node.metadata.name, self._inventory.membership
        claims = claims_of(new, self._inventory.pools.values()) if new is not None else None
        known = membership.knows(name)
        before, after = membership.put(name, claims)
        moved = before != after or known != (new is not None)
        self._node_changed(name, before, after, moved=moved, changed=_as_backend(old) != _as_backend(new))
        for pool in claims.pools[1:] if claims is not None else ():
            _call(self.on_pools, pool)  # it goes short of this node

    def _node_changed(self, node: str, before: str, after: str, *, moved: bool, changed: bool) -> None:
        inventory = self._inventory
        regions: set[RegionKey] = set()
        # A node without a pool may be in one that cannot be read.
        pools = {pool for pool in (before, after) if pool} | inventory.unread_pools
        if moved:
            keys = {service_of_slice(endpoint_slice) for endpoint_slice in inventory.slices.by_index("node", node)}
            regions |= {RegionKey(*key, pool) for key in keys for pool in pools if inventory.is_managed(key)}
        if moved or changed:
            for pool in pools:
                for pool_service in inventory.pool_services.by_index("pool", pool):
                    region = region_of(pool_service)
                    service = inventory.service_in_effect(region.service_key, pool_service) if region else None
                    if region is not None and service is not None and inventory.uses_nodes(service):
                        regions.add(region)
        for region in sorted(regions):
            _call(self.on_region, region)

    def _node_pool(self, node_pool: KubeObject) -> None:
        name, inventory = node_pool.metadata.name, self._inventory
        old, new = inventory.pools.get(name), inventory.read_pool(name)
        if old == new:
            return
        if new is None:
            inventory.pools.pop(name, None)
        else:
            inventory.pools[name] = new
        for node in self._inventory.nodes.values():
            labels = node.metadata.labels or {}
            if any(pool is not None and pool.claims(labels) for pool in (old, new)):
                claims = claims_of(node, self._inventory.pools.values())
                before, after = self._inventory.membership.put(node.metadata.name, claims)
                if before != after:
                    self._node_changed(node.metadata.name, before, after, moved=True, changed=False)
        selectors = {service.selector for service in inventory.services.values() if service.managed}
        for text in selectors_that_flip(old, new, filter(None, selectors)):
            for service in inventory.services.by_index("selector", text):
                self._region(RegionKey(*service.key, name))
        if new is None or new.deleting or old is None or old.uid != new.uid:
            # Also those whose selector can no longer be read and that are kept as they were.
            for pool_service in inventory.pool_services.by_index("pool", name):
                for key in services_of(pool_service):
                    self._region(RegionKey(*key, name))
        _call(self.on_pools, name)

    def _region(self, key: RegionKey) -> None:
        _call(self.on_region, key)
        _call(self.on_access, key.service_key)

    def _class(self, changed: LoadBalancerClass) -> None:
        name = LOAD_BALANCER_CLASS_PREFIX + changed.metadata.name
        for service in self._inventory.services.values():
            if service.managed and service.spec.load_balancer_class == name:
                _call(self.on_service, service.key)


def _call(calls: list[Call[T]], key: T) -> None:
    for call in calls:
        call(key)


def _as_backend(node: Node | None) -> tuple[object, ...]:
    if node is None:
        return ()
    return (pool_node(node), LABEL_EXCLUDE_NODE in (node.metadata.labels or {}))


def _addresses(pool_service: PoolService | None) -> list[str]:
    return (
        [] if pool_service is None else [ingress.address for ingress in pool_service.status.load_balancer.ingress or ()]
    )
