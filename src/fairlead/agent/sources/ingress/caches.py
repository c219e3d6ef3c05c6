"""The watch caches of L7, of both clusters.

In: the two clusters. Out: caches with their indexes; they are apart from those of Services, so that a member whose
agent has no right to read Ingresses or Secrets is served at L4 as before. Never writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from fairlead.agent.identity import origin_key
from fairlead.agent.slices import without_last_applied
from fairlead.agent.sources.ingress.plan import places_of, services_of
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import INGRESS_CLASSES, INGRESSES, SECRETS, IngressClass, IngressObject, Secret
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, label_value
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster

BY_SERVICE = "service"
BY_PLACE = "place"
BY_SECRET = "secret"  # noqa: S105 - the name of an index
BY_ORIGIN = "origin"
#: Routes at the hub by the Services whose pods they reach.
BY_BACKEND = "backend"
#: Objects at the hub by the kind that they were published for.
BY_KIND = "kind"
_TLS = "type=kubernetes.io/tls"


class IngressCaches:
    """The caches of both sides. Hub ones see only the tenant's namespace."""

    def __init__(self, *, member: Cluster, hub: Cluster, hub_namespace: str) -> None:
        self.ingresses: WatchCache[IngressObject] = WatchCache(
            member,
            INGRESSES,
            transform=without_last_applied,
            indexes={BY_SERVICE: services_named, BY_SECRET: secrets_named, BY_PLACE: places_of},
        )
        self.ingress_classes: WatchCache[IngressClass] = WatchCache(
            member, INGRESS_CLASSES, transform=without_last_applied
        )
        self.secrets: WatchCache[Secret] = WatchCache(
            member, SECRETS, field_selector=_TLS, transform=without_last_applied
        )
        self.load_balancers: WatchCache[HTTPLoadBalancer] = WatchCache(
            hub, HTTP_LOAD_BALANCERS, namespace=hub_namespace, indexes=_PUBLISHED
        )
        self.routes: WatchCache[LoadBalancerRoute] = WatchCache(
            hub, LOAD_BALANCER_ROUTES, namespace=hub_namespace, indexes={**_PUBLISHED, BY_BACKEND: _services_reached}
        )
        self.certificates: WatchCache[Secret] = WatchCache(
            hub,
            SECRETS,
            namespace=hub_namespace,
            label_selector=f"{LABEL_MANAGED_BY}={MANAGED_BY}",
            indexes={BY_ORIGIN: _origin},
        )

        self.managed: WatchCache[ManagedCertificate] = WatchCache(
            hub, MANAGED_CERTIFICATES, namespace=hub_namespace, indexes={BY_ORIGIN: _origin}
        )

    @property
    def hub_synced(self) -> bool:
        """Return whether it is known what is at the hub."""
        return all(cache.synced for cache in self.of_hub)

    def has_published(self, kind: str) -> bool:
        """Return whether the hub has anything that was published for objects of this kind."""
        return bool(self.load_balancers.indexed(BY_KIND, kind) or self.routes.indexed(BY_KIND, kind))

    def routes_of(self, origin: tuple[str, str, str]) -> list[LoadBalancerRoute]:
        """Return the routes that the hub has of one Ingress or route, as kind, namespace and name."""
        kind, namespace, name = origin
        published = self.routes.by_index(BY_ORIGIN, (kind, namespace, label_value(name)))
        return [
            route for route in published if (route.spec.origin.namespace, route.spec.origin.name) == (namespace, name)
        ]

    @property
    def of_member(self) -> tuple[AnyCache, ...]:
        """Return the member's caches."""
        return (self.ingresses, self.ingress_classes, self.secrets)

    @property
    def of_hub(self) -> tuple[AnyCache, ...]:
        """Return the hub's caches."""
        return (self.load_balancers, self.routes, self.certificates, self.managed)

    @property
    def all(self) -> tuple[AnyCache, ...]:
        """Return the caches of both sides."""
        return (*self.of_member, *self.of_hub)

    @property
    def synced(self) -> bool:
        """Return whether each cache has held a complete state at least once."""
        return all(cache.synced for cache in (*self.of_member, *self.of_hub))

    @property
    def problem(self) -> str:
        """Return why a cache cannot be read, empty when all can."""
        return next((cache.problem for cache in (*self.of_member, *self.of_hub) if cache.problem), "")

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether what is known of the member is the present: only then may anything be removed."""
        return all(
            cache.synced and not cache.problem and not cache.broken and cache.age_s <= fresh_s
            for cache in self.of_member
        )


def secrets_of(ingress: IngressObject) -> frozenset[str]:
    """Return the names of the Secrets that an Ingress names."""
    return frozenset(tls.secret_name for tls in ingress.spec.tls or () if tls.secret_name)


def services_named(ingress: IngressObject) -> list[tuple[str, str]]:
    """Return (namespace, name) of the Services that an Ingress names."""
    return [(ingress.metadata.namespace, name) for name in services_of(ingress)]


def secrets_named(ingress: IngressObject) -> list[tuple[str, str]]:
    """Return (namespace, name) of the Secrets that an Ingress names."""
    return [(ingress.metadata.namespace, name) for name in secrets_of(ingress)]


def _services_reached(route: LoadBalancerRoute) -> Iterable[Hashable]:
    """Return the Services, as namespace/name, whose pods a route reaches without a node between."""
    return {backend.service for backend in route.spec.backends if backend.service and not backend.node_port}


def _origin(obj: KubeObject) -> Iterable[Hashable]:
    return [origin_key(obj)]


def _kind(obj: KubeObject) -> Iterable[Hashable]:
    return [origin_key(obj)[0]]


_PUBLISHED = {BY_ORIGIN: _origin, BY_KIND: _kind}
