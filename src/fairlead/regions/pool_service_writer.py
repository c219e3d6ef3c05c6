"""Keep one region of one Service as it should be: view, plan, write. Both controllers of PoolServices come here.

In: a Service and a pool. Out: writes to PoolServices, Events about them.
Never: two at a time for one Service, so that what was just written is known to the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.api.names import MANAGER_REGIONS
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.errors import AlreadyExists, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import micro_time
from fairlead.regions.backends import Backends
from fairlead.regions.identity import RegionKey, is_ours, pool_service_names, region_of
from fairlead.regions.inventory import Inventory
from fairlead.regions.pools import Pool
from fairlead.regions.region_plan import PoolServiceWrite, RegionPlan, RegionView, plan_region
from fairlead.regions.source import SourceService
from fairlead.runtime.keyed_lock import KeyedLock

MANAGED_CONFLICT = "ManagedConflict"
MODIFIED = "Modified"
#: How many regions of one Service are written at the same time.
_CONCURRENCY = 8


class PoolServiceWriter:
    """Writes PoolServices. ``leading`` is asked right before every write."""

    def __init__(
        self, *, cluster: Cluster, inventory: Inventory, events: EventRecorder, leading: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._events = events
        self._leading = leading
        #: By Service: one task at a time works on its PoolServices.
        self.locks = KeyedLock()

    async def write_all(self, service: SourceService, wanted: dict[str, Pool | None]) -> list[str]:
        """Write several regions of one Service, a few at a time; return what is being waited for."""
        gate = asyncio.Semaphore(_CONCURRENCY)

        async def write(name: str, pool: Pool | None) -> str:
            async with gate:
                return await self.write(service, name, pool)

        results = await asyncio.gather(*(write(name, wanted[name]) for name in sorted(wanted)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result  # each region was tried; the first failure has all of them reconciled again
        return [result for result in results if isinstance(result, str) and result]

    async def write(self, service: SourceService, pool_name: str, pool: Pool | None) -> str:
        """Write one region; ``pool`` None means that it is not wanted. Return what is being waited for."""
        view = self.view(service, pool_name, pool)
        plan = plan_region(view, now=micro_time(self._cluster.clock.now()))
        await self._apply(view, plan)
        return plan.waits

    def view(self, service: SourceService, pool_name: str, pool: Pool | None) -> RegionView:
        """Gather what a decision about one region depends on."""
        inventory = self._inventory
        key = RegionKey(*service.key, pool_name)
        names = pool_service_names(key.service, pool_name, service.spec.load_balancer_class or "")
        present = [each for region, each in inventory.pool_services_of(service.key) if region.pool == pool_name]
        known = {each.metadata.name for each in present}
        conflicts: list[PoolService] = []
        for name in names:
            other = inventory.written.get(key.namespace, name) if name not in known else None
            if other is None:
                continue
            # Ours, with nothing credible left in it: by its name it is this one, so it is repaired.
            adopted = is_ours(other) and region_of(other) is None
            (present if adopted else conflicts).append(other)
        return RegionView(
            key=key,
            service=service,
            pool=pool,
            backends=inventory.backends(service, pool_name, present) if pool is not None else Backends(),
            present=tuple(present),
            name_conflicts=tuple(conflicts),
            frozen=inventory.problem,
        )

    async def _apply(self, view: RegionView, plan: RegionPlan) -> None:
        if plan.conflict is not None:
            sentence = (
                f"Service {view.key.service} wants a PoolService of this name for NodePool {view.key.pool}, and this "
                "one is not managed by Fairlead; it is left alone. Delete or rename it."
            )
            self._warn(plan.conflict, MANAGED_CONFLICT, sentence)
        for write in plan.writes:
            if not self._leading():
                return
            await self._write(view, write)

    async def _write(self, view: RegionView, write: PoolServiceWrite) -> None:
        namespace, written = view.key.namespace, self._inventory.written
        if write.target is None:
            try:
                made = await self._cluster.create(POOL_SERVICES, write.body)
            except AlreadyExists as error:
                # Created and not applied, so that two Services whose names collide never end in one object.
                raise Retry(f"PoolService {namespace}/{write.name} was just made by another controller.") from error
            written.written(made, before=None)
            return
        uid = write.target.metadata.uid
        if write.action == "delete":
            await self._cluster.delete(POOL_SERVICES, namespace, write.name, uid=uid)
            written.deleted(write.target, at=micro_time(self._cluster.clock.now()))
            return
        body = {**write.body, "metadata": {**write.body.get("metadata", {}), "uid": uid}}
        try:
            changed = await self._cluster.merge_patch(
                POOL_SERVICES, namespace, write.name, body, manager=MANAGER_REGIONS
            )
        except NotFound as error:
            raise Retry(f"PoolService {namespace}/{write.name} is gone; it will be made again.") from error
        written.written(changed, before=write.target)
        if write.modified:
            self._warn(write.target, MODIFIED, f"{write.modified} had been changed by another client and was put back")

    def _warn(self, pool_service: PoolService, reason: str, sentence: str) -> None:
        self._events.emit_about(POOL_SERVICES, pool_service, warning=True, reason=reason, message=sentence)
