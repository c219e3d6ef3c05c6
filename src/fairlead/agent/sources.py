"""What does the agent watch, on both sides, and which Service does each object belong to?

In: the two clusters. Out: six caches of canonical objects, with their indexes, and how far they can be believed.
Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.agent.identity import ServiceKey
from fairlead.agent.transforms import compact_load_balancer, compact_node, compact_slice, without_noise
from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, EndpointSlice, Node, Service
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.meta import ObjectMeta, Resource, Wire
from fairlead.api.names import LABEL_LOAD_BALANCER, LABEL_NODES, LABEL_SERVICE_NAME, MANAGER_AGENT
from fairlead.api.naming import hub_name, label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster

_BY_SERVICE = "service"
_BY_LOAD_BALANCER = "load-balancer"
_NODES_VALUE = "\nnodes"  # no label value holds a line break
_INGRESS_FIELD = b'"f:ingress"'


class ManagedFields(Wire, frozen=True, gc=False):
    """Who owns which fields: the API server's own record."""

    manager: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.Raw(b"{}")


class MemberServiceMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata of a Service, with that record; ``compact_service`` keeps of it only what is ours."""

    managed_fields: list[ManagedFields] | None = None


class MemberService(Service, frozen=True, gc=False):
    """A Service of the member that knows whether its address is one that we wrote."""

    metadata: MemberServiceMeta = MemberServiceMeta()

    @property
    def status_is_ours(self) -> bool:
        """Say whether ``status.loadBalancer.ingress`` was written by an agent of ours, this process or an earlier."""
        return bool(self.metadata.managed_fields)


#: The same Services, read with managedFields.
MEMBER_SERVICES = Resource("", "v1", "Service", "services", True, MemberService)


def compact_service(raw: MemberService) -> MemberService:
    """Reduce a Service: of managedFields only our own entry for the status stays, and only the fact of it."""
    ours = [
        ManagedFields(manager=one.manager, subresource=one.subresource)
        for one in raw.metadata.managed_fields or ()
        if one.manager == MANAGER_AGENT and one.subresource == "status" and _INGRESS_FIELD in bytes(one.fields_v1)
    ]
    small = without_noise(raw)
    return msgspec.structs.replace(small, metadata=msgspec.structs.replace(small.metadata, managed_fields=ours or None))


class Sources:
    """The caches of both sides. Hub ones see only the tenant's namespace."""

    def __init__(self, *, member: Cluster, hub: Cluster, hub_namespace: str) -> None:
        self.hub_namespace = hub_namespace
        self.services: WatchCache[MemberService] = WatchCache(member, MEMBER_SERVICES, transform=compact_service)
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            member,
            ENDPOINT_SLICES,
            # Slices of ours carry no such label: where hub and member are one cluster, we do not read our own.
            label_selector=LABEL_SERVICE_NAME,
            transform=compact_slice,
            indexes={_BY_SERVICE: _services_of},
        )
        self.nodes: WatchCache[Node] = WatchCache(member, NODES, transform=compact_node)
        self.load_balancers: WatchCache[TCPLoadBalancer] = WatchCache(
            hub, TCP_LOAD_BALANCERS, namespace=hub_namespace, transform=compact_load_balancer
        )
        self.hub_slices: WatchCache[EndpointSlice] = WatchCache(
            hub,
            ENDPOINT_SLICES,
            namespace=hub_namespace,
            transform=compact_slice,
            indexes={_BY_LOAD_BALANCER: _load_balancers_of},
        )
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(hub, LOAD_BALANCER_CLASSES, transform=without_noise)

    @property
    def of_member(self) -> tuple[WatchCache[MemberService], WatchCache[EndpointSlice], WatchCache[Node]]:
        """Return the member's caches."""
        return (self.services, self.slices, self.nodes)

    @property
    def of_hub(
        self,
    ) -> tuple[WatchCache[TCPLoadBalancer], WatchCache[EndpointSlice], WatchCache[LoadBalancerClass]]:
        """Return the hub's caches."""
        return (self.load_balancers, self.hub_slices, self.classes)

    @property
    def synced(self) -> bool:
        """Say whether each cache has held a complete state at least once."""
        return all(cache.synced for cache in (*self.of_member, *self.of_hub))

    def member_is_fresh(self, *, fresh_s: float) -> bool:
        """Say whether what we know of the member is the present: only then may anything be removed."""
        return all(is_fresh(cache, fresh_s=fresh_s) for cache in self.of_member)

    def slices_of_service(self, key: ServiceKey) -> tuple[EndpointSlice, ...]:
        """Return the member's slices of one Service."""
        return tuple(self.slices.by_index(_BY_SERVICE, key))

    def hub_slices_of(self, key: ServiceKey) -> tuple[EndpointSlice, ...]:
        """Return the slices at the hub that carry the label of one Service's load balancer."""
        return tuple(self.hub_slices.by_index(_BY_LOAD_BALANCER, label_value(hub_name(*key))))

    def nodes_slices(self) -> tuple[EndpointSlice, ...]:
        """Return the slices at the hub that carry the nodes label."""
        return tuple(self.hub_slices.by_index(_BY_LOAD_BALANCER, _NODES_VALUE))

    def class_targets(self) -> dict[str, str]:
        """Return the target type that each class asks for."""
        return {one.metadata.name: one.spec.targets for one in self.classes.values() if one.spec.targets}


def is_fresh(cache: WatchCache[Any], *, fresh_s: float) -> bool:
    """Say whether a cache is current."""
    return cache.synced and not cache.problem and cache.age_s <= fresh_s


def service_of_slice(one: EndpointSlice) -> ServiceKey | None:
    """Return the Service that a member's slice belongs to."""
    name = one.label(LABEL_SERVICE_NAME)
    return (one.metadata.namespace, name) if name else None


def _services_of(one: EndpointSlice) -> Iterable[ServiceKey]:
    key = service_of_slice(one)
    return () if key is None else (key,)


def _load_balancers_of(one: EndpointSlice) -> Iterable[str]:
    if one.label(LABEL_NODES):
        return (_NODES_VALUE,)
    value = one.label(LABEL_LOAD_BALANCER)
    return (value,) if value else ()
