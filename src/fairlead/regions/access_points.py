"""The AccessPoints controller: a region's status changed, so its Service shows it.

In: keys of Services. Out: status, labels and annotations of Services that are, or were, ours; Warnings about them.
Never: writes anything else of a Service, or the same thing twice.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_REGIONS
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.regions.access_condition import AccessView
from fairlead.regions.access_plan import AccessPlan, plan_access
from fairlead.regions.identity import is_ours, pool_service_names
from fairlead.regions.inventory import Inventory
from fairlead.regions.pool_service_writer import Keeper
from fairlead.regions.service_plan import Wanted, wanted_pools
from fairlead.regions.source import ServiceKey, SourceService
from fairlead.runtime.queue import KeyedQueue


class AccessPointsController:
    """Writes what a Service shows of its regions."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory, keeper: Keeper, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._keeper = keeper
        self._leading = leading
        self.queue: KeyedQueue[ServiceKey] = KeyedQueue(clock=cluster.clock)
        self._decided_on: dict[ServiceKey, str] = {}
        inventory.on_access.append(self.queue.add)

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Write what one Service should show; returns seconds to look again."""
        service = self._inventory.service(key)
        if service is None or not service.concerns_us or not self._leading():
            self._decided_on.pop(key, None)
            return None
        if service.managed and not service.held and not service.deleting:
            return None  # the finalizer comes first, and wakes us
        if self._decided_on.get(key) == service.metadata.resource_version:
            return None  # the cache has yet to show what was written on this version, and will wake us
        plan = plan_access(self.view(service), now=self._cluster.clock.now())
        if await self._write(service, plan):
            self._decided_on[key] = service.metadata.resource_version
        if plan.news is not None:
            reason, sentence = plan.news
            self._keeper.tell(SERVICES, service, "Warning", reason, sentence)
        return plan.again_s

    def view(self, service: SourceService) -> AccessView:
        """Gather what the decision depends on."""
        regions = tuple(self._inventory.written.of_service(service.key))
        present = {region.pool for region, _ in regions}
        wanted = wanted_pools(service, self._inventory.pools, present) if service.managed else Wanted({})
        conflicts: dict[str, str] = {}
        for pool in wanted.pools:
            if pool not in present:
                name = pool_service_names(service.metadata.name, pool, "")[0]
                there = self._inventory.pool_services.get(service.metadata.namespace, name)
                if there is not None and not is_ours(there):
                    conflicts[pool] = name
        return AccessView(service, wanted, regions, conflicts)

    async def _write(self, service: SourceService, plan: AccessPlan) -> bool:
        """Write the steps; say whether that has changed the object."""
        meta = service.metadata
        version = meta.resource_version
        for step in plan.steps:
            if not self._leading():
                break
            # The version makes each write a compare-and-swap: lists in it are replaced as a whole.
            patch: JSONObject = {
                **step.patch,
                "metadata": {**step.patch.get("metadata", {}), "resourceVersion": version},
            }
            subresource = "status" if step.part == "status" else ""
            try:
                answer = await self._cluster.merge_patch(
                    SERVICES, meta.namespace, meta.name, patch, subresource=subresource, manager=MANAGER_REGIONS
                )
            except NotFound:
                return False
            version = answer.metadata.resource_version
        return version != meta.resource_version
