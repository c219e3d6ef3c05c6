"""How a load balancer leaves: the provider lets go first, then the finalizer, then the address is free again.

    deleting ──► asked (provider deletes) ──► let go ──► finalizer removed ──► object gone ──► address released

Deleted while the hub was down is deleted when it is back: an object with our finalizer that the tracker does not
know is deleted at the provider all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.runner import ProviderRunner
from fairlead.hub.tenants.address_allocator import AddressAllocator
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import LoadBalancerKey

_RESOURCES = {one.kind: one for one in (TCP_LOAD_BALANCERS, LOAD_BALANCERS)}


class Finalization:
    """Sees every load balancer out."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        engines: Mapping[str, ProviderRunner],
        book: AddressAllocator,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._engines = engines
        self._book = book
        self._leading = leading
        self._asked: set[LoadBalancerKey] = set()

    async def depart(self, key: LoadBalancerKey) -> None:
        """Take ``key`` one step further on its way out."""
        load_balancer = self._inventory.intent(key)
        if load_balancer is None and self._inventory.is_unreadable(key):
            return  # it is there, and what it says is not known: that is no reason to take anything away
        if load_balancer is None:
            # Gone for good, with our finalizer removed by us or, by force, by somebody else.
            if self._ask(key, though_unknown=False) or self.in_flight(key):
                return
            self._asked.discard(key)
            self._inventory.wake(self._book.leave(key))
            return
        # Every time: what is on record may have been read only since we asked last.
        self._ask(key, though_unknown=key not in self._asked)
        self._asked.add(key)
        if self.in_flight(key) or not self._leading() or self._unknown(load_balancer):
            return
        finalizers = load_balancer.metadata.finalizers or []
        if FINALIZER_CLEANUP in finalizers:
            meta = load_balancer.metadata
            patch = {
                "metadata": {
                    "resourceVersion": meta.resource_version,
                    "finalizers": [one for one in finalizers if one != FINALIZER_CLEANUP],
                }
            }
            try:
                await self._cluster.merge_patch(
                    _RESOURCES[key.kind], meta.namespace, meta.name, patch, manager=MANAGER_HUB
                )
            except NotFound:
                return

    def _unknown(self, load_balancer: TCPLoadBalancer | LoadBalancer) -> bool:
        """Say whether it was made by a provider that does not run here (yet): only that one can let go of it."""
        status = load_balancer.status
        if isinstance(load_balancer, TCPLoadBalancer):
            providers = load_balancer.status.recorded_providers
        else:
            providers = (
                {status.frontend.provider} if status.frontend is not None and status.frontend.provider else set()
            )
        engines = [self._engines.get(provider) for provider in providers]
        return any(engine is None or not engine.loaded for engine in engines)

    def in_flight(self, key: LoadBalancerKey) -> bool:
        """Say whether some provider still has, or may have, something of ``key``."""
        return any(key in engine.tracker for engine in self._engines.values())

    def came_back(self, key: LoadBalancerKey) -> None:
        """Forget that ``key`` was on its way out: an object of the same name is here again."""
        self._asked.discard(key)

    def _ask(self, key: LoadBalancerKey, *, though_unknown: bool) -> bool:
        asked = False
        for engine in self._engines.values():
            if engine.tracker.remove(key, though_unknown=though_unknown and not engine.durable):
                engine.worker.trigger()
                asked = True
        return asked
