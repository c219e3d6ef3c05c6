"""The PoolEndpoints controller: an EndpointSlice, Node or NodePool changed, so the affected regions are reconciled.

    EndpointSlice   the pools in which its endpoints changed
    Node            the pool that it left and the one that it joined, for the Services with pods there
    NodePool        the Services whose selector matches it now and did not before, or the other way round

In: keys of regions. Out: PoolServices, through their writer. Never: touches another pool of the same Service.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.regions.changes import Changes
from fairlead.regions.identity import RegionKey
from fairlead.regions.inventory import Inventory
from fairlead.regions.pool_service import WAITING_RETRY_S
from fairlead.regions.pool_service_writer import PoolServiceWriter
from fairlead.regions.service_plan import wanted_pools
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue


class PoolEndpointsController:
    """Reconciles one region of one Service."""

    def __init__(
        self,
        *,
        clock: Clock,
        inventory: Inventory,
        changes: Changes,
        writer: PoolServiceWriter,
        leading: Callable[[], bool],
    ) -> None:
        self._inventory = inventory
        self._writer = writer
        self._leading = leading
        self.queue: KeyedQueue[RegionKey] = KeyedQueue(clock=clock)
        changes.on_region.append(self.queue.add)

    async def reconcile(self, key: RegionKey) -> float | None:
        """Reconcile one region; return in how many seconds to reconcile again, None for no time."""
        if not self._leading():
            return None
        async with self._writer.locks.hold(key.service_key):
            service = self._inventory.service(key.service_key)
            if service is None or not service.managed or service.deleting or not service.held:
                return None  # beginning and end are the PoolService controller's
            present = {region.pool for region, _ in self._inventory.pool_services_of(key.service_key)}
            wanted = wanted_pools(service, self._inventory.pools.values(), present).pools.get(key.pool)
            if wanted is None and key.pool not in present:
                return None
            waits = await self._writer.write(service, key.pool, wanted)
            return WAITING_RETRY_S if waits else None
