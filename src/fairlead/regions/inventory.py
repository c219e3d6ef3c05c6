"""What regions see: one cache for each kind, which node is in which pool, and whom a change concerns.

    Service                             ─► on_service(key), on_access(key)
    EndpointSlice, Node, NodePool       ─► on_region(key) for the affected regions, on_access when pools come and go
    PoolService                         ─► on_access(key); on_service(key) when more than its status changed
                                        ─► on_pool_service(namespace, name)

In: a Cluster. Out: typed objects, and calls with keys. Never decides what to do about a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fairlead.api.kubernetes import (
    ENDPOINT_SLICES,
    NODES,
    EndpointSlice,
    Node,
)
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.meta import AnyResource
from fairlead.api.names import (
    ANNOTATION_TARGET,
    LABEL_EXCLUDE_NODE,
    LABEL_SERVICE_NAME,
    LOAD_BALANCER_CLASS_PREFIX,
)
from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.regions.backends import PoolNode, pool_node
from fairlead.regions.compact import compact_node, compact_slice, service_of_slice
from fairlead.regions.filters import (
    only_status_changed,
    pool_service_matters,
    pools_of_slice_change,
    selectors_that_flip,
    service_matters,
    services_of_pool_service,
)
from fairlead.regions.identity import RegionKey, region_of
from fairlead.regions.pools import Membership, Pool, claims_of, pool_from_object
from fairlead.regions.source import SOURCE_SERVICES, ServiceKey, SourceService, source_from_whole
from fairlead.regions.written import Written, regions_index

T = TypeVar("T")
Call = Callable[[T], None]


class Inventory:
    """The caches of layer 1."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.services: WatchCache[SourceService] = WatchCache(
            cluster, SOURCE_SERVICES, transform=source_from_whole, indexes={"selector": _selector_index}
        )
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            cluster,
            ENDPOINT_SLICES,
            label_selector=LABEL_SERVICE_NAME,
            transform=compact_slice,
            indexes={"service": lambda one: [service_of_slice(one)], "node": _nodes_of_slice},
        )
        self.nodes: WatchCache[Node] = WatchCache(cluster, NODES, transform=compact_node)
        self.pool_services: WatchCache[PoolService] = WatchCache(
            cluster,
            POOL_SERVICES,
            indexes={"service": regions_index, "pool": lambda one: [one.spec.nodepool_name]},
        )
        self.node_pools: list[WatchCache[Any]] = []
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(cluster, LOAD_BALANCER_CLASSES)
        self.membership = Membership()
        self.written = Written(self.pool_services)
        self.on_service: list[Call[ServiceKey]] = []
        self.on_access: list[Call[ServiceKey]] = []
        self.on_region: list[Call[RegionKey]] = []
        self.on_pools: list[Call[str]] = []
        self._pools: dict[str, Pool] = {}
        self.services.on_change(self._service_changed)
        self.slices.on_change(self._slice_changed)
        self.nodes.on_change(self._node_changed)
        self.pool_services.on_change(self._pool_service_changed)
        self.classes.on_change(self._class_changed)
        self.add_node_pools(NODE_POOLS)

    # --- kinds of pools ---------------------------------------------------------------------------------------

    def add_node_pools(self, kind: AnyResource) -> WatchCache[Any]:
        """Let pools of this kind count, before those of kinds that were added earlier; the caller runs the cache."""
        cache: WatchCache[Any] = WatchCache(self._cluster, kind)
        cache.on_change(self._node_pool_changed)
        self.node_pools.append(cache)
        return cache

    def drop_node_pools(self, cache: WatchCache[Any]) -> None:
        """Let the pools of a kind count no more; the cache has been stopped."""
        self.node_pools.remove(cache)
        for one in list(cache.values()):
            self._node_pool_changed(one, None)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def caches(self) -> dict[str, WatchCache[Any]]:
        """Return every cache by the full name of its kind."""
        all_caches: list[WatchCache[Any]] = [
            self.services, self.slices, self.nodes, self.pool_services, self.classes, *self.node_pools,
        ]  # fmt: skip
        return {cache.resource.full_name: cache for cache in all_caches}

    @property
    def problem(self) -> str:
        """Return why the view may be older than the truth; empty when all is well."""
        return "; ".join(cache.problem for cache in self.caches.values() if cache.problem)

    @property
    def pools(self) -> Iterable[Pool]:
        """Return all pools of either kind."""
        return self._pools.values()

    def pool(self, name: str) -> Pool | None:
        """Return one pool."""
        return self._pools.get(name)

    def service(self, key: ServiceKey) -> SourceService | None:
        """Return one Service."""
        return self.services.get(*key)

    def slices_of(self, key: ServiceKey) -> list[EndpointSlice]:
        """Return the EndpointSlices of one Service."""
        return list(self.slices.by_index("service", key))

    def nodes_in(self, pool: str) -> list[PoolNode]:
        """Return the nodes of a pool that may take traffic, sorted by name."""
        nodes = (self.nodes.get("", name) for name in sorted(self.membership.nodes_of(pool)))
        return [found for node in nodes if node is not None and (found := pool_node(node)) is not None]

    def uses_nodes(self, service: SourceService) -> bool:
        """Say whether nodes may be its backends: always for another class, for ours only where nodes are asked for."""
        name = service.spec.load_balancer_class or ""
        if not name.startswith(LOAD_BALANCER_CLASS_PREFIX):
            return True
        wish = service.annotation(ANNOTATION_TARGET)
        if wish:
            return wish == "Node"
        of_class = self.classes.get("", name.removeprefix(LOAD_BALANCER_CLASS_PREFIX))
        return of_class is not None and of_class.spec.targets == "Node"

    def service_keys(self) -> list[ServiceKey]:
        """Return every Service that is, or was, ours, and every Service that some PoolService is for."""
        keys = {one.key for one in self.services.values() if one.concerns_us}
        keys |= {key for one in self.pool_services.values() for key in regions_index(one)}
        return sorted(keys)

    # --- whom a change concerns -------------------------------------------------------------------------------

    def _service_changed(self, old: SourceService | None, new: SourceService | None) -> None:
        one = new or old
        if one is not None and service_matters(old, new):
            self._tell(self.on_service, one.key)
            self._tell(self.on_access, one.key)

    def _pool_service_changed(self, old: PoolService | None, new: PoolService | None) -> None:
        if not pool_service_matters(old, new):
            return
        for key in services_of_pool_service(old, new):
            self._tell(self.on_access, key)
            if not only_status_changed(old, new) or _has_access(old) != _has_access(new):
                self._tell(self.on_service, key)

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        one = new or old
        if one is None:
            return
        for key in {service_of_slice(each) for each in (old, new) if each is not None}:
            service = self.service(key)
            if service is None or not service.managed:
                continue
            gone = self._last_placed(key, old)
            for pool in sorted(pools_of_slice_change(old, new, self.membership) | gone):
                self._tell(self.on_region, RegionKey(*key, pool))

    def _last_placed(self, key: ServiceKey, old: EndpointSlice | None) -> set[str]:
        """Return all pools of a Service whose slice names a node that is gone: one of them has its last endpoints."""
        nodes = {endpoint.node_name for endpoint in (old.endpoints if old is not None else None) or ()}
        if all(self.membership.knows(node) for node in nodes if node):
            return set()
        return {region.pool for region, _ in self.written.of_service(key)}

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        one = new or old
        if one is None:
            return
        claims = claims_of(new, self._pools.values()) if new is not None else None
        known = self.membership.knows(one.metadata.name)
        before, after = self.membership.put(one.metadata.name, claims)
        moved = before != after or known != (new is not None)
        self._node_matters(one.metadata.name, before, after, moved=moved, changed=_as_node(old) != _as_node(new))
        for pool in claims.pools[1:] if claims is not None else ():
            self._tell(self.on_pools, pool)  # it goes short of this node

    def _node_matters(self, node: str, before: str, after: str, *, moved: bool, changed: bool) -> None:
        regions: set[RegionKey] = set()
        pools = {pool for pool in (before, after) if pool}
        if moved:
            keys = {service_of_slice(one) for one in self.slices.by_index("node", node)}
            regions |= {RegionKey(*key, pool) for key in keys for pool in pools if self._managed(key)}
        if moved or changed:
            for pool in pools:
                for one in self.pool_services.by_index("pool", pool):
                    region = region_of(one)
                    service = self.service(region.service_key) if region is not None else None
                    if region is not None and service is not None and self.uses_nodes(service):
                        regions.add(region)
        for region in sorted(regions):
            self._tell(self.on_region, region)

    def _node_pool_changed(self, _old: object, _new: object) -> None:
        one: Any = _new or _old
        name = one.metadata.name
        old, new = self._pools.get(name), self._read_pool(name)
        if old == new:
            return
        if new is None:
            self._pools.pop(name, None)
        else:
            self._pools[name] = new
        self._reassign(old, new)
        texts = [text for text in self._selectors() if text]
        for text in selectors_that_flip(old, new, texts):
            for service in self.services.by_index("selector", text):
                self._tell(self.on_region, RegionKey(*service.key, name))
                self._tell(self.on_access, service.key)
        if new is None or new.deleting or old is None or old.uid != new.uid:
            # Also those whose selector cannot be read any more and that are kept as they were.
            for one in self.pool_services.by_index("pool", name):
                for key in regions_index(one):
                    self._tell(self.on_region, RegionKey(*key, name))
                    self._tell(self.on_access, key)
        self._tell(self.on_pools, name)

    def _class_changed(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        one = new or old
        if one is None or (old is not None and new is not None and old.spec.targets == new.spec.targets):
            return
        wanted = LOAD_BALANCER_CLASS_PREFIX + one.metadata.name
        for service in self.services.values():
            if service.managed and service.spec.load_balancer_class == wanted:
                self._tell(self.on_service, service.key)

    def _read_pool(self, name: str) -> Pool | None:
        """Return the pool of this name; where both kinds have one, OpenYurt's counts."""
        for cache in reversed(self.node_pools):
            obj = cache.get("", name)
            if obj is not None:
                return pool_from_object(cache.resource, obj)
        return None

    def _reassign(self, old: Pool | None, new: Pool | None) -> None:
        for node in self.nodes.values():
            labels = node.metadata.labels or {}
            if any(pool is not None and pool.claims(labels) for pool in (old, new)):
                before, after = self.membership.put(node.metadata.name, claims_of(node, self._pools.values()))
                if before != after:
                    self._node_matters(node.metadata.name, before, after, moved=True, changed=False)

    def _selectors(self) -> set[str]:
        return {one.selector for one in self.services.values() if one.managed}

    def _managed(self, key: ServiceKey) -> bool:
        service = self.service(key)
        return service is not None and service.managed

    @staticmethod
    def _tell(calls: list[Call[T]], key: T) -> None:
        for call in calls:
            call(key)


def _as_node(node: Node | None) -> tuple[object, ...]:
    if node is None:
        return ()
    return (pool_node(node), LABEL_EXCLUDE_NODE in (node.metadata.labels or {}))


def _has_access(one: PoolService | None) -> list[str]:
    return [] if one is None else [each.address for each in one.status.load_balancer.ingress or ()]


def _selector_index(one: SourceService) -> list[str]:
    return [one.selector] if one.managed else []


def _nodes_of_slice(one: EndpointSlice) -> set[str]:
    return {endpoint.node_name for endpoint in one.endpoints or () if endpoint.node_name}
