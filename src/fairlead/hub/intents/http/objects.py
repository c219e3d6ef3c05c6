"""The HTTPLoadBalancers of a hub with the routes attached to them, and the keys that changes concern.

In: the inventory. Out: typed objects, and wake-ups. An EndpointSlice of a Service wakes the load balancers that have a
route with a backend of that Service, and no other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec

from fairlead.api.httploadbalancer import (
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    CertificateRef,
    HTTPLoadBalancer,
    LoadBalancerRoute,
)
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.meta import only_status_changed
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, backend_label
from fairlead.api.tenant import Tenant
from fairlead.hub.inventory import IntentObjects, Inventory, backend_labels, first_broken, nodes_namespaces
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.http import FixedAnswer
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.generated import CHALLENGE_PATH, domain_certificate, is_domain_certificate


class HTTPObjects(IntentObjects[HTTPLoadBalancer]):
    """The HTTPLoadBalancers of the hub's region; without a region the hub serves all of them."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(cluster, HTTP_LOAD_BALANCERS, indexes=self.indexes()),
            HTTP_LOAD_BALANCERS,
            serves=lambda obj: inventory.serves_region(obj.spec.region),
            region=lambda obj: obj.spec.region,
            recorded=lambda obj: (obj.status.allocation, obj.status.accepted),
        )
        self._inventory = inventory
        self.routes: WatchCache[LoadBalancerRoute] = WatchCache(
            cluster,
            LOAD_BALANCER_ROUTES,
            indexes={
                "namespace": lambda route: [route.metadata.namespace],
                "lb": lambda route: [load_balancer_of(route)],
                "service": _services_of,
                "node-port": _node_ports_of,
            },
        )
        self.managed = ManagedObjects(inventory.managed, wake=self._managed_changed)
        inventory.register(self, {LOAD_BALANCER_ROUTES.plural: self.routes})
        #: The routes of a load balancer until one of them changes: of thousands, each reconcile reads all.
        self._ordered: dict[LoadBalancerKey, tuple[LoadBalancerRoute, ...]] = {}
        self.routes.on_change(self._forget_order)
        #: The slices of the Services that the routes of a load balancer name, once these have been asked for.
        self._slices: dict[LoadBalancerKey, SlicesOfRoutes] = {}
        self.routes.on_change(self._note_services)
        inventory.slices.on_change(self._note_slice)
        inventory.slices.broken.on_change(lambda _obj: self._slices.clear())

    def open_ports(self, obj: HTTPLoadBalancer) -> Collection[int]:
        """Return the ports of what was accepted last, else of what is asked for."""
        return {each.port for each in (obj.status.accepted or obj.spec).listeners}

    def with_targets(self, address: str, ports: Collection[int]) -> Collection[LoadBalancerKey]:
        """Return those with a route to a Service with such an endpoint, or to its node port at a node of the member."""
        services = {label for each in self._inventory.slices_at(address, ports) for label in backend_labels(each)}
        spaces = self._inventory.members_with_node(address)
        at_nodes = (self.routes.by_index("node-port", (space, port)) for space in spaces for port in ports)
        return {
            *(load_balancer_of(route) for each in services for route in self.routes.by_index("service", each)),
            *(load_balancer_of(route) for route in itertools.chain.from_iterable(at_nodes)),
        }

    def watch(self) -> None:
        """Wake load balancers when routes or slices change."""
        self.routes.on_change(self._route_changed)
        # Which load balancer an unreadable route names is not known.
        self._inventory.wake_on_readability(
            LOAD_BALANCER_ROUTES.kind, self.routes, lambda route: self.keys_by_index("namespace", route.namespace)
        )
        self._inventory.slices.on_change(self._slice_changed)

    def _managed_changed(self, namespace: str, load_balancers: Iterable[str], name: str) -> None:
        keys = [LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, namespace, each) for each in load_balancers]
        if is_domain_certificate(name):
            keys = self.keys_by_index("namespace", namespace)
        self._inventory.wake([key for key in keys if self.get(key) is not None], f"ManagedCertificate {name} changed")

    def routes_of(self, key: LoadBalancerKey) -> tuple[LoadBalancerRoute, ...]:
        """Return the routes of one load balancer that stay, ordered by name."""
        known = self._ordered.get(key)
        if known is None:
            # Those of one index entry are in one namespace, and come ordered by name.
            known = tuple(route for route in self.routes.by_index("lb", key) if not route.deleting)
            self._ordered[key] = known
        return known

    def slices_of(self, key: LoadBalancerKey) -> Mapping[str, tuple[EndpointSlice, ...]]:
        """Return the readable slices of the Services that its routes name, by Service.

        It is the same mapping while nothing changes, and has the same tuples for what has not changed.
        """
        known = self._slices.get(key)
        if known is None:
            known = self._slices[key] = SlicesOfRoutes(partial(self._inventory.backend_slices_of, key.namespace))
            for route in self.routes_of(key):
                known.add(route)
        return known.current()

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of a load balancer that is gone."""
        self._slices.pop(key, None)
        self._ordered.pop(key, None)

    def _note_services(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        if new is not None and not new.deleting and (known := self._slices.get(load_balancer_of(new))) is not None:
            known.add(new)
        if old is not None and not old.deleting and (known := self._slices.get(load_balancer_of(old))) is not None:
            known.drop(old)

    def _note_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        labels = {label for each in (old, new) if each is not None for label in backend_labels(each)}
        for namespace, label in labels:
            for key in {load_balancer_of(route) for route in self.routes.indexed("service", (namespace, label))}:
                if (known := self._slices.get(key)) is not None:
                    known.note(label)

    def unreadable_routes(self, namespace: str) -> str:
        """Return which route in ``namespace`` cannot be decoded, empty when there is none."""
        broken = sorted(key for key in self.routes.broken if key[0] == namespace)
        return first_broken(LOAD_BALANCER_ROUTES.kind, self.routes, broken)

    def _forget_order(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        for route in filter(None, (old, new)):
            self._ordered.pop(load_balancer_of(route), None)

    def _route_changed(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        if not (old and new and only_status_changed(old, new)):
            routes = [route for route in (old, new) if route is not None]
            keys = {load_balancer_of(route) for route in routes}
            self._inventory.wake(keys, f"LoadBalancerRoute {routes[0].metadata.name} changed")

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for endpoint_slice in filter(None, (old, new)):
            cause = f"EndpointSlice {endpoint_slice.metadata.name} changed"
            for label in backend_labels(endpoint_slice):
                self._inventory.wake(
                    {load_balancer_of(route) for route in self.routes.by_index("service", label)}, cause
                )
            for namespace in nodes_namespaces(endpoint_slice):
                of_nodes = (obj for obj in self.cache.by_index("namespace", namespace) if obj.spec.targets == "Node")
                self._inventory.wake(
                    [self.key(obj) for obj in of_nodes if self.serves(obj)], "nodes of the member changed"
                )


def load_balancer_of(route: LoadBalancerRoute) -> LoadBalancerKey:
    """Return the key of the load balancer that a route names."""
    return LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, route.metadata.namespace, route.spec.load_balancer)


def _services_of(route: LoadBalancerRoute) -> list[tuple[str, str]]:
    """Return namespace and label of the Services that a route's backends name."""
    return [(route.metadata.namespace, backend_label(service)) for service in _service_names(route)]


def _node_ports_of(route: LoadBalancerRoute) -> set[tuple[str, int]]:
    """Return namespace and number of the node ports that a route's backends name."""
    return {(route.metadata.namespace, each.node_port) for each in route.spec.backends if each.node_port}


#: Called with a namespace, names of load balancers in it, and the name of the certificate that changed.
Changed = Callable[[str, Iterable[str], str], None]


class ManagedObjects:
    """The ManagedCertificates of all members, as load balancers see them."""

    def __init__(self, cache: WatchCache[ManagedCertificate], *, wake: Changed) -> None:
        self._wake = wake
        self._cache = cache
        cache.on_change(self._changed)

    def answers(self, namespace: str, load_balancer: str) -> tuple[FixedAnswer, ...]:
        """Return what one load balancer answers to the open challenges of its names, ordered."""
        answers = {
            answer
            for obj in self._cache.by_index("lb", (namespace, load_balancer))
            if not obj.deleting
            for answer in open_answers(obj)
        }
        return tuple(sorted(answers, key=lambda each: (each.hostname, each.path)))

    def newest(self, namespace: str, reference: CertificateRef) -> CertificateRef:
        """Return ``reference`` with the version that the hub has written last, if it writes that Secret."""
        for obj in self._cache.by_index("secret", (namespace, reference.name)):
            if obj.status.digest:
                return msgspec.structs.replace(reference, digest=obj.status.digest)
        return reference

    def of_domains(
        self, namespace: str, tenant: Tenant | None, load_balancer_class: LoadBalancerClass | None
    ) -> dict[str, CertificateRef]:
        """Return the certificates for the names that the hub makes for a member, by domain, where there is one."""
        if tenant is None or load_balancer_class is None:
            return {}
        issuer = load_balancer_class.annotation(ANNOTATION_CERTIFICATE_ISSUER)
        references: dict[str, CertificateRef] = {}
        for domain in tenant.name_domains:
            name = domain_certificate(domain, issuer)
            there = self._cache.get(namespace, name) if name else None
            if there is not None and there.status.digest:
                references[domain] = CertificateRef(name, there.status.digest)
        return references

    def _changed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        if old is not None and new is not None and _seen(old) == _seen(new):
            return
        for obj in filter(None, (old, new)):
            self._wake(obj.metadata.namespace, obj.spec.load_balancers, obj.metadata.name)


def open_answers(obj: ManagedCertificate) -> tuple[FixedAnswer, ...]:
    """Return the answers over HTTP to the challenges of the present order."""
    order = obj.status.order
    return tuple(
        FixedAnswer(each.host, CHALLENGE_PATH + each.token, each.content)
        for each in (order.challenges if order is not None else ())
        if each.type == "http-01"
    )


def _seen(obj: ManagedCertificate) -> tuple[object, ...]:
    return (open_answers(obj), obj.status.digest, obj.spec.load_balancers, obj.secret_name, obj.deleting)


class SlicesOfRoutes:
    """The slices of the Services that the routes of one load balancer name; ``read`` returns those of a Service."""

    def __init__(self, read: Callable[[str], tuple[EndpointSlice, ...]]) -> None:
        self._read = read
        #: How many routes name a Service, and the Services that have a label.
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
        """Return the slices as they are now."""
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
