"""Regions as a process: caches, controllers and workers wired together, started in order.

    1 the kinds are installed  else it exits with the missing ones
    2 caches are synced        nothing is decided on a partial view
    3 it leads                 enqueues every key once, then those that changes concern

In: a Cluster and settings. Out: a running layer 1, and our layer 2. Losing the lease stops every write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import structlog

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import AnyResource, ObjectKey
from fairlead.api.names import (
    AGGREGATED_PREFIX,
    ANNOTATION_ACCESS_POINTS,
    FINALIZER_POOL_SERVICES,
    MANAGER_REGIONS,
    REGIONS_LEASE,
)
from fairlead.api.poolservice import OPENYURT_GROUP, OPENYURT_VERSIONS, POOL_SERVICES, PoolService, openyurt_node_pools
from fairlead.errors import AlreadyExists, FairleadError, NotFound, NotRead, Retry
from fairlead.kube.cache import AnyCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import ensure_own_kinds, served_kinds
from fairlead.kube.events import NOT_READ, EventRecorder, EventWriter
from fairlead.kube.lease import Leadership, ReplicaConfig, micro_time
from fairlead.kube.writes import Overlay, hold, patch_version, release
from fairlead.model.condition import warning_event
from fairlead.regions.balancer import Balancer
from fairlead.regions.inventory import Changes, RegionsInventory
from fairlead.regions.plan import (
    AccessPlan,
    AccessView,
    FinalizerChange,
    PoolServiceWrite,
    RegionPlan,
    RegionView,
    SelectedPools,
    plan_access,
    plan_backends,
    plan_region,
    plan_service,
    wanted_pools,
)
from fairlead.regions.source import (
    SOURCE_SERVICES,
    Backends,
    RegionKey,
    RegionPool,
    ServiceKey,
    SourceService,
    is_ours,
    pool_service_names,
    region_of,
)
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedLock, KeyedQueue
from fairlead.runtime.telemetry import Telemetry


class RegionsConfig(ReplicaConfig, frozen=True, kw_only=True):
    """The settings of regions; with ``balancer`` off, other controllers implement layer 2."""

    workers: int = 3
    look_s: float = 30.0
    balancer: bool = True


class _ControllerLoop(NamedTuple):
    """One controller: its queue, its reconcile function, and the function for all keys."""

    name: str
    queue: KeyedQueue[Any]
    reconcile: Callable[[Any], Awaitable[float | None]]
    everything: Callable[[], Sequence[Any]]


class Regions:
    """One replica of layer 1, with our layer 2."""

    def __init__(self, *, cluster: Cluster, config: RegionsConfig, telemetry: Telemetry | None = None) -> None:
        config.check()
        self._cluster = cluster
        self._config = config
        self._telemetry = telemetry or Telemetry()
        self._events = EventRecorder(cluster, component="fairlead-regions")
        self.inventory: RegionsInventory | None = None
        self.changes: Changes | None = None
        self.balancer: Balancer | None = None
        self.queues: dict[str, KeyedQueue[Any]] = {}
        self.term = Leadership(cluster, REGIONS_LEASE, config)

    @property
    def leading(self) -> bool:
        """Return whether this replica may write right now."""
        return self.term.may_write()

    @property
    def caches(self) -> dict[str, AnyCache]:
        """Return every cache by the full name of its kind; a kind that is installed later is added later."""
        if self.inventory is None:
            return {}
        return {**self.inventory.caches, **(self.balancer.watch.caches if self.balancer is not None else {})}

    def not_ready(self) -> list[str]:
        """Return the reasons why this replica is not ready, one sentence each; empty if it is ready."""
        if self.inventory is None:
            return ["regions: not started yet"]
        return [
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in self.caches.items()
            if cache.problem or not cache.synced
        ]

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            BadConfiguration: a kind that is needed is not installed, and we may not install it.
        """
        await self.prepare()
        inventory = self.inventory = RegionsInventory(self._cluster)
        changes = self.changes = Changes(cluster=self._cluster, inventory=inventory)
        openyurt = OpenYurt(cluster=self._cluster, changes=changes, interval_s=self._config.look_s)
        await openyurt.find()
        controller = RegionsController(
            cluster=self._cluster,
            inventory=inventory,
            changes=changes,
            events=self._events,
            leading=self.term.may_write,
        )
        loops = self._loops(controller, changes)
        self.queues = {loop.name: loop.queue for loop in loops}

        def begin() -> None:
            for loop in loops:
                for key in loop.everything():
                    loop.queue.add(key)
            controller.warn_of_conflicts()

        async with asyncio.TaskGroup() as group:
            for cache in self.caches.values():
                if cache is not openyurt.cache:
                    group.create_task(cache.run())
            group.create_task(openyurt.run())
            group.create_task(self._events.run())
            for cache in list(self.caches.values()):
                await cache.wait_synced()
            for loop in loops:
                workers = self._config.workers
                group.create_task(
                    run_workers(loop.queue, loop.reconcile, workers=workers, name=loop.name, telemetry=self._telemetry)
                )
            group.create_task(self.term.run(begin, events=[self._events]))

    async def prepare(self) -> None:
        """Install our kinds, or check that they are there, and make our namespace."""
        await ensure_own_kinds(self._cluster, component="Regions", manager=MANAGER_REGIONS)

    def _loops(self, controller: RegionsController, changes: Changes) -> list[_ControllerLoop]:
        inventory = controller.inventory
        loops = [
            _ControllerLoop("pool-service", controller.services, controller.reconcile_service, inventory.service_keys),
            # Every region is reconciled with its Service, so there is nothing to begin with here.
            _ControllerLoop("pool-endpoints", controller.regions, controller.reconcile_region, list[Any]),
            _ControllerLoop("access-points", controller.access, controller.reconcile_access, inventory.service_keys),
        ]
        if self._config.balancer:
            balancer = self.balancer = Balancer(
                cluster=self._cluster,
                inventory=inventory,
                changes=changes,
                events=self._events,
                leading=self.term.may_write,
            )
            loops.append(_ControllerLoop("balancer", balancer.watch.queue, balancer.reconcile, balancer.watch.keys))
        return loops


log = structlog.get_logger(__name__)


class OpenYurt:
    """OpenYurt's kind of pools, while it is installed."""

    def __init__(self, *, cluster: Cluster, changes: Changes, interval_s: float) -> None:
        self._cluster = cluster
        self._changes = changes
        self._interval_s = interval_s
        self.cache: AnyCache | None = None
        self._task: asyncio.Task[None] | None = None

    async def find(self) -> None:
        """Ask once, before anything runs.

        Raises:
            FairleadError: the API does not answer.
        """
        kind = await self._served()
        if kind is not None:
            self.cache = self._changes.add_node_pools(kind)

    async def run(self) -> None:
        """Run the cache of the served version until cancelled."""
        problem = ""
        async with asyncio.TaskGroup() as group:
            if self.cache is not None:
                self._task = group.create_task(self.cache.run())
            while True:
                await self._cluster.clock.sleep(self._interval_s)
                try:
                    kind = await self._served()
                    if kind is None:
                        if self.cache is not None and not len(self.cache):
                            self._leave(self.cache, self._task)
                            self.cache = self._task = None
                            log.info("OpenYurt's NodePools are no longer served, and none was left")
                    elif self.cache is None or self.cache.resource.version != kind.version:
                        log.info("OpenYurt's NodePools are served", version=kind.api_version)
                        cache = self._changes.add_node_pools(kind)
                        task = group.create_task(cache.run())
                        try:
                            await cache.wait_synced(self._interval_s)
                        except FairleadError:
                            self._leave(cache, task)
                            raise
                        if self.cache is not None:
                            self._leave(self.cache, self._task)
                        self.cache, self._task = cache, task
                    problem = ""
                except FairleadError as error:
                    if error.sentence != problem:
                        log.warning("openyurt", sentence=error.sentence, detail=error.detail)
                    problem = error.sentence

    def _leave(self, cache: AnyCache, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
        self._changes.drop_node_pools(cache)

    async def _served(self) -> AnyResource | None:
        for version in OPENYURT_VERSIONS:
            if any(kind.name == "nodepools" for kind in await served_kinds(self._cluster, OPENYURT_GROUP, version)):
                return openyurt_node_pools(version)
        return None


#: A Service that stops being ours may be on its way through ClusterIP and back: its regions outlive that.
FLIP_GRACE_S = 1.5
#: How often blocked deletions are checked, unless a change enqueues the key earlier.
WAITING_RETRY_S = 5.0


def _marked(service: SourceService) -> bool:
    """Return whether the Service still has fields that the AccessPoints controller wrote."""
    meta = service.metadata
    keys = [*(meta.labels or ()), *(meta.annotations or ())]
    return any(key.startswith(AGGREGATED_PREFIX) or key == ANNOTATION_ACCESS_POINTS for key in keys)


NODE_CLAIMED_TWICE = "NodeClaimedTwice"
MANAGED_CONFLICT = "ManagedConflict"
MODIFIED = "Modified"
#: How many regions of one Service are written at the same time.
_CONCURRENCY = 8


class RegionsController:
    """Reconciles the PoolServices of a Service, one region of it, and the access points that it shows.

    ``leading`` is asked right before every write.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: RegionsInventory,
        changes: Changes,
        events: EventRecorder,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self.inventory = inventory
        self._events = events
        self._leading = leading
        #: By Service: one task at a time works on its PoolServices.
        self._locks = KeyedLock()
        self._unmanaged_since_s: dict[ServiceKey, float] = {}
        self._services = Overlay(inventory.services)
        self._access_events = EventWriter(recorder=events, resource=SERVICES)
        self._region_events = EventWriter(recorder=events, resource=POOL_SERVICES)
        inventory.pool_services.on_change(self._region_events.forget_deleted)
        self._pool_events = [
            (cache, EventWriter(recorder=events, resource=cache.resource)) for cache in inventory.node_pools
        ]
        #: The pools with a Warning about a node that belongs to another pool.
        self._warned: set[str] = set()
        self.services: KeyedQueue[ServiceKey] = KeyedQueue(clock=cluster.clock)
        self.regions: KeyedQueue[RegionKey] = KeyedQueue(clock=cluster.clock)
        self.access: KeyedQueue[ServiceKey] = KeyedQueue(clock=cluster.clock)
        changes.on_service.append(self.services.add)
        changes.on_region.append(self.regions.add)
        changes.on_access.append(self.access.add)
        changes.on_pools.append(lambda _pool: self.warn_of_conflicts())

    async def reconcile_service(self, key: ServiceKey) -> float | None:
        """Reconcile one Service; return in how many seconds to reconcile again, None for no time."""
        if not self._leading():
            return None
        async with self._locks.hold(key):
            service = self.inventory.service(key)
            await self._check_service(key)
            if service is None:
                self._unmanaged_since_s.pop(key, None)
                return await self._sweep(key)
            if not service.concerns_us and not self.inventory.pool_services_of(key):
                self._unmanaged_since_s.pop(key, None)
                return None
            with self._access_events.warn_on(service, NOT_READ, NotRead):
                return await self._reconcile_service(key, service)

    async def _reconcile_service(self, key: ServiceKey, service: SourceService) -> float | None:
        try:
            self.inventory.check_read(key)
        except NotRead:
            await self._follow(key)
            raise
        pool_services = self.inventory.pool_services_of(service.key)
        present = {region.pool for region, _ in pool_services}
        plan = plan_service(service, self.inventory.pools.values(), present, remaining=len(pool_services))
        if plan.gone:
            wait_s = self._grace_s(service)
            if wait_s > 0:
                return wait_s
        else:
            self._unmanaged_since_s.pop(service.key, None)
        if plan.finalizer == "add":
            # Before the first PoolService: nothing may exist that the end of the Service would not wait for.
            await self._change_finalizer(service, "add")
        regions: dict[str, RegionPool | None] = dict.fromkeys(present)
        regions.update(plan.wanted.pools)
        waits = await self._write_regions(service, regions)
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
        """Delete the PoolServices of a force-removed Service, once the server confirms the removal."""
        remaining = [
            pool_service for _, pool_service in self.inventory.pool_services_of(key) if not pool_service.deleting
        ]
        if not remaining:
            return None
        if self.inventory.problem:
            return WAITING_RETRY_S
        try:
            await self._cluster.get(SERVICES, *key)
        except NotFound:
            for pool_service in remaining:
                if self._leading():
                    await self._cluster.delete(
                        POOL_SERVICES, key[0], pool_service.metadata.name, uid=pool_service.metadata.uid
                    )
        return None

    # --- regions ----------------------------------------------------------------------------------------------------

    async def reconcile_region(self, key: RegionKey) -> float | None:
        """Reconcile one region; return the seconds until the next reconcile, None if not needed."""
        if not self._leading():
            return None
        async with self._locks.hold(key.service_key):
            service = self.inventory.service(key.service_key)
            await self._check_service(key.service_key, key.pool)
            if service is None or not service.managed or service.deleting or not service.held:
                return None  # beginning and end are the PoolService controller's
            with self._access_events.warn_on(service, NOT_READ, NotRead, source=f"region {key.pool}"):
                try:
                    self.inventory.check_read_pool(key.pool)
                except NotRead:
                    await self._follow(key.service_key, key.pool)
                    raise
                present = {region.pool for region, _ in self.inventory.pool_services_of(key.service_key)}
                wanted = wanted_pools(service, self.inventory.pools.values(), present).pools.get(key.pool)
                if wanted is None and key.pool not in present:
                    return None
                waits = await self._write_region(service, key.pool, wanted)
                return WAITING_RETRY_S if waits else None

    async def _check_service(self, key: ServiceKey, pool: str = "") -> None:
        """Check that a Service has been readable; else follow one region, or all, and warn on its PoolServices.

        Raises:
            NotRead: it has not; its regions stay as they are.
        """
        with ExitStack() as stack:
            for _, pool_service in self.inventory.pool_services_of(key):
                stack.enter_context(self._region_events.warn_on(pool_service, NOT_READ, NotRead, source="service"))
            if self.inventory.is_unread(key):
                await self._follow(key, pool)
                self.inventory.services.check_read(*key)

    async def _follow(self, key: ServiceKey, pool: str = "") -> None:
        """Keep the backends of one region, or of all, current while what decides about them cannot be read."""
        inventory = self.inventory
        for region, pool_service in inventory.pool_services_of(key):
            service = inventory.service_in_effect(key, pool_service) if pool in ("", region.pool) else None
            if service is not None:
                backends = inventory.backends(service, region.pool, [pool_service])
                for write in plan_backends(pool_service, backends, now=micro_time(self._cluster.server_clock.now())):
                    if self._leading():
                        await self._write_pool_service(key[0], write)

    async def _write_regions(self, service: SourceService, wanted: dict[str, RegionPool | None]) -> list[str]:
        """Write several regions of one Service, a few at a time; return the pending condition."""
        gate = asyncio.Semaphore(_CONCURRENCY)

        async def write(name: str, pool: RegionPool | None) -> str:
            async with gate:
                return await self._write_region(service, name, pool)

        results = await asyncio.gather(*(write(name, wanted[name]) for name in sorted(wanted)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result  # each region was tried; the first failure has all of them reconciled again
        return [result for result in results if isinstance(result, str) and result]

    async def _write_region(self, service: SourceService, pool_name: str, pool: RegionPool | None) -> str:
        """Write one region; ``pool`` None means that it is not wanted. Return the pending condition."""
        inventory = self.inventory
        key = RegionKey(*service.key, pool_name)
        names = pool_service_names(key.service, pool_name, service.spec.load_balancer_class or "")
        present = [
            pool_service for region, pool_service in inventory.pool_services_of(service.key) if region.pool == pool_name
        ]
        known = {pool_service.metadata.name for pool_service in present}
        conflicts: list[PoolService] = []
        for name in names:
            inventory.pool_services.check_read(key.namespace, name)
            other = inventory.written.get(key.namespace, name) if name not in known else None
            if other is None:
                continue
            # Ours, with nothing credible left in it: by its name it is this one, so it is repaired.
            adopted = is_ours(other) and region_of(other) is None
            (present if adopted else conflicts).append(other)
        view = RegionView(
            key=key,
            service=service,
            pool=pool,
            backends=inventory.backends(service, pool_name, present) if pool is not None else Backends(),
            present=tuple(present),
            name_conflicts=tuple(conflicts),
            frozen=inventory.problem,
        )
        plan = plan_region(view, now=micro_time(self._cluster.server_clock.now()))
        await self._apply(view, plan)
        return plan.waits

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
            await self._write_pool_service(view.key.namespace, write)

    async def _write_pool_service(self, namespace: str, write: PoolServiceWrite) -> None:
        written = self.inventory.written
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
            written.deleted(write.target, at=micro_time(self._cluster.server_clock.now()))
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

    # --- access points ----------------------------------------------------------------------------------------------

    async def reconcile_access(self, key: ServiceKey) -> float | None:
        """Reconcile one Service; return in how many seconds to reconcile again, None for no time."""
        service = self._services.get(*key)
        if service is None:
            self._access_events.forget(key)
        if service is None or not service.concerns_us or not self._leading():
            return None
        if service.managed and not service.held and not service.deleting:
            return None  # the finalizer comes first, and enqueues the key
        self.inventory.check_read(key)
        plan = plan_access(self._access_view(service), now=self._cluster.server_clock.now())
        await self._write_access(service, plan)
        self._access_events.emit_new("access", service, [] if plan.warning is None else [warning_event(*plan.warning)])
        return plan.again_s

    def _access_view(self, service: SourceService) -> AccessView:
        """Gather the input of the decision."""
        regions = tuple(self.inventory.pool_services_of(service.key))
        present = {region.pool for region, _ in regions}
        wanted = wanted_pools(service, self.inventory.pools.values(), present) if service.managed else SelectedPools({})
        conflicts: dict[str, str] = {}
        for pool in wanted.pools:
            if pool not in present:
                name = pool_service_names(service.metadata.name, pool, "")[0]
                pool_service = self.inventory.pool_services.get(service.metadata.namespace, name)
                if pool_service is not None and not is_ours(pool_service):
                    conflicts[pool] = name
        return AccessView(service, wanted, regions, conflicts)

    async def _write_access(self, service: SourceService, plan: AccessPlan) -> None:
        """Write the steps, each on top of the version returned by the previous one: lists are replaced as a whole."""
        for step in plan.steps:
            if not self._leading():
                return
            try:
                answer = await patch_version(
                    self._cluster,
                    SOURCE_SERVICES,
                    service,
                    step.patch,
                    manager=MANAGER_REGIONS,
                    subresource="status" if step.part == "status" else "",
                )
            except NotFound:
                return
            service = self._services.written(answer, before=service)

    # --- nodes that several pools claim -----------------------------------------------------------------------------

    def warn_of_conflicts(self) -> None:
        """Emit a Warning for each new conflict, and resolve the Warnings of ended conflicts."""
        if not self._leading():
            return
        conflicts = self.inventory.membership.conflicts()
        warnings = {
            pool: warning_event(
                NODE_CLAIMED_TWICE, f"node {node} is in NodePool {owner} already, which is older, and stays there"
            )
            for pool, (node, owner) in conflicts.items()
        }
        for pool in self._warned | warnings.keys():
            for cache, events in self._pool_events:
                node_pool = cache.get("", pool)
                if node_pool is not None:
                    events.emit_new("membership", node_pool, [warnings[pool]] if pool in warnings else [])
                else:
                    events.forget(ObjectKey("", pool))
        self._warned = set(warnings)
