"""The hub as a process: caches, engines and loops wired together, started in order.

    1 caches synced          nothing is decided on half a view
    2 every key once         wishes are complete, from what is recorded
    3 providers publish      the data plane hears of us only now, and of differences only
    4 leading                addresses, finalizers, statuses: one writer

In: a Cluster, providers, settings. Out: a running hub. Losing the lease stops step 4 and nothing else: proxies are
served by every replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec
import structlog

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.names import DEFAULT_CLASS, HUB_LEASE, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.naming import fit
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, Retry, first_of
from fairlead.hub.inspect.metrics import HubCollector
from fairlead.hub.intents.finalization import Finalization
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.intents.loadbalancer.parts import LoadBalancerParts
from fairlead.hub.intents.loadbalancer.target_refs import TargetRefs
from fairlead.hub.intents.tcp.accepted_status import AcceptedStatus
from fairlead.hub.intents.tcp.status import TCPStatusWriter
from fairlead.hub.intents.tcp.views import Views
from fairlead.hub.inventory import Inventory, tcp_key
from fairlead.hub.providers.migration import ProviderMigration
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.reconcile import Reconciler
from fairlead.hub.tenants.address_allocator import AddressAllocator, listeners_on_record
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.hub.tenants.tenants import Tenants
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderElector
from fairlead.kube.preflight import install_crds
from fairlead.model.contract import Provider
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry
from fairlead.sync.history import History
from fairlead.sync.report import Report
from fairlead.translate.allocate import AddressPool

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
_PREPARE_AGAIN_S = 5.0


class RunningProvider(Provider, Protocol):
    """A provider with a life of its own: what the hub starts, opens and stops."""

    async def start(self) -> None:
        """Get ready; nothing is published yet."""
        ...

    def publish(self) -> None:
        """Let the data plane see what has been put in so far, and everything from now on."""
        ...

    async def close(self) -> None:
        """Stop talking to the data plane, which goes on without us."""
        ...


class HubConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a hub runs. ``identity`` names this replica in the lease; the same after a restart on one machine.

    ``region`` empty: load balancers of all regions. ``reclaim_lease``: a lock keeps everybody else from that name, so
    a restarted hub leads again at once.
    """

    identity: str
    address_pool: AddressPool | None = None
    loopback_targets: bool = False
    region: str = ""
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
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._on_lead = on_lead
        self._providers = providers
        self._clock = clock or SystemClock()
        self._telemetry = telemetry or Telemetry()
        self._queue: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=self._clock)
        self._tenant_queue: KeyedQueue[str] = KeyedQueue(clock=self._clock)
        self._published = asyncio.Event()
        self._first_pass: set[LoadBalancerKey] | None = None
        self._first_pass_done = asyncio.Event()
        self._lead = False
        self.history = History(now=self._clock.now)
        self.inventory = Inventory(cluster, region=config.region)
        self.book = AddressAllocator(config.address_pool)
        self.members = MemberHealth(clock=self._clock, changed=self._member_changed)
        self._events = EventRecorder(cluster, component="fairlead-hub")
        self.selected = BackendSources(cluster, changed=self.inventory.selection_changed)
        self.engines = ProviderRegistry(
            served=providers,
            factories=factories or {},
            inventory=self.inventory,
            cluster=cluster,
            clock=self._clock,
            report=self._reported,
            changed=self._changed_at_provider,
            is_leader=lambda: self.elector.is_leader,
            history=self.history,
            origin=TargetRefs(inventory=self.inventory, selected=self.selected).of,
        )
        views = Views(
            inventory=self.inventory,
            book=self.book,
            members=self.members,
            providers=self.engines.capabilities,
            loopback_targets=config.loopback_targets,
            provider_problems=self.engines.problems,
        )
        self.status = TCPStatusWriter(
            cluster=cluster,
            inventory=self.inventory,
            engines=self.engines,
            events=self._events,
            clock=self._clock,
            leading=self._may_write,
        )
        self._shared = LoadBalancerParts(
            cluster=cluster,
            inventory=self.inventory,
            selected=self.selected,
            engines=self.engines,
            events=self._events,
            clock=self._clock,
            leading=self._may_write,
            loopback_targets=config.loopback_targets,
        )
        self._reconciler = Reconciler(
            views=views,
            handover=ProviderMigration(engines=self.engines, book=self.book, clock=self._clock),
            recorder=AcceptedStatus(cluster),
            status=self.status,
            shared=self._shared.load_balancers,
            shared_status=self._shared.status,
            departures=Finalization(
                cluster=cluster,
                inventory=self.inventory,
                engines=self.engines,
                book=self.book,
                leading=self._may_write,
            ),
            leading=self._may_write,
        )
        self._tenants = Tenants(
            cluster=cluster,
            inventory=self.inventory,
            members=self.members,
            clock=self._clock,
            leading=self._may_write,
        )
        self._telemetry.registry.register(
            HubCollector(
                inventory=self.inventory,
                engines=self.engines,
                members=self.members,
                book=self.book,
                leading=self._may_write,
                clock=self._clock,
            )
        )
        self.elector = LeaderElector(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=fit(f"{HUB_LEASE}-{config.region.lower()}") if config.region else HUB_LEASE,
            identity=config.identity,
            lease_s=config.lease_s,
            reclaim=config.reclaim_lease,
            clock=self._clock,
        )

    @property
    def leading(self) -> bool:
        """Say whether this replica writes."""
        return self._lead

    def _may_write(self) -> bool:
        """Say whether it leads at this very moment: a process that was suspended may not know yet that it does not."""
        return self._lead and self.elector.is_leader

    def not_ready(self) -> list[str]:
        """Return the reasons why this hub is not ready, one sentence each; none when it is."""
        reasons = [
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in self.inventory.caches.items()
            if cache.problem or not cache.synced
        ]
        if not reasons and not self._published.is_set():
            reasons.append("not every load balancer has been looked at once")
        return reasons

    async def wait_published(self) -> None:
        """Return once the data plane has been told everything that was there at the start."""
        await self._published.wait()

    async def prepare(self) -> None:
        """Install what the hub needs at its API: the kinds, its namespace, the default class."""
        problems = await install_crds(self._cluster, all_crds(), MANAGER_HUB)
        if problems:
            raise BadConfiguration(problems[0], detail="; ".join(problems[1:]))
        with suppress(AlreadyExists):
            await self._cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        default_class = {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": DEFAULT_CLASS}}
        with suppress(AlreadyExists):
            # Created, not applied: what an operator changes in it is theirs.
            await self._cluster.create(LOAD_BALANCER_CLASSES, default_class)

    async def run(self) -> None:
        """Run until cancelled."""
        prepared = await self._try_to_prepare()
        self._wire()
        try:
            async with asyncio.TaskGroup() as group:
                if not prepared:
                    group.create_task(self._prepare_later())
                for task in self._loops():
                    group.create_task(task)
        except* FairleadError as errors:
            # Whoever started us wants the one reason, not the tree of tasks that it came up through.
            raise first_of(errors) from errors
        finally:
            self._lead = False
            for provider in self._providers.values():
                await provider.close()
            await self.engines.close()

    async def _try_to_prepare(self) -> bool:
        """Prepare; an API that cannot take writes now holds up nothing that is on record already."""
        try:
            await self.prepare()
        except Retry as error:
            log.warning("not prepared yet", sentence=error.sentence)
            return False
        return True

    async def _prepare_later(self) -> None:
        while not await self._try_to_prepare():
            await self._clock.sleep(_PREPARE_AGAIN_S)

    def _loops(self) -> Sequence[Coroutine[None, None, None]]:
        caches = [cache.run() for cache in self.inventory.caches.values()]
        return [*caches, self.selected.run(), self._events.run(), self.members.run(), self._start()]

    def _wire(self) -> None:
        self.inventory.on_wake(self._queue.add)
        self.inventory.leases.on_change(self.members.lease_changed)
        self.inventory.tenants.on_change(self._tenant_changed)
        self.inventory.load_balancers.on_change(self._words_changed)
        self.inventory.classes.on_change(self._class_changed)
        self.inventory.records.on_change(self.engines.record_changed)
        self._shared.wire()
        for provider in self._providers.values():
            provider.on_change(self.status.queue.add)

    async def _start(self) -> None:
        """Begin in the order that the module's picture shows; then work until cancelled."""
        for cache in self.inventory.caches.values():
            await cache.wait_synced()
        self._hold_what_is_on_record()
        for provider in self._providers.values():
            await provider.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.elector.run(self._while_leading))
            for engine in self.engines.served.values():
                group.create_task(engine.worker.run())
            group.create_task(self._publish_once())
            group.create_task(self._run_workers(self._queue, self._reconcile, "loadbalancer", self._config.workers))
            group.create_task(self._run_workers(self.status.queue, self.status.write, "status", self._config.workers))
            group.create_task(self._run_workers(self._tenant_queue, self._tenants.reconcile, "tenant", 1))
            for queue, work, name, workers in self._shared.loops():
                group.create_task(self._run_workers(queue, work, name, workers))

    async def _run_workers(
        self, queue: KeyedQueue[K], reconcile: Callable[[K], Awaitable[float | None]], name: str, workers: int
    ) -> None:
        await run_workers(queue, reconcile, workers=workers, name=name, telemetry=self._telemetry)

    def _hold_what_is_on_record(self) -> None:
        """Know who has what before anything is given away (again)."""
        for load_balancer in self.inventory.served():
            allocation = load_balancer.status.allocation
            self.book.hold(tcp_key(load_balancer), allocation, listeners_on_record(load_balancer))

    async def _publish_once(self) -> None:
        """Publish when every key that was there at the start has been looked at, and its wish carried out."""
        self._first_pass = set(self.inventory.all_keys())
        self.inventory.wake(self._first_pass)
        if self._first_pass:
            await self._first_pass_done.wait()
        for engine in self.engines.served.values():
            engine.worker.trigger()
            await engine.worker.settled()
        for provider in self._providers.values():
            provider.publish()
        self._published.set()
        log.info("hub publishes", load_balancers=len(self.inventory.served()))

    async def _reconcile(self, key: LoadBalancerKey) -> float | None:
        try:
            return await self._reconciler.reconcile(key)
        finally:
            if self._first_pass is not None:
                self._first_pass.discard(key)
                if not self._first_pass:
                    self._first_pass = None
                    self._first_pass_done.set()

    async def _while_leading(self, epoch: int) -> None:
        log.info("leading", epoch=epoch, identity=self._config.identity)
        self._hold_what_is_on_record()
        await self.engines.load(epoch)
        self._lead = True
        try:
            self._on_lead(True)
            for engine in self.engines.served.values():
                engine.tracker.ensure_again(list(engine.tracker))
                engine.worker.trigger()
            self.inventory.wake({*self.inventory.all_keys(), *self.engines.restored()})
            for tenant in self.inventory.tenants.values():
                self._tenant_queue.add(tenant.metadata.name)
            self.status.refresh()
            self._shared.lead()
            await self.engines.run()
        finally:
            self._lead = False
            self._on_lead(False)
            log.warning("not leading any more", holder=self.elector.holder)

    def _reported(self, report: Report) -> None:
        self.history.record(report)
        key = report.load_balancer
        if key.kind == LOAD_BALANCERS.kind:
            self._shared.status.report(report)
            self._queue.add(key)
            return
        self.status.report(report)
        if not any(key in engine.tracker for engine in self.engines.values()):
            self._queue.add(key)

    def _changed_at_provider(self, key: LoadBalancerKey) -> None:
        self._queue.add(key)
        if key.kind != LOAD_BALANCERS.kind:
            self.status.queue.add(key)

    def _class_changed(self, _old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if new is not None and self.engines.open(new.spec.provider):
            self.inventory.wake(self.inventory.all_keys())

    def _words_changed(self, _old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        if new is not None:
            self.status.seen(tcp_key(new), new)

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if new is not None and (old is None or old.spec != new.spec or old.deleting != new.deleting):
            self._tenant_queue.add(new.metadata.name)

    def _member_changed(self, namespace: str) -> None:
        tenant = self.inventory.tenant_of(namespace)
        if tenant is not None:
            self._tenant_queue.add(tenant.metadata.name)
            self.inventory.wake(self.inventory.keys_of_namespace(namespace))
