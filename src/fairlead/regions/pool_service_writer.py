"""Keep one region of one Service as it should be: look, plan, write. Both controllers of PoolServices come here.

In: a RegionKey, from whoever was woken. Out: writes to PoolServices, Events about them.
Never: two at a time for one Service, so that what was just written is known to who comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import ANNOTATION_BACKENDS, MANAGER_REGIONS
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.errors import AlreadyExists, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventType
from fairlead.kube.lease import micro_time
from fairlead.regions.backends import Backends, build_backends, decode_backends
from fairlead.regions.identity import RegionKey, is_ours, pool_service_names, region_of
from fairlead.regions.inventory import Inventory
from fairlead.regions.pools import Pool
from fairlead.regions.region_plan import RegionPlan, RegionView, Write, plan_region
from fairlead.regions.source import ServiceKey, SourceService

MANAGED_CONFLICT = "ManagedConflict"
MODIFIED = "Modified"
_AT_ONCE = 8
"""How many regions of one Service are written at the same time."""


class Keeper:
    """Writes PoolServices. ``leading`` is asked right before every write."""

    def __init__(
        self, *, cluster: Cluster, inventory: Inventory, events: EventRecorder, leading: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._events = events
        self._leading = leading
        self._locks: dict[ServiceKey, asyncio.Lock] = {}
        self._users: dict[ServiceKey, int] = {}

    @asynccontextmanager
    async def alone_with(self, key: ServiceKey) -> AsyncGenerator[None]:
        """Be the only one who works on the PoolServices of one Service."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]

    async def keep_all(self, service: SourceService, wanted: dict[str, Pool | None]) -> list[str]:
        """Keep several regions of one Service, a few at a time; returns what is being waited for."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str, pool: Pool | None) -> str:
            async with gate:
                return await self.keep(service, name, pool)

        results = await asyncio.gather(*(one(name, wanted[name]) for name in sorted(wanted)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result  # each region was tried; the first failure brings all of them back
        return [result for result in results if isinstance(result, str) and result]

    async def keep(self, service: SourceService, pool_name: str, pool: Pool | None) -> str:
        """Keep one region; ``pool`` None means that it is not wanted. Returns what is being waited for."""
        view = self.view(service, pool_name, pool)
        plan = plan_region(view, now=micro_time(self._cluster.clock.now()))
        await self._apply(view, plan)
        return plan.waits

    def view(self, service: SourceService, pool_name: str, pool: Pool | None) -> RegionView:
        """Gather what a decision about one region depends on."""
        inventory = self._inventory
        key = RegionKey(*service.key, pool_name)
        names = pool_service_names(key.service, pool_name, service.spec.load_balancer_class or "")
        present = [one for region, one in inventory.written.of_service(service.key) if region.pool == pool_name]
        known = {one.metadata.name for one in present}
        others: list[PoolService] = []
        for name in names:
            one = inventory.written.get(key.namespace, name) if name not in known else None
            if one is None:
                continue
            # Ours, with nothing credible left in it: by its name it is this one, so it is repaired.
            adopted = is_ours(one) and region_of(one) is None
            (present if adopted else others).append(one)
        return RegionView(
            key=key,
            service=service,
            pool=pool,
            backends=self.backends(service, pool_name, present) if pool is not None else Backends(),
            present=tuple(present),
            squatters=tuple(others),
            frozen=inventory.problem,
        )

    def backends(self, service: SourceService, pool: str, present: list[PoolService]) -> Backends:
        """Collect the backends of one region; ``present`` tells where endpoints of lost nodes were."""
        inventory = self._inventory
        slices = inventory.slices_of(service.key)
        nodes = {endpoint.node_name for one in slices for endpoint in one.endpoints or () if endpoint.node_name}
        unknown = any(not inventory.membership.knows(node) for node in nodes)
        before = decode_backends(present[0].annotation(ANNOTATION_BACKENDS)) if unknown and present else None
        return build_backends(
            pool,
            slices,
            inventory.membership,
            before=before,
            nodes=inventory.nodes_in(pool) if inventory.uses_nodes(service) else None,
        )

    async def _apply(self, view: RegionView, plan: RegionPlan) -> None:
        if plan.conflict is not None:
            sentence = (
                f"Service {view.key.service} wants a PoolService of this name for NodePool {view.key.pool}, and this "
                "one is not managed by Fairlead; it is left alone. Delete or rename it."
            )
            self.tell(POOL_SERVICES, plan.conflict, "Warning", MANAGED_CONFLICT, sentence)
        for write in plan.writes:
            if not self._leading():
                return
            await self._write(view, write)

    async def _write(self, view: RegionView, write: Write) -> None:
        namespace, written = view.key.namespace, self._inventory.written
        if write.action == "create":
            try:
                made = await self._cluster.create(POOL_SERVICES, write.body)
            except AlreadyExists as error:
                # Created and not applied, so that two Services whose names collide never end in one object.
                raise Retry(f"PoolService {namespace}/{write.name} was made by somebody else just now.") from error
            written.wrote(made, before=None)
            return
        assert write.target is not None
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
        written.wrote(changed, before=write.target)
        if write.modified:
            sentence = f"{write.modified} had been changed by somebody else and was put back"
            self.tell(POOL_SERVICES, write.target, "Warning", MODIFIED, sentence)

    def tell(self, resource: AnyResource, obj: KubeObject, type_: EventType, reason: str, message: str) -> None:
        """Emit an Event about an object."""
        meta = obj.metadata
        self._events.emit(
            kind=resource.kind,
            api_version=resource.api_version,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            type=type_,
            reason=reason,
            message=message,
        )
