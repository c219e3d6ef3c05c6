"""Whether a TCPLoadBalancer can be served at all: an ordered tuple of named predicates, which is the spec.

Each checks one thing and returns a refusal, or None. The first refusal is the one that the user reads. A refused
object keeps what it had: its last accepted version stays in force.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairlead.api.cidrs import parse_cidr
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.tcploadbalancer import Origin, TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.keys import IPV6, family_of, requested_addresses
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.translate.conditions import refused
from fairlead.translate.families import FamilySpec, families_problem
from fairlead.translate.member import owner_of
from fairlead.translate.places import not_for_tenant, place_problem
from fairlead.translate.view import MemberView, TCPView

Refusal = tuple[ConditionReason, str]


def validate_tcp(view: TCPView, spec: TCPLoadBalancerSpec) -> Condition | None:
    """Return condition Accepted with the first reason why ``spec`` cannot be served, None when there is none."""
    capabilities = view.capabilities
    if capabilities is None:
        return refused(ConditionReason.NO_SUCH_CLASS, f"spec.className: {no_provider(view, spec)}")
    refusal = next(filter(None, (predicate(view, spec, capabilities) for predicate in _PREDICATES)), None)
    return refused(*refusal) if refusal else None


class MemberSpec(FamilySpec, Protocol):
    """The common part of the specs of load balancers of members."""

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for."""
        ...

    @property
    def origin(self) -> Origin:
        """Return the object in the member that it says it is for."""
        ...


def no_provider(view: MemberView, spec: MemberSpec) -> str:
    """Return why this hub has no provider for the class of ``spec``."""
    if view.load_balancer_class is None:
        return f"there is no LoadBalancerClass {spec.class_name!r} at the hub; kubectl get lbc lists those there"
    name, provider = view.load_balancer_class.metadata.name, view.provider
    if problem := view.provider_problems.get(provider):
        return f"LoadBalancerClass {name!r}: {problem}"
    running = ", ".join(sorted(view.providers)) or "none"
    return f"LoadBalancerClass {name!r} names provider {provider!r}, which this hub does not run (it runs: {running})"


def class_takes_new(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Refusal | None:
    """Refuse a class that accepts nothing new."""
    wanted, accepted = view.load_balancer_class, view.accepted_class_name
    if wanted is None or not wanted.closed:
        return None
    if accepted is not None and (accepted or DEFAULT_CLASS) == wanted.metadata.name:
        return None
    return (ConditionReason.CLASS_DRAINING, f"spec.className: {wanted.closed}")


def class_is_for_it(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Refusal | None:
    """Refuse a class that is not for the member, or that cannot keep members apart."""
    wanted = view.load_balancer_class
    if wanted is None:
        return None
    owner = owner_of(view, view.load_balancer.metadata, spec.origin)
    problem = not_for_tenant(wanted, view.tenant) or place_problem(
        wanted, view.tenant, owner, capabilities.place_parameters
    )
    return (ConditionReason.CLASS_NOT_USABLE, f"spec.className: {problem}") if problem else None


def within_quota(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Refusal | None:
    """Refuse what exceeds the quota of the Tenant."""
    return (ConditionReason.QUOTA_EXCEEDED, view.over_quota) if view.over_quota else None


def _has_ports(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    if not spec.ports:
        return (ConditionReason.INVALID, "spec.ports: at least one port is needed")
    seen: set[tuple[str, int]] = set()
    for port in spec.ports:
        if (port.protocol, port.port) in seen:
            return (ConditionReason.PORT_CONFLICT, f"spec.ports: {port.protocol}/{port.port} is there twice")
        seen.add((port.protocol, port.port))
    return None


def _protocols_supported(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    for port in spec.ports:
        if TransportProtocol(port.protocol) not in capabilities.protocols:
            return (
                ConditionReason.UNSUPPORTED_PROTOCOL,
                f"spec.ports: {port.protocol}/{port.port}: this class has no {port.protocol}",
            )
    return None


def _node_ports_allocated(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    if spec.targets != "Node":
        return None
    missing = [f"{port.protocol}/{port.port}" for port in spec.ports if not port.node_port]
    if not missing:
        return None
    return (
        ConditionReason.NODE_PORT_MISSING,
        f"spec.ports: {', '.join(missing)} has no nodePort, and backends are nodes; leave the Service's "
        "allocateLoadBalancerNodePorts unset, or ask for pods with annotation fairlead.dev/target: Pod",
    )


def _source_ranges_valid(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    if spec.load_balancer_source_ranges and not capabilities.source_ranges:
        return (ConditionReason.INVALID, "spec.loadBalancerSourceRanges: this class cannot restrict sources")
    for text in spec.load_balancer_source_ranges:
        cidr = parse_cidr(text)
        if cidr is None:
            return (
                ConditionReason.INVALID,
                f"spec.loadBalancerSourceRanges: {text!r} is not a CIDR such as 10.0.0.0/8",
            )
        if cidr.network.version != 4 and not capabilities.ipv6:
            return (
                ConditionReason.UNSUPPORTED_ADDRESS_FAMILY,
                f"spec.loadBalancerSourceRanges: {text!r} is IPv6, which this class does not serve",
            )
    return None


def _features_supported(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    if spec.session_affinity == "ClientIP" and not capabilities.affinity:
        return (ConditionReason.INVALID, "spec.sessionAffinity: this class has no session affinity; use None")
    if spec.proxy_protocol and not capabilities.proxy_protocol:
        return (ConditionReason.INVALID, "spec.proxyProtocol: this class cannot send the PROXY protocol")
    if spec.proxy_protocol and all(port.protocol == "UDP" for port in spec.ports):
        return (ConditionReason.INVALID, "spec.proxyProtocol: there is no TCP port that could carry it")
    return None


def requested_address_valid(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Refusal | None:
    """Refuse an address that the class cannot give."""
    if not spec.address:
        return None
    requested = requested_addresses(spec.address)
    families = [family_of(address) for address in requested]
    if None in families or not requested:
        wrong = next((address for address in requested if family_of(address) is None), spec.address)
        return (ConditionReason.ADDRESS_NOT_USABLE, f"spec.address: {wrong!r} is not an IP address")
    if len(set(families)) < len(families):
        return (
            ConditionReason.ADDRESS_NOT_USABLE,
            f"spec.address: {spec.address} has two addresses of one family; name one of each",
        )
    if IPV6 in families and not capabilities.ipv6:
        return (
            ConditionReason.UNSUPPORTED_ADDRESS_FAMILY,
            f"spec.address: {spec.address} is IPv6, which this class does not serve",
        )
    given = requested_addresses(view.behaviour.parameters.get("address", ""))
    if capabilities.allocation is AllocationKind.NONE and not set(requested) <= set(given):
        return (
            ConditionReason.ADDRESS_NOT_USABLE,
            f"spec.address: the hub gives none to LoadBalancerClass {spec.class_name!r}; leave spec.address empty",
        )
    return None


def families_served(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Refusal | None:
    """Refuse families that contradict each other, or that the class does not serve."""
    problem = families_problem(spec, ipv6=capabilities.ipv6)
    return (ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, problem) if problem else None


#: The order is the order in which a person would check.
_PREDICATES: tuple[Callable[[TCPView, TCPLoadBalancerSpec, Capabilities], Refusal | None], ...] = (
    class_takes_new,
    class_is_for_it,
    _has_ports,
    _protocols_supported,
    _node_ports_allocated,
    _source_ranges_valid,
    _features_supported,
    families_served,
    requested_address_valid,
    within_quota,
)
