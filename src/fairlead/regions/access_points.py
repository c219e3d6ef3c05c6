"""The AccessPoints controller: writes changes of a region's status to its Service.

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
from fairlead.kube.events import EventRecorder
from fairlead.kube.overlay import Overlay
from fairlead.regions.access_condition import AccessView
from fairlead.regions.access_plan import AccessPlan, plan_access
from fairlead.regions.changes import Changes
from fairlead.regions.identity import is_ours, pool_service_names
from fairlead.regions.inventory import Inventory
from fairlead.regions.service_plan import SelectedPools, wanted_pools
from fairlead.regions.source import SOURCE_SERVICES, ServiceKey, SourceService
from fairlead.runtime.queue import KeyedQueue


class AccessPointsController:
    """Writes the access points of its regions to a Service."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        changes: Changes,
        events: EventRecorder,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._events = events
        self._leading = leading
        self.queue: KeyedQueue[ServiceKey] = KeyedQueue(clock=cluster.clock)
        self._services = Overlay(inventory.services)
        changes.on_access.append(self.queue.add)

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Reconcile one Service; return in how many seconds to reconcile again, None for no time."""
        service = self._services.get(*key)
        if service is None or not service.concerns_us or not self._leading():
            return None
        if service.managed and not service.held and not service.deleting:
            return None  # the finalizer comes first, and enqueues the key
        plan = plan_access(self.view(service), now=self._cluster.clock.now())
        await self._write(service, plan)
        if plan.warning is not None:
            reason, sentence = plan.warning
            self._events.emit_about(SERVICES, service, warning=True, reason=reason, message=sentence)
        return plan.again_s

    def view(self, service: SourceService) -> AccessView:
        """Gather what the decision depends on."""
        regions = tuple(self._inventory.pool_services_of(service.key))
        present = {region.pool for region, _ in regions}
        wanted = (
            wanted_pools(service, self._inventory.pools.values(), present) if service.managed else SelectedPools({})
        )
        conflicts: dict[str, str] = {}
        for pool in wanted.pools:
            if pool not in present:
                name = pool_service_names(service.metadata.name, pool, "")[0]
                pool_service = self._inventory.pool_services.get(service.metadata.namespace, name)
                if pool_service is not None and not is_ours(pool_service):
                    conflicts[pool] = name
        return AccessView(service, wanted, regions, conflicts)

    async def _write(self, service: SourceService, plan: AccessPlan) -> None:
        """Write the steps, each on the version that the one before has answered."""
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
                    SOURCE_SERVICES, meta.namespace, meta.name, patch, subresource=subresource, manager=MANAGER_REGIONS
                )
            except NotFound:
                return
            version = answer.metadata.resource_version
            service = self._services.written(answer, before=service)
