"""The agent as a process: its caches, its sources, the engine that runs them, and one election.

    member: Services, Nodes ──► ServiceSource ─┐            ┌─► hub: TCPLoadBalancers, EndpointSlices
            Ingresses ────────► IngressSource ─┼─► Engine ──┼─► hub: HTTPLoadBalancers, LoadBalancerRoutes, Secrets
            Gateways, routes ─► GatewaySource ─┤            ├─► hub: ExportedServices
            ServiceExports ───► Multicluster…  ─┘           └─► member: statuses, Events, ServiceImports

In: two clusters and settings. Out: runs until cancelled. Caches always run; everything that writes runs only during a
term as leader, and the agent is a candidate only once every cache has been complete and the hub accepts its writes. A
source whose kinds cannot be read does not stop the others.
Never: decides anything about an object.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry

from fairlead.agent.checks import find_problems, find_system_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.egress import EgressLabels
from fairlead.agent.engine import AgentMetrics, Engine
from fairlead.agent.events import SILENT_HUB
from fairlead.agent.readiness import ReadinessGates
from fairlead.agent.sources.caches import IngressCaches, ServiceCaches, lost_kinds
from fairlead.agent.sources.gateway.caches import GatewayCaches
from fairlead.agent.sources.gateway.reports import InfrastructureWriter
from fairlead.agent.sources.gateway.source import GatewaySource
from fairlead.agent.sources.ingress.source import IngressSource
from fairlead.agent.sources.multicluster.source import MulticlusterCaches, MulticlusterSource
from fairlead.agent.sources.service.plan import Settings
from fairlead.agent.sources.service.source import ServiceSource
from fairlead.agent.sources.shared import Shared
from fairlead.agent.term import AgentLeadership, Eligibility, Offboarding, Refusals, TokenRenewal
from fairlead.api.gateway import GATEWAYS
from fairlead.api.kubernetes import INGRESSES, SERVICES
from fairlead.api.meta import AnyResource, KubeObject, ObjectKey
from fairlead.api.names import AGENT_LEADER_LEASE, MANAGER_AGENT
from fairlead.api.tenant import STAMPED_LEASES, age_s
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.model.condition import warning_event
from fairlead.publish.publisher import Publisher
from fairlead.runtime.background import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry

#: The reason of the Warning on objects that wait for an address while the hub does not answer.
HUB_NOT_ANSWERING = "HubNotAnswering"
_LOOK_AT_HUB_S = 5.0


class _Waiting(Protocol):
    def waiting(self) -> Iterable[KubeObject]:
        """Return our objects that have no address yet."""
        ...


class Agent:
    """One agent between two clusters; any number of copies may ``run``: one of them leads."""

    def __init__(self, *, member: Cluster, hub: Cluster, config: AgentConfig) -> None:
        config.check()
        self.config = config
        self.member = member
        self.hub = hub
        self.hub_namespace = config.namespace_at_hub(hub.namespace)
        self.identity = config.identity or f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
        self.registry = CollectorRegistry()
        self.problems: list[str] = ["both clusters have not been checked yet"]
        self.caches = ServiceCaches(
            member=member, hub=hub, hub_namespace=self.hub_namespace, readiness_gates=config.readiness_gates
        )
        self.http = IngressCaches(member=member, hub=hub, hub_namespace=self.hub_namespace)
        self.gateways = GatewayCaches(member=member, http=self.http)
        self.sets = MulticlusterCaches(member=member, hub=hub, hub_namespace=self.hub_namespace)
        self._gateway_seen = asyncio.Event()
        self.gateways.gateways.on_change(lambda _old, _new: self._gateway_seen.set())
        self.offboarding = Offboarding(tenant=config.tenant, caches=self.caches, changed=self._leaving_changed)
        self.eligibility = Eligibility(
            member=member,
            hub=hub,
            caches=self.caches,
            config=config,
            hub_namespace=self.hub_namespace,
            offboarding=self.offboarding,
        )
        self._refusals = Refusals()
        self.leadership = AgentLeadership(
            member=member,
            hub=hub,
            hub_namespace=self.hub_namespace,
            identity=self.identity,
            config=config,
            eligibility=self.eligibility,
            is_fresh=lambda: self.caches.member_is_fresh(fresh_s=config.fresh_s),
            refusals=self._refusals,
            offboarding=self.offboarding,
            work=self._work,
        )
        self._token = TokenRenewal(hub, tenant=config.tenant)
        self._recorder = EventRecorder(member, component="fairlead-agent")
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)
        metrics = AgentMetrics(self.registry)
        metrics.watch("leading", "1 while this agent may write.", lambda: float(self.leadership.may_write()))
        metrics.watch(
            "last_sync_age_seconds", "Age of the least current cache of the member.", self.caches.member_age_s
        )
        metrics.watch("hub_reachable", "1 while all watches of the hub work.", lambda: float(self.caches.hub_is_heard))
        publisher = Publisher(
            hub=hub,
            load_balancers=self.caches.load_balancers,
            slices=self.caches.hub_slices,
            manager=MANAGER_AGENT,
            may_write=self.leadership.may_write,
            on_write=lambda kind, action: metrics.hub_writes.labels(kind, action).inc(),
        )
        self.engine = Engine(
            member=member,
            publisher=publisher,
            recorder=self._recorder,
            may_write=self.leadership.may_write,
            leaving=lambda: self.offboarding.leaving,
            workers=config.workers,
            telemetry=Telemetry(self.registry),
        )
        for cluster in (member, hub):
            for queue in self.engine.queues:
                cluster.reachable.on_back(queue.retry_now)
        self._egress = EgressLabels(
            member=member,
            services=self.caches.services,
            cloud=config.cloud_load_balancer,
            engine=self.engine,
            recorder=self._recorder,
        )
        shared = self._add_sources(metrics)
        self._gates = gates = ReadinessGates(
            member=member,
            services=self.caches,
            http=self.http,
            gateways=self.gateways,
            shared=shared,
            engine=self.engine,
            recorder=self._recorder,
            tenant=config.tenant,
        )
        metrics.watch(
            "pods_waiting_for_gate", "Pods that wait for their readiness gate alone.", lambda: float(gates.waiting)
        )

    def _add_sources(self, metrics: AgentMetrics) -> Shared:
        """Register all sources with the engine; return the state that Ingresses and Gateways share."""
        config, engine, caches, http = self.config, self.engine, self.caches, self.http
        settings = Settings(tenant=config.tenant, namespace=self.hub_namespace, target=config.target)
        shared = Shared(
            engine=engine, member=self.member, services=caches, caches=http, settings=settings, fresh_s=config.fresh_s
        )
        services = ServiceSource(
            engine=engine,
            caches=caches,
            shared=shared,
            settings=settings,
            metrics=metrics,
            refusals=self._refusals,
            offboarding=self.offboarding,
            cloud=config.cloud_load_balancer,
            prefer=config.node_address_type,
            fresh_s=config.fresh_s,
            egress=self._egress.sources_of if config.egress else lambda _key: "",
        )
        ingresses = IngressSource(engine=engine, services=caches, caches=http, shared=shared, refusals=self._refusals)
        self._infrastructure = InfrastructureWriter(
            member=self.member,
            recorder=self._recorder,
            may_write=self.leadership.may_write,
            changed=lambda namespace, name: engine.report((GATEWAYS.kind, namespace, name)),
        )
        gateways = GatewaySource(
            engine=engine,
            services=caches,
            http=http,
            caches=self.gateways,
            shared=shared,
            infrastructure=self._infrastructure,
            refusals=self._refusals,
        )
        MulticlusterSource(
            engine=engine,
            member=self.member,
            services=caches,
            caches=self.sets,
            settings=settings,
            fresh_s=config.fresh_s,
        )
        self._waiting_sources: Mapping[AnyResource, _Waiting] = {
            SERVICES: services,
            INGRESSES: ingresses,
            GATEWAYS: gateways,
        }
        return shared

    @property
    def working(self) -> bool:
        """Return whether this agent leads and does its work."""
        return self.leadership.working

    def readiness(self) -> list[str]:
        """Return the problems, one sentence each; a standby copy is ready."""
        reasons = [
            *self.problems,
            *filter(
                None,
                [
                    self._token.problem,
                    self.eligibility.problem,
                    self.offboarding.problem,
                    self._gates.problem,
                    self._egress.problem,
                ],
            ),
        ]
        for cache in self.caches.all:
            if cache.problem:
                reasons.append(cache.problem)
            elif not cache.synced:
                reasons.append(f"The {cache.resource.full_name} of {cache.cluster.name} have not been read yet.")
        reasons += lost_kinds((self.caches.subtenants, *self.http.all, *self.gateways.all, *self.sets.all))
        return list(dict.fromkeys([*reasons, *self.leadership.problems]))

    async def run(self) -> None:
        """Run until cancelled; external failures are retried, and shown by ``readiness``."""
        async with asyncio.TaskGroup() as group:
            for cache in (*self.caches.all, self.caches.subtenants, *self.http.all):
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}")
            group.create_task(self.gateways.run(), name="gateway-caches")
            group.create_task(self.sets.run(), name="multicluster-caches")
            group.create_task(self._run_infrastructure(), name="gateway-infrastructure")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._check(), name="checks")
            group.create_task(self._publish_subtenants(), name="subtenants")
            group.create_task(self._report_silent_hub(), name="silent-hub")
            group.create_task(self._gates.run(), name="readiness-gates")
            if self.config.egress:
                group.create_task(self._egress.run(), name="egress")
            if self.config.renew_token:
                group.create_task(self._token.run(), name="token")
            group.create_task(self.leadership.run(), name="election")

    async def _run_infrastructure(self) -> None:
        """Watch the objects of Gateways in the member, once there are Gateways."""
        await self._gateway_seen.wait()
        await self._infrastructure.run()

    async def _publish_subtenants(self) -> None:
        """Publish objects with former namespace labels again once the namespaces have been read."""
        await self.caches.subtenants.wait_synced()
        self.engine.enqueue_all()

    def _leaving_changed(self) -> None:
        self.engine.enqueue_all()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_warnings(), name="end-warnings")
            group.create_task(self.engine.work(), name="work")

    async def _end_warnings(self) -> None:
        """Resolve outdated Warnings of the previous agent; traffic does not wait for this."""
        if await self._recorder.read_earlier():
            self.engine.enqueue_all()

    async def _check(self) -> None:
        """Check rights and kinds until nothing is missing."""
        logged: list[str] = []
        while True:
            self.problems = await find_problems(
                member=self.member,
                hub=self.hub,
                hub_namespace=self.hub_namespace,
                system_namespace=self.config.system_namespace,
                tenant=self.config.tenant,
                readiness_gates=self.config.readiness_gates,
                egress=self.config.egress,
            )
            for sentence in self.problems:
                if sentence not in logged:
                    self._log.error("lacking", sentence=sentence)
            logged = self.problems
            if not self.problems:
                return
            await self.member.clock.sleep(self.config.preflight_retry_s)

    async def _report_silent_hub(self) -> None:
        """Warn on objects that wait for an address while the hub does not answer; users see no other sign."""
        events = {kind.kind: EventWriter(recorder=self._recorder, resource=kind) for kind in self._waiting_sources}
        clock, limit_s, since = self.member.clock, self.config.let_go_s, self.member.clock.now()
        silent_s = clock.monotonic()
        warned: dict[tuple[str, ObjectKey], KubeObject] = {}
        while True:
            await clock.sleep(min(_LOOK_AT_HUB_S, limit_s / 4))
            if self.caches.hub_is_heard:
                since, silent_s = clock.now(), clock.monotonic()
            problem = self._token.problem or next((cache.problem for cache in self.caches.of_hub if cache.problem), "")
            silent = bool(problem) and clock.monotonic() - silent_s >= limit_s and not await self._another_leads()
            waiting = {(kind, obj.key): obj for kind, obj in self._waiting()} if silent else {}
            warning = warning_event(
                HUB_NOT_ANSWERING,
                f"The hub {self.hub.server} has not answered the agent since {wire_time(since)}, so nothing changes "
                f"here: {problem}",
            )
            for (kind, _), obj in {**warned, **waiting}.items():
                events[kind].emit_new(SILENT_HUB, obj, [warning] if silent and (kind, obj.key) in waiting else [])
            warned = waiting

    def _waiting(self) -> Iterator[tuple[str, KubeObject]]:
        """Yield the objects that have no address yet."""
        for kind, source in self._waiting_sources.items():
            for obj in source.waiting():
                yield kind.kind, obj

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


async def run_agent(config: AgentConfig) -> None:
    """Run one agent as this process, until SIGTERM or SIGINT.

    Raises:
        BadConfiguration: a setting, a kubeconfig or an address is wrong.
    """
    config.check()
    member = Cluster.from_kubeconfig(
        config.member_kubeconfig, context=config.member_context, name="the member", qps=CONTROLLER_QPS
    )
    hub = Cluster.from_kubeconfig(config.hub_kubeconfig, context=config.hub_context, name="the hub", qps=CONTROLLER_QPS)
    async with member, hub:
        agent = Agent(member=member, hub=hub, config=config)
        supervisor = Supervisor()
        if config.metrics is not None:
            supervisor.spawn("status", StatusServer(*config.metrics, agent.registry, agent.readiness).run)
        supervisor.spawn("agent", agent.run)
        await supervisor.run_until_stopped()
