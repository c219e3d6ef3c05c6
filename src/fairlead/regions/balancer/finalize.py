"""Removes the load balancer of a PoolService, and then the finalizer.

    address gone from the Service's status ─► TCPLoadBalancer deleted ─► (hub releases it) ─► slices ─► finalizer off

In: the key of a PoolService that is gone, being deleted, or of another class by now. Out: deletes, the finalizer off.
Never: touches a TCPLoadBalancer that was made for something else.
"""

from __future__ import annotations

from fairlead.api.meta import ObjectKey
from fairlead.api.names import FINALIZER_LOAD_BALANCER, MANAGER_BALANCER
from fairlead.api.poolservice import POOL_SERVICES, PoolService, PoolServiceStatus
from fairlead.kube.cluster import Cluster
from fairlead.kube.finalizers import release
from fairlead.kube.status import write_status
from fairlead.publish.plan import HubWrite
from fairlead.publish.publisher import Publisher
from fairlead.regions.balancer.identity import made_for
from fairlead.regions.balancer.view import read_present
from fairlead.regions.identity import region_of
from fairlead.regions.inventory import Inventory

#: How long a load balancer outlives its PoolService's deletion while its address is still shown, at most.
UNION_PATIENCE_S = 30.0
_RETRY_S = 1.0


class Finalization:
    """Deletes the objects that were created for PoolServices."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory, publisher: Publisher) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._publisher = publisher
        self._since_s: dict[ObjectKey, float] = {}

    def forget(self, key: ObjectKey) -> None:
        """Reset the grace period of a PoolService that is wanted again."""
        self._since_s.pop(key, None)

    async def finalize(self, key: ObjectKey, pool_service: PoolService | None) -> float | None:
        """Reconcile one key; return in how many seconds to reconcile again, None for no time."""
        held = pool_service if pool_service is not None and pool_service.held_by(FINALIZER_LOAD_BALANCER) else None
        present = read_present(self._publisher, key)
        load_balancer = present.load_balancer
        if load_balancer is not None and made_for(load_balancer, key[1]):
            if held is not None and self._is_shown(held):
                return _RETRY_S
            if not load_balancer.deleting:
                await self._publisher.write([HubWrite("delete", load_balancer, "its PoolService is gone")])
            return None  # its end enqueues the key
        slices = [each for each in present.slices if not each.deleting]
        await self._publisher.write(HubWrite("delete", each, "its load balancer is gone") for each in slices)
        if held is not None:
            self.forget(key)
            if not held.deleting:
                # Another class has it now: the status is no longer true.
                empty = PoolServiceStatus()
                await write_status(self._cluster, POOL_SERVICES, held, held.status, empty, manager=MANAGER_BALANCER)
            await release(self._cluster, POOL_SERVICES, held, FINALIZER_LOAD_BALANCER, manager=MANAGER_BALANCER)
        return None

    def _is_shown(self, pool_service: PoolService) -> bool:
        """Return whether the Service still shows this region's address within the grace period."""
        region = region_of(pool_service)
        service = self._inventory.service(region.service_key) if region is not None else None
        if region is None or service is None or service.deleting:
            return False
        only_here = _addresses(pool_service)
        for _, other in self._inventory.pool_services_of(region.service_key):
            if other.metadata.uid != pool_service.metadata.uid and not other.deleting:
                only_here -= _addresses(other)
        if not only_here & {each.address for each in service.status.load_balancer.ingress or ()}:
            return False
        now_s = self._cluster.clock.monotonic()
        return now_s - self._since_s.setdefault(pool_service.key, now_s) < UNION_PATIENCE_S


def _addresses(pool_service: PoolService) -> set[str]:
    return {each.address for each in pool_service.status.load_balancer.ingress or ()}
