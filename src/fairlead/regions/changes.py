"""Dispatches changes of the inventory to the keys that they concern.

    Service                             ─► on_service(key), on_access(key)
    EndpointSlice, Node, NodePool       ─► on_region(key) for the affected regions, on_access when pools come and go
    PoolService                         ─► on_access(key); on_service(key) when more than its status changed
    NodePool                            ─► on_pools(name)

In: changes of the inventory's caches. Out: pools and membership kept current, and calls with keys.
Never decides what to do about a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairlead.api.kubernetes import EndpointSlice, Node
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import AnyResource, only_status_changed
from fairlead.api.names import LABEL_EXCLUDE_NODE, LOAD_BALANCER_CLASS_PREFIX
from fairlead.api.poolservice import NODE_POOLS, PoolService
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.regions.backends import pool_node
from fairlead.regions.filters import (
    pool_service_matters,
    pools_of_slice_change,
    selectors_that_flip,
    service_matters,
    services_of_pool_service,
)
from fairlead.regions.identity import RegionKey, region_of
from fairlead.regions.inventory import Inventory, service_of_slice, services_of
from fairlead.regions.pools import Pool, claims_of
from fairlead.regions.source import ServiceKey, SourceService

T = TypeVar("T")
Call = Callable[[T], None]


class Changes:
    """Connects the caches of an inventory to the controllers; created once, before the caches run."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory) -> None:
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
        inventory.classes.on_change(self._class)
        self.add_node_pools(NODE_POOLS)

    def add_node_pools(self, kind: AnyResource) -> AnyCache:
        """Use pools of this kind, with precedence over kinds added earlier; the caller runs the cache."""
        cache: AnyCache = WatchCache(self._cluster, kind)
        cache.on_change(self._node_pool)
        self._inventory.node_pools.append(cache)
        return cache

    def drop_node_pools(self, cache: AnyCache) -> None:
        """Stop using pools of a kind; the caller has stopped the cache."""
        self._inventory.node_pools.remove(cache)
        for node_pool in list(cache.values()):
            self._node_pool(node_pool, None)

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
                for pool in sorted(pools_of_slice_change(old, new, membership) | self._pools_of_lost_nodes(key, old)):
                    _call(self.on_region, RegionKey(*key, pool))

    def _pools_of_lost_nodes(self, key: ServiceKey, old: EndpointSlice | None) -> set[str]:
        """Return all pools of a Service with an endpoint on a node that does not exist: any of them may list it."""
        nodes = {endpoint.node_name for endpoint in (old.endpoints if old is not None else None) or ()}
        if all(self._inventory.membership.knows(node) for node in nodes if node):
            return set()
        return {region.pool for region, _ in self._inventory.pool_services_of(key)}

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
        pools = {pool for pool in (before, after) if pool}
        if moved:
            keys = {service_of_slice(each) for each in inventory.slices.by_index("node", node)}
            regions |= {RegionKey(*key, pool) for key in keys for pool in pools if inventory.is_managed(key)}
        if moved or changed:
            for pool in pools:
                for pool_service in inventory.pool_services.by_index("pool", pool):
                    region = region_of(pool_service)
                    service = inventory.service(region.service_key) if region is not None else None
                    if region is not None and service is not None and inventory.uses_nodes(service):
                        regions.add(region)
        for region in sorted(regions):
            _call(self.on_region, region)

    def _node_pool(self, _old: object, _new: object) -> None:
        node_pool: Any = _new or _old
        name, inventory = node_pool.metadata.name, self._inventory
        old, new = inventory.pools.get(name), inventory.read_pool(name)
        if old == new:
            return
        if new is None:
            inventory.pools.pop(name, None)
        else:
            inventory.pools[name] = new
        self._reassign(old, new)
        selectors = {service.selector for service in inventory.services.values() if service.managed}
        for text in selectors_that_flip(old, new, filter(None, selectors)):
            for service in inventory.services.by_index("selector", text):
                self._region(RegionKey(*service.key, name))
        if new is None or new.deleting or old is None or old.uid != new.uid:
            # Also those whose selector cannot be read any more and that are kept as they were.
            for pool_service in inventory.pool_services.by_index("pool", name):
                for key in services_of(pool_service):
                    self._region(RegionKey(*key, name))
        _call(self.on_pools, name)

    def _region(self, key: RegionKey) -> None:
        _call(self.on_region, key)
        _call(self.on_access, key.service_key)

    def _reassign(self, old: Pool | None, new: Pool | None) -> None:
        for node in self._inventory.nodes.values():
            labels = node.metadata.labels or {}
            if any(pool is not None and pool.claims(labels) for pool in (old, new)):
                claims = claims_of(node, self._inventory.pools.values())
                before, after = self._inventory.membership.put(node.metadata.name, claims)
                if before != after:
                    self._node_changed(node.metadata.name, before, after, moved=True, changed=False)

    def _class(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        changed = new or old
        if changed is None or (old is not None and new is not None and old.spec.targets == new.spec.targets):
            return
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
    return [] if pool_service is None else [each.address for each in pool_service.status.load_balancer.ingress or ()]
