"""Who starts what for L7, and what does each change enqueue?

    member: IngressClass ─┬──► exports ──► L7Exporter ──────► hub: HTTPLoadBalancer, LoadBalancerRoute, slices, Secrets
            Ingress ──────┤
            Secret ───────┤
            Service, EndpointSlice
    hub: HTTPLoadBalancer ───► feedbacks ─► IngressFeedback ─► member: status of the Ingresses

In: the parts of an agent. Out: caches that always run, workers that run during a term as leader. A member whose agent
may not read Ingresses or Secrets is served at L4 as before: the workers wait until everything has been read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from fairlead.agent.events import EventWriter
from fairlead.agent.export import Settings
from fairlead.agent.l7.exporter import CLASS, INGRESS, SECRET, SERVICE, L7Exporter
from fairlead.agent.l7.feedback import IngressFeedback
from fairlead.agent.l7.identity import Origin
from fairlead.agent.l7.sources import BY_SECRET, BY_SERVICE, L7Sources, secrets_named, services_named
from fairlead.agent.sources import Sources
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.ingress import INGRESSES, IngressClass, IngressObject
from fairlead.api.kubernetes import EndpointSlice, Secret, Service
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import KubeObject
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry

_SYNC_CHECK_S = 0.2


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
        fresh_s: float,
        may_write: Callable[[], bool],
        on_write: Callable[[str, str], None],
        workers: int,
    ) -> None:
        self.sources = L7Sources(member=member, hub=hub, hub_namespace=settings.namespace)
        self.exports: KeyedQueue[Origin] = KeyedQueue(clock=member.clock)
        self.feedbacks: KeyedQueue[Origin] = KeyedQueue(clock=member.clock)
        self._services = sources
        self._clock = member.clock
        self._workers = workers
        events = EventWriter(recorder=recorder, resource=INGRESSES)
        self.exporter = L7Exporter(
            hub=hub,
            sources=sources,
            l7=self.sources,
            events=events,
            settings=settings,
            fresh_s=fresh_s,
            may_write=may_write,
            enqueue=self.exports.add,
            on_write=on_write,
        )
        self._feedback = IngressFeedback(
            member=member,
            hub_namespace=settings.namespace,
            l7=self.sources,
            exporter=self.exporter,
            events=events,
            may_write=may_write,
        )
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7").bind(tenant=settings.tenant)
        self._connect(sources)

    async def run(self) -> None:
        """Run the caches, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (*self.sources.of_member, *self.sources.of_hub):
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}")

    async def work(self, telemetry: Telemetry) -> None:
        """Do the work of one term; it begins once everything has been read."""
        said = ""
        while not self.sources.synced:
            if self.sources.problem != said:
                said = self.sources.problem
                self._log.warning("Ingresses are not served yet", sentence=said)
            await self._clock.sleep(_SYNC_CHECK_S)
        self.enqueue_all()
        run = partial(run_workers, workers=self._workers, telemetry=telemetry)
        async with asyncio.TaskGroup() as group:
            group.create_task(run(self.exports, self.exporter.reconcile, name="l7"))
            group.create_task(run(self.feedbacks, self._feedback.reconcile, name="l7-feedback"))

    def enqueue_all(self) -> None:
        """Enqueue what exists in the member, and what is at the hub without existing there any more."""
        self.exporter.replan()
        for each in self.sources.ingress_classes.values():
            self.exports.add((CLASS, "", each.metadata.name))
        for each in self.sources.ingresses.values():
            self._ingress(None, each)
        l7 = self.sources
        published: tuple[KubeObject, ...] = (
            *l7.load_balancers.values(),
            *l7.routes.values(),
            *l7.certificates.values(),
            *self._services.hub_slices.values(),
        )
        for obj in published:
            self._at_hub(obj)

    # --- changes -------------------------------------------------------------------------------------------------

    def _connect(self, sources: Sources) -> None:
        l7 = self.sources
        l7.ingress_classes.on_change(self._ingress_class)
        l7.ingresses.on_change(self._ingress)
        l7.secrets.on_change(self._secret)
        l7.load_balancers.on_change(self._load_balancer)
        l7.routes.on_change(lambda old, new: self._at_hub(new or old))
        l7.certificates.on_change(lambda old, new: self._at_hub(new or old))
        sources.services.on_change(self._service)
        sources.slices.on_change(self._slice)
        sources.hub_slices.on_change(lambda old, new: self._at_hub(new or old))
        sources.classes.on_change(self._class_of_hub)

    def _ingress_class(self, old: IngressClass | None, new: IngressClass | None) -> None:
        self.exporter.replan()
        for each in filter(None, (old, new)):
            self.exports.add((CLASS, "", each.metadata.name))
        for ingress in self.sources.ingresses.values():
            self._enqueue_ingress(ingress)

    def _ingress(self, old: IngressObject | None, new: IngressObject | None) -> None:
        if old is None or new is None or _in_class_plan(old) != _in_class_plan(new):
            self.exporter.replan()
            for each in self.sources.ingress_classes.values():
                self.exports.add((CLASS, "", each.metadata.name))
        for each in filter(None, (old, new)):
            self._enqueue_ingress(each)
            for namespace, name in services_named(each):
                self.exports.add((SERVICE, namespace, name))
            for namespace, name in secrets_named(each):
                self.exports.add((SECRET, namespace, name))

    def _secret(self, old: Secret | None, new: Secret | None) -> None:
        changed = new or old
        if changed is None or not self.sources.ingresses.by_index(BY_SECRET, _pair(changed)):
            return
        self.exporter.replan()
        self.exports.add((SECRET, *_pair(changed)))
        for ingress in self.sources.ingresses.by_index(BY_SECRET, _pair(changed)):
            self._enqueue_ingress(ingress)
        for each in self.sources.ingress_classes.values():
            self.exports.add((CLASS, "", each.metadata.name))

    def _service(self, old: Service | None, new: Service | None) -> None:
        changed = new or old
        if changed is not None:
            for ingress in self.sources.ingresses.by_index(BY_SERVICE, _pair(changed)):
                self._enqueue_ingress(ingress)

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for each in filter(None, (old, new)):
            service = (each.metadata.namespace, each.label(LABEL_SERVICE_NAME))
            if service[1] and self.sources.ingresses.by_index(BY_SERVICE, service):
                self.exports.add((SERVICE, *service))

    def _load_balancer(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        self._at_hub(new or old)
        if old is None or new is None or old.status != new.status:
            for ingress in self.sources.ingresses.values():
                self.feedbacks.add((INGRESS, *_pair(ingress)))

    def _class_of_hub(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._ingress_class(None, None)
            for each in self.sources.ingress_classes.values():
                self.exports.add((CLASS, "", each.metadata.name))

    def _at_hub(self, obj: KubeObject | None) -> None:
        """Enqueue whose object at the hub this is: it may have been changed there, or have been left behind."""
        origin = self.exporter.origin_of(obj) if obj is not None else None
        if origin is not None:
            self.exports.add(origin)

    def _enqueue_ingress(self, ingress: IngressObject) -> None:
        self.exports.add((INGRESS, *_pair(ingress)))
        self.feedbacks.add((INGRESS, *_pair(ingress)))


def _pair(obj: KubeObject) -> tuple[str, str]:
    return (obj.metadata.namespace, obj.metadata.name)


def _in_class_plan(ingress: IngressObject) -> tuple[object, ...]:
    """Return the part of an Ingress that the load balancer of its class depends on."""
    spec = ingress.spec
    hosts = [rule.host for rule in spec.rules or ()] if spec.tls else []
    return (spec.ingress_class_name, spec.tls, hosts, ingress.deleting, ingress.metadata.annotations)
