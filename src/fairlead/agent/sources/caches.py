"""The watch caches of an agent in both clusters, and the Service that each object belongs to.

In: the two clusters. Out: canonical objects of Services and of L7, with their indexes, and whether the caches
are current. Never writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec

from fairlead.agent.identity import ServiceKey, origin_key
from fairlead.agent.probes import ReadinessProbes
from fairlead.agent.slices import Departed, compact_node, compact_pod, with_gated_pods, without_last_applied
from fairlead.agent.sources.http import client_secret
from fairlead.agent.sources.ingress.plan import places_of, services_of
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import (
    ENDPOINT_SLICES,
    INGRESS_CLASSES,
    INGRESSES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    EndpointSlice,
    IngressClass,
    IngressObject,
    Namespace,
    Node,
    Pod,
    Secret,
    Service,
    ServiceSpec,
)
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject, ObjectKey, ObjectMeta, Resource, Wire
from fairlead.api.names import (
    LABEL_MANAGED_BY,
    LABEL_READINESS_GATE,
    LABEL_SERVICE_NAME,
    LABEL_SUBTENANT,
    MANAGED_BY,
    MANAGER_AGENT,
    READINESS_GATE_ENABLED,
    label_value,
)
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.publish.objects import canonical_slice
from fairlead.publish.publisher import published_load_balancers, published_slices

_BY_SERVICE, _BY_NAMESPACE, _BY_POD, _BY_UID = "service", "namespace", "pod", "uid"
_INGRESS_FIELD = b'"f:ingress"'


class ManagedFields(Wire, frozen=True, gc=False):
    """The owners of fields, as the API server records them."""

    manager: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.Raw(b"{}")


class MemberServiceMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata of a Service, with the owners of fields; ``compact_service`` keeps only our own entry."""

    managed_fields: list[ManagedFields] | None = None


class MemberServiceSpec(ServiceSpec, frozen=True, gc=False):
    """The spec of a Service, with the fields that other clusters of its set need."""

    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    internal_traffic_policy: str | None = None
    traffic_distribution: str | None = None


class MemberService(Service, frozen=True, gc=False):
    """A Service of the member that knows whether its address is one that we wrote."""

    metadata: MemberServiceMeta = MemberServiceMeta()
    spec: MemberServiceSpec = MemberServiceSpec()

    @property
    def status_is_ours(self) -> bool:
        """Return whether an agent of ours, in this process or an earlier one, wrote ``status.loadBalancer.ingress``."""
        return bool(self.metadata.managed_fields)


#: The same Services, read with managedFields.
MEMBER_SERVICES = Resource("", "v1", "Service", "services", True, MemberService)


def compact_service(raw: MemberService) -> MemberService:
    """Reduce a Service: managedFields keeps only our entry for the status, without its fields."""
    ours = [
        ManagedFields(manager=entry.manager, subresource=entry.subresource)
        for entry in raw.metadata.managed_fields or ()
        if entry.manager == MANAGER_AGENT and entry.subresource == "status" and _INGRESS_FIELD in bytes(entry.fields_v1)
    ]
    small = without_last_applied(raw)
    return msgspec.structs.replace(small, metadata=msgspec.structs.replace(small.metadata, managed_fields=ours or None))


class CachesOfBothSides:
    """The caches of a source: those of the member, and those of the hub."""

    of_member: tuple[AnyCache, ...]
    of_hub: tuple[AnyCache, ...]

    @property
    def all(self) -> tuple[AnyCache, ...]:
        """Return the caches of both sides."""
        return (*self.of_member, *self.of_hub)

    @property
    def synced(self) -> bool:
        """Return whether each cache has held a complete state at least once."""
        return all(cache.synced for cache in self.all)

    @property
    def hub_synced(self) -> bool:
        """Return whether each cache of the hub has held a complete state at least once."""
        return all(cache.synced for cache in self.of_hub)

    @property
    def problem(self) -> str:
        """Return why a cache cannot be read; empty if all can be read."""
        return next((cache.problem for cache in self.all if cache.problem), "")


class ServiceCaches(CachesOfBothSides):
    """The caches of both sides. Hub ones see only the tenant's namespace."""

    def __init__(self, *, member: Cluster, hub: Cluster, hub_namespace: str, readiness_gates: bool = False) -> None:
        self.hub_namespace = hub_namespace
        #: The pods with a readiness gate of ours; None unless the agent opens readiness gates.
        self.pods: WatchCache[Pod] | None = None
        if readiness_gates:
            self.pods = WatchCache(
                member,
                PODS,
                label_selector=f"{LABEL_READINESS_GATE}={READINESS_GATE_ENABLED}",
                transform=compact_pod,
                indexes={_BY_UID: lambda pod: [pod.metadata.uid]},
            )
        self.services: WatchCache[MemberService] = WatchCache(
            member,
            MEMBER_SERVICES,
            transform=compact_service,
            indexes={
                BY_SECRET: client_secrets_named,
                **({_BY_NAMESPACE: lambda service: [service.metadata.namespace]} if readiness_gates else {}),
            },
        )
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            member,
            ENDPOINT_SLICES,
            # Slices of ours carry no such label: where hub and member are one cluster, we do not read our own.
            label_selector=LABEL_SERVICE_NAME,
            transform=lambda raw: canonical_slice(raw, owners=True, targets=True),
            indexes={_BY_SERVICE: _services_of, **({_BY_POD: _uids_of} if readiness_gates else {})},
        )
        #: The namespaces that belong to a sub-tenant.
        self.subtenants: WatchCache[Namespace] = WatchCache(
            member, NAMESPACES, label_selector=LABEL_SUBTENANT, transform=_subtenant_only
        )
        self.departed = Departed()
        self.probes = ReadinessProbes(member)
        self.slices.on_change(self._note_departed)
        self.nodes: WatchCache[Node] = WatchCache(member, NODES, transform=compact_node)
        self.load_balancers = published_load_balancers(hub, namespace=hub_namespace)
        self.hub_slices = published_slices(hub, namespace=hub_namespace)
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(
            hub, LOAD_BALANCER_CLASSES, transform=without_last_applied
        )
        self.of_member = (self.services, self.slices, self.nodes)
        self.of_hub = (self.load_balancers, self.hub_slices, self.classes)

    def subtenant_labels(self, namespace: str, present: KubeObject | None) -> dict[str, str]:
        """Return the label of what is published for a namespace; that of ``present`` until namespaces have been read.

        Without the right to list namespaces, no label is added, and none is removed.
        """
        is_read = self.subtenants.synced and ObjectKey("", namespace) not in self.subtenants.unread
        home = self.subtenants.get("", namespace) if is_read else present
        value = home.label(LABEL_SUBTENANT) if home is not None else ""
        return {LABEL_SUBTENANT: value} if value else {}

    def member_is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the view of the member is current: only then may anything be removed."""
        return all(is_fresh(cache, fresh_s=fresh_s) for cache in self.of_member)

    def member_age_s(self) -> float:
        """Return the seconds since the member last answered, for its least current cache."""
        return max(cache.age_s for cache in self.of_member)

    @property
    def hub_is_heard(self) -> bool:
        """Return whether all watches of the hub work."""
        return not any(cache.problem or not cache.synced for cache in self.of_hub)

    def slices_of_service(self, key: ServiceKey) -> tuple[EndpointSlice, ...]:
        """Return the member's slices of one Service, without those of an earlier Service that await deletion."""
        slices, service = self.slices.by_index(_BY_SERVICE, key), self.services.get(*key)
        return tuple(
            endpoint_slice if self.pods is None else with_gated_pods(endpoint_slice, self._pod)
            for endpoint_slice in slices
            if service is None or is_of_service(endpoint_slice, service.metadata.uid)
        )

    def services_of_pod(self, pod: Pod) -> set[ServiceKey]:
        """Return the Services that list a pod with a readiness gate, or whose selectors match its labels."""
        listed = {
            key
            for endpoint_slice in self.slices.indexed(_BY_POD, pod.metadata.uid)
            if (key := service_of_slice(endpoint_slice)) is not None
        }
        labels = pod.metadata.labels or {}
        selected: set[ServiceKey] = {
            service.key
            for service in self.services.by_index(_BY_NAMESPACE, pod.metadata.namespace)
            if (wanted := service.spec.selector) and wanted.items() <= labels.items()
        }
        return listed | selected

    def _pod(self, uid: str) -> Pod | None:
        return next(iter(self.pods.indexed(_BY_UID, uid)), None) if self.pods is not None else None

    def reused_endpoints(self, key: ServiceKey, published: Iterable[EndpointSlice]) -> tuple[EndpointSlice, ...]:
        """Return a Service's departed endpoints whose address another pod has; ``published`` are at the hub."""
        self.departed.note_published(key, published, self.slices_of_service(key))
        return self.departed.reused(key, self.slices.values())

    def _note_departed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            if version is not None and (key := service_of_slice(version)) is not None:
                self.departed.note(key, old, new)
                return

    def class_targets(self) -> dict[str, str]:
        """Return the target type that each class requests."""
        return {
            load_balancer_class.metadata.name: load_balancer_class.spec.targets
            for load_balancer_class in self.classes.values()
            if load_balancer_class.spec.targets
        }


def _subtenant_only(raw: Namespace) -> Namespace:
    metadata = raw.metadata
    labels = {LABEL_SUBTENANT: raw.label(LABEL_SUBTENANT)}
    return Namespace(
        metadata=ObjectMeta(
            name=metadata.name, uid=metadata.uid, resource_version=metadata.resource_version, labels=labels
        )
    )


def is_fresh(cache: AnyCache, *, fresh_s: float) -> bool:
    """Return whether a cache is current."""
    return cache.synced and not cache.problem and cache.age_s <= fresh_s


def lost_kinds(caches: Sequence[AnyCache]) -> list[str]:
    """Return a sentence for each kind that was read and no longer can be.

    A kind that the agent has never read is left out, as the agent may have no rights for it.
    """
    reasons = [cache.problem for cache in caches if cache.synced and cache.problem]
    return reasons + [
        f"{cache.cluster.name} no longer serves {cache.resource.full_name}; what was published for them stays."
        for cache in caches
        if len(cache) and not cache.served
    ]


def service_of_slice(endpoint_slice: EndpointSlice) -> ServiceKey | None:
    """Return the Service that a member's slice belongs to."""
    name = endpoint_slice.label(LABEL_SERVICE_NAME)
    return (endpoint_slice.metadata.namespace, name) if name else None


def is_of_service(endpoint_slice: EndpointSlice, uid: str) -> bool:
    """Return whether a slice may belong to the Service ``uid``: no other Service owns it."""
    owners = {owner.uid for owner in endpoint_slice.metadata.owner_references or () if owner.kind == "Service"}
    return uid in owners or not owners


def _uids_of(endpoint_slice: EndpointSlice) -> Iterable[str]:
    refs = (endpoint.target_ref for endpoint in endpoint_slice.endpoints or ())
    return {ref.uid for ref in refs if ref is not None and ref.uid}


def _services_of(endpoint_slice: EndpointSlice) -> Iterable[ServiceKey]:
    key = service_of_slice(endpoint_slice)
    return () if key is None else (key,)


BY_SERVICE = "service"
BY_PLACE = "place"
BY_SECRET = "secret"  # noqa: S105 - the name of an index
BY_ORIGIN = "origin"
#: Routes at the hub by the Services whose pods they reach.
BY_BACKEND = "backend"
#: Routes at the hub by all Services that they name.
BY_NAMED = "named"
#: Objects at the hub by the kind that they were published for.
BY_KIND = "kind"
_TLS = "type=kubernetes.io/tls"


class IngressCaches(CachesOfBothSides):
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
            hub,
            LOAD_BALANCER_ROUTES,
            namespace=hub_namespace,
            indexes={**_PUBLISHED, BY_BACKEND: _services_reached, BY_NAMED: _services_published},
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
        self.of_member = (self.ingresses, self.ingress_classes, self.secrets)
        self.of_hub = (self.load_balancers, self.routes, self.certificates, self.managed)

    def has_published(self, kind: str) -> bool:
        """Return whether the hub has objects that were published for this kind."""
        return bool(self.load_balancers.indexed(BY_KIND, kind) or self.routes.indexed(BY_KIND, kind))

    def routes_of(self, origin: tuple[str, str, str]) -> list[LoadBalancerRoute]:
        """Return the routes that the hub has of one Ingress or route, as kind, namespace and name."""
        kind, namespace, name = origin
        published = self.routes.by_index(BY_ORIGIN, (kind, namespace, label_value(name)))
        return [
            route for route in published if (route.spec.origin.namespace, route.spec.origin.name) == (namespace, name)
        ]

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the view of the member is current: only then may anything be removed."""
        return all(is_fresh(cache, fresh_s=fresh_s) and not cache.broken for cache in self.of_member)


def secrets_of(ingress: IngressObject) -> frozenset[str]:
    """Return the names of the Secrets that an Ingress names."""
    return frozenset({*(tls.secret_name for tls in ingress.spec.tls or ()), client_secret(ingress)} - {""})


def services_named(ingress: IngressObject) -> list[tuple[str, str]]:
    """Return (namespace, name) of the Services that an Ingress names."""
    return [(ingress.metadata.namespace, name) for name in services_of(ingress)]


def client_secrets_named(service: MemberService) -> list[tuple[str, str]]:
    """Return (namespace, name) of the Secret that a Service names for TLS towards its backends, if any."""
    name = client_secret(service)
    return [(service.metadata.namespace, name)] if name else []


def secrets_named(ingress: IngressObject) -> list[tuple[str, str]]:
    """Return (namespace, name) of the Secrets that an Ingress names."""
    return [(ingress.metadata.namespace, name) for name in secrets_of(ingress)]


def _services_reached(route: LoadBalancerRoute) -> Iterable[Hashable]:
    """Return the Services, as namespace/name, whose pods a route reaches directly, without node ports."""
    return {backend.service for backend in route.spec.backends if backend.service and not backend.node_port}


def _services_published(route: LoadBalancerRoute) -> Iterable[Hashable]:
    return {backend.service for backend in route.spec.backends}


def _origin(obj: KubeObject) -> Iterable[Hashable]:
    return [origin_key(obj)]


def _kind(obj: KubeObject) -> Iterable[Hashable]:
    return [origin_key(obj)[0]]


_PUBLISHED = {BY_ORIGIN: _origin, BY_KIND: _kind}
