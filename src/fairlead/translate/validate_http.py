"""Whether an HTTPLoadBalancer can be served at all: named predicates, as for TCPLoadBalancers (``validate``).

Conflicts between listeners are decided in the member, with conditions on the user's objects; here they are refused,
because any client may have written the object.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.model.http import hostname_problem
from fairlead.model.keys import Protocol
from fairlead.translate.conditions import refused
from fairlead.translate.validate import (
    Refusal,
    class_is_for_it,
    class_takes_new,
    families_served,
    no_provider,
    requested_address_valid,
    within_quota,
)
from fairlead.translate.view import HTTPView

#: An Envoy needs 1.5 ms of its main thread for each.
_MAX_CERTIFICATES = 2_048
#: What may share a port, distinguished by hostname.
_SHARED = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS"}


def validate_http(view: HTTPView, spec: HTTPLoadBalancerSpec) -> Condition | None:
    """Return condition Accepted with the first reason why ``spec`` cannot be served, None when there is none."""
    capabilities = view.capabilities
    if capabilities is None:
        return refused(ConditionReason.NO_SUCH_CLASS, f"spec.className: {no_provider(view, spec)}")
    refusal = next(filter(None, (predicate(view, spec, capabilities) for predicate in _PREDICATES)), None)
    return refused(*refusal) if refusal else None


def _class_serves_http(view: HTTPView, spec: HTTPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    if capabilities.l7:
        return None
    return (
        ConditionReason.UNSUPPORTED_PROTOCOL,
        f"spec.className: LoadBalancerClass {spec.class_name!r} balances connections only; use one with provider envoy",
    )


def _listeners_distinct(view: HTTPView, spec: HTTPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    shared: dict[tuple[int, bool], str] = {}
    seen: set[tuple[int, str, str]] = set()
    names: set[str] = set()
    for each in spec.listeners:
        if each.name in names:
            return (ConditionReason.INVALID, f"spec.listeners: {each.name} is there twice")
        names.add(each.name)
        kind = _SHARED.get(each.protocol, each.protocol)
        port = f"{each.protocol}/{each.port}"
        # TCP and UDP have port numbers of their own.
        if shared.setdefault((each.port, kind == "UDP"), kind) != kind:
            return (
                ConditionReason.PORT_CONFLICT,
                f"spec.listeners: {port} of {each.name} is open for another protocol",
            )
        if (each.port, kind, each.hostname) in seen:
            host = each.hostname or "any host"
            return (ConditionReason.PORT_CONFLICT, f"spec.listeners: {port} of {each.name} is there twice for {host}")
        seen.add((each.port, kind, each.hostname))
    return None


def _certificates_few(view: HTTPView, spec: HTTPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    count = sum(len(each.certificates) for each in spec.listeners)
    if count <= _MAX_CERTIFICATES:
        return None
    message = (
        f"spec.listeners: certificates are named {count:,} times, and the limit of one load balancer is "
        f"{_MAX_CERTIFICATES:,}. Use fewer, or several load balancers"
    )
    return (ConditionReason.INVALID, message)


def _hostnames_valid(view: HTTPView, spec: HTTPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    for each in spec.listeners:
        if problem := hostname_problem(each.hostname):
            return (ConditionReason.INVALID, f"spec.listeners: hostname of {each.name}: {problem}")
    return None


def _protocols_supported(view: HTTPView, spec: HTTPLoadBalancerSpec, capabilities: Capabilities) -> Refusal | None:
    if Protocol.UDP in capabilities.protocols or all(each.protocol != "UDP" for each in spec.listeners):
        return None
    return (ConditionReason.UNSUPPORTED_PROTOCOL, "spec.listeners: this class has no UDP")


#: The order is the order in which a person would check.
_PREDICATES: tuple[Callable[[HTTPView, HTTPLoadBalancerSpec, Capabilities], Refusal | None], ...] = (
    class_takes_new,
    class_is_for_it,
    _class_serves_http,
    _listeners_distinct,
    _certificates_few,
    _hostnames_valid,
    _protocols_supported,
    families_served,
    requested_address_valid,
    within_quota,
)
