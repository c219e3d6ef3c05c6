"""The L7 part of the agent: its caches, queues and workers.

    member: IngressClass ─┬──► exports ──► IngressExporter ──► hub: HTTPLoadBalancer, LoadBalancerRoute
            Ingress ──────┘           └──► Shared ───────────► hub: slices and Secrets, by demand
            Gateway, routes ──────────► GatewayExporter ──► hub: as for Ingresses
    hub: HTTPLoadBalancer ───► feedbacks ─► IngressFeedback ─► member: status of the Ingresses
                                        └─► GatewayFeedback ─► member: status of Gateways, routes, policies

In: the parts of an agent. Out: caches that always run, workers that run during a term as leader. A member whose agent
may not read what one part needs is served by all the others: each part begins once it has read everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import structlog

from fairlead.agent.events import EventWriter
from fairlead.agent.export import Settings
from fairlead.agent.exporter import NOT_CURRENT_RETRY_S, REFUSED_RETRY_S
from fairlead.agent.l7.feedback import IngressFeedback
from fairlead.agent.l7.gateway.changes import REPORTED_ONLY, GatewayChanges
from fairlead.agent.l7.gateway.exporter import GatewayExporter
from fairlead.agent.l7.gateway.feedback import GatewayFeedback
from fairlead.agent.l7.gateway.infrastructure_writer import InfrastructureWriter
from fairlead.agent.l7.gateway.sources import GatewaySources
from fairlead.agent.l7.identity import Origin, key_of
from fairlead.agent.l7.ingress_changes import EXPORTED_ONLY, IngressChanges
from fairlead.agent.l7.ingress_exporter import CLASS, INGRESS, IngressExporter
from fairlead.agent.l7.service_copies import original_of
from fairlead.agent.l7.shared import SECRET, SERVICE, Shared
from fairlead.agent.l7.sources import L7Sources
from fairlead.agent.sources import Sources
from fairlead.api.gateway import GATEWAYS
from fairlead.api.kubernetes import INGRESSES
from fairlead.api.meta import KubeObject
from fairlead.errors import Invalid, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.publish.publisher import Publisher
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry

#: Everything is reconciled again this often although nothing has changed, without any write.
RESYNC_S = 600.0
#: A Secret that is needed and not there is looked for this often.
_LOOK_AGAIN_S = 60.0
#: So far apart, in seconds, are two keys of a resync: what changes meanwhile does not wait for it.
_RESYNC_APART_S = 0.01
_SYNC_CHECK_S = 0.2
_INGRESSES, _GATEWAYS = "Ingresses", "Gateways"
#: Kinds that several objects need, and that have no status of ours.
_SHARED = frozenset({SERVICE, "Secret", "ManagedCertificate"})


class L7Agent:
    """The L7 half of an agent."""

    def __init__(
        self,
        *,
        member: Cluster,
        hub: Cluster,
        sources: Sources,
        settings: Settings,
        recorder: EventRecorder,
        refused: Callable[[Origin, str], None],
        fresh_s: float,
        may_write: Callable[[], bool],
        publisher: Publisher,
        workers: int,
    ) -> None:
        self.sources = L7Sources(member=member, hub=hub, hub_namespace=settings.namespace)
        self.exports: KeyedQueue[Origin] = KeyedQueue(clock=member.clock)
        self.feedbacks: KeyedQueue[Origin] = KeyedQueue(clock=member.clock)
        self._services = sources
        self._clock = member.clock
        self._workers = workers
        self._begun: set[str] = set()
        self._note = refused
        self._shared = Shared(
            member=member,
            hub=hub,
            sources=sources,
            l7=self.sources,
            settings=settings,
            fresh_s=fresh_s,
            may_write=may_write,
            publisher=publisher,
        )
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7").bind(tenant=settings.tenant)
        self._make_ingress(member, settings, recorder, may_write)
        self._make_gateway(member, settings, recorder, may_write)
        for cache in (*self.sources.of_hub, sources.hub_slices):
            cache.on_change(lambda old, new: self._at_hub(new or old))

    def _make_ingress(
        self, member: Cluster, settings: Settings, recorder: EventRecorder, may_write: Callable[[], bool]
    ) -> None:
        events = EventWriter(recorder=recorder, resource=INGRESSES)
        self._ingress = IngressExporter(
            sources=self._services,
            l7=self.sources,
            shared=self._shared,
            events=events,
            enqueue=self.exports.add,
            refused=self._note,
        )
        self._shared.add(self._ingress)
        self._ingress_changes = IngressChanges(
            sources=self._services,
            l7=self.sources,
            exporter=self._ingress,
            exports=self.exports,
            feedbacks=self.feedbacks,
        )
        self._ingress_feedback = IngressFeedback(
            member=member,
            hub_namespace=settings.namespace,
            l7=self.sources,
            exporter=self._ingress,
            events=events,
            may_write=may_write,
        )

    def _make_gateway(
        self, member: Cluster, settings: Settings, recorder: EventRecorder, may_write: Callable[[], bool]
    ) -> None:
        self.gateway = GatewaySources(member=member, l7=self.sources)
        self._gateway_seen = asyncio.Event()
        self.gateway.gateways.on_change(lambda _old, _new: self._gateway_seen.set())
        self._gateway = GatewayExporter(
            sources=self._services,
            gateway=self.gateway,
            shared=self._shared,
            enqueue=self.exports.add,
            report=self.feedbacks.add,
        )
        self._shared.add(self._gateway)
        self._gateway_changes = GatewayChanges(
            sources=self._services,
            l7=self.sources,
            gateway=self.gateway,
            exporter=self._gateway,
            exports=self.exports,
            feedbacks=self.feedbacks,
        )
        self._infrastructure = InfrastructureWriter(
            member=member,
            recorder=recorder,
            may_write=may_write,
            changed=lambda namespace, name: self.feedbacks.add(("Gateway", namespace, name)),
        )
        self._gateway_feedback = GatewayFeedback(
            member=member,
            hub_namespace=settings.namespace,
            l7=self.sources,
            gateway=self.gateway,
            exporter=self._gateway,
            infrastructure=self._infrastructure,
            recorder=recorder,
            refused=self._note,
            may_write=may_write,
        )

    def waiting(self) -> Iterator[tuple[str, KubeObject]]:
        """Yield the Ingresses and Gateways of our classes that have no address yet."""
        for ingress in self.sources.ingresses.values():
            if self._ingress.class_of(ingress) is not None and not ingress.status.load_balancer.ingress:
                yield INGRESSES.kind, ingress
        for gateway in self.gateway.gateways.values():
            if self._gateway.plans.class_of(gateway) is not None and not gateway.status.addresses:
                yield GATEWAYS.kind, gateway

    async def run(self) -> None:
        """Run the caches, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (*self.sources.of_member, *self.sources.of_hub):
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}")
            group.create_task(self.gateway.run(), name="gateway-caches")
            group.create_task(self._run_infrastructure(), name="gateway-infrastructure")

    async def _run_infrastructure(self) -> None:
        """Watch what stands beside Gateways, once there are any."""
        await self._gateway_seen.wait()
        await self._infrastructure.run()

    async def work(self, telemetry: Telemetry) -> None:
        """Do the work of one term."""
        self._begun.clear()
        run = partial(run_workers, workers=self._workers, telemetry=telemetry)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._begin_ingress(), name="l7-ingress")
            group.create_task(self._begin_gateway(), name="l7-gateway")
            group.create_task(self._resync(), name="l7-resync")
            group.create_task(run(self.exports, self._export, name="l7"))
            group.create_task(run(self.feedbacks, self._feedback, name="l7-feedback"))

    async def _begin_ingress(self) -> None:
        await self._begin(_INGRESSES, lambda: self.sources.synced, lambda: self.sources.problem)
        self._ingress_changes.enqueue_all()
        self._enqueue_published()

    async def _begin_gateway(self) -> None:
        """Begin with Gateway API, and anew whenever a kind has come that was not there before."""
        gateway = self.gateway
        while True:
            await self._begin(_GATEWAYS, lambda: gateway.ready and self.sources.hub_synced, lambda: gateway.problem)
            gateway.kind_came.clear()
            self._gateway_changes.enqueue_all()
            self._enqueue_published()
            await gateway.kind_came.wait()
            self._begun.discard(_GATEWAYS)

    async def _resync(self) -> None:
        """Enqueue all keys now and then, a few at a time; a part that has not begun enqueues its own when it does."""
        while True:
            await self._clock.sleep(RESYNC_S)
            if _INGRESSES in self._begun:
                self._ingress_changes.replan()
            if _GATEWAYS in self._begun:
                self._gateway_changes.replan()
            keys = dict.fromkeys((*self._ingress_changes.keys(), *self._gateway_changes.keys(), *self._published()))
            for number, key in enumerate(keys):
                self._enqueue_after(key, number * _RESYNC_APART_S)

    def _enqueue_after(self, key: Origin, after_s: float) -> None:
        if key[0] not in REPORTED_ONLY:
            self.exports.add_after(key, after_s)
        if key[0] not in EXPORTED_ONLY:
            self.feedbacks.add_after(key, after_s)

    async def _begin(self, name: str, ready: Callable[[], bool], problem: Callable[[], str]) -> None:
        """Wait until everything that one part needs has been read."""
        logged = ""
        while not ready():
            if problem() != logged:
                logged = problem()
                if logged:
                    self._log.warning(f"{name} are not served yet", sentence=logged)
            await self._clock.sleep(_SYNC_CHECK_S)
        self._begun.add(name)

    def _enqueue_published(self) -> None:
        for key in self._published():
            self.exports.add(key)

    def _published(self) -> list[Origin]:
        """Return the keys of what is at the hub, and of copies of Services: nothing may need them any more."""
        objects = (obj for cache in (*self.sources.of_hub, self._services.hub_slices) for obj in cache.values())
        originals = map(original_of, self._services.services.values())
        return [
            *(origin for obj in objects if (origin := self._shared.origin_of(obj)) is not None),
            *((SERVICE, *original) for original in originals if original is not None),
        ]

    def _at_hub(self, obj: KubeObject | None) -> None:
        """Enqueue whose object at the hub this is: it may have been changed there, or have been left behind."""
        origin = self._shared.origin_of(obj) if obj is not None else None
        if origin is not None:
            self.exports.add(origin)

    async def _export(self, origin: Origin) -> float | None:
        # Thousands of keys with nothing to write would keep the loop from all else: the lease is renewed in between.
        await asyncio.sleep(0)
        try:
            held = await self._publish(origin)
        except Invalid as error:
            self._note_refusal(origin, f"the hub refuses what is published for it: {error.sentence}")
            return REFUSED_RETRY_S
        self._note_refusal(origin, "")
        return NOT_CURRENT_RETRY_S if held else None

    def _note_refusal(self, origin: Origin, sentence: str) -> None:
        refusals = self._shared.refusals
        if sentence == refusals.get(origin, ""):
            return
        refusals[origin] = sentence
        if not sentence:
            del refusals[origin]
        kind, _, name = origin
        if kind == CLASS:
            for ingress in self._ingress.ingresses_of(name):
                self.feedbacks.add(key_of(INGRESS, ingress))
        elif kind not in _SHARED:
            self.feedbacks.add(origin)

    async def _publish(self, origin: Origin) -> bool:
        kind, namespace, name = origin
        match kind:
            case "Service":
                held = await self._shared.service(namespace, name)
            case "Secret":
                held = await self._shared.secret(namespace, name)
                await self._look_for(namespace, name)
            case "ManagedCertificate":
                # Either part may ask for it: what is not known yet may still be asked for.
                self._check_begun(_INGRESSES)
                held = await self._shared.managed(name)
            case "IngressClass" | "Ingress":
                self._check_begun(_INGRESSES)
                held = await self._ingress.reconcile(origin)
            case _:
                self._check_begun(_GATEWAYS)
                held = await self._gateway.reconcile(origin)
        return held

    async def _look_for(self, namespace: str, name: str) -> None:
        if await self._shared.look_for(namespace, name):
            self._ingress_changes.secret_changed((namespace, name))
            self._gateway_changes.secret_changed((namespace, name))
        if self._shared.is_missing(namespace, name):
            # Nothing reports that a Secret of another type has come.
            self.exports.add_after((SECRET, namespace, name), _LOOK_AGAIN_S)

    async def _feedback(self, origin: Origin) -> float | None:
        await asyncio.sleep(0)
        if origin[0] == INGRESS:
            self._check_begun(_INGRESSES)
            return await self._ingress_feedback.reconcile(origin)
        self._check_begun(_GATEWAYS)
        await self._gateway_feedback.reconcile(origin)
        return None

    def _check_begun(self, name: str) -> None:
        if name == _GATEWAYS and not self.gateway.ready:
            # A kind may come, and be read, between two looks of the part that enqueues everything.
            self._begun.discard(name)
        if name not in self._begun:
            raise Wait(f"what the member has of {name} is not known yet; everything is enqueued once it is")
