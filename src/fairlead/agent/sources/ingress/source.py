"""Ingresses of the member: the objects published for them and their classes, and the status of each.

    IngressClass   the HTTPLoadBalancer, after the copies of the Secrets that its listeners name; a fallback certificate
    Ingress        a LoadBalancerRoute for each host, after the slices of the Services that they name
    its answer     build_feedback ─► MemberStatusWriter ─► addresses, Events

In: caches. Out: writes at the hub and in the member. Never: acts on a cache that is not synced, or creates an Ingress.
New objects are written before the objects that need them; removals come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairlead.agent.engine import HTTP_LANE, Engine, Source
from fairlead.agent.events import failing_changes
from fairlead.agent.identity import Key, class_load_balancer_name, fallback_name, key_of, missing_class, route_name
from fairlead.agent.sources.caches import (
    BY_PLACE,
    BY_SECRET,
    BY_SERVICE,
    IngressCaches,
    ServiceCaches,
    secrets_named,
    services_named,
)
from fairlead.agent.sources.http import (
    CertificateRequest,
    Processing,
    client_secret,
    is_protected,
    missing_service,
    progress_of,
    published_part,
)
from fairlead.agent.sources.ingress.plan import (
    ClassPlan,
    ClassView,
    IngressView,
    class_of,
    class_processing,
    overlaps,
    plan_class,
    services_of,
    translate_ingress,
)
from fairlead.agent.sources.ingress.status import build_feedback
from fairlead.agent.sources.shared import BACKEND, MANAGED, SECRET, Shared, is_chosen_by_user, original_of
from fairlead.agent.term import Refusals
from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerStatus, LoadBalancerRoute
from fairlead.api.kubernetes import INGRESS_CLASSES, EndpointSlice, IngressClass, IngressObject, Service
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import INGRESS_CONTROLLER, LABEL_SERVICE_NAME
from fairlead.model.condition import ConditionReason, warning_event

CLASS, INGRESS = "IngressClass", "Ingress"
ANNOTATIONS_IGNORED = "AnnotationsIgnored"


class IngressSource(Source):
    """The source for Ingresses."""

    name = "Ingresses"
    lane = HTTP_LANE
    publishes = frozenset({CLASS, INGRESS})
    reports = frozenset({INGRESS})

    def __init__(
        self, *, engine: Engine, services: ServiceCaches, caches: IngressCaches, shared: Shared, refusals: Refusals
    ) -> None:
        super().__init__(engine)
        self._services = services
        self._caches = caches
        self._shared = shared
        #: Why an Ingress is not served as it should be.
        self._refusals = refusals
        self._status = engine.status_writer(caches.ingresses)
        self._events = self._status.events
        self._plans: dict[str, ClassPlan] = {}
        #: The last certificate requests of each class.
        self._asked: dict[str, frozenset[str]] = {}
        caches.ingress_classes.on_object(self._class_changed)
        caches.ingresses.on_change(self._ingress_changed)
        caches.load_balancers.on_change(self._load_balancer_changed)
        caches.routes.on_object(self._route_changed, part=lambda route: route.status)
        caches.managed.on_object(self._managed_changed, part=progress_of)
        services.services.on_object(self._service_changed)
        services.slices.on_change(self._slice_changed)
        services.probes.on_change(self._probe_changed)
        services.classes.on_object(self._hub_class_changed, part=published_part)
        shared.add(self)

    # --- which keys ----------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Return whether Ingresses, their classes, Secrets and the objects at the hub have been read."""
        return self._caches.synced

    @property
    def problem(self) -> str:
        """Return why a cache cannot be read; empty if all can be read."""
        return self._caches.problem

    def replan(self) -> None:
        """Drop the plans of all classes: a class, a TLS section or a certificate changed."""
        self._plans.clear()

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of the objects in the member, of those that they name, and of those at the hub."""
        for ingress_class in self._caches.ingress_classes.values():
            yield (CLASS, "", ingress_class.metadata.name)
            yield from ((BACKEND, *service) for service in _services_of_class(ingress_class))
        for ingress in self._caches.ingresses.values():
            yield key_of(INGRESS, ingress)
            yield from ((BACKEND, *service) for service in services_named(ingress))
            yield from ((SECRET, *secret) for secret in secrets_named(ingress))
        yield from self._shared.published()

    def waiting(self) -> Iterator[IngressObject]:
        """Yield the Ingresses of classes of ours that have no address yet."""
        for ingress in self._caches.ingresses.values():
            if self.class_of(ingress) is not None and not ingress.status.load_balancer.ingress:
                yield ingress

    def _class_changed(self, ingress_class: IngressClass) -> None:
        self._plans.clear()
        self._engine.publish((CLASS, "", ingress_class.metadata.name))
        for ingress in self._caches.ingresses.values():
            self._engine.enqueue(key_of(INGRESS, ingress))

    def _ingress_changed(self, old: IngressObject | None, new: IngressObject | None) -> None:
        if old is None or new is None or _in_class_plan(old) != _in_class_plan(new):
            self._replan_classes()
        for version in filter(None, (old, new)):
            self._engine.enqueue(key_of(INGRESS, version))
            for service in services_named(version):
                self._engine.publish((BACKEND, *service))
            for secret in secrets_named(version):
                self._engine.publish((SECRET, *secret))

    def secret_changed(self, key: tuple[str, str]) -> None:
        """Enqueue the objects that depend on a Secret."""
        ingresses = self._caches.ingresses.by_index(BY_SECRET, key)
        if not ingresses:
            return
        self._engine.publish((SECRET, *key))
        for ingress in ingresses:
            self._engine.enqueue(key_of(INGRESS, ingress))
        self._replan_classes()

    def _managed_changed(self, _certificate: ManagedCertificate) -> None:
        self._replan_classes()
        for ingress in self._caches.ingresses.values():
            if ingress.spec.tls:
                self._engine.enqueue(key_of(INGRESS, ingress))

    def _service_changed(self, changed: Service) -> None:
        # A copy that others changed or deleted is created again on behalf of the Ingresses that need it.
        for ingress in self._users(original_of(changed) or changed.key):
            self._engine.enqueue(key_of(INGRESS, ingress))

    def _probe_changed(self, key: tuple[str, str]) -> None:
        for ingress in self._users(key):
            self._engine.publish(key_of(INGRESS, ingress))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for key in self._services.departed.waiting_for(new) if new is not None else ():
            self._engine.publish((BACKEND, *key))
        for endpoint_slice in filter(None, (old, new)):
            service = (endpoint_slice.metadata.namespace, endpoint_slice.label(LABEL_SERVICE_NAME))
            users = self._users(service) if service[1] else ()
            if users:
                self._engine.publish((BACKEND, *service))
            if users and is_chosen_by_user(self._services.services.get(*service)):
                # Whether the Service can be a backend depends on its endpoints.
                for ingress in users:
                    self._engine.publish(key_of(INGRESS, ingress))

    def _load_balancer_changed(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        changed = new or old
        if changed is None or changed.spec.origin.kind != CLASS:
            return
        concerned = None
        if old is not None and new is not None and _of_all_routes(old) == _of_all_routes(new):
            concerned = failing_changes(old, new)
        every = (key_of(INGRESS, ingress) for ingress in self._caches.ingresses.values())
        for key in every if concerned is None else concerned:
            self._engine.report(key)

    def _route_changed(self, route: LoadBalancerRoute) -> None:
        origin = route.spec.origin
        if origin.kind == INGRESS:
            self._engine.report((INGRESS, origin.namespace, origin.name))

    def _hub_class_changed(self, _class: LoadBalancerClass) -> None:
        for ingress in self._caches.ingresses.values():
            self._engine.enqueue(key_of(INGRESS, ingress))
        self._replan_classes()

    def _replan_classes(self) -> None:
        self._plans.clear()
        for ingress_class in self._caches.ingress_classes.values():
            self._engine.publish((CLASS, "", ingress_class.metadata.name))

    # --- what is published ---------------------------------------------------------------------------------------

    async def publish(self, key: Key) -> bool:
        """Publish the objects of an IngressClass or Ingress at the hub; return whether a removal waits."""
        kind, namespace, name = key
        return await (self._class(name) if kind == CLASS else self._ingress(namespace, name))

    def refused(self, key: Key, why: str) -> None:
        """Report a rejection, or its end, on the affected Ingresses."""
        del why  # the report reads it
        if key[0] == INGRESS:
            self._engine.report(key)
            return
        for ingress in self.ingresses_of(key[2]):
            self._engine.report(key_of(INGRESS, ingress))

    async def _class(self, name: str) -> bool:
        origin: Key = (CLASS, "", name)
        plan = self.plan_of(name)
        if plan is not None:
            self._services.classes.check_read("", plan.spec.class_name)
        if plan is None:
            for request in self._asked.pop(name, frozenset()):
                self._engine.publish((MANAGED, "", request))
            held = await self._shared.remove(self._shared.load_balancers, origin, self)
            return await self._shared.remove(self._shared.certificates, origin, self) or held
        if plan.has_tls and await self._shared.make_fallback(origin, fallback_name(name)):
            self._plans.pop(name, None)
            plan = self.plan_of(name) or plan
        ingresses = self.ingresses_of(name)
        await self._shared.secrets(dict.fromkeys(key for ingress in ingresses for key in secrets_named(ingress)))
        for request in plan.requests:
            await self._shared.managed(request)
        meta = self._shared.meta(origin, class_load_balancer_name(name))
        # The listeners of new hosts are there before the routes that name them, since routes come by keys of their own.
        if await self._shared.load_balancers.apply(HTTPLoadBalancer(metadata=meta, spec=plan.spec)):
            for ingress in self.ingresses_of(name):
                self._engine.publish(key_of(INGRESS, ingress))
        for request in self._asked.pop(name, frozenset()) - plan.requests.keys():
            self._engine.publish((MANAGED, "", request))
        self._asked[name] = frozenset(plan.requests)
        return False

    async def _ingress(self, namespace: str, name: str) -> bool:
        origin: Key = (INGRESS, namespace, name)
        if (namespace, name) in self._caches.ingresses.broken:
            return False
        ingress = self._caches.ingresses.get(namespace, name)
        of_class = None if ingress is None or ingress.deleting else self.class_of(ingress)
        if ingress is None or of_class is None:
            self._events.forget((namespace, name))
            self._refusals.put(origin, "" if ingress is None or ingress.deleting else self._misspelt_class(ingress))
            return await self._shared.remove(self._shared.routes, origin, self)
        plan = self.plan_of(of_class)
        if plan is None:
            return False
        self._services.classes.check_read("", plan.spec.class_name)
        names, tls_secret = services_of(ingress), client_secret(ingress)
        if tls_secret:
            self._caches.secrets.check_read(namespace, tls_secret)
        for service in names:
            self._services.services.check_read(namespace, service)
        for service in names:
            await self._shared.service(namespace, service)
        nodes = plan.spec.targets == "Node"
        inspecting: tuple[Service | None, str] = (None, "")
        for key in _services_of(plan.processing):
            self._services.services.check_read(*key)
            await self._shared.service(*key)
            processor, problem = self._shared.reach(key, nodes=nodes)
            missing = "" if processor is not None else missing_service(*key, self._services.services.values())
            inspecting = processor, problem or missing
        reached = {service_name: self._shared.reach((namespace, service_name), nodes=nodes) for service_name in names}
        translated = translate_ingress(
            IngressView(
                ingress=ingress,
                load_balancer=class_load_balancer_name(of_class),
                services={
                    service_name: service for service_name, (service, _) in reached.items() if service is not None
                },
                tls_listeners=plan.tls_listeners,
                unreachable={
                    service_name: problem or missing_service(namespace, service_name, self._services.services.values())
                    for service_name, (service, problem) in reached.items()
                    if problem or service is None
                },
                certificate=self._shared.certificate(namespace, tls_secret),
                authorities=self._shared.authorities(namespace, tls_secret),
                untraced_by=self._shared.untraced_by(plan.spec.class_name),
                of_class=plan.processing,
                inspecting=inspecting,
            )
        )
        wanted = [
            LoadBalancerRoute(
                metadata=self._shared.subtenant_meta(origin, route_name(origin, host), self._shared.routes), spec=spec
            )
            for host, spec in translated.routes.items()
        ]
        published = list(self._caches.routes_of(origin)) if translated.refused else []
        protected = {route.metadata.name for route in published if is_protected(route.spec, translated.undecided)}
        for route in wanted:
            if route.metadata.name not in protected:
                await self._shared.routes.apply(route)
        wanted += published
        of_certificates = (*plan.problems.get(ingress.key, ()), *self._certificate_flaws(ingress))
        self._refusals.put(origin, "; ".join(dict.fromkeys(of_certificates)))
        problems = (*translated.problems, *of_certificates, *self._overlaps(ingress, of_class))
        events = [warning_event(ConditionReason.INVALID, text) for text in problems]
        if translated.ignored:
            events.append(warning_event(ANNOTATIONS_IGNORED, translated.ignored))
        self._events.emit_new("l7", ingress, events)
        return await self._shared.remove(self._shared.routes, origin, self, keep=wanted)

    def _misspelt_class(self, ingress: IngressObject) -> str:
        """Return why the class of an Ingress is not served, if it is probably meant to be one of ours."""
        classes = {
            ingress_class.metadata.name: ingress_class.spec.controller
            for ingress_class in self._caches.ingress_classes.values()
        }
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
        """Report the paths of an Ingress that an older one of its class has, too."""
        at = self._caches.ingresses.indexed
        return overlaps(
            ingress,
            lambda place: (
                ingress
                for ingress in at(BY_PLACE, place)
                if not ingress.deleting and self.class_of(ingress) == of_class
            ),
        )

    # --- what is reported ----------------------------------------------------------------------------------------

    async def report(self, key: Key) -> float | None:
        """Write the hub's answer to the Ingress."""
        _, namespace, name = key
        ingress = self._status.get(namespace, name)
        if ingress is None:
            self._status.forget(namespace, name)
            return None
        of_class = self.class_of(ingress)
        routes = () if of_class is None else self._caches.routes_of(key)
        if ingress.deleting:
            self._status.forget(namespace, name)
            if of_class is None or routes:
                return None
        refusals = map(self._engine.refusal_of, (key, (CLASS, "", of_class or "")))
        feedback = build_feedback(
            ingress,
            None if of_class is None else self._shared.answer(class_load_balancer_name(of_class)),
            [route.status.names for route in routes],
            of_class=of_class is not None,
            shows_ours=self._shows_ours(ingress),
            refusals=[*filter(None, refusals)],
        )
        return await self._status.show(ingress, feedback)

    def _shows_ours(self, ingress: IngressObject) -> bool:
        """Return whether an Ingress shows an address of ours."""
        shown = {entry.address for entry in ingress.status.load_balancer.ingress or ()}
        return any(
            load_balancer.status.address in shown
            for load_balancer in self._caches.load_balancers.values()
            if load_balancer.status.address
        )

    # --- what it needs of the things that are shared -------------------------------------------------------------

    def needs_service(self, namespace: str, name: str) -> bool:
        """Return whether an Ingress of ours, or its class, names this Service."""
        return any(map(self.class_of, self._users((namespace, name))))

    def needs_node_ports(self, namespace: str, name: str) -> bool:
        """Return whether an Ingress of ours, of a class with the nodes as backends, names this Service."""
        by_nodes = {
            load_balancer_class
            for load_balancer_class in self._classes()
            if (plan := self.plan_of(load_balancer_class)) and plan.spec.targets == "Node"
        }
        if not by_nodes:  # thousands of Ingresses may name one Service
            return False
        return any(self.class_of(user) in by_nodes for user in self._users((namespace, name)))

    def needs_secret(self, namespace: str, name: str) -> bool:
        """Return whether an Ingress of ours names this Secret."""
        return any(map(self.class_of, self._caches.ingresses.indexed(BY_SECRET, (namespace, name))))

    def requests(self, name: str) -> list[CertificateRequest]:
        """Return the certificate requests of our Ingresses under this name."""
        plans = [
            plan for load_balancer_class in self._classes() if (plan := self.plan_of(load_balancer_class)) is not None
        ]
        return [request for plan in plans for request in plan.requests.get(name, ())]

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the view of Ingresses, their classes and Secrets is current."""
        return self._caches.is_fresh(fresh_s=fresh_s)

    # --- classes -------------------------------------------------------------------------------------------------

    def class_of(self, ingress: IngressObject) -> str | None:
        """Return the name of an Ingress's Fairlead class, None if it has none."""
        of_class = class_of(ingress, self._caches.ingress_classes.values())
        return None if of_class is None else of_class.metadata.name

    def ingresses_of(self, ingress_class: str) -> tuple[IngressObject, ...]:
        """Return the Ingresses of one class that stay."""
        return tuple(
            ingress
            for ingress in self._caches.ingresses.values()
            if not ingress.deleting and self.class_of(ingress) == ingress_class
        )

    def plan_of(self, ingress_class: str) -> ClassPlan | None:
        """Return the load balancer of one class, None if the class is not ours; cached until ``begin``."""
        plan = self._plans.get(ingress_class)
        if plan is not None:
            return plan
        of_member = self._caches.ingress_classes.get("", ingress_class)
        if of_member is None or of_member.deleting or not of_member.is_ours:
            return None
        ingresses = self.ingresses_of(ingress_class)
        named = {key for ingress in ingresses for key in secrets_named(ingress)}
        meta = self._shared.meta((CLASS, "", ingress_class), class_load_balancer_name(ingress_class))
        published = self._caches.load_balancers.get(meta.namespace, meta.name)
        plan = plan_class(
            ClassView(
                of_member,
                ingresses,
                {key: self._shared.certificate(*key) for key in named},
                self._shared.targets(of_member.load_balancer_class),
                self._shared.digest_of(fallback_name(ingress_class)),
                issuer=self._shared.issuer(of_member.load_balancer_class),
                managed=self._shared.managed_states(),
                published=published.spec if published is not None else None,
                is_whole=not self._caches.ingresses.unread,
            )
        )
        self._plans[ingress_class] = plan
        return plan

    def _users(self, service: tuple[str, str]) -> list[IngressObject]:
        """Return the Ingresses that name a Service, or whose class does."""
        classes = [
            of_class.metadata.name
            for of_class in self._caches.ingress_classes.values()
            if of_class.is_ours and service in _services_of_class(of_class)
        ]
        users = list(self._caches.ingresses.by_index(BY_SERVICE, service))
        return [*users, *(ingress for of_class in classes for ingress in self.ingresses_of(of_class))]

    def _classes(self) -> list[str]:
        return [ingress_class.metadata.name for ingress_class in self._caches.ingress_classes.values()]


def _services_of(processing: Processing) -> list[tuple[str, str]]:
    """Return the Service that inspects requests, if there is one."""
    return [] if processing.request is None else [(processing.request.namespace, processing.request.service)]


def _services_of_class(ingress_class: IngressClass) -> list[tuple[str, str]]:
    return _services_of(class_processing(ingress_class))


def _in_class_plan(ingress: IngressObject) -> tuple[object, ...]:
    """Return the part of an Ingress that the load balancer of its class depends on."""
    spec = ingress.spec
    hosts = [rule.host for rule in spec.rules or ()] if spec.tls else []
    return (spec.ingress_class_name, spec.tls, hosts, ingress.deleting, ingress.metadata.annotations)


def _of_all_routes(load_balancer: HTTPLoadBalancer) -> HTTPLoadBalancerStatus:
    """Return the status without counts, and without what concerns single routes."""
    return msgspec.structs.replace(load_balancer.status, targets="", routes=0, failing_routes=())
