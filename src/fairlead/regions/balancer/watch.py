"""The watches of layer 2, and the PoolServices that a change enqueues.

In: changes of PoolServices, Services, NodePools, and of what is published. Out: keys of PoolServices in a queue.
Never decides what to do about a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import ObjectKey
from fairlead.api.names import FINALIZER_LOAD_BALANCER, LABEL_ORIGIN_KIND
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.publish.caches import published_load_balancers, published_slices
from fairlead.regions.balancer.identity import is_our_class
from fairlead.regions.changes import Changes
from fairlead.regions.inventory import Inventory
from fairlead.regions.source import ServiceKey
from fairlead.runtime.queue import KeyedQueue


class BalancerWatch:
    """The caches that only layer 2 needs, connected to its queue; made once, before the caches run."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory, changes: Changes) -> None:
        self._inventory = inventory
        made = f"{LABEL_ORIGIN_KIND}={POOL_SERVICES.kind}"
        self.load_balancers = published_load_balancers(cluster, label_selector=made)
        self.slices = published_slices(cluster, label_selector=made)
        self.queue: KeyedQueue[ObjectKey] = KeyedQueue(clock=cluster.clock)
        inventory.pool_services.on_change(self._pool_service)
        changes.on_access.append(self._service)
        changes.on_pools.append(self._pool)
        self.load_balancers.on_change(self._load_balancer)
        self.slices.on_change(self._slice)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        """Return the caches by the name under which readiness shows them."""
        return {"tcploadbalancers": self.load_balancers, "endpointslices (ours)": self.slices}

    def keys(self) -> list[ObjectKey]:
        """Return every PoolService that there is, and every one that some load balancer was made for."""
        keys = {pool_service.key for pool_service in self._inventory.pool_services.values()}
        keys |= {_origin(load_balancer) for load_balancer in self.load_balancers.values()}
        return sorted(keys)

    def _pool_service(self, old: PoolService | None, new: PoolService | None) -> None:
        for version in (old, new):
            if version is not None and (is_our_class(version) or version.held_by(FINALIZER_LOAD_BALANCER)):
                self.queue.add(version.key)

    def _service(self, key: ServiceKey) -> None:
        for _, pool_service in self._inventory.pool_services_of(key):
            if pool_service.deleting and pool_service.held_by(FINALIZER_LOAD_BALANCER):
                self.queue.add(pool_service.key)

    def _pool(self, pool: str) -> None:
        for pool_service in self._inventory.pool_services.by_index("pool", pool):
            if is_our_class(pool_service):
                self.queue.add(pool_service.key)

    def _load_balancer(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        load_balancer = new or old
        if load_balancer is not None:
            self.queue.add(_origin(load_balancer))

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        changed = new or old
        for reference in (changed.metadata.owner_references if changed is not None else None) or ():
            self.queue.add(ObjectKey(changed.metadata.namespace if changed is not None else "", reference.name))


def _origin(load_balancer: TCPLoadBalancer) -> ObjectKey:
    return ObjectKey(load_balancer.metadata.namespace, load_balancer.spec.origin.name)
