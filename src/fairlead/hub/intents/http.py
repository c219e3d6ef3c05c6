"""HTTPLoadBalancer: one L7 load balancer, requested for an Ingress class or a Gateway, with routes and certificates.

Changes wake only the load balancers that they concern: an EndpointSlice of a Service wakes those with a route to that
Service. The hub watches no Secrets. An object names each certificate with the digest of its content, so a Secret is
read once for each version, and the right to *get* Secrets in tenants' namespaces is enough. When a Secret cannot be
read, the last good version is kept. Never: a key in a log or a status.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from fairlead.api.httploadbalancer import (
    FAILING_LISTED,
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    FailingRoute,
    HTTPLoadBalancer,
    HTTPLoadBalancerSpec,
    HTTPLoadBalancerStatus,
    LoadBalancerRoute,
    MaintenanceStatus,
    RefusedPartStatus,
    read_maintenance,
)
from fairlead.api.kubernetes import EndpointSlice, Ingress, PortStatus
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.meta import JSONMapping, JSONObject, WireCondition, only_status_changed
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, ANNOTATION_MAINTENANCE, backend_label
from fairlead.api.tcploadbalancer import CertificateRef
from fairlead.api.tenant import Tenant, subtenant_of
from fairlead.api.times import parsed_time
from fairlead.hub.intents.certificates import CertificateIntent, TenantCertificates, certificates_named
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberObjects, MemberViews
from fairlead.hub.intents.status import StatusRules, draining_targets, ingress_of, shown_targets
from fairlead.hub.inventory import Inventory, backend_labels, first_broken
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.http import FixedAnswer, Maintenance
from fairlead.model.in_words import listed
from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.model.observed import Counted, Observed
from fairlead.translate.generated import (
    CHALLENGE_PATH,
    domain_certificate,
    is_domain_certificate,
    with_challenge_listeners,
    with_generated_names,
)
from fairlead.translate.http_backends import Translated
from fairlead.translate.member import decide_http, ports_of, recorded_http
from fairlead.translate.view import Decision, HTTPView

_log = structlog.get_logger(__name__)
REFUSED_SHOWN = 50
_BACKENDS_SHOWN = 10
_READING = (ConditionType.RESOLVED_REFS, ConditionReason.PENDING)


class HTTPIntent(CertificateIntent[HTTPView]):
    """HTTPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        self._http_objects = HTTPObjects(context.cluster, context.inventory)
        #: The last translation of each load balancer, and that of its accepted version.
        self._translated: dict[LoadBalancerKey, Translated] = {}
        self._recorded: dict[LoadBalancerKey, Translated] = {}
        certificates = TenantCertificates(context.cluster, changed=self._certificates_changed)
        rules = HTTPStatus(self._http_objects, context.events)
        views = HTTPViews(context, self._http_objects, certificates)
        super().__init__(context, views=views, rules=rules, certificates=certificates)

    def watch(self) -> None:
        """Subscribe to slices, routes and certificates."""
        super().watch()
        self._http_objects.watch_routes()
        self._http_objects.routes.on_change(self._route_counted)
        self._context.shared.on_change(self._members_changed)
        self._context.shared.backends_of = self._http_objects.backends_of
        self._inventory.managed.on_change(self._managed_gone)

    def decide(self, view: HTTPView) -> Decision:
        """Return the decision about ``view``."""
        translated = self._translated.setdefault(view.key, Translated())
        decision = decide_http(view, self.allocation_of(view), translated)
        return msgspec.structs.replace(decision, maintenance=view.maintenance)

    def decision_on_record(self, view: HTTPView) -> Decision | None:
        """Return the decision about the accepted version."""
        return recorded_http(view, self._recorded.setdefault(view.key, Translated()))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed."""
        super().forget(key)
        for translations in (self._translated, self._recorded):
            translations.pop(key, None)
        self._http_objects.forget(key)

    def _members_changed(self, namespace: str, services: Collection[str]) -> None:
        routes = self._http_objects.routes
        named = (routes.by_index("service", (namespace, backend_label(service))) for service in services)
        keys = {load_balancer_of(route) for route in itertools.chain.from_iterable(named)}
        self._inventory.wake(keys, f"the members that share Service {listed(sorted(services), 1)} changed")

    def _route_counted(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        """Compare the status of a route's load balancers: it has the number of routes, and the failing ones."""
        if old is None or new is None or old.deleting != new.deleting or old.spec != new.spec:
            for key in {load_balancer_of(route) for route in (old, new) if route is not None}:
                self.status.refresh(key)

    def _managed_gone(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        if new is None and old is not None and is_domain_certificate(old.metadata.name):
            self._certificates.forget(old.metadata.namespace, (old.metadata.name,))


class HTTPViews(MemberViews[HTTPLoadBalancer, HTTPView]):
    """Gathers the views of HTTPLoadBalancers."""

    def __init__(self, context: IntentContext, objects: HTTPObjects, certificates: TenantCertificates) -> None:
        super().__init__(context, objects)
        self._http_objects = objects
        self._certificates = certificates

    def make(self, obj: HTTPLoadBalancer, common: JSONMapping) -> HTTPView:
        """Return the view of ``obj`` with its routes, and the slices of the Services that they name."""
        key, namespace, managed = common["key"], obj.metadata.namespace, self._http_objects.managed
        self._http_objects.admit_routes(namespace)
        routes = self._http_objects.admitted_routes(key)
        references = [managed.newest(namespace, reference) for reference in certificates_named(obj)]
        of_domains = managed.of_domains(namespace, common["tenant"], common["load_balancer_class"])
        certificates, missing = self._certificates.get(namespace, [*references, *of_domains.values()])
        for reference in of_domains.values():
            missing.pop(reference.name, None)  # no user has requested it
        fields: JSONObject = {**common}
        slices, shared = self._http_objects.slices_of(key), self._context.shared.of(namespace)
        unknown = (port.stale for service in shared.keys() & slices.keys() for port in shared[service].values())
        fields["stale"] = common["stale"] or next(filter(None, unknown), "")
        if slices:
            fields["stale"] = fields["stale"] or self._context.shared.unread(namespace)
        if unreadable := self._http_objects.unreadable_routes(namespace):
            fields["stale"] = fields["stale"] or unreadable
            fields["unreadable"] = f"{unreadable}; the route is not served until it is corrected, all others are"
        maintenance, due_s = self._maintenance(obj)
        return HTTPView(
            load_balancer=obj,
            routes=routes,
            slices=slices,
            shared=shared,
            certificates=certificates,
            missing_certificates=missing,
            domain_certificates={domain: ref.name for domain, ref in of_domains.items() if ref.name in certificates},
            answers=managed.answers(namespace, obj.metadata.name),
            maintenance=maintenance,
            due_s=due_s,
            **fields,
        )

    def _maintenance(self, obj: HTTPLoadBalancer) -> tuple[tuple[Maintenance, ...], float | None]:
        """Return the maintenance in effect now, and the seconds until the first one ends."""
        key, now = self._http_objects.key(obj), self._context.clock.now()
        try:
            entries, problem = read_maintenance(obj.annotation(ANNOTATION_MAINTENANCE)), ""
        except ValueError as error:
            # Previous entries stay in effect for their requested time.
            entries, problem = self._http_objects.maintenance.get(key, Maintained()).entries, str(error)
        left = [(entry, (parsed_time(entry.until) or now) - now) for entry in entries]
        active = tuple(entry for entry, rest in left if rest > timedelta(0))
        self._http_objects.maintenance[key] = Maintained(active, problem)
        return active, min((rest.total_seconds() for _, rest in left if rest > timedelta(0)), default=None)

    def listeners(self, spec: HTTPLoadBalancerSpec) -> Sequence[ListenerKey]:
        """Return the distinct ports that ``spec`` opens."""
        return [listener.key for listener in ports_of(spec.listeners)]

    def extra_listeners(self, view: HTTPView) -> Sequence[ListenerKey]:
        """Return the ports of challenges and generated names that the spec does not open."""
        spec = view.load_balancer.spec
        own = set(self.listeners(spec))
        listeners, _ = with_generated_names(view.domains, spec.origin, spec.listeners, (), view.domain_certificates)
        opened = ports_of(with_challenge_listeners(listeners, view.answers))
        return [port.key for port in opened if port.key not in own]


# --- the status ----------------------------------------------------------------------------------------------------


class HTTPStatus(StatusRules[HTTPLoadBalancer, Decision]):
    """The status of HTTPLoadBalancers; the record (``AcceptedStatus``) has its own field managers."""

    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names")

    def __init__(self, objects: HTTPObjects, events: EventRecorder) -> None:
        super().__init__(events=events, resource=HTTP_LOAD_BALANCERS)
        self._objects = objects

    def compose(
        self, obj: HTTPLoadBalancer, decision: Decision, conditions: list[WireCondition], observed: Observed | None
    ) -> HTTPLoadBalancerStatus:
        """Return the status with the number of targets and routes."""
        status = super().compose(obj, decision, conditions, observed)
        key = self._objects.key(obj)
        routes, over_limit = self._objects.admitted_routes(key), self._objects.refused_by_limit(key)
        health = observed.health if observed is not None else None
        maintained = self._objects.maintenance.get(self._objects.key(obj), Maintained())
        refused = refused_parts(observed, obj.status.refused, conditions)
        if maintained.problem:
            part = RefusedPartStatus("annotation", ANNOTATION_MAINTENANCE, maintained.problem)
            refused = (part, *refused[: REFUSED_SHOWN - 1]) if part not in refused else refused
        if over_limit:
            refused = (*over_limit, *refused)[:REFUSED_SHOWN]
        return msgspec.structs.replace(
            status,
            targets=shown_targets(decision.targets, observed),
            draining=draining_targets(observed),
            routes=len(routes),
            failing_routes=failing_routes(routes, health.failing if health is not None else frozenset()),
            refused=refused,
            maintenance=tuple(MaintenanceStatus(entry.host, entry.until) for entry in decision.maintenance),
        )

    def ingress(self, obj: HTTPLoadBalancer, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` with the ports that are served."""
        served = ports_of((obj.status.accepted or obj.spec).listeners)
        ports = [PortStatus(port.port, port.protocol.value) for port in served]
        return [ingress_of(address, ports) for address in addresses]


def refused_parts(
    observed: Observed | None, before: tuple[RefusedPartStatus, ...], conditions: Iterable[WireCondition] = ()
) -> tuple[RefusedPartStatus, ...]:
    """Return the parts that the proxies do not serve, the first 50; ``before`` while they are not known.

    They are unknown without an observed state, and while a certificate is read: its listener is not refused for that.
    """
    if observed is None or any((condition.type, condition.reason) == _READING for condition in conditions):
        return before
    return tuple(RefusedPartStatus(part.kind, part.name, part.reason) for part in observed.refused[:REFUSED_SHOWN])


def failing_routes(routes: Iterable[LoadBalancerRoute], failing: frozenset[str]) -> tuple[FailingRoute, ...]:
    """Return the routes that send requests to a backend of ``failing``, the first 200.

    A rule that redirects sends none to its backends, nor does any rule to a backend without a weight.
    """
    dead_routes: list[FailingRoute] = []
    for route in routes if failing else ():
        spec, origin = route.spec, route.spec.origin
        if failing.isdisjoint([share.backend for rule in spec.rules for share in rule.backends]):
            continue
        sent_to = {
            share.backend
            for rule in spec.rules
            if rule.filters.redirect is None
            for share in rule.backends
            if share.weight
        }
        if dead := sorted(sent_to.intersection(failing)):
            hosts = dict.fromkeys(host for attachment in spec.attachments for host in attachment.hostnames)
            dead_routes.append(
                FailingRoute(
                    name=route.metadata.name,
                    kind=origin.kind or spec.kind,
                    namespace=origin.namespace,
                    object=origin.name or route.metadata.name,
                    hosts=tuple(hosts)[:_BACKENDS_SHOWN],
                    backends=tuple(dead[:_BACKENDS_SHOWN]),
                )
            )
    return tuple(dead_routes[:FAILING_LISTED])


# --- the objects ---------------------------------------------------------------------------------------------------


class Maintained(NamedTuple):
    """The hosts of a load balancer that are in maintenance, and the error in the request for others."""

    entries: tuple[Maintenance, ...] = ()
    problem: str = ""


class RouteLimits:
    """The routes of each member above the limits of its Tenant: the newest of the member or of a sub-tenant.

    ``admit`` decides, when a view is made. An admitted route stays while it exists, even if the limit is lowered, and
    is not replaced while there are more routes than the limit.
    """

    def __init__(self) -> None:
        #: By namespace of the member and name: the field that refuses the route.
        self.refused: dict[str, dict[str, str]] = {}
        #: The admitted routes, by namespace and sub-tenant, where a limit refuses others.
        self._admitted: dict[tuple[str, str], set[str]] = {}

    def admit(
        self, tenant: Tenant | None, namespace: str, routes: Iterable[LoadBalancerRoute], served: Iterable[int]
    ) -> None:
        """Decide about all routes of a member; ``served`` counts those of each load balancer in its status."""
        self.refused.pop(namespace, None)
        if tenant is None or not _limits_routes(tenant):
            return
        refused: dict[str, str] = {}
        present = sorted(routes, key=_by_age)
        if (used := tenant.status.used) is not None and used.subtenants is not None:
            by_subtenant: dict[str, list[LoadBalancerRoute]] = {}
            for route in present:
                by_subtenant.setdefault(subtenant_of(route), []).append(route)
            for name, of_subtenant in by_subtenant.items():
                limit, before = tenant.limits_of(name).max_routes, used.of_subtenant(name).routes_served
                newest = self._admit((namespace, name), of_subtenant, limit, before)
                why = f"spec.subtenants.maxRoutes of the Tenant allows sub-tenant {name} {limit}"
                refused |= dict.fromkeys(newest, why)
        limit = tenant.spec.max_routes
        within = [route for route in present if route.metadata.name not in refused]
        newest = self._admit((namespace, ""), within, limit, sum(served))
        refused |= dict.fromkeys(newest, f"spec.maxRoutes of the Tenant allows {limit}")
        if refused:
            self.refused[namespace] = refused

    def _admit(self, place: tuple[str, str], routes: Sequence[LoadBalancerRoute], limit: int, served: int) -> list[str]:
        """Return the names of ``routes``, oldest first, for which a limit has no room.

        A hub that has just started knows only the number ``served``.
        """
        if not limit or len(routes) <= limit:
            self._admitted.pop(place, None)
            return []
        names = [route.metadata.name for route in routes]
        before = self._admitted.get(place)
        within = set(names[: max(limit, served)]) if before is None else before.intersection(names)
        within.update([name for name in names if name not in within][: max(0, limit - len(within))])
        self._admitted[place] = within
        return [name for name in names if name not in within]


class HTTPObjects(MemberObjects[HTTPLoadBalancer]):
    """HTTPLoadBalancers with the routes that are attached to them."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(cluster, HTTP_LOAD_BALANCERS, indexes=self.indexes()), HTTP_LOAD_BALANCERS, inventory
        )
        self.routes: WatchCache[LoadBalancerRoute] = WatchCache(
            cluster,
            LOAD_BALANCER_ROUTES,
            indexes={
                "namespace": lambda route: [route.metadata.namespace],
                "lb": lambda route: [load_balancer_of(route)],
                "subject": lambda route: [route.subject],
                "service": _services_of,
                "node-port": _node_ports_of,
            },
        )
        self.managed = ManagedObjects(inventory.managed, wake=self._managed_changed)
        #: The maintenance in effect when the view of a load balancer was last made.
        self.maintenance: dict[LoadBalancerKey, Maintained] = {}
        inventory.register(self, {LOAD_BALANCER_ROUTES.plural: self.routes})
        #: The routes of a load balancer until one of them changes: each reconcile reads all, which may be thousands.
        self._routes: dict[LoadBalancerKey, tuple[LoadBalancerRoute, ...]] = {}
        self._limits = RouteLimits()
        self.routes.on_change(self._note_route)
        #: The slices of the Services that the routes of a load balancer name, once these have been requested.
        self._slices: dict[LoadBalancerKey, SlicesOfRoutes] = {}
        self.routes.on_change(self._note_services)
        inventory.slices.on_change(self._note_slice)
        inventory.slices.broken.on_change(lambda _obj: self._slices.clear())

    def open_ports(self, obj: HTTPLoadBalancer) -> Collection[int]:
        """Return the ports of the accepted spec, or else of the present one."""
        return {listener.port for listener in (obj.status.accepted or obj.spec).listeners}

    def with_targets(self, address: str, ports: Collection[int]) -> Collection[LoadBalancerKey]:
        """Return the load balancers with a route to a Service with such an endpoint, or such a node port at a node."""
        of_services = map(self.keys_of_slice, self._inventory.slices_at(address, ports))
        spaces = self._inventory.members_with_node(address)
        at_nodes = (self.routes.by_index("node-port", (space, port)) for space in spaces for port in ports)
        return {
            *itertools.chain.from_iterable(of_services),
            *(load_balancer_of(route) for route in itertools.chain.from_iterable(at_nodes)),
        }

    def keys_of_slice(self, endpoint_slice: EndpointSlice) -> Collection[LoadBalancerKey]:
        """Return the load balancers with a route to the Service of a slice."""
        labels = backend_labels(endpoint_slice)
        return {load_balancer_of(route) for label in labels for route in self.routes.by_index("service", label)}

    def backends_of(self, namespace: str, service: str) -> set[Counted]:
        """Return the backends of load balancers that are a Service of the member with this namespace."""
        return {
            Counted(load_balancer_of(route), backend.name)
            for route in self.routes.by_index("service", (namespace, backend_label(service)))
            for backend in route.spec.backends
            if backend.service == service
        }

    def watch_routes(self) -> None:
        """Wake load balancers when routes change."""
        self.routes.on_change(self._route_changed)
        # The load balancer of an unreadable route is unknown.
        self._inventory.wake_on_readability(
            LOAD_BALANCER_ROUTES.kind, self.routes, lambda route: self.keys_by_index("namespace", route.namespace)
        )

    def routes_of(self, key: LoadBalancerKey) -> tuple[LoadBalancerRoute, ...]:
        """Return the routes of one load balancer that are not being deleted, ordered by name."""
        routes = self._routes.get(key)
        if routes is None:
            # The routes of one index entry are in one namespace, and ordered by name.
            routes = self._routes[key] = tuple(filter(_is_present, self.routes.by_index("lb", key)))
        return routes

    def admit_routes(self, namespace: str) -> None:
        """Decide which routes of a member are served within the limits of its Tenant; later steps read the result."""
        routes = self.routes.indexed("namespace", namespace)
        # A lower limit removes none of the routes that the statuses count as served.
        served = (obj.status.routes for obj in self.cache.by_index("namespace", namespace))
        self._limits.admit(self._inventory.tenant_of(namespace), namespace, filter(_is_present, routes), served)

    def admitted_routes(self, key: LoadBalancerKey) -> tuple[LoadBalancerRoute, ...]:
        """Return the routes of a load balancer that are served, ordered by name."""
        routes = self.routes_of(key)
        if refused := self._limits.refused.get(key.namespace):
            return tuple(route for route in routes if route.metadata.name not in refused)
        return routes

    def refused_by_limit(self, key: LoadBalancerKey) -> list[RefusedPartStatus]:
        """Return the routes above the limit as parts that are not served."""
        refused = self._limits.refused.get(key.namespace, {})
        return [
            RefusedPartStatus(
                "route",
                name,
                f"{ConditionReason.QUOTA_EXCEEDED}: {refused[name]} Ingresses and routes; delete others, or ask the "
                "operator for more",
            )
            for name in map(_name_of, self.routes_of(key) if refused else ())
            if name in refused
        ]

    def slices_of(self, key: LoadBalancerKey) -> Mapping[str, tuple[EndpointSlice, ...]]:
        """Return the readable slices of the Services that its routes name, by Service.

        The mapping is the same object until something changes, and keeps the tuples of unchanged Services.
        """
        slices = self._slices.get(key)
        if slices is None:
            slices = self._slices[key] = SlicesOfRoutes(partial(self._inventory.backend_slices_of, key.namespace))
            for route in self.routes_of(key):
                slices.add(route)
        return slices.current()

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is gone."""
        self._slices.pop(key, None)
        self._routes.pop(key, None)
        self.maintenance.pop(key, None)

    def unreadable_routes(self, namespace: str) -> str:
        """Return the first route in ``namespace`` that cannot be decoded; empty if there is none."""
        broken = sorted(key for key in self.routes.broken if key[0] == namespace)
        return first_broken(LOAD_BALANCER_ROUTES.kind, self.routes, broken)

    def _managed_changed(self, namespace: str, load_balancers: Iterable[str], name: str) -> None:
        keys = [LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, namespace, load_balancer) for load_balancer in load_balancers]
        if is_domain_certificate(name):
            keys = self.keys_by_index("namespace", namespace)
        self._inventory.wake([key for key in keys if self.get(key) is not None], f"ManagedCertificate {name} changed")

    def _note_services(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        if new is not None and not new.deleting and (slices := self._slices.get(load_balancer_of(new))) is not None:
            slices.add(new)
        if old is not None and not old.deleting and (slices := self._slices.get(load_balancer_of(old))) is not None:
            slices.drop(old)

    def _note_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        labels = {label for endpoint_slice in (old, new) if endpoint_slice for label in backend_labels(endpoint_slice)}
        for namespace, label in labels:
            for key in {load_balancer_of(route) for route in self.routes.indexed("service", (namespace, label))}:
                if (slices := self._slices.get(key)) is not None:
                    slices.note(label)

    def _note_route(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        """Replace one route in those of its load balancer, if they have been requested."""
        for route, present in ((old, False), (new, True)):
            if route is None or route.deleting or (routes := self._routes.get(load_balancer_of(route))) is None:
                continue
            at = bisect_left(routes, route.metadata.name, key=_name_of)
            end = at + (at < len(routes) and routes[at].metadata.name == route.metadata.name)
            self._routes[load_balancer_of(route)] = (*routes[:at], *([route] if present else ()), *routes[end:])

    def _route_changed(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        if not (old and new and only_status_changed(old, new)):
            routes = [route for route in (old, new) if route is not None]
            keys = {load_balancer_of(route) for route in routes}
            namespace = routes[0].metadata.namespace
            tenant = self._inventory.tenant_of(namespace) if new is None or new.deleting else None
            if tenant is not None and _limits_routes(tenant):
                keys.update(self.keys_by_index("namespace", namespace))
            self._inventory.wake(keys, f"LoadBalancerRoute {routes[0].metadata.name} changed")


def _limits_routes(tenant: Tenant) -> bool:
    return bool(tenant.spec.max_routes or any(limits.max_routes for limits in tenant.spec.subtenants))


def _by_age(route: LoadBalancerRoute) -> tuple[str, str]:
    return route.metadata.creation_timestamp or "", route.metadata.name


def _name_of(route: LoadBalancerRoute) -> str:
    return route.metadata.name


def _is_present(route: LoadBalancerRoute) -> bool:
    return not route.deleting


def load_balancer_of(route: LoadBalancerRoute) -> LoadBalancerKey:
    """Return the key of the load balancer that a route names."""
    return LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, route.metadata.namespace, route.spec.load_balancer)


def _services_of(route: LoadBalancerRoute) -> list[tuple[str, str]]:
    """Return namespace and label of the Services that a route's backends name."""
    return [(route.metadata.namespace, backend_label(service)) for service in _service_names(route)]


def _node_ports_of(route: LoadBalancerRoute) -> set[tuple[str, int]]:
    """Return namespace and number of the node ports that a route's backends name."""
    return {(route.metadata.namespace, backend.node_port) for backend in route.spec.backends if backend.node_port}


class SlicesOfRoutes:
    """The slices of the Services that the routes of one load balancer name; ``read`` returns those of a Service."""

    def __init__(self, read: Callable[[str], tuple[EndpointSlice, ...]]) -> None:
        self._read = read
        #: The number of routes that name a Service, and the Services that have a label.
        self._routes: Counter[str] = Counter()
        self._labelled: dict[str, set[str]] = {}
        self._slices: dict[str, tuple[EndpointSlice, ...]] = {}
        self._changed: set[str] = set()

    def add(self, route: LoadBalancerRoute) -> None:
        """Add a route."""
        for service in _service_names(route):
            self._routes[service] += 1
            if self._routes[service] == 1:
                self._labelled.setdefault(backend_label(service), set()).add(service)
                self._changed.add(service)

    def drop(self, route: LoadBalancerRoute) -> None:
        """Remove a route that was added."""
        for service in _service_names(route):
            self._routes[service] -= 1
            if not self._routes[service]:
                del self._routes[service]
                self._labelled[backend_label(service)].discard(service)
                self._changed.add(service)

    def note(self, label: str) -> None:
        """Note that a slice with this label of a Service has changed."""
        self._changed |= self._labelled.get(label, set())

    def current(self) -> Mapping[str, tuple[EndpointSlice, ...]]:
        """Return the present slices by Service."""
        if self._changed:
            slices, changed = dict(self._slices), self._changed
            self._changed = set()
            for service in changed:
                if service in self._routes:
                    slices[service] = self._read(service)
                else:
                    slices.pop(service, None)
            self._slices = slices
        return self._slices


def _service_names(route: LoadBalancerRoute) -> set[str]:
    return {backend.service for backend in route.spec.backends if backend.service}


#: Called with a namespace, names of load balancers in it, and the name of the certificate that changed.
Changed = Callable[[str, Iterable[str], str], None]


class ManagedObjects:
    """The ManagedCertificates of all members, as load balancers use them."""

    def __init__(self, cache: WatchCache[ManagedCertificate], *, wake: Changed) -> None:
        self._wake = wake
        self._cache = cache
        cache.on_change(self._changed)

    def answers(self, namespace: str, load_balancer: str) -> tuple[FixedAnswer, ...]:
        """Return the answers of one load balancer to the open challenges of its names, ordered."""
        answers = {
            answer
            for obj in self._cache.by_index("lb", (namespace, load_balancer))
            if not obj.deleting
            for answer in open_answers(obj)
        }
        return tuple(sorted(answers, key=lambda answer: (answer.hostname, answer.path)))

    def newest(self, namespace: str, reference: CertificateRef) -> CertificateRef:
        """Return ``reference`` with the version that the hub wrote last, if the hub writes that Secret."""
        for obj in self._cache.by_index("secret", (namespace, reference.name)):
            if obj.status.digest:
                return msgspec.structs.replace(reference, digest=obj.status.digest)
        return reference

    def of_domains(
        self, namespace: str, tenant: Tenant | None, load_balancer_class: LoadBalancerClass | None
    ) -> dict[str, CertificateRef]:
        """Return the issued certificates for the names that the hub generates for a member, by domain."""
        if tenant is None or load_balancer_class is None:
            return {}
        issuer = load_balancer_class.annotation(ANNOTATION_CERTIFICATE_ISSUER)
        references: dict[str, CertificateRef] = {}
        for domain in tenant.name_domains:
            name = domain_certificate(domain, issuer)
            obj = self._cache.get(namespace, name) if name else None
            if obj is not None and obj.status.digest:
                references[domain] = CertificateRef(name, obj.status.digest)
        return references

    def _changed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        if old is not None and new is not None and _used(old) == _used(new):
            return
        for obj in filter(None, (old, new)):
            self._wake(obj.metadata.namespace, obj.spec.load_balancers, obj.metadata.name)


def open_answers(obj: ManagedCertificate) -> tuple[FixedAnswer, ...]:
    """Return the answers over HTTP to the challenges of the present order."""
    order = obj.status.order
    return tuple(
        FixedAnswer(challenge.host, CHALLENGE_PATH + challenge.token, challenge.content)
        for challenge in (order.challenges if order is not None else ())
        if challenge.type == "http-01"
    )


def _used(obj: ManagedCertificate) -> tuple[object, ...]:
    return (open_answers(obj), obj.status.digest, obj.spec.load_balancers, obj.secret_name, obj.deleting)
