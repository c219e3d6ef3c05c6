"""The agent as a process: its caches, queues and workers, and which queue each change enqueues.

    member: Service ───────┬──► export queue ───► Exporter ───────► hub: TCPLoadBalancer, EndpointSlices
            EndpointSlice ─┘         ▲
            Node ────► nodes queue ──┼─────────► NodeExporter ────► hub: nodes slices
    hub: TCPLoadBalancer, slices ────┘
         TCPLoadBalancer, Service ──► feedback queue ─► FeedbackWriter ─► member: status, annotation, Events

In: two clusters and settings. Out: runs until cancelled. Caches always run; everything that writes runs only during a
term as leader, and it is a candidate only once every cache has been complete and the hub accepts its writes.
Never: decides anything about a Service, a node or an address.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry

from fairlead.agent.checks import find_problems, find_system_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.eligibility import Eligibility
from fairlead.agent.events import EventWriter, warning_event
from fairlead.agent.export import Settings
from fairlead.agent.exporter import Exporter
from fairlead.agent.feedback_writer import FeedbackWriter
from fairlead.agent.heartbeat import MemberHeartbeat, Refusals
from fairlead.agent.identity import ServiceKey, origin_of
from fairlead.agent.l7.app import L7Agent
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.nodes import NodeAddressType, NodeEntry, NodesPlace, build_nodes, entries_from_nodes
from fairlead.agent.offboarding import Offboarding
from fairlead.agent.ownership import Ours, decide
from fairlead.agent.sources import MemberService, Sources, service_of_slice
from fairlead.agent.token_renewal import TokenRenewal
from fairlead.api.gateway import GATEWAYS
from fairlead.api.kubernetes import INGRESSES, SERVICES, EndpointSlice, Node
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import AnyResource, KubeObject, ObjectKey, only_status_changed
from fairlead.api.names import AGENT_LEADER_LEASE, ANNOTATION_ADDRESS, LABEL_NODES, LABEL_NODES_IPV6, MANAGER_AGENT
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import STAMPED_LEASES, age_s
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderElector
from fairlead.model.keys import IPV4, IPV6, Family
from fairlead.publish.objects import plan_slices
from fairlead.publish.publisher import Publisher, slices_of_nodes
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue, backoff_s
from fairlead.runtime.telemetry import Telemetry

#: The reason of the Warning on objects that wait for an address while the hub does not answer.
HUB_NOT_ANSWERING = "HubNotAnswering"
_LOOK_AT_HUB_S = 5.0
#: Everything is reconciled again this often although nothing has changed: belt and braces, without any write.
RESYNC_S = 600.0


class Agent:
    """One agent between two clusters; ``run`` it, in as many copies as wanted: one of them leads."""

    def __init__(self, *, member: Cluster, hub: Cluster, config: AgentConfig) -> None:
        config.check()
        self.config = config
        self.member = member
        self.hub = hub
        self.hub_namespace = config.namespace_at_hub(hub.namespace)
        self.identity = config.identity or f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
        self.registry = CollectorRegistry()
        self.sources = Sources(member=member, hub=hub, hub_namespace=self.hub_namespace)
        self.problems: list[str] = ["both clusters have not been checked yet"]
        self.exports: KeyedQueue[ServiceKey] = KeyedQueue(clock=member.clock)
        self.feedbacks: KeyedQueue[ServiceKey] = KeyedQueue(clock=member.clock)
        self.nodes: KeyedQueue[str] = KeyedQueue(clock=member.clock)
        self.offboarding = Offboarding(tenant=config.tenant, sources=self.sources, begin=self._leave)
        self.eligibility = Eligibility(
            member=member,
            hub=hub,
            sources=self.sources,
            config=config,
            hub_namespace=self.hub_namespace,
            offboarding=self.offboarding,
        )
        self._refusals = Refusals()
        self.leadership = Leadership(
            member=member,
            hub=hub,
            hub_namespace=self.hub_namespace,
            identity=self.identity,
            config=config,
            eligibility=self.eligibility,
            is_fresh=lambda: self.sources.member_is_fresh(fresh_s=config.fresh_s),
            refusals=self._refusals,
            offboarding=self.offboarding,
            begin=self._begin,
            work=self._work,
        )
        self._token = TokenRenewal(hub, tenant=config.tenant)
        self._telemetry = Telemetry(self.registry)
        self._recorder = EventRecorder(member, component="fairlead-agent")
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)
        self._watch_events = WatchEvents(
            sources=self.sources,
            tenant=config.tenant,
            exports=self.exports,
            feedbacks=self.feedbacks,
            nodes=self.nodes,
        )
        self._make_writers(AgentMetrics(self.registry))
        for cluster in (member, hub):
            for queue in (self.exports, self.feedbacks, self.nodes, self.l7.exports, self.l7.feedbacks):
                cluster.reachable.on_back(queue.retry_now)

    def _make_writers(self, metrics: AgentMetrics) -> None:
        config, sources = self.config, self.sources
        events = EventWriter(recorder=self._recorder)
        settings = Settings(tenant=config.tenant, namespace=self.hub_namespace, target=config.target)
        self._publisher = Publisher(
            hub=self.hub,
            load_balancers=sources.load_balancers,
            slices=sources.hub_slices,
            manager=MANAGER_AGENT,
            may_write=self.leadership.may_write,
            on_write=lambda kind, action: metrics.hub_writes.labels(kind, action).inc(),
        )
        self._node_exporter = NodeExporter(
            sources=sources,
            publisher=self._publisher,
            metrics=metrics,
            settings=settings,
            prefer=config.node_address_type,
            on_addresses=self._watch_events.enqueue_local,
        )
        self._exporter = Exporter(
            sources=sources,
            publisher=self._publisher,
            events=events,
            metrics=metrics,
            refusals=self._refusals,
            settings=settings,
            cloud=config.cloud_load_balancer,
            fresh_s=config.fresh_s,
            node_addresses=self._node_exporter.addresses,
        )
        self.l7 = L7Agent(
            member=self.member,
            hub=self.hub,
            sources=sources,
            settings=settings,
            recorder=self._recorder,
            refused=self._refusals.put,
            fresh_s=config.fresh_s,
            may_write=self.leadership.may_write,
            publisher=self._publisher,
            workers=config.workers,
        )
        self._feedback = FeedbackWriter(
            member=self.member,
            sources=sources,
            events=events,
            metrics=metrics,
            cloud=config.cloud_load_balancer,
            may_write=self.leadership.may_write,
            leaving=lambda: self.offboarding.leaving,
        )
        metrics.watch("leading", "1 while this agent may write.", lambda: float(self.leadership.may_write()))
        metrics.watch("last_sync_age_seconds", "Age of the least current cache of the member.", sources.member_age_s)
        metrics.watch("hub_reachable", "1 while all watches of the hub work.", lambda: float(sources.hub_is_heard))

    @property
    def working(self) -> bool:
        """Return whether this agent leads and does its work."""
        return self.leadership.working

    def readiness(self) -> list[str]:
        """Return one sentence for each thing that is in the way; a copy that waits for its turn is ready."""
        reasons = [
            *self.problems,
            *filter(None, [self._token.problem, self.eligibility.problem, self.offboarding.problem]),
        ]
        for cache in (*self.sources.of_member, *self.sources.of_hub):
            if cache.problem:
                reasons.append(cache.problem)
            elif not cache.synced:
                reasons.append(f"The {cache.resource.full_name} of {cache.cluster.name} have not been read yet.")
        return list(dict.fromkeys([*reasons, *self.leadership.problems]))

    async def run(self) -> None:
        """Run until cancelled; every failure outside is waited for, and shown by ``readiness``."""
        async with asyncio.TaskGroup() as group:
            for cache in (*self.sources.of_member, *self.sources.of_hub):
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}")
            group.create_task(self.l7.run(), name="l7-caches")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._check(), name="checks")
            group.create_task(self._report_silent_hub(), name="silent-hub")
            if self.config.renew_token:
                group.create_task(self._token.run(), name="token")
            group.create_task(self.leadership.run(), name="election")

    def _leave(self) -> None:
        self._watch_events.enqueue_all()

    def _begin(self) -> None:
        self._node_exporter.read_addresses()
        self._watch_events.enqueue_all()

    async def _work(self) -> None:
        run = partial(run_workers, telemetry=self._telemetry)
        workers, guarded = self.config.workers, self.offboarding.unless_leaving
        async with asyncio.TaskGroup() as group:
            group.create_task(self._resync(), name="resync")
            group.create_task(run(self.nodes, guarded(self._node_exporter.reconcile), workers=1, name="nodes"))
            group.create_task(run(self.exports, guarded(self._exporter.reconcile), workers=workers, name="export"))
            group.create_task(run(self.feedbacks, self._feedback.reconcile, workers=workers, name="feedback"))
            group.create_task(self.l7.work(self._telemetry), name="l7")

    async def _check(self) -> None:
        """Check rights and kinds until nothing is lacking."""
        logged: list[str] = []
        while True:
            self.problems = await find_problems(
                member=self.member,
                hub=self.hub,
                hub_namespace=self.hub_namespace,
                system_namespace=self.config.system_namespace,
                tenant=self.config.tenant,
            )
            for sentence in self.problems:
                if sentence not in logged:
                    self._log.error("lacking", sentence=sentence)
            logged = self.problems
            if not self.problems:
                return
            await self.member.clock.sleep(self.config.preflight_retry_s)

    async def _report_silent_hub(self) -> None:
        """Warn on objects that wait for an address while the hub does not answer: their authors see nothing else."""
        kinds: list[AnyResource] = [SERVICES, INGRESSES, GATEWAYS]
        events = {kind.kind: EventWriter(recorder=self._recorder, resource=kind) for kind in kinds}
        clock, limit_s, since = self.member.clock, self.config.let_go_s, self.member.clock.now()
        silent_s = clock.monotonic()
        warned: dict[tuple[str, ObjectKey], KubeObject] = {}
        while True:
            await clock.sleep(min(_LOOK_AT_HUB_S, limit_s / 4))
            if self.sources.hub_is_heard:
                since, silent_s = clock.now(), clock.monotonic()
            problem = self._token.problem or next((each.problem for each in self.sources.of_hub if each.problem), "")
            silent = bool(problem) and clock.monotonic() - silent_s >= limit_s and not await self._another_leads()
            waiting = {(kind, obj.key): obj for kind, obj in self._waiting()} if silent else {}
            warning = warning_event(
                HUB_NOT_ANSWERING,
                f"The hub {self.hub.server} has not answered the agent since {wire_time(since)}, so nothing changes "
                f"here: {problem}",
            )
            for (kind, _), obj in {**warned, **waiting}.items():
                events[kind].emit_new("hub", obj, [warning] if silent and (kind, obj.key) in waiting else [])
            warned = waiting

    def _waiting(self) -> Iterator[tuple[str, KubeObject]]:
        for service in self.sources.services.values():
            ours = isinstance(decide(service, cloud=self.config.cloud_load_balancer), Ours)
            if ours and not service.status.load_balancer.ingress and not service.annotation(ANNOTATION_ADDRESS):
                yield SERVICES.kind, service
        yield from self.l7.waiting()

    async def _another_leads(self) -> bool:
        """Return whether another copy holds the lease in the member; such a one may still reach the hub."""
        if self.leadership.working:
            return False
        try:
            namespace = await find_system_namespace(self.member, preferred=self.config.system_namespace)
            lease = await self.member.get(STAMPED_LEASES, namespace, AGENT_LEADER_LEASE)
        except FairleadError:
            return False
        silent_s = age_s(lease, self.member.server_clock.now())
        held = lease.spec.holder_identity not in ("", None, self.identity)
        return held and silent_s is not None and silent_s <= self.config.lease_s

    async def _resync(self) -> None:
        while True:
            await self.member.clock.sleep(RESYNC_S)
            self._watch_events.enqueue_all()


class WatchEvents:
    """Connects caches to queues; made once, before the caches run."""

    def __init__(
        self,
        *,
        sources: Sources,
        tenant: str,
        exports: KeyedQueue[ServiceKey],
        feedbacks: KeyedQueue[ServiceKey],
        nodes: KeyedQueue[str],
    ) -> None:
        self._sources = sources
        self._tenant = tenant
        self._exports = exports
        self._feedbacks = feedbacks
        self._nodes = nodes
        sources.services.on_change(self._service)
        sources.slices.on_change(self._slice)
        sources.nodes.on_change(self._node)
        sources.load_balancers.on_change(self._load_balancer)
        sources.hub_slices.on_change(self._hub_slice)
        sources.classes.on_change(self._class)

    def enqueue_all(self) -> None:
        """Enqueue what exists in the member, and what is at the hub without existing there any more."""
        keys: set[ServiceKey] = {service.key for service in self._sources.services.values()}
        for hub_object in (*self._sources.load_balancers.values(), *self._sources.hub_slices.values()):
            origin = origin_of(hub_object, tenant=self._tenant)
            if origin is not None:
                keys.add(origin)
        self._nodes.add(NODES_KEY)
        for key in keys:
            self._enqueue(key)

    def enqueue_local(self) -> None:
        """Enqueue the Services whose export lists nodes."""
        for service in self._sources.services.values():
            if service.spec.external_traffic_policy == "Local":
                self._exports.add(service.key)

    def _enqueue(self, key: ServiceKey) -> None:
        self._exports.add(key)
        self._feedbacks.add(key)

    def _service(self, old: MemberService | None, new: MemberService | None) -> None:
        service = new or old
        if service is not None:
            self._enqueue(service.key)

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            key = service_of_slice(version) if version is not None else None
            if key is not None:
                self._exports.add(key)
        if new is not None:
            # Its addresses may have been those of the last endpoints of another Service, which the hub keeps.
            for key in self._sources.departed.waiting_for(new):
                self._exports.add(key)

    def _node(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or not _same_node(old, new):
            self._nodes.add(NODES_KEY)

    def _load_balancer(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        load_balancer = new or old
        if load_balancer is None:
            return
        # By name, not by label: an object that is not ours may stand in the way of one that is.
        namespace, _, name = load_balancer.metadata.name.partition(".")
        # An export is compared with all but the status, of which a hub may write thousands at once.
        exported = not (old and new and only_status_changed(old, new))
        for key in {(namespace, name), origin_of(load_balancer, tenant=self._tenant) or (namespace, name)}:
            self._feedbacks.add(key)
            if exported:
                self._exports.add(key)

    def _hub_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            if version is None:
                continue
            key = origin_of(version, tenant=self._tenant)
            if key is not None:
                self._exports.add(key)
            elif version.label(LABEL_NODES) or version.label(LABEL_NODES_IPV6):
                self._nodes.add(NODES_KEY)

    def _class(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if old is None or new is None or old.spec.targets != new.spec.targets:
            for service in self._sources.services.values():
                self._exports.add(service.key)


def _same_node(old: Node, new: Node) -> bool:
    """Return whether a change of a node can matter: its heartbeats do not."""
    same_meta = old.metadata.labels == new.metadata.labels and old.deleting == new.deleting
    return same_meta and old.spec == new.spec and old.status == new.status


#: The only key of this queue.
NODES_KEY = "nodes"


class NodeExporter:
    """Reconciles all nodes at once. ``on_addresses`` is called when a node's name or address is new, or gone."""

    def __init__(
        self,
        *,
        sources: Sources,
        publisher: Publisher,
        metrics: AgentMetrics,
        settings: Settings,
        prefer: NodeAddressType,
        on_addresses: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._publisher = publisher
        self._metrics = metrics
        self._settings = settings
        self._prefer: NodeAddressType = prefer
        self._on_addresses = on_addresses
        self._addresses: dict[Family, dict[str, str]] = {}
        self._stale = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.nodes")

    @property
    def addresses(self) -> Mapping[Family, Mapping[str, str]]:
        """Return the nodes' addresses of each family by name, of all nodes that have one: a live view."""
        return self._addresses

    def read_addresses(self) -> None:
        """Take the addresses from the cache, before anything is exported."""
        addresses: dict[Family, dict[str, str]] = {
            family: {entry.name: entry.address for entry in entries if entry.address}
            for family, entries in self._entries().items()
        }
        if addresses != self._addresses:
            self._addresses.clear()
            self._addresses.update(addresses)
            self._on_addresses()

    async def reconcile(self, _key: str) -> float | None:
        """Write the member's nodes to the hub."""
        self.read_addresses()
        namespace, tenant = self._settings.namespace, self._settings.tenant
        slices = self._publisher.slices_in(slices_of_nodes(namespace))
        entries = self._entries()
        # A cluster of IPv4 alone is nothing to speak of, nor is one of IPv6 alone.
        needed = {IPV4: not any(entry.address for entry in entries[IPV6]), IPV6: False}
        stale = ""
        for family in (IPV4, IPV6):
            place = NodesPlace(namespace, tenant, family)
            export = build_nodes(entries[family], slices, place=place, needed=needed[family])
            stale = stale or export.stale
            ours = [each for each in slices if place.index_of(each) is not None]
            await self._publisher.slices.write(plan_slices(export.slices, ours))
        if stale != self._stale:
            self._stale = stale
            # Where pods are the targets, nodes matter only to Services that ask for them.
            log = self._log.warning if self._settings.target == "Node" else self._log.info
            log("nodes", sentence=stale or "the nodes are current again")
        self._metrics.nodes_stale.set(1 if stale else 0)
        return None

    def _entries(self) -> dict[Family, tuple[NodeEntry, ...]]:
        nodes = self._sources.nodes.values()
        return {family: entries_from_nodes(nodes, prefer=self._prefer, family=family) for family in (IPV4, IPV6)}


class Leadership:
    """Stands for the lease whenever this agent is eligible. ``begin`` prepares a term, ``work`` is done during it."""

    def __init__(
        self,
        *,
        member: Cluster,
        hub: Cluster,
        hub_namespace: str,
        identity: str,
        config: AgentConfig,
        eligibility: Eligibility,
        is_fresh: Callable[[], bool],
        refusals: Refusals,
        offboarding: Offboarding,
        begin: Callable[[], None],
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._member = member
        self._hub = hub
        self._hub_namespace = hub_namespace
        self._identity = identity
        self._config = config
        self._eligibility = eligibility
        self._is_fresh = is_fresh
        self._refusals = refusals
        self._offboarding = offboarding
        self._begin = begin
        self._work = work
        self._elector: LeaderElector | None = None
        self._heartbeat: MemberHeartbeat | None = None
        self.working = False
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)

    def may_write(self) -> bool:
        """Return whether this agent is proven to be the only one that writes, at this very moment."""
        return self._elector is not None and self._elector.is_leader

    @property
    def problems(self) -> list[str]:
        """Return what is in the way of the lease and of the heartbeat, one sentence each."""
        parts = (self._elector, self._heartbeat)
        return [part.problem for part in parts if part is not None and part.problem]

    async def run(self) -> None:
        """Be a candidate, once it is known in which namespace the agents of this member have their lease."""
        lease_s = self._config.lease_s
        self._elector = LeaderElector(
            self._member,
            namespace=await self._lease_namespace(),
            name=AGENT_LEADER_LEASE,
            identity=self._identity,
            lease_s=lease_s,
            renew_s=lease_s * 2 / 3,
            retry_s=lease_s * 2 / 15,
            reclaim=self._config.reclaim_lease,
        )
        while True:
            await self._eligibility.wait_eligible()
            await self._elector.run(self._lead)
            # It was released: another copy has the first turn.
            await self._member.clock.sleep(lease_s / 2)

    async def _lease_namespace(self) -> str:
        failures = 0
        while True:
            try:
                return await find_system_namespace(self._member, preferred=self._config.system_namespace)
            except FairleadError as error:
                failures += 1
                self._log.warning("the member does not answer", sentence=error.sentence, detail=error.detail)
                await self._member.reachable.pause(backoff_s(failures, limit_s=30.0))

    async def _lead(self, epoch: int) -> None:
        """Do the work of one term; return when it cannot be done."""
        if not await self._eligibility.check():
            # It may have been waiting for its turn for days.
            return
        self._log.info("exporting", epoch=epoch, namespace=self._hub_namespace)
        self._begin()
        heartbeat = self._heartbeat = MemberHeartbeat(
            hub=self._hub,
            namespace=self._hub_namespace,
            tenant=self._config.tenant,
            region=self._config.region,
            identity=self._identity,
            member_uid=self._eligibility.member_uid,
            interval_s=self._config.heartbeat_s,
            is_fresh=self._is_fresh,
            refusals=self._refusals,
            offboarding=self._offboarding,
            clock=self._hub.clock,
        )
        self.working = True
        try:
            async with asyncio.TaskGroup() as group:
                tasks = (
                    group.create_task(heartbeat.run(), name="heartbeat"),
                    group.create_task(self._work(), name="work"),
                )
                await self._eligibility.wait_ineligible(heartbeat)
                for task in tasks:
                    task.cancel()
        finally:
            self.working = False
            self._heartbeat = None
