"""A TCPLoadBalancer and all that belongs to it become one desired load balancer.

    valid, address allocated             -> as its spec says
    refused, or no address; accepted     -> as it was last accepted, with the class and allocation of that version
    refused, or no address; never        -> nothing

In: a ``TCPView``. Out: ``Translation``. Never: a deletion; a view exists only for what is to exist.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import msgspec

from fairlead.api.durations import seconds_from_duration
from fairlead.api.intent import Allocation
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import (
    Affinity,
    DesiredLoadBalancer,
    FrontendSpec,
    GuardPolicy,
    Listener,
    Owner,
    ProxyProtocol,
    Targets,
)
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
from fairlead.translate.class_behaviour import guard_from_class, health_check_from_class, repair_s
from fairlead.translate.conditions import (
    build_accepted,
    build_paused,
    build_unprogrammed,
    first_three,
    resolved,
    unresolved,
)
from fairlead.translate.endpoints import (
    IPNetwork,
    TargetPolicy,
    local_nodes,
    targets_from_nodes,
    targets_from_slices,
)
from fairlead.translate.protection import build_protected
from fairlead.translate.validate import validate_tcp
from fairlead.translate.view import TCPView, Translation


def translate_tcp(view: TCPView) -> Translation:
    """Return what ``view`` should be."""
    spec = view.load_balancer.spec
    refusal = validate_tcp(view, spec)
    problem = view.allocation_problem if refusal is None else None
    if refusal is not None or problem is not None:
        accepted = view.load_balancer.status.accepted
        if accepted is None or view.accepted_class is None:
            unprogrammed = problem if refusal is None else build_unprogrammed(refusal)
            conditions = (refusal or build_accepted(None), unprogrammed)
            return Translation(None, tuple(filter(None, conditions)), provider=view.class_spec.provider)
        spec = accepted
        view = msgspec.structs.replace(
            view, load_balancer_class=view.accepted_class, allocation=view.load_balancer.status.allocation
        )
    refused: set[str] = set()
    targets = _targets(view, spec, refused)
    paused = build_paused(view.load_balancer, view.load_balancer_class)
    conditions = (
        build_accepted(refusal),
        _resolved(spec, targets, refused),
        problem,
        _stale(view, spec),
        paused,
        build_protected(view.load_balancer),
    )
    return Translation(
        _desired(view, spec, targets, paused=paused is not None),
        tuple(filter(None, conditions)),
        targets=_count(spec, targets),
        provider=view.class_spec.provider,
        serving_last_accepted=spec is not view.load_balancer.spec,
    )


def _desired(
    view: TCPView, spec: TCPLoadBalancerSpec, targets: Mapping[ListenerKey, Targets], *, paused: bool
) -> DesiredLoadBalancer:
    class_spec = view.class_spec
    return DesiredLoadBalancer(
        spec=_frontend(view, spec),
        targets=targets,
        drain_s=seconds_from_duration(class_spec.drain),
        # Draining a member is the operator's intention; the guard protects from accidents only.
        guard=GuardPolicy(100, 0) if view.member.drained else guard_from_class(class_spec),
        stale=view.stale,
        repair_s=repair_s(class_spec.ensure_policy),
        paused=paused,
    )


def _frontend(view: TCPView, spec: TCPLoadBalancerSpec) -> FrontendSpec:
    # While it moves from one provider to another, what was allocated may be for the other one.
    needs_none = view.capabilities is not None and view.capabilities.allocation is AllocationKind.NONE
    allocation = Allocation() if needs_none else view.allocation
    proxy_ports = {(port.protocol, port.port): port.proxy_port for port in allocation.ports}
    listeners = (
        Listener(port.port, Protocol(port.protocol), port.name, proxy_ports.get((port.protocol, port.port), 0))
        for port in spec.ports
    )
    return FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(sorted(listeners, key=lambda listener: (listener.port, listener.protocol))),
        address=allocation.address,
        source_ranges=_canonical_ranges(spec.load_balancer_source_ranges),
        affinity=Affinity(spec.session_affinity),
        proxy_protocol=ProxyProtocol(spec.proxy_protocol),
        health_check=health_check_from_class(view.class_spec),
        parameters=dict(sorted(view.class_spec.parameters.items())),
        owner=_owner(view),
        local_traffic_only=spec.external_traffic_policy == "Local",
    )


def _targets(view: TCPView, spec: TCPLoadBalancerSpec, refused: set[str]) -> dict[ListenerKey, Targets]:
    keys = {ListenerKey(Protocol(port.protocol), port.port): port for port in spec.ports}
    if view.member.drained:
        return {key: {} for key in keys}
    policy = _target_policy(view)
    if spec.targets != "Node":
        return {key: targets_from_slices(view.slices, port, policy, refused) for key, port in keys.items()}
    local = spec.external_traffic_policy == "Local"
    nodes = local_nodes(view.slices, view.nodes) if local else view.nodes.ready
    return {key: targets_from_nodes(nodes, port.node_port, policy, refused) for key, port in keys.items()}


def _target_policy(view: TCPView) -> TargetPolicy:
    capabilities = view.capabilities
    return TargetPolicy(
        ranges=tuple(map(_range, view.tenant.spec.target_ranges if view.tenant else ())),
        loopback=view.loopback_targets,
        host_names=capabilities is not None and capabilities.host_name_targets,
        ipv6=capabilities is not None and capabilities.ipv6,
    )


def _range(text: str) -> IPNetwork:
    """Parse one of a Tenant's ranges; an unreadable one admits nothing, and the Tenant's own status names it."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return ipaddress.ip_network("255.255.255.255/32")


def _canonical_ranges(ranges: list[str]) -> tuple[str, ...]:
    return tuple(sorted({str(ipaddress.ip_network(text.strip(), strict=False)) for text in ranges}))


def _owner(view: TCPView) -> Owner:
    origin = view.load_balancer.spec.origin
    member = view.tenant.metadata.name if view.tenant else ""
    if origin.name:
        return Owner(member, origin.kind, origin.namespace, origin.name, origin.uid)
    meta = view.load_balancer.metadata
    return Owner(member, view.key.kind, meta.namespace, meta.name, meta.uid)


def _resolved(spec: TCPLoadBalancerSpec, targets: Mapping[ListenerKey, Targets], refused: set[str]) -> Condition:
    if refused:
        message = (
            f"{len(refused)} addresses may not be backends of this member ({first_three(refused)}); "
            "the operator admits ranges in the Tenant's spec.targetRanges"
        )
        return unresolved(ConditionReason.INVALID, message)
    empty = sorted(str(key) for key, by_key in targets.items() if all(target.draining for target in by_key.values()))
    if empty:
        what = "node" if spec.targets == "Node" else "endpoint"
        return unresolved(ConditionReason.BACKEND_NOT_FOUND, f"no ready {what} for {', '.join(empty)}")
    return resolved()


def _stale(view: TCPView, spec: TCPLoadBalancerSpec) -> Condition | None:
    if spec.targets == "Node" and view.nodes.stale:
        return Condition(ConditionType.STALE, True, ConditionReason.ALL_NODES_NOT_READY, view.nodes.stale)
    if view.member.message:
        return Condition(ConditionType.STALE, True, ConditionReason.MEMBER_LOST, view.member.message)
    return None


def _count(spec: TCPLoadBalancerSpec, targets: Mapping[ListenerKey, Targets]) -> str:
    """Return "ready/total" of distinct targets, "nodes" where targets are nodes.

    Nodes belong to the member: counting them would turn each new node into a status write for every load balancer.
    """
    if spec.targets == "Node":
        return "nodes"
    ready: dict[TargetKey, bool] = {}
    for by_key in targets.values():
        for key, target in by_key.items():
            ready[key] = ready.get(key, False) or not target.draining
    return f"{sum(ready.values())}/{len(ready)}"
