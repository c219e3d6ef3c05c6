"""Who starts what in the agent, and what does each change wake?

    member: Service ───────┬──► export queue ───► Exporter ───────► hub: TCPLoadBalancer, EndpointSlices
            EndpointSlice ─┘         ▲
            Node ────► nodes queue ──┼─────────► NodeExporter ────► hub: nodes slices
    hub: TCPLoadBalancer, slices ────┘
         TCPLoadBalancer, Service ──► feedback queue ─► FeedbackWriter ─► member: status, annotation, Events

In: two clusters and settings. Out: runs until cancelled. Caches always run; everything that writes runs only during a
term as leader, and it is a candidate only once every cache has been complete and the hub takes its word.
Never: decides anything about a Service, a node or an address.
"""

from __future__ import annotations

import asyncio
import os
import socket
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry

from fairlead.agent.checks import find_problems, find_system_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.eligibility import Fitness
from fairlead.agent.event_writer import Teller
from fairlead.agent.export import Settings
from fairlead.agent.exporter import Exporter
from fairlead.agent.feedback_writer import FeedbackWriter
from fairlead.agent.heartbeat import MemberHeartbeat
from fairlead.agent.hub_writer import HubWriter
from fairlead.agent.identity import ServiceKey
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.node_exporter import NodeExporter
from fairlead.agent.sources import Sources
from fairlead.agent.watch_events import Wakes
from fairlead.api.names import AGENT_LEADER_LEASE
from fairlead.errors import BadConfiguration, FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderElector
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue, backoff_s
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry

#: Everything is looked at again this often although nothing has changed: belt and braces, without any write.
RESYNC_S = 600.0
_QPS, _BURST = 1000.0, 2000


class Agent:
    """One agent between two clusters; ``run`` it, in as many copies as wanted: one of them leads."""

    def __init__(
        self, *, member: Cluster, hub: Cluster, config: AgentConfig, registry: CollectorRegistry | None = None
    ) -> None:
        config.check()
        self.config = config
        self.member = member
        self.hub = hub
        self.hub_namespace = config.namespace_at_hub(hub.namespace)
        self.identity = config.identity or f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
        self.registry = registry or CollectorRegistry()
        self.sources = Sources(member=member, hub=hub, hub_namespace=self.hub_namespace)
        self.problems: list[str] = ["the first look at both clusters is not done yet"]
        self._telemetry = Telemetry(self.registry)
        self.working = False
        self.fitness = Fitness(
            member=member, hub=hub, sources=self.sources, config=config, hub_namespace=self.hub_namespace
        )
        self._elector: LeaderElector | None = None
        self._heartbeat: MemberHeartbeat | None = None
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)
        metrics = AgentMetrics(self.registry)
        settings = Settings(tenant=config.tenant, namespace=self.hub_namespace, target=config.target)
        self.exports: KeyedQueue[ServiceKey] = KeyedQueue(clock=member.clock)
        self.feedbacks: KeyedQueue[ServiceKey] = KeyedQueue(clock=member.clock)
        self.nodes: KeyedQueue[str] = KeyedQueue(clock=member.clock)
        self._recorder = EventRecorder(member, component="fairlead-agent")
        teller = Teller(recorder=self._recorder)
        self._wakes = Wakes(
            sources=self.sources,
            tenant=config.tenant,
            exports=self.exports,
            feedbacks=self.feedbacks,
            nodes=self.nodes,
        )
        self._writer = HubWriter(hub=hub, namespace=self.hub_namespace, metrics=metrics, may_write=self.may_write)
        self._node_exporter = NodeExporter(
            sources=self.sources,
            writer=self._writer,
            metrics=metrics,
            settings=settings,
            prefer=config.node_address_type,
            on_addresses=self._wakes.wake_local,
        )
        self._exporter = Exporter(
            sources=self.sources,
            writer=self._writer,
            teller=teller,
            metrics=metrics,
            settings=settings,
            cloud=config.cloud_load_balancer,
            fresh_s=config.fresh_s,
            node_addresses=self._node_exporter.addresses,
        )
        self._feedback = FeedbackWriter(
            member=member,
            sources=self.sources,
            teller=teller,
            metrics=metrics,
            cloud=config.cloud_load_balancer,
            may_write=self.may_write,
        )
        metrics.watch("leading", "1 while this agent may write.", lambda: float(self.may_write()))
        metrics.watch("last_sync_age_seconds", "Age of the oldest news from the member.", self._age_s)
        metrics.watch("hub_reachable", "1 while all watches of the hub work.", lambda: float(not self._hub_problems()))

    def may_write(self) -> bool:
        """Say whether this agent is proven to be the only one that writes, at this very moment."""
        return self._elector is not None and self._elector.is_leader

    def readiness(self) -> list[str]:
        """Return one sentence for each thing that is in the way; a copy that waits for its turn is ready."""
        reasons = [*self.problems, *([self.fitness.why] if self.fitness.why else [])]
        for cache in (*self.sources.of_member, *self.sources.of_hub):
            if cache.problem:
                reasons.append(cache.problem)
            elif not cache.synced:
                reasons.append(f"The {cache.resource.full_name} of {cache.cluster.name} have not been read yet.")
        reasons += [one.problem for one in (self._elector, self._heartbeat) if one is not None and one.problem]
        return list(dict.fromkeys(reasons))

    async def run(self) -> None:
        """Run until cancelled; whatever fails out there is waited for, and told by ``readiness``."""
        async with asyncio.TaskGroup() as group:
            for cache in (*self.sources.of_member, *self.sources.of_hub):
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._check(), name="checks")
            group.create_task(self._stand(), name="election")

    async def _stand(self) -> None:
        """Be a candidate, once it is known where the agents of this member meet."""
        failures = 0
        while True:
            try:
                namespace = await find_system_namespace(self.member, preferred=self.config.system_namespace)
                break
            except FairleadError as error:
                failures += 1
                self._log.warning("the member does not answer", sentence=error.sentence, detail=error.detail)
                await self.member.clock.sleep(backoff_s(failures, limit_s=30.0))
        lease_s = self.config.lease_s
        self._elector = LeaderElector(
            self.member,
            namespace=namespace,
            name=AGENT_LEADER_LEASE,
            identity=self.identity,
            lease_s=lease_s,
            renew_s=lease_s * 2 / 3,
            retry_s=lease_s * 2 / 15,
            reclaim=self.config.reclaim_lease,
        )
        while True:
            await self.fitness.wait_able()
            await self._elector.run(self._lead)
            # It was let go: whoever else is there has the first turn.
            await self.member.clock.sleep(lease_s / 2)

    async def _lead(self, epoch: int) -> None:
        """Do the work of one term; return when it cannot be done."""
        if not await self.fitness.able():
            # It may have been waiting for its turn for days.
            return
        self._log.info("exporting", epoch=epoch, services=len(self.sources.services), namespace=self.hub_namespace)
        # What was answered in an earlier term may be long out of date.
        self._writer.recent.clear()
        self._feedback.recent.clear()
        self._node_exporter.learn()
        self._wakes.wake_all()
        heartbeat = self._heartbeat = MemberHeartbeat(
            hub=self.hub,
            namespace=self.hub_namespace,
            tenant=self.config.tenant,
            region=self.config.region,
            identity=self.identity,
            member_uid=self.fitness.member_uid,
            interval_s=self.config.heartbeat_s,
            is_fresh=lambda: self.sources.member_is_fresh(fresh_s=self.config.fresh_s),
            clock=self.hub.clock,
        )
        self.working = True
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._work(heartbeat), name="work")
                await self.fitness.wait_unable(heartbeat)
                work.cancel()
        finally:
            self.working = False
            self._heartbeat = None

    async def _work(self, heartbeat: MemberHeartbeat) -> None:
        workers, telemetry = self.config.workers, self._telemetry
        async with asyncio.TaskGroup() as group:
            group.create_task(heartbeat.run(), name="heartbeat")
            group.create_task(self._resync(), name="resync")
            group.create_task(
                run_workers(self.nodes, self._node_exporter.reconcile, workers=1, name="nodes", telemetry=telemetry)
            )
            group.create_task(
                run_workers(self.exports, self._exporter.reconcile, workers=workers, name="export", telemetry=telemetry)
            )
            group.create_task(
                run_workers(
                    self.feedbacks, self._feedback.reconcile, workers=workers, name="feedback", telemetry=telemetry
                )
            )

    async def _check(self) -> None:
        """Look for what is lacking until nothing is."""
        told: list[str] = []
        while True:
            found = await find_problems(
                member=self.member,
                hub=self.hub,
                hub_namespace=self.hub_namespace,
                system_namespace=self.config.system_namespace,
                tenant=self.config.tenant,
            )
            for sentence in found:
                if sentence not in told:
                    self._log.error("lacking", sentence=sentence)
            told = self.problems = found
            if not found:
                return
            await self.member.clock.sleep(self.config.preflight_retry_s)

    async def _resync(self) -> None:
        while True:
            await self.member.clock.sleep(RESYNC_S)
            self._wakes.wake_all()

    def _age_s(self) -> float:
        return max(cache.age_s for cache in self.sources.of_member)

    def _hub_problems(self) -> bool:
        return any(cache.problem or not cache.synced for cache in self.sources.of_hub)


async def run_agent(config: AgentConfig, *, clock: Clock | None = None) -> None:
    """Run one agent as this process, until SIGTERM or SIGINT.

    Raises:
        BadConfiguration: a setting, a kubeconfig or an address is wrong (see ``exit_code``).
    """
    config.check()
    member = Cluster.from_kubeconfig(
        config.member_kubeconfig, context=config.member_context, name="the member", qps=_QPS, burst=_BURST, clock=clock
    )
    hub = Cluster.from_kubeconfig(
        config.hub_kubeconfig, context=config.hub_context, name="the hub", qps=_QPS, burst=_BURST, clock=clock
    )
    async with member, hub:
        agent = Agent(member=member, hub=hub, config=config)
        supervisor = Supervisor(clock=clock)
        if config.status_listen:
            host, port = config.status_address()
            server = StatusServer(host, port, agent.registry, agent.readiness)
            supervisor.spawn("status", server.run)
        supervisor.spawn("agent", agent.run)
        await supervisor.run_until_stopped()


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of the process: 0 a clean stop, 2 a wrong configuration, 1 anything else."""
    if error is None:
        return 0
    return 2 if isinstance(error, BadConfiguration) else 1
