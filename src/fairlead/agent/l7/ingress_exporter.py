"""Publishes the Ingresses of a member at the hub.

    IngressClass   the HTTPLoadBalancer, after the copies of the Secrets that its listeners name; a fallback certificate
    Ingress        a LoadBalancerRoute for each host, after the slices of the Services that they name

In: caches. Out: writes at the hub, Events on the user's Ingress. Never: acts on a cache that is not synced. What is
added is written before what needs it, what goes after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlead.agent.events import EventWriter, warning_event
from fairlead.agent.l7.backends import missing_service
from fairlead.agent.l7.identity import (
    Origin,
    class_load_balancer_name,
    fallback_name,
    missing_class,
    route_name,
)
from fairlead.agent.l7.ingress import IngressView, overlaps, services_of, translate_ingress
from fairlead.agent.l7.ingress_class import ClassPlan, ClassView, class_of, plan_class
from fairlead.agent.l7.requests import CertificateRequest
from fairlead.agent.l7.shared import MANAGED, Shared
from fairlead.agent.l7.sources import BY_PLACE, BY_SECRET, BY_SERVICE, L7Sources, secrets_named
from fairlead.agent.sources import Sources
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import INGRESS_CLASSES, IngressObject
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.model.condition import ConditionReason

CLASS, INGRESS = "IngressClass", "Ingress"
ANNOTATIONS_IGNORED = "AnnotationsIgnored"


class IngressExporter:
    """The part of L7 that Ingresses are."""

    def __init__(
        self,
        *,
        sources: Sources,
        l7: L7Sources,
        shared: Shared,
        events: EventWriter,
        enqueue: Callable[[Origin], None],
        refused: Callable[[Origin, str], None],
    ) -> None:
        self._sources = sources
        self._l7 = l7
        self._shared = shared
        self._events = events
        self._enqueue = enqueue
        #: Called with an Ingress and why it is not served as it should be, empty when it is.
        self._refused = refused
        self._plans: dict[str, ClassPlan] = {}
        #: What each class asked the hub to get, last.
        self._asked: dict[str, frozenset[str]] = {}

    async def reconcile(self, origin: Origin) -> bool:
        """Make the hub hold what an IngressClass or Ingress should have; return whether a removal waits."""
        kind, namespace, name = origin
        return await (self._class(name) if kind == CLASS else self._ingress(namespace, name))

    async def _class(self, name: str) -> bool:
        origin: Origin = (CLASS, "", name)
        plan = self.plan_of(name)
        if plan is None:
            for request in self._asked.pop(name, frozenset()):
                self._enqueue((MANAGED, "", request))
            held = await self._shared.remove(self._shared.load_balancers, origin, self)
            return await self._shared.remove(self._shared.certificates, origin, self) or held
        if plan.has_tls and await self._shared.make_fallback(origin, fallback_name(name)):
            self._plans.pop(name, None)
            plan = self.plan_of(name) or plan
        ingresses = self.ingresses_of(name)
        await self._shared.secrets(dict.fromkeys(key for each in ingresses for key in secrets_named(each)))
        for request in plan.requests:
            await self._shared.managed(request)
        meta = self._shared.meta(origin, class_load_balancer_name(name))
        # The listeners of new hosts are there before the routes that name them, since routes come by keys of their own.
        if await self._shared.load_balancers.apply(HTTPLoadBalancer(metadata=meta, spec=plan.spec)):
            for ingress in self.ingresses_of(name):
                self._enqueue((INGRESS, ingress.metadata.namespace, ingress.metadata.name))
        for request in self._asked.pop(name, frozenset()) - plan.requests.keys():
            self._enqueue((MANAGED, "", request))
        self._asked[name] = frozenset(plan.requests)
        return False

    async def _ingress(self, namespace: str, name: str) -> bool:
        origin: Origin = (INGRESS, namespace, name)
        if (namespace, name) in self._l7.ingresses.broken:
            return False
        ingress = self._l7.ingresses.get(namespace, name)
        of_class = None if ingress is None or ingress.deleting else self.class_of(ingress)
        if ingress is None or of_class is None:
            self._events.forget((namespace, name))
            self._refused(origin, "" if ingress is None or ingress.deleting else self._misspelt_class(ingress))
            return await self._shared.remove(self._shared.routes, origin, self)
        plan = self.plan_of(of_class)
        if plan is None:
            return False
        names = services_of(ingress)
        for service in names:
            await self._shared.service(namespace, service)
        nodes = plan.spec.targets == "Node"
        reached = {each: self._shared.copies.reach((namespace, each), nodes=nodes) for each in names}
        translated = translate_ingress(
            IngressView(
                ingress=ingress,
                load_balancer=class_load_balancer_name(of_class),
                services={each: service for each, (service, _) in reached.items() if service is not None},
                tls_listeners=plan.tls_listeners,
                unreachable={
                    each: problem or missing_service(namespace, each, self._sources.services.values())
                    for each, (service, problem) in reached.items()
                    if problem or service is None
                },
            )
        )
        wanted = [
            LoadBalancerRoute(metadata=self._shared.meta(origin, route_name(origin, host)), spec=spec)
            for host, spec in translated.routes.items()
        ]
        for route in wanted:
            await self._shared.routes.apply(route)
        of_certificates = (*plan.problems.get(ingress.key, ()), *self._certificate_flaws(ingress))
        self._refused(origin, "; ".join(dict.fromkeys(of_certificates)))
        problems = (*translated.problems, *of_certificates, *self._overlaps(ingress, of_class))
        events = [warning_event(ConditionReason.INVALID, text) for text in problems]
        if translated.ignored:
            events.append(warning_event(ANNOTATIONS_IGNORED, translated.ignored))
        self._events.emit_new("l7", ingress, events)
        return await self._shared.remove(self._shared.routes, origin, self, keep=wanted)

    def _misspelt_class(self, ingress: IngressObject) -> str:
        """Return that the class of an Ingress does not exist, where it is likely to be one of ours."""
        classes = {each.metadata.name: each.is_ours for each in self._l7.ingress_classes.values()}
        why = missing_class(INGRESS_CLASSES.kind, ingress.spec.ingress_class_name or "", classes, INGRESS_CONTROLLER)
        return f"spec.ingressClassName: {why}" if why else ""

    def _certificate_flaws(self, ingress: IngressObject) -> Iterator[str]:
        """Yield why clients refuse the certificates that an Ingress names for its hosts."""
        rules = [rule.host for rule in ingress.spec.rules or () if rule.host]
        for tls in ingress.spec.tls or ():
            state = self._shared.certificate(ingress.metadata.namespace, tls.secret_name)
            if flaw := self._shared.flaw_of(state, tls.hosts or rules):
                yield f"Secret {tls.secret_name}: {flaw}"

    def _overlaps(self, ingress: IngressObject, of_class: str) -> tuple[str, ...]:
        """Say which paths of an Ingress an older one of its class has too."""
        at = self._l7.ingresses.indexed
        return overlaps(
            ingress,
            lambda place: (
                each for each in at(BY_PLACE, place) if not each.deleting and self.class_of(each) == of_class
            ),
        )

    # --- what it needs of the things that are shared --------------------------------------------------------------

    def needs_service(self, namespace: str, name: str) -> bool:
        """Return whether an Ingress of ours names this Service."""
        return any(map(self.class_of, self._l7.ingresses.indexed(BY_SERVICE, (namespace, name))))

    def needs_node_ports(self, namespace: str, name: str) -> bool:
        """Return whether an Ingress of ours, of a class with the nodes as backends, names this Service."""
        by_nodes = {each for each in self._classes() if (plan := self.plan_of(each)) and plan.spec.targets == "Node"}
        if not by_nodes:  # thousands of Ingresses may name one Service
            return False
        users = self._l7.ingresses.indexed(BY_SERVICE, (namespace, name))
        return any(self.class_of(each) in by_nodes for each in users)

    def needs_secret(self, namespace: str, name: str) -> bool:
        """Return whether an Ingress of ours names this Secret."""
        return any(map(self.class_of, self._l7.ingresses.indexed(BY_SECRET, (namespace, name))))

    def requests(self, name: str) -> list[CertificateRequest]:
        """Return what Ingresses of ours ask the hub to get under this name."""
        plans = [plan for each in self._classes() if (plan := self.plan_of(each)) is not None]
        return [request for plan in plans for request in plan.requests.get(name, ())]

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether what is known of Ingresses, their classes and Secrets is the present."""
        return self._l7.is_fresh(fresh_s=fresh_s)

    # --- classes -------------------------------------------------------------------------------------------------

    def class_of(self, ingress: IngressObject) -> str | None:
        """Return the name of the class of ours that an Ingress is of, None when it is of none."""
        of_class = class_of(ingress, self._l7.ingress_classes.values())
        return None if of_class is None else of_class.metadata.name

    def _classes(self) -> list[str]:
        return [each.metadata.name for each in self._l7.ingress_classes.values()]

    def refusal_of(self, origin: Origin) -> str:
        """Return why the hub refuses what is published for an object; empty when it does not."""
        return self._shared.refusals.get(origin, "")

    def ingresses_of(self, ingress_class: str) -> tuple[IngressObject, ...]:
        """Return the Ingresses of one class that stay."""
        return tuple(
            each for each in self._l7.ingresses.values() if not each.deleting and self.class_of(each) == ingress_class
        )

    def plan_of(self, ingress_class: str) -> ClassPlan | None:
        """Return the load balancer of one class, None when it is no class of ours; computed once until ``replan``."""
        known = self._plans.get(ingress_class)
        if known is not None:
            return known
        of_member = self._l7.ingress_classes.get("", ingress_class)
        if of_member is None or of_member.deleting or not of_member.is_ours:
            return None
        ingresses = self.ingresses_of(ingress_class)
        named = {key for each in ingresses for key in secrets_named(each)}
        certificates = {key: self._shared.certificate(*key) for key in named}
        targets = self._shared.targets(of_member.load_balancer_class)
        fallback = self._shared.digest_of(fallback_name(ingress_class))
        plan = plan_class(
            ClassView(
                of_member,
                ingresses,
                certificates,
                targets,
                fallback,
                issuer=self._shared.issuer(of_member.load_balancer_class),
                managed=self._shared.managed_states(),
            )
        )
        self._plans[ingress_class] = plan
        return plan

    def replan(self) -> None:
        """Have the load balancers of all classes computed anew: a class, a TLS section or a certificate changed."""
        self._plans.clear()
