"""The hub as a process: caches, providers and controllers, started in order; and one step for one key.

    1 caches synced          no decision on an incomplete view
    2 every key once         the desired state is complete, based on the records
    3 providers publish      the data plane is updated only now, and only with differences
    4 leading                addresses, finalizers, statuses: one writer

In: a Cluster, providers, settings. Out: a running hub. Losing the lease stops step 4 only: every replica serves the
proxies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import structlog

from fairlead.api.backendgroup import RecordOrigin
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.names import DEFAULT_CLASS, HUB_LEASE, MANAGER_HUB, SYSTEM_NAMESPACE, hub_lease
from fairlead.api.tenant import Tenant
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, NotFound, Retry, first_of
from fairlead.hub.certificates.control import CertificateControl
from fairlead.hub.inspect.audit import ChangeRecorder
from fairlead.hub.inspect.metrics import HubCollector
from fairlead.hub.inspect.preview import KeyState, debug_key
from fairlead.hub.intents import INTENTS
from fairlead.hub.intents.intent import Controller, Finalization, Intent, IntentContext, Intents, MakeIntent
from fairlead.hub.intents.status import FirstPublication, decision_text
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.hub.names.controller import Names
from fairlead.hub.providers.registry import AGAIN_S, ProviderMigration, ProviderRegistry
from fairlead.hub.tenants.addresses import AddressPools
from fairlead.hub.tenants.cluster_sets import ClusterSets
from fairlead.hub.tenants.tenants import COUNT_AFTER_S, MemberHealth, MemberQuotas, Tenants, concerned_by
from fairlead.hub.validation import ClassProtection, default_class
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderElector
from fairlead.model.change import HistoryKind, TargetChange
from fairlead.model.contract import Provider
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.background import close_all, first_done
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry
from fairlead.sync.history import History, Report
from fairlead.translate.addresses import AddressRanges

log = structlog.get_logger(__name__)

_PREPARE_AGAIN_S = 5.0
#: Changes of a load balancer that follow each other within this time are combined into one pass, from the second one
#: on.
_GATHER_S = 0.02
#: A hub without a region notices within this time that a region has a hub of its own.
_HAND_OVER_S = 10.0


class RunningProvider(Provider, Protocol):
    """A provider whose data plane the hub itself serves: the hub starts, publishes and closes it."""

    async def start(self) -> None:
        """Start, without publishing anything."""
        ...

    def publish(self) -> None:
        """Send the data plane the present state, and every later change."""
        ...

    async def close(self) -> None:
        """Disconnect from the data plane, which keeps serving its last state."""
        ...


class HubConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a hub.

    ``identity`` names this replica in the lease; it is the same after a restart on one machine. ``region`` empty: load
    balancers of all regions without a hub of their own. ``reclaim_lease``: a lock keeps other processes from this
    identity, so a restarted hub leads again at once. ``loopback_targets``: all load balancers are on this machine, so
    loopback addresses may be backends. ``bound_in_tenants``: the hub binds the role for a Tenant's namespace itself.
    ``tenant_ports``: the port quota of Tenants without one; 0: no limit. ``domain``: each member's objects get names in
    <tenant>.<domain>; empty: no names. ``machines``: proxy machines may join.
    """

    identity: str
    address_pool: AddressRanges | None = None
    loopback_targets: bool = False
    tenant_ports: int = 0
    domain: str = ""
    bound_in_tenants: bool = False
    region: str = ""
    machines: bool = False
    workers: int = 8
    lease_s: float = 15.0
    reclaim_lease: bool = False


class Hub:
    """One hub replica."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        providers: Mapping[str, RunningProvider],
        config: HubConfig,
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
        on_lead: Callable[[bool], None] = lambda _leads: None,
        factories: Mapping[str, Callable[[], Provider]] | None = None,
        intents: Sequence[MakeIntent] = INTENTS,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._on_lead = on_lead
        self._served = providers
        self._clock = clock or SystemClock()
        self._telemetry = telemetry or Telemetry()
        queues = (
            KeyedQueue[LoadBalancerKey](clock=self._clock, group_of=attrgetter("namespace"), gather_s=_GATHER_S)
            for _ in range(2)
        )
        self._queue, self._status_queue = queues
        self._tenant_queue: KeyedQueue[str] = KeyedQueue(clock=self._clock)
        self._quota_queue: KeyedQueue[str] = KeyedQueue(clock=self._clock)
        self.publication = FirstPublication(self._clock)
        self._first_pass = FirstPass()
        self._lead = self._prepared = False
        self._regions_changed = asyncio.Event()
        self._events = EventRecorder(cluster, component="fairlead-hub")
        self.history = History(now=self._clock.now)
        self.inventory = Inventory(cluster, region=config.region, machines=config.machines)
        self._changes = ChangeRecorder(cluster, self.inventory, self.history)
        self._pools = AddressPools(
            cluster=cluster, inventory=self.inventory, own_pool=config.address_pool, leading=self._may_write
        )
        self.allocator = self._pools.allocator
        self.member_health = MemberHealth(clock=self._clock, changed=self._member_changed, leases=self.inventory.leases)
        self.providers = ProviderRegistry(
            served=providers,
            factories=factories or {},
            inventory=self.inventory,
            cluster=cluster,
            clock=self._clock,
            report=self._reported,
            changed=self._changed_at_provider,
            is_leader=lambda: self.elector.is_leader,
            raise_epoch=self._raise_epoch,
            history=self.history,
            target_ref=self._target_ref,
        )
        self._migration = ProviderMigration(providers=self.providers, clock=self._clock)
        self._quotas = MemberQuotas(
            self.inventory, self.allocator, lambda tenant: self._quota_queue.add_after(tenant, COUNT_AFTER_S)
        )
        context = IntentContext(
            cluster=cluster,
            inventory=self.inventory,
            providers=self.providers,
            migration=self._migration,
            allocator=self.allocator,
            member_health=self.member_health,
            quotas=self._quotas,
            events=self._events,
            clock=self._clock,
            leading=self._may_write,
            status_queue=self._status_queue,
            publication=self.publication,
            loopback_targets=config.loopback_targets,
            tenant_ports=config.tenant_ports,
        )
        self.intents = Intents(context, intents)
        self.watched = context.watched
        self._names = Names(
            cluster=cluster, inventory=self.inventory, clock=self._clock, leading=self._may_write, domain=config.domain
        )
        self._classes = ClassProtection(
            cluster=cluster,
            inventory=self.inventory,
            providers=self.providers,
            events=self._events,
            clock=self._clock,
            leading=self._may_write,
        )
        self._cluster_sets = ClusterSets(
            cluster=cluster,
            inventory=self.inventory,
            member_health=self.member_health,
            clock=self._clock,
            leading=self._may_write,
            loopback=config.loopback_targets,
        )
        self._certificates = CertificateControl(context, self._names.member_of)
        self._names.on_owner_change(self._certificates.owner_changed)
        self._controllers = self._make_controllers(context)
        for controller in self._controllers:
            cluster.reachable.on_back(controller.queue.retry_now)
        self.elector = LeaderElector(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=hub_lease(config.region),
            identity=config.identity,
            lease_s=config.lease_s,
            reclaim=config.reclaim_lease,
            clock=self._clock,
        )
        self._telemetry.registry.register(
            HubCollector(
                inventory=self.inventory,
                providers=self.providers,
                member_health=self.member_health,
                allocator=self.allocator,
                target_counts=context.target_counts,
                leading=self._may_write,
                clock=self._clock,
            )
        )

    def _make_controllers(self, context: IntentContext) -> Sequence[Controller]:
        reconciler = Reconciler(context, intents=self.intents, history=self.history, charge=self._queue.charge)
        tenants = Tenants(
            cluster=self._cluster,
            bound_in_tenants=self._config.bound_in_tenants,
            inventory=self.inventory,
            member_health=self.member_health,
            clock=self._clock,
            events=self._events,
            leading=self._may_write,
            quotas=self._quotas,
            queue=self._tenant_queue,
            domain=self._config.domain,
        )
        workers = self._config.workers
        reconcile = self._first_pass.counted(reconciler.reconcile)
        return (
            Controller("loadbalancer", self._queue, reconcile, workers),
            Controller("status", self._status_queue, self._write_status, workers),
            Controller("tenant", self._tenant_queue, tenants.reconcile),
            Controller("quota", self._quota_queue, tenants.recount),
            Controller("hostname", self._names.hosts, self._names.reconcile_host, workers),
            Controller("names", self._names.sources, self._names.reconcile_source, workers),
            Controller("addresspool", self._pools.queue, self._pools.reconcile),
            Controller("loadbalancerclass", self._classes.queue, self._classes.reconcile),
            Controller("clusterset", self._cluster_sets.queue, self._cluster_sets.reconcile, workers),
            *self._certificates.controllers(),
            *(controller for intent in self.intents.values() for controller in intent.controllers()),
        )

    @property
    def leading(self) -> bool:
        """Return whether this replica leads."""
        return self._lead

    def _may_write(self) -> bool:
        """Return whether this replica leads at this moment, and has read the records of the regions that it serves.

        A process that was suspended may have lost its lease.
        """
        return self._lead and self.elector.is_leader and not self._regions_changed.is_set()

    async def _raise_epoch(self, above: int) -> int:
        return await self.elector.raise_epoch(above)

    def not_ready(self) -> list[str]:
        """Return why this hub is not ready, one sentence for each reason; empty when it is ready."""
        reasons = [
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in self.inventory.caches.items()
            if cache.problem or not cache.synced
        ]
        # A class from an earlier start is used even while the API accepts no writes.
        has_class = any((self._prepared, self.inventory.classes.get("", DEFAULT_CLASS)))
        later = {
            "not every load balancer has been reconciled once": self.publication.is_done,
            f"the class {DEFAULT_CLASS} could not be created yet; the hub retries automatically": has_class,
        }
        return reasons or [reason for reason, done in later.items() if not done]

    def debug_key(self, key: LoadBalancerKey) -> KeyState | None:
        """Return the state of the load balancer ``key``, None if it is unknown."""
        return debug_key(key, inventory=self.inventory, providers=self.providers, history=self.history)

    async def prepare(self) -> None:
        """Install what the hub needs at its API: the kinds, its namespace, the default class."""
        problems = await install_crds(self._cluster, all_crds(), MANAGER_HUB)
        if problems:
            raise BadConfiguration(problems[0], detail="; ".join(problems[1:]))
        with suppress(AlreadyExists):
            await self._cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        with suppress(AlreadyExists):
            # Created, not applied: changes by an operator are kept.
            await self._cluster.create(LOAD_BALANCER_CLASSES, default_class())

    async def run(self) -> None:
        """Run until cancelled."""
        prepared = await self._try_to_prepare()
        self._watch()
        try:
            async with asyncio.TaskGroup() as group:
                if not prepared:
                    group.create_task(self._prepare_later())
                for task in self._loops():
                    group.create_task(task)
        except* FairleadError as errors:
            # The caller needs the single cause, not the exception group.
            raise first_of(errors) from errors
        finally:
            self._lead = False
            await close_all({name: provider.close for name, provider in self._served.items()})
            await self.providers.close()

    async def _try_to_prepare(self) -> bool:
        """Prepare; while the API accepts no writes, the hub serves the recorded state."""
        try:
            await self.prepare()
        except Retry as error:
            log.warning("not prepared yet", sentence=error.sentence)
            return False
        self._prepared = True
        return True

    async def _prepare_later(self) -> None:
        while not await self._try_to_prepare():
            await self._clock.sleep(_PREPARE_AGAIN_S)

    def _loops(self) -> Sequence[Coroutine[None, None, None]]:
        # When the API was restored from an older state, the hub exits: only a starting hub knows which work may wait.
        caches = [cache.run(end_when_restored=True) for cache in self.inventory.caches.values()]
        tasks = [task for intent in self.intents.values() for task in intent.tasks()]
        others = [
            self._events.run(), self.member_health.run(), self.inventory.wake_incomplete(), self._changes.run(),
        ]  # fmt: skip
        if (regional := self.inventory.regional_hubs) is not None:
            others.append(regional.run())
        return [*caches, *tasks, *others, self._start()]

    def _watch(self) -> None:
        self.inventory.on_wake(self._woken)
        if (regional := self.inventory.regional_hubs) is not None:
            regional.on_change(self._region_changed)
        if regional is not None or self.inventory.region:
            for objects in self.inventory.intents.values():
                objects.cache.on_change(self._note_region_of(objects))
        self.inventory.leases.on_change(self.member_health.lease_changed)
        self.inventory.tenants.on_change(self._tenant_changed)
        self.inventory.classes.on_change(self._class_changed)
        self.inventory.records.on_change(self.providers.record_changed)
        for intent in self.intents.values():
            intent.watch()
        for part in (
            self._quotas, self._classes, self._pools, self._names, self._cluster_sets, self._certificates,
            self._changes,
        ):  # fmt: skip
            part.watch()
        for provider in self._served.values():
            provider.on_change(self._status_queue.add)

    async def _start(self) -> None:
        """Start in the order of the module docstring; then work until cancelled."""
        for cache in self.inventory.caches.values():
            await cache.wait_synced()
        self._restore()
        for provider in self._served.values():
            await provider.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.elector.run(self._while_leading))
            for runner in self.providers.served.values():
                group.create_task(runner.worker.run())
            group.create_task(self._publish_once())
            for controller in self._controllers:
                group.create_task(self._run(controller))

    async def _run(self, controller: Controller) -> None:
        await run_workers(
            controller.queue,
            controller.reconcile,
            workers=controller.workers,
            name=controller.name,
            telemetry=self._telemetry,
        )

    def _restore(self) -> None:
        for intent in self.intents.values():
            intent.restore()

    async def _publish_once(self) -> None:
        """Publish once every key of the start has been reconciled, and the workers have settled."""
        keys = self.inventory.all_keys()
        await self._first_pass.run(keys, self.intents.values(), self.inventory.wake)
        for runner in self.providers.served.values():
            runner.worker.trigger()
            await runner.worker.settled()
        for provider in self._served.values():
            provider.publish()
        self.publication.done()
        for intent in self.intents.values():
            intent.status.published()
        log.info("hub publishes", load_balancers=len(keys))

    async def _while_leading(self, epoch: int) -> None:
        """Lead; restart when the regions of this hub change, so that it keeps no record of another hub."""
        log.info("leading", epoch=epoch, identity=self._config.identity)
        if epoch == 1 and self._config.region:
            await self._wait_for_hand_over()
        while True:
            self._regions_changed.clear()
            await first_done(self._work(), self._regions_changed.wait())
            if not self._regions_changed.is_set():
                return

    async def _wait_for_hand_over(self) -> None:
        """Return once the hub without a region has seen that this region has a hub of its own."""
        try:
            lease = await self._cluster.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
        except NotFound:
            return
        except FairleadError as error:
            log.warning("the lease of the hub without a region cannot be read", sentence=error.sentence)
        else:
            if not lease.spec.holder_identity:
                return
        log.info("waiting for the hub without a region to leave this region", seconds=_HAND_OVER_S)
        await self._clock.sleep(_HAND_OVER_S)

    def _note_region_of(
        self, objects: IntentObjects[Any]
    ) -> Callable[[IntentObject | None, IntentObject | None], None]:
        """Return a callback that restarts the work when a load balancer of a kind changes its region.

        A hub that takes over the load balancer must read the records of the former hub. So must the hub of a region
        when it reads a load balancer for the first time that another hub, or an earlier process, has served.
        """

        def changed(old: IntentObject | None, new: IntentObject | None) -> None:
            if old is None and new is not None and self.inventory.region and objects.serves(new):
                if new.status.recorded_providers:
                    self._regions_changed.set()
                return
            if old is None or new is None or objects.region(old) == objects.region(new):
                return
            if not self.inventory.region or objects.serves(old) != objects.serves(new):
                self._regions_changed.set()

        return changed

    def _region_changed(self, lease: str) -> None:
        self._regions_changed.set()
        self.inventory.wake(self.inventory.keys_of_region(lease), "the hub that serves its region changed")

    async def _work(self) -> None:
        await self.providers.load()
        self._restore()
        self._lead = True
        try:
            self._on_lead(True)
            for runner in self.providers.served.values():
                runner.tracker.ensure_again(list(runner.tracker))
                runner.worker.trigger()
            keys = {*self.inventory.all_keys(), *self.inventory.unreadable_keys(), *self.providers.restored()}
            self.inventory.wake(keys, "this replica began to lead")
            for tenant in self.inventory.tenants.values():
                self._tenant_queue.add(tenant.metadata.name)
            for intent in self.intents.values():
                intent.status.refresh()
                intent.lead()
            for part in (self._classes, self._pools, self._names, self._cluster_sets, self._certificates):
                part.lead()
            await self.providers.run()
        finally:
            self._lead = False
            self._on_lead(False)
            log.info("no longer leading", holder=self.elector.holder)

    async def _write_status(self, key: LoadBalancerKey) -> float | None:
        return await intent.status.write(key) if (intent := self.intents.of(key)) is not None else None

    def _target_ref(self, change: TargetChange) -> RecordOrigin | None:
        return self.intents.target_ref(change)

    def _woken(self, key: LoadBalancerKey, cause: str) -> None:
        self.history.note(key, HistoryKind.WOKEN, cause)
        self._queue.add(key)

    def _reported(self, report: Report) -> None:
        """Process a worker's report; a load balancer that no provider has left may be finalized."""
        self.history.record(report)
        self._queue.charge(report.load_balancer, report.computed_s)
        intent = self.intents.of(report.load_balancer)
        if intent is not None and self._migration.reported(report, intent.status.report):
            self._queue.add(report.load_balancer)

    def _changed_at_provider(self, key: LoadBalancerKey) -> None:
        self._queue.add(key)
        self._status_queue.add(key)

    def _class_changed(self, _old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if new is not None and self.providers.open(new.spec.provider):
            self.inventory.wake(self.inventory.all_keys(), f"provider {new.spec.provider} became available")

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if new is None and old is not None and self.inventory.tenant_of(old.namespace) is None:
            self.member_health.forget(old.namespace)
        for name in concerned_by(old, new, self.inventory):
            self._tenant_queue.add(name)

    def _member_changed(self, namespace: str) -> None:
        if (tenant := self.inventory.tenant_of(namespace)) is not None:
            self._tenant_queue.add(tenant.metadata.name)
            self._cluster_sets.member_changed(namespace)
            self.inventory.wake(self.inventory.keys_of_namespace(namespace), "the state of the member's agent changed")


Reconcile = Callable[[LoadBalancerKey], Awaitable[float | None]]
#: The time limit for reading the objects that load balancers refer to, in seconds.
READ_S = 60.0


class FirstPass:
    """Waits until each key has been reconciled once, successfully or not."""

    def __init__(self) -> None:
        self._left: set[LoadBalancerKey] = set()
        self._done = asyncio.Event()

    async def run(
        self,
        keys: Iterable[LoadBalancerKey],
        intents: Iterable[Intent[Any, Any]],
        wake: Callable[[Iterable[LoadBalancerKey], str], None],
    ) -> None:
        """Return once every key has been reconciled, with the objects that it refers to."""
        await self._round(keys, "the hub started", wake)
        read = [intent for intent in intents if await intent.wait_read(READ_S)]
        again = [intent.objects.key(obj) for intent in read for obj in intent.objects.served()]
        await self._round(again, "the objects that it refers to have been read", wake)

    async def _round(
        self, keys: Iterable[LoadBalancerKey], cause: str, wake: Callable[[Iterable[LoadBalancerKey], str], None]
    ) -> None:
        self._left = set(keys)
        if not self._left:
            return
        self._done.clear()
        wake(list(self._left), cause)
        await self._done.wait()

    def counted(self, reconcile: Reconcile) -> Reconcile:
        """Return ``reconcile``, wrapped so that it also counts keys."""

        async def counting(key: LoadBalancerKey) -> float | None:
            try:
                return await reconcile(key)
            finally:
                if self._left:
                    self._left.discard(key)
                    if not self._left:
                        self._done.set()

        return counting


class Reconciler:
    """Reconciles load balancers."""

    def __init__(
        self,
        context: IntentContext,
        *,
        intents: Intents,
        history: History,
        charge: Callable[[LoadBalancerKey, float], None],
    ) -> None:
        self._context = context
        self._charge = charge
        self._intents = intents
        self._migration = context.migration
        self._finalization = Finalization(context)
        self._history = history

    async def reconcile(self, key: LoadBalancerKey) -> float | None:
        """Take ``key`` one step further; idempotent. Returns seconds until the key is due again."""
        due_s = await self._step(key)
        await self._intents[key.kind].unreadable.write(key)
        return due_s

    async def _step(self, key: LoadBalancerKey) -> float | None:
        intent, clock = self._intents[key.kind], self._context.clock
        began_s = clock.processor_s()
        view = intent.view(key)
        if view is None:
            intent.forget(key)
            self._migration.forget(key)
            if await self._finalization.finalize(key):
                intent.status.await_deletion(key)
            return None
        self._finalization.cancel(key, view.load_balancer.metadata.uid)
        decision = intent.decide(view)
        self._charge(key, clock.processor_s() - began_s)
        if self._context.may_write(key):
            result = await intent.record(view, decision)
        else:
            result = intent.placement_from_record(view, decision)
        moving = bool(result.waiting_for)
        if result.placement is not None:
            decides = self._context.inventory.decides(key)
            moving = self._migration.place(key, view.load_balancer, result.placement, decides=decides) or moving
        generation = view.load_balancer.metadata.generation
        if result.decision is not None and intent.status.publish(
            key, result.decision, result.waiting_for, generation=generation
        ):
            self._history.note(key, HistoryKind.DECIDED, decision_text(result.decision, result.waiting_for))
        if result.failure is not None:
            raise result.failure
        return AGAIN_S if moving else view.due_s
