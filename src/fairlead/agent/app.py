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
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry

from fairlead.agent.checks import find_problems, find_system_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.decision import Ours
from fairlead.agent.eligibility import Eligibility
from fairlead.agent.events import EventWriter, warning_event
from fairlead.agent.export import Settings
from fairlead.agent.exporter import Exporter
from fairlead.agent.feedback_writer import FeedbackWriter
from fairlead.agent.heartbeat import Refusals
from fairlead.agent.identity import ServiceKey
from fairlead.agent.l7.app import L7Agent
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.node_exporter import NodeExporter
from fairlead.agent.offboarding import Offboarding
from fairlead.agent.ownership import decide
from fairlead.agent.sources import Sources
from fairlead.agent.term import Leadership
from fairlead.agent.token_renewal import TokenRenewal
from fairlead.agent.watch_events import WatchEvents
from fairlead.api.gateway import GATEWAYS
from fairlead.api.heartbeat import STAMPED_LEASES, age_s
from fairlead.api.ingress import INGRESSES
from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import KubeObject, ObjectKey, Resource
from fairlead.api.names import AGENT_LEADER_LEASE, ANNOTATION_ADDRESS, MANAGER_AGENT
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.publish.publisher import Publisher
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
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
            on_write=lambda kind, action: metrics.hub_writes.labels(kind, action).inc(),
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
        kinds: list[Resource[Any]] = [SERVICES, INGRESSES, GATEWAYS]
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
