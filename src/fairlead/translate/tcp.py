"""A TCPLoadBalancer and all that belongs to it become one desired load balancer.

    valid, address allocated             -> as its spec says
    refused, or no address; accepted     -> as it was last accepted, with the class and allocation of that version
    refused, or no address; never        -> nothing

In: a ``TCPView``. Out: ``Decision``. Never: a deletion; a view exists only for what is to exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlead.api.cidrs import parse_cidr
from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.names import LABEL_ORIGIN_UID, label_value
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.desired import Affinity, FrontendSpec, Listener, ProxyProtocol, Targets
from fairlead.model.keys import IPV4, IPV6, Family, ListenerKey, Protocol, TargetKey
from fairlead.translate.conditions import build_accepted, build_paused, build_protected, no_ready, resolved, unresolved
from fairlead.translate.endpoints import (
    Admission,
    EndpointState,
    by_port,
    in_service,
    owner_of_endpoints,
    states_from_slices,
    targets_from_nodes,
    targets_from_states,
)
from fairlead.translate.member import (
    as_accepted,
    as_recorded,
    build_stale,
    count_targets,
    desired_load_balancer,
    frontend_at_allocation,
    leads_to_load_balancers,
    not_admitted,
    nothing_to_serve,
    target_policy,
    version_to_serve,
    without_load_balancers,
)
from fairlead.translate.nodes import addresses_in, local_addresses, node_families, nodes_from_slices, without_family
from fairlead.translate.validate import validate_tcp
from fairlead.translate.view import Allocated, Decision, NodeAddresses, TCPView

#: What is shown in place of a count where the targets are the member's nodes.
NODES = "nodes"


def decide_tcp(view: TCPView, allocate: Callable[[TCPView], Allocated] = as_recorded) -> Decision:
    """Return the desired load balancer of ``view``, with its conditions; ``allocate`` is called once it is valid."""
    spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
    served, refusal, allocation = version_to_serve(view, validate_tcp(view, spec), accepted, allocate)
    if served is None:
        return nothing_to_serve(view, refusal, allocation)
    version = accepted if refusal is not None and accepted is not None else spec
    return _served(served, version, refusal, allocation)


def recorded_tcp(view: TCPView) -> Decision | None:
    """Return what is on record as it is served, whatever the present spec asks for; None when nothing is."""
    accepted, served = view.load_balancer.status.accepted, as_accepted(view)
    if accepted is None or served is None:
        return None
    obj = msgspec.structs.replace(view.load_balancer, spec=accepted)
    return _served(msgspec.structs.replace(served, load_balancer=obj), accepted, None, served.allocation)


def _served(view: TCPView, spec: TCPLoadBalancerSpec, refusal: Condition | None, allocation: Allocation) -> Decision:
    admission = Admission(target_policy(view))
    loop_targets: set[TargetKey] = set()
    targets = without_load_balancers(view, _targets(view, spec, admission), loop_targets)
    paused = build_paused(view.load_balancer, view.load_balancer_class)
    conditions = (
        build_accepted(refusal),
        leads_to_load_balancers(view, loop_targets) or _resolved(view, spec, targets, admission),
        build_stale(view, nodes=_node_families(view, spec) if spec.targets == "Node" else ()),
        paused,
        build_protected(view.load_balancer),
    )
    desired = desired_load_balancer(view, _frontend(view, spec), targets, paused=paused is not None)
    if spec.targets != "Node" and (owner := _owner(view)):
        desired = msgspec.structs.replace(desired, owners=dict.fromkeys(targets, frozenset({owner})))
    return Decision(
        desired,
        tuple(filter(None, conditions)),
        targets=_count(spec, targets),
        provider=view.provider,
        serving_last_accepted=refusal is not None,
        allocation=allocation,
    )


def _frontend(view: TCPView, spec: TCPLoadBalancerSpec) -> FrontendSpec:
    listeners = (Listener(port.port, Protocol(port.protocol), port.name) for port in spec.ports)
    in_order = sorted(listeners, key=lambda listener: (listener.port, listener.protocol))
    return msgspec.structs.replace(
        frontend_at_allocation(view, spec, in_order, view.load_balancer.spec.origin),
        source_ranges=_canonical_ranges(spec.load_balancer_source_ranges),
        affinity=Affinity(spec.session_affinity),
        proxy_protocol=ProxyProtocol(spec.proxy_protocol),
        local_traffic_only=spec.external_traffic_policy == "Local",
    )


def _targets(view: TCPView, spec: TCPLoadBalancerSpec, admission: Admission) -> dict[ListenerKey, Targets]:
    keys = {ListenerKey(Protocol(port.protocol), port.port): port for port in spec.ports}
    if view.member.drained:
        return {key: {} for key in keys}
    if spec.targets != "Node":
        uid = view.load_balancer.spec.origin.uid
        slices = by_port(each for each in view.slices if each.label(LABEL_ORIGIN_UID) in {"", label_value(uid)})
        owner = _owner(view)
        at = {key: slices.get((port.name, port.protocol), ()) for key, port in keys.items()}
        if spec.targets == "Pod":
            return {key: _targets_of_pods(spec, at[key], admission, owner) for key in keys}
        families = _node_families(view, spec)
        return {key: _targets_at_addresses(families, at[key], admission, owner) for key in keys}
    families = _node_families(view, spec)
    local = spec.external_traffic_policy == "Local"
    addresses = local_addresses(view.slices, view.nodes, families) if local else addresses_in(view.nodes, families)
    return {key: targets_from_nodes(addresses, port.node_port, admission) for key, port in keys.items()}


def _owner(view: TCPView) -> str:
    origin = view.load_balancer.spec.origin
    return owner_of_endpoints(f"{origin.namespace}/{origin.name}", origin.uid)


def _nodes(view: TCPView, spec: TCPLoadBalancerSpec) -> NodeAddresses:
    """Return the member's nodes, or those that a region lists; addresses without a name are a cloud's."""
    if spec.targets != "Address":
        return view.nodes
    return nodes_from_slices(each for each in view.slices if all(at.node_name for at in each.endpoints or ()))


def _node_families(view: TCPView, spec: TCPLoadBalancerSpec) -> tuple[Family, ...]:
    """Return the families in which nodes are reached; none where pods are the targets."""
    return node_families(spec.ip_families, ipv6=target_policy(view).ipv6) if spec.targets != "Pod" else ()


def _targets_at_addresses(
    families: tuple[Family, ...], slices: Sequence[tuple[EndpointSlice, int]], admission: Admission, owner: str
) -> Targets:
    """Return the targets that are a region's nodes, each in the first of ``families`` that it has, or a cloud's."""
    states: dict[TargetKey, EndpointState] = {}
    reached: set[str | None] = set()
    for family in families:
        of_family = (each for each in slices if each[0].address_type in {family, "FQDN"})
        states |= states_from_slices(of_family, admission, reached)
    return targets_from_states(states, owner)


def _targets_of_pods(
    spec: TCPLoadBalancerSpec, slices: Sequence[tuple[EndpointSlice, int]], admission: Admission, owner: str
) -> Targets:
    """Return the targets of one family: a pod of a dual-stack Service is in slices of both, and counts once."""
    if not spec.ip_families:
        return targets_from_states(states_from_slices(slices, admission), owner)
    states: dict[TargetKey, EndpointState] = {}
    for family in dict.fromkeys((*spec.ip_families, IPV4, IPV6)):
        other = IPV4 if family == IPV6 else IPV6
        of_family = (each for each in slices if each[0].address_type != other)
        states |= states_from_slices(of_family, admission)
        if in_service(states):
            break
    return targets_from_states(states, owner)


def _canonical_ranges(ranges: list[str]) -> tuple[str, ...]:
    return tuple(sorted({str(cidr.network) for text in ranges if (cidr := parse_cidr(text)) is not None}))


def _resolved(
    view: TCPView, spec: TCPLoadBalancerSpec, targets: Mapping[ListenerKey, Targets], admission: Admission
) -> Condition:
    if view.unreadable:
        return unresolved(ConditionReason.INVALID, view.unreadable)
    if problem := not_admitted(admission):
        return problem
    if problem := without_family(_nodes(view, spec), _node_families(view, spec)):
        return problem
    empty = sorted(str(key) for key, by_key in targets.items() if all(target.draining for target in by_key.values()))
    if empty:
        noun = "node" if spec.targets == "Node" else "endpoint"
        return unresolved(ConditionReason.BACKEND_NOT_FOUND, no_ready(noun, ", ".join(empty)))
    return resolved()


def _count(spec: TCPLoadBalancerSpec, targets: Mapping[ListenerKey, Targets]) -> str:
    """Return "ready/total" of distinct targets, "nodes" where targets are nodes.

    Nodes belong to the member: counting them would turn each new node into a status write for every load balancer.
    """
    if spec.targets == "Node":
        return NODES
    return count_targets(targets)
