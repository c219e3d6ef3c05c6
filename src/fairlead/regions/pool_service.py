"""The PoolService controller: a Service changed, so all of its PoolServices are reconciled.

    managed       finalizer, then every matching pool has its PoolService and no other pool has one
    not any more  its PoolServices go, and with the last one the finalizer

In: keys of Services. Out: the finalizer on the Service; PoolServices, through their writer.
Never: calls a load balancer, or waits for one in a worker: what has to come first enqueues the key again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fairlead.api.kubernetes import SERVICES
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS, FINALIZER_POOL_SERVICES, MANAGER_REGIONS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.finalizers import hold, release
from fairlead.regions.changes import Changes
from fairlead.regions.inventory import Inventory
from fairlead.regions.pool_service_writer import PoolServiceWriter
from fairlead.regions.pools import Pool
from fairlead.regions.service_plan import FinalizerChange, plan_service
from fairlead.regions.source import SOURCE_SERVICES, ServiceKey, SourceService
from fairlead.runtime.queue import KeyedQueue

#: A Service that stops being ours may be on its way through ClusterIP and back: its regions outlive that.
FLIP_GRACE_S = 1.5
#: What keeps something from going is checked this often, should no change enqueue the key before.
WAITING_RETRY_S = 5.0


class PoolServiceController:
    """Reconciles the PoolServices of one Service."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        changes: Changes,
        writer: PoolServiceWriter,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._writer = writer
        self._leading = leading
        self._unmanaged_since_s: dict[ServiceKey, float] = {}
        self.queue: KeyedQueue[ServiceKey] = KeyedQueue(clock=cluster.clock)
        changes.on_service.append(self.queue.add)

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Reconcile one Service; return in how many seconds to reconcile again, None for no time."""
        if not self._leading():
            return None
        async with self._writer.locks.hold(key):
            service = self._inventory.service(key)
            if service is None:
                self._unmanaged_since_s.pop(key, None)
                return await self._sweep(key)
            if not service.concerns_us and not self._inventory.pool_services_of(key):
                self._unmanaged_since_s.pop(key, None)
                return None
            return await self._reconcile(service)

    async def _reconcile(self, service: SourceService) -> float | None:
        pool_services = self._inventory.pool_services_of(service.key)
        present = {region.pool for region, _ in pool_services}
        plan = plan_service(service, self._inventory.pools.values(), present, remaining=len(pool_services))
        if plan.gone:
            wait_s = self._grace_s(service)
            if wait_s > 0:
                return wait_s
        else:
            self._unmanaged_since_s.pop(service.key, None)
        if plan.finalizer == "add":
            # Before the first PoolService: nothing may exist that the end of the Service would not wait for.
            await self._change_finalizer(service, "add")
        regions: dict[str, Pool | None] = dict.fromkeys(present)
        regions.update(plan.wanted.pools)
        waits = await self._writer.write_all(service, regions)
        # What access points have written on a Service that lives on goes before the finalizer does.
        if plan.finalizer == "remove" and (service.deleting or not _marked(service)):
            await self._change_finalizer(service, "remove")
        return WAITING_RETRY_S if waits else None

    def _grace_s(self, service: SourceService) -> float:
        """Return the remaining grace period in seconds of a Service that is no longer managed and not being deleted."""
        if service.deleting:
            return 0.0
        now_s = self._cluster.clock.monotonic()
        since_s = self._unmanaged_since_s.setdefault(service.key, now_s)
        return since_s + FLIP_GRACE_S - now_s

    async def _change_finalizer(self, service: SourceService, change: FinalizerChange) -> None:
        if not self._leading():
            return
        write = hold if change == "add" else release
        with suppress(NotFound):
            await write(self._cluster, SOURCE_SERVICES, service, FINALIZER_POOL_SERVICES, manager=MANAGER_REGIONS)

    async def _sweep(self, key: ServiceKey) -> float | None:
        """Delete the PoolServices of a Service that was removed by force, once the server itself says that it is."""
        remaining = [each for _, each in self._inventory.pool_services_of(key) if not each.deleting]
        if not remaining:
            return None
        if self._inventory.problem:
            return WAITING_RETRY_S
        try:
            await self._cluster.get(SERVICES, *key)
        except NotFound:
            for each in remaining:
                if self._leading():
                    await self._cluster.delete(POOL_SERVICES, key[0], each.metadata.name, uid=each.metadata.uid)
        return None


def _marked(service: SourceService) -> bool:
    """Return whether the Service still has fields that the AccessPoints controller wrote."""
    meta = service.metadata
    keys = [*(meta.labels or ()), *(meta.annotations or ())]
    return any(key.startswith(AGGREGATED_PREFIX) or key == ANNOTATION_ACCESS_POINTS for key in keys)
