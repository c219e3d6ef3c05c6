"""A Service as a load balancer at a hub: its spec, or why it cannot have one.

In: a Service, and what its translation has decided (class, kind of backends, address). Out: the spec, or ``Refused``.
Pure. Never decides which backends there are.
"""

from __future__ import annotations

from typing import cast

import msgspec

from fairlead.api.intent import FamilyPolicy
from fairlead.api.kubernetes import EndpointSlice, Service, ServicePort
from fairlead.api.names import ANNOTATION_TARGET
from fairlead.api.tcploadbalancer import (
    LoadBalancerPort,
    Origin,
    ProtocolName,
    TargetType,
    TCPLoadBalancer,
    TCPLoadBalancerSpec,
)
from fairlead.model.condition import ConditionReason
from fairlead.model.families import IPV4, IPV6, Family

_PROTOCOLS = frozenset({"TCP", "UDP"})


class Publication(msgspec.Struct, frozen=True):
    """Desired objects of one origin. ``slices`` None: those that are present stay, whatever they are."""

    load_balancer: TCPLoadBalancer
    slices: tuple[EndpointSlice, ...] | None


class Refused(msgspec.Struct, frozen=True):
    """An origin asks for a load balancer and cannot have one as it stands; ``sentence`` says what to do instead.

    ``keep``: what was published before stays (a wrong value must not take down what works); otherwise it goes, because
    the Service has become something that no longer has a load balancer.
    """

    reason: ConditionReason
    sentence: str
    keep: bool = True


def sorted_ports(service: Service) -> list[ServicePort]:
    """Return the ports of a Service in canonical order."""
    return sorted(service.spec.ports or (), key=lambda port: (port.port, port.protocol))


def refused_ports(service: Service, *, by_node_port: bool) -> Refused | None:
    """Return why the ports of a Service cannot be balanced; ``by_node_port``: its backends are nodes."""
    ports = sorted_ports(service)
    if not ports:
        return Refused(ConditionReason.INVALID, "the Service has no ports: add one to spec.ports.")
    for port in ports:
        if port.protocol not in _PROTOCOLS:
            sentence = f"port {port.port} asks for {port.protocol}: Fairlead balances TCP and UDP."
            return Refused(ConditionReason.UNSUPPORTED_PROTOCOL, sentence)
    missing = [str(port.port) for port in service.spec.ports or () if by_node_port and not port.node_port]
    if missing:
        return Refused(
            ConditionReason.NODE_PORT_MISSING,
            f"port {', '.join(missing[:5])} has no nodePort, and the backends are nodes: set annotation "
            f"{ANNOTATION_TARGET}: Pod, or remove allocateLoadBalancerNodePorts: false.",
        )
    return None


def families_of(service: Service) -> tuple[Family, ...]:
    """Return the families of a Service in its own order; IPv4 where an older API server says nothing."""
    known: dict[str, Family] = {IPV4: IPV4, IPV6: IPV6}
    return tuple(known[each] for each in service.spec.ip_families or () if each in known) or (IPV4,)


def written_families(families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Return families as they are published: IPv4 alone is not written."""
    return families if families != (IPV4,) else ()


def spec_from_service(
    service: Service,
    *,
    origin: Origin,
    class_name: str,
    targets: TargetType,
    source_ranges: tuple[str, ...],
    proxy_protocol: str,
    address: str,
    region: str = "",
    hostnames: tuple[str, ...] = (),
    generate_hostname: bool = False,
    families: tuple[Family, ...] = (),
) -> TCPLoadBalancerSpec:
    """Return the spec of the TCPLoadBalancer of a Service whose ports are not refused; IPv4 alone is not written."""
    ports = [
        LoadBalancerPort(
            port=port.port,
            name=port.name,
            protocol=cast("ProtocolName", port.protocol),
            # Of no use to other targets, and it would make two writes of one change.
            node_port=port.node_port if targets == "Node" else 0,
        )
        for port in sorted_ports(service)
    ]
    return TCPLoadBalancerSpec(
        ports=ports,
        class_name=class_name,
        targets=targets,
        external_traffic_policy="Local" if service.spec.external_traffic_policy == "Local" else "Cluster",
        session_affinity="ClientIP" if service.spec.session_affinity == "ClientIP" else "None",
        load_balancer_source_ranges=list(source_ranges),
        proxy_protocol="v1" if proxy_protocol == "v1" else "v2" if proxy_protocol == "v2" else "",
        address=address,
        ip_families=written_families(families),
        ip_family_policy=_family_policy(service) if len(families) > 1 else "",
        region=region,
        hostnames=list(hostnames),
        generate_hostname=generate_hostname,
        origin=origin,
    )


def _family_policy(service: Service) -> FamilyPolicy:
    return "RequireDualStack" if service.spec.ip_family_policy == "RequireDualStack" else "PreferDualStack"
