"""A Service as a load balancer at a hub: its options, its spec, or why it cannot have one.

In: a Service, and what its source has decided (class, kind of backends). Out: ``ServiceOptions``, the spec, or
``Refused`` with the exact value that is invalid. Pure. Never: decides which backends there are, or guesses a value: an
invalid value is refused, and what was published before is kept.
"""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from fairlead.api.cidrs import IPNetwork, parse_cidr
from fairlead.api.hostname import host_problem
from fairlead.api.intent import FamilyPolicy
from fairlead.api.kubernetes import EndpointSlice, Service, ServicePort
from fairlead.api.names import (
    ANNOTATION_HOSTNAME,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_TARGET,
    did_you_mean,
)
from fairlead.api.tcploadbalancer import (
    LoadBalancerPort,
    Origin,
    ProtocolName,
    TargetType,
    TCPLoadBalancer,
    TCPLoadBalancerSpec,
)
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import IPV4, IPV6, Family, family_of, requested_addresses

_PROTOCOLS = frozenset({"TCP", "UDP"})


class Publication(msgspec.Struct, frozen=True):
    """Desired objects of one origin. ``slices`` None: those that are present stay, whatever they are."""

    load_balancer: TCPLoadBalancer
    slices: tuple[EndpointSlice, ...] | None


class Refused(msgspec.Struct, frozen=True):
    """An origin requests a load balancer and cannot have one; ``sentence`` says what to do instead.

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


#: Kubernetes' own, older spelling of ``spec.loadBalancerSourceRanges``; counts only when that field is empty.
ANNOTATION_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"

#: The annotations that ``read_options`` reads.
OPTION_ANNOTATIONS = frozenset(
    {
        ANNOTATION_HOSTNAME,
        ANNOTATION_PROXY_PROTOCOL,
        ANNOTATION_REQUESTED_ADDRESS,
        ANNOTATION_SOURCE_RANGES,
        ANNOTATION_TARGET,
    }
)

#: In the annotation for names: the hub is to make one.
GENERATE = "generate"
MAX_HOSTNAMES = 32

TargetOption = Literal["", "Node", "Pod"]


class ServiceOptions(msgspec.Struct, frozen=True):
    """Options of a Service. ``source_ranges`` are canonical CIDRs of its families, sorted; empty means any source.

    ``hostnames`` are DNS names, sorted; ``generate_hostname`` asks for one in the member's domain. ``warnings`` name
    the source ranges that are accepted, and ambiguous.
    """

    target: TargetOption = ""
    proxy_protocol: str = ""
    address: str = ""
    source_ranges: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    generate_hostname: bool = False
    warnings: tuple[str, ...] = ()


def read_options(service: Service, *, of_cloud: bool = False) -> ServiceOptions | Refused:
    """Read the annotations and fields of ``service`` that concern us.

    ``of_cloud``: the member's own cloud serves it too, so that spec.loadBalancerIP is for that load balancer.
    """
    try:
        return _options(service, of_cloud=of_cloud)
    except _InvalidOptionError as error:
        return error.refused


class _InvalidOptionError(Exception):
    """An option that refuses the whole Service; ``read_options`` returns why."""

    def __init__(self, reason: ConditionReason, sentence: str) -> None:
        super().__init__(sentence)
        self.refused = Refused(reason, sentence)


def _options(service: Service, *, of_cloud: bool) -> ServiceOptions:
    target = service.annotation(ANNOTATION_TARGET)
    if target not in {"", "Node", "Pod"}:
        raise _wrong(f"annotation {ANNOTATION_TARGET}", target, "Node or Pod", did_you_mean(target, ("Node", "Pod")))
    proxy_protocol = service.annotation(ANNOTATION_PROXY_PROTOCOL)
    if proxy_protocol not in {"", "v1", "v2"}:
        hint = did_you_mean(proxy_protocol, ("v1", "v2"))
        raise _wrong(f"annotation {ANNOTATION_PROXY_PROTOCOL}", proxy_protocol, "v1 or v2", hint)
    address = _address(service, of_cloud=of_cloud)
    warnings: list[str] = []
    ranges = _source_ranges(service, warnings)
    hostnames = _hostnames(service)
    return ServiceOptions(
        target=cast("TargetOption", target),
        proxy_protocol=proxy_protocol,
        address=address,
        source_ranges=ranges,
        hostnames=tuple(sorted(hostnames - {GENERATE})),
        generate_hostname=GENERATE in hostnames,
        warnings=tuple(warnings),
    )


def _hostnames(service: Service) -> frozenset[str]:
    where = f"annotation {ANNOTATION_HOSTNAME}"
    names = frozenset(filter(None, (text.strip() for text in service.annotation(ANNOTATION_HOSTNAME).split(","))))
    for name in sorted(names):
        if problem := host_problem(name, wildcard=True):
            raise _InvalidOptionError(
                ConditionReason.HOSTNAME_INVALID, f"{where}: invalid DNS name {name!r}: {problem}."
            )
    if len(names) > MAX_HOSTNAMES:
        sentence = f"{where} has {len(names)} names: {MAX_HOSTNAMES} are allowed, use another Service for the others."
        raise _InvalidOptionError(ConditionReason.HOSTNAME_INVALID, sentence)
    return names


def _address(service: Service, *, of_cloud: bool) -> str:
    by_field = "" if of_cloud else service.spec.load_balancer_ip
    by_annotation = service.annotation(ANNOTATION_REQUESTED_ADDRESS)
    text = (by_annotation or by_field).strip()
    if not text:
        return ""
    where = f"annotation {ANNOTATION_REQUESTED_ADDRESS}" if by_annotation else "spec.loadBalancerIP"
    addresses, families = requested_addresses(text), families_of(service)
    by_address = [family_of(address) for address in addresses]
    if not addresses or None in by_address or len(set(by_address)) < len(by_address):
        raise _wrong(where, text, "an IP address, or one of each family such as 192.0.2.10,2001:db8::10")
    if other := next((each for each in addresses if family_of(each) not in families), ""):
        sentence = (
            f"{where} is {text!r}: {other} is not of {' or '.join(families)}, the spec.ipFamilies of this Service. "
            "Request an address of these, or add the other family (spec.ipFamilyPolicy: PreferDualStack)."
        )
        raise _InvalidOptionError(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, sentence)
    return ",".join(addresses)


def _source_ranges(service: Service, warnings: list[str]) -> tuple[str, ...]:
    """Return the canonical source ranges; adds to ``warnings`` what is ambiguous about them."""
    where, values = "spec.loadBalancerSourceRanges", [*(service.spec.load_balancer_source_ranges or ())]
    if not values:
        where, values = (
            f"annotation {ANNOTATION_SOURCE_RANGES}",
            service.annotation(ANNOTATION_SOURCE_RANGES).split(","),
        )
    networks: set[IPNetwork] = set()
    families, ignored = families_of(service), ""
    for value in (text.strip() for text in values):
        if not value:
            continue
        cidr = parse_cidr(value)
        if cidr is None:
            raise _wrong(where, value, "a CIDR such as 203.0.113.0/24")
        network = cidr.network
        if cidr.warnings:
            warnings.append(f"{where} has {value!r}, which is read as {network}: write it so, or correct it.")
        if family_of(str(network.network_address)) in families:
            networks.add(network)
        else:
            ignored = value
    if ignored and not networks:
        # Dropping it would leave an empty list, which means any source: the opposite of what is asked.
        family = " or ".join(families)
        sentence = f"{where} has no range of {family}, the spec.ipFamilies of this Service ({ignored!r}): add one."
        raise _InvalidOptionError(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, sentence)
    return tuple(str(network) for network in sorted(networks, key=_order))


def _order(network: IPNetwork) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen


def _wrong(where: str, value: str, allowed: str, hint: str = "") -> _InvalidOptionError:
    return _InvalidOptionError(ConditionReason.INVALID, f"{where} is {value!r}: it must be {allowed}.{hint}")
