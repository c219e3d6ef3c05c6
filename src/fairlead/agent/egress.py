"""Pods that leave with the address of a Service: their label decides what is published with the Service.

    labelled pods, Services ──► egress_pods ─┬─► annotation of the TCPLoadBalancer, when its pods change
                                             └─► Warning on a pod whose label cannot be followed

In: watches of the member. Out: Services enqueued, Events. Never: takes pods away before all have been read.
"""

from __future__ import annotations

import asyncio

from fairlead.agent.engine import Engine
from fairlead.agent.identity import ServiceKey
from fairlead.agent.sources.caches import MemberService
from fairlead.agent.sources.service.plan import CloudLoadBalancer, NotOurs, Scenario, decide
from fairlead.api.kubernetes import PODS, SERVICES, Pod, Service
from fairlead.api.meta import ObjectKey
from fairlead.api.names import LABEL_EGRESS
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.publish.objects import Refused
from fairlead.runtime.clock import wait_for
from fairlead.translate.egress import EgressPods, egress_pods

SOURCE = "egress"
#: Changes within this time are one, and how often Events are looked at: this agent may have become the leader.
_GATHER_S, _LOOK_S = 0.1, 5.0


class EgressLabels:
    """The labelled pods of a member."""

    def __init__(
        self,
        *,
        member: Cluster,
        services: WatchCache[MemberService],
        cloud: CloudLoadBalancer,
        engine: Engine,
        recorder: EventRecorder,
    ) -> None:
        self._clock = member.clock
        self._pods: WatchCache[Pod] = WatchCache(member, PODS, label_selector=LABEL_EGRESS)
        self._services = services
        self._cloud: CloudLoadBalancer = cloud
        self._engine = engine
        self._events = EventWriter(recorder=recorder, resource=PODS)
        self._dirty = asyncio.Event()
        self._decided: EgressPods | None = None
        self._pods.on_change(self._pod_changed)
        services.on_change(self._service_changed)

    @property
    def problem(self) -> str:
        """Return why labels cannot be followed; empty when they can."""
        return self._pods.problem

    def sources_of(self, key: ServiceKey) -> str | None:
        """Return the addresses of the pods that leave with a Service, after commas; None while they are unknown."""
        if self._decided is None or self._pods.broken:
            return None
        return ",".join(self._decided.sources.get(ObjectKey(*key), ()))

    async def run(self) -> None:
        """Follow the labels until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        await self._pods.wait_synced()
        await self._services.wait_synced()
        self._dirty.set()
        while True:
            if self._dirty.is_set():
                await self._clock.sleep(_GATHER_S)
                self._dirty.clear()
                self._decide()
            if self._engine.may_write():
                problems = (self._decided or EgressPods()).problems
                for pod in self._pods.values():
                    problem = problems.get(pod.key)
                    self._events.emit_new(SOURCE, pod, () if problem is None else (problem,))
            await wait_for(self._dirty, self._clock, _LOOK_S)

    def _decide(self) -> None:
        first, before = self._decided is None, self._decided or EgressPods()
        self._decided = egress_pods(self._pods.values(), lambda key: self._services.get(*key), self._why_not)
        if first:
            # Also what an agent before this one has published for pods that are gone.
            self._engine.enqueue_all()
            return
        now = self._decided.sources
        for key in before.sources.keys() | now.keys():
            if before.sources.get(key) != now.get(key):
                self._engine.publish((SERVICES.kind, key.namespace, key.name))

    def _why_not(self, service: Service) -> str:
        decision = decide(service, cloud=self._cloud)
        if isinstance(decision, NotOurs):
            return decision.why
        if isinstance(decision, Refused):
            return decision.sentence
        return "" if decision.scenario is Scenario.IMPLEMENTED else "another implementation has its address"

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None:
            self._events.forget(old.key)
        self._dirty.set()

    def _service_changed(self, old: MemberService | None, new: MemberService | None) -> None:
        if old is None or new is None or old.spec != new.spec or old.deleting != new.deleting:
            self._dirty.set()
