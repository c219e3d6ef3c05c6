"""What should the hub have for one Service?

In: a Service that is ours, its EndpointSlices, the member's nodes, and what the agent was told. Out: an ``Export``
(the TCPLoadBalancer and its slices), or ``Refused``. Endpoints are exported as they are, none included: whether an
empty list is believed is for the hub's guard, which knows what was there before.
Never reads what the hub answered, except ``before``: the slices it has, from which a last known address is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import msgspec

from fairlead.agent.decision import Ours, Refused, Scenario
from fairlead.agent.identity import ServiceKey, origin_labels
from fairlead.agent.service_options import Wishes, read_wishes
from fairlead.agent.slices import address_slices, local_slices, mirror_slices
from fairlead.api.kubernetes import EndpointSlice, Service
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_ORIGIN, ANNOTATION_TARGET, DEFAULT_CLASS, FINALIZER_CLEANUP
from fairlead.api.naming import hub_name
from fairlead.api.tcploadbalancer import (
    LoadBalancerPort,
    Origin,
    ProtocolName,
    TargetType,
    TCPLoadBalancer,
    TCPLoadBalancerSpec,
)
from fairlead.model.condition import ConditionReason

NodeOrPod = Literal["Node", "Pod"]
_PROTOCOLS = frozenset({"TCP", "UDP"})


class Settings(msgspec.Struct, frozen=True):
    """What is the same for every Service of the member. ``namespace`` is the tenant's at the hub."""

    tenant: str
    namespace: str
    target: NodeOrPod = "Node"


class ServiceView(msgspec.Struct, frozen=True):
    """All that one export may depend on, taken at one moment.

    ``slices`` are the member's (canonical, any order), ``before`` those at the hub; ``class_targets`` is what each
    LoadBalancerClass at the hub says, by name; ``node_addresses`` are the member's nodes by name.
    """

    service: Service
    slices: tuple[EndpointSlice, ...] = ()
    before: tuple[EndpointSlice, ...] = ()
    class_targets: Mapping[str, str] = {}
    node_addresses: Mapping[str, str] = {}


class Export(msgspec.Struct, frozen=True):
    """What the hub should have. ``slices`` None: those that are there stay, whatever they are (and why is in notes)."""

    load_balancer: TCPLoadBalancer
    slices: tuple[EndpointSlice, ...] | None
    notes: tuple[str, ...] = ()


class NotYet(msgspec.Struct, frozen=True):
    """Nothing to export until something that is still missing has come; what is at the hub stays."""

    why: str


def build_export(view: ServiceView, ours: Ours, settings: Settings) -> Export | Refused | NotYet:
    """Build the export of a Service that ``ownership`` has found to be ours."""
    service = view.service
    wishes = read_wishes(service, scenario=ours.scenario)
    if isinstance(wishes, Refused):
        return wishes
    ports = service.spec.ports or ()
    if not ports:
        return Refused(ConditionReason.INVALID, "the Service has no ports: add one to spec.ports.", keep=True)
    for port in ports:
        if port.protocol not in _PROTOCOLS:
            sentence = f"port {port.port} asks for {port.protocol}: Fairlead balances TCP and UDP."
            return Refused(ConditionReason.UNSUPPORTED_PROTOCOL, sentence, keep=True)
    target = _target(view, ours, wishes, settings)
    if target == "Node":
        missing = [str(port.port) for port in ports if not port.node_port]
        if missing:
            return _without_node_port(missing)
    load_balancer = _load_balancer(service, ours, wishes, target, settings)
    return _with_slices(view, load_balancer, target, settings)


def _with_slices(
    view: ServiceView, load_balancer: TCPLoadBalancer, target: TargetType, settings: Settings
) -> Export | NotYet:
    service, key = view.service, view.service.key
    namespace, tenant = settings.namespace, settings.tenant
    if target == "Pod":
        slices, notes = mirror_slices(key, view.slices, namespace=namespace, tenant=tenant)
        return Export(load_balancer, slices, notes)
    if target == "Address":
        slices = address_slices(key, service, namespace=namespace, tenant=tenant)
        if slices:
            return Export(load_balancer, slices)
        why = "the member's own load balancer shows no address"
        if view.before:
            return Export(load_balancer, None, (f"{why}: the one that was known last stays in use",))
        return NotYet(why)
    if load_balancer.spec.external_traffic_policy == "Local":
        slices = local_slices(
            key,
            view.slices,
            addresses=view.node_addresses,
            before=view.before,
            namespace=namespace,
            tenant=tenant,
        )
        return Export(load_balancer, slices)
    return Export(load_balancer, ())


def _load_balancer(
    service: Service, ours: Ours, wishes: Wishes, target: TargetType, settings: Settings
) -> TCPLoadBalancer:
    key: ServiceKey = service.key
    ports = [
        LoadBalancerPort(
            port=port.port,
            name=port.name,
            protocol=cast("ProtocolName", port.protocol),
            # Of no use to other targets, and it would make two writes of one change.
            node_port=port.node_port if target == "Node" else 0,
        )
        for port in sorted(service.spec.ports or (), key=lambda port: (port.port, port.protocol))
    ]
    spec = TCPLoadBalancerSpec(
        ports=ports,
        class_name=ours.class_name or DEFAULT_CLASS,
        targets=target,
        external_traffic_policy="Local" if service.spec.external_traffic_policy == "Local" else "Cluster",
        session_affinity="ClientIP" if service.spec.session_affinity == "ClientIP" else "None",
        load_balancer_source_ranges=list(wishes.source_ranges),
        proxy_protocol=wishes.proxy_protocol,
        address=wishes.address,
        origin=Origin(kind="Service", namespace=key[0], name=key[1], uid=service.metadata.uid),
    )
    meta = ObjectMeta(
        name=hub_name(*key),
        namespace=settings.namespace,
        labels=origin_labels(key, tenant=settings.tenant),
        annotations={ANNOTATION_ORIGIN: f"{settings.tenant}/{key[0]}/{key[1]}"},
        finalizers=[FINALIZER_CLEANUP],
    )
    return TCPLoadBalancer(metadata=meta, spec=spec)


def _target(view: ServiceView, ours: Ours, wishes: Wishes, settings: Settings) -> TargetType:
    if ours.scenario is Scenario.CLOUD:
        return "Address"
    if wishes.target:
        return wishes.target
    of_class = view.class_targets.get(ours.class_name or DEFAULT_CLASS, "")
    return of_class if of_class in {"Node", "Pod"} else settings.target  # pyright: ignore[reportReturnType]


def _without_node_port(missing: list[str]) -> Refused:
    some = ", ".join(missing[:5])
    return Refused(
        ConditionReason.NODE_PORT_MISSING,
        f"port {some} has no nodePort, and the targets are nodes: set annotation {ANNOTATION_TARGET}: Pod, or remove "
        "allocateLoadBalancerNodePorts: false.",
        keep=True,
    )
