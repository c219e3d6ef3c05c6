"""A TCPLoadBalancer and all that belongs to it become one desired load balancer.

In: a ``TCPView``. Out: ``Translation``. A refused object, and one that cannot get what it asks for, is served as it was
last accepted, by the class of that version and with what is on record for it; one that was never accepted gets
nothing. Deletion is not decided here: a view exists only for what is to exist.
"""

from __future__ import annotations

import ipaddress

import msgspec

from fairlead.api.durations import seconds_from_duration
from fairlead.api.loadbalancerclass import EnsurePolicy, LoadBalancerClassSpec
from fairlead.api.names import ANNOTATION_PAUSED
from fairlead.api.tcploadbalancer import Allocation, LoadBalancerPort, TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import (
    Affinity,
    DesiredLoadBalancer,
    FrontendSpec,
    GuardPolicy,
    HealthCheck,
    Listener,
    Owner,
    ProxyProtocol,
    Target,
    Targets,
)
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
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
    """Decide what ``view`` should be."""
    spec = view.load_balancer.spec
    refusal = validate_tcp(view, spec)
    problem = view.allocation_problem if refusal is None else None
    accepted = spec
    if refusal is not None or problem is not None:
        before = view.load_balancer.status.accepted
        if before is None or view.accepted_class is None:
            provider = view.load_balancer_class.spec.provider if view.load_balancer_class else ""
            unprogrammed = problem if refusal is None else _unprogrammed(refusal)
            return Translation(None, tuple(filter(None, (refusal or _accepted(None), unprogrammed))), provider=provider)
        accepted = before
        view = msgspec.structs.replace(
            view, load_balancer_class=view.accepted_class, allocation=view.load_balancer.status.allocation
        )
    provider = _class_spec(view).provider
    refused: set[str] = set()
    targets = _targets(view, accepted, refused)
    desired = _desired(view, accepted, targets)
    conditions = [_accepted(refusal), _resolved(accepted, targets, refused)]
    if problem is not None:
        conditions.append(problem)
    stale = view.nodes.stale if accepted.targets == "Node" else ""
    if stale:
        conditions.append(Condition(ConditionType.STALE, True, ConditionReason.ALL_NODES_NOT_READY, stale))
    elif view.member.message:
        conditions.append(Condition(ConditionType.STALE, True, ConditionReason.MEMBER_LOST, view.member.message))
    if desired.paused:
        message = f"annotation {ANNOTATION_PAUSED} is set; nothing is changed or removed until it is taken away"
        conditions.append(Condition(ConditionType.PAUSED, True, ConditionReason.PAUSED_BY_USER, message))
    if (protected := build_protected(view.load_balancer)) is not None:
        conditions.append(protected)
    return Translation(
        desired,
        tuple(conditions),
        targets=_count(accepted, targets),
        provider=provider,
        serving_last_accepted=accepted is not spec,
    )


def _desired(view: TCPView, spec: TCPLoadBalancerSpec, targets: dict[ListenerKey, Targets]) -> DesiredLoadBalancer:
    class_spec = _class_spec(view)
    capabilities = view.providers.get(class_spec.provider)
    # While it moves from one provider to another, what was allocated may be for the other one.
    needs_none = capabilities is not None and capabilities.allocation is AllocationKind.NONE
    allocation = Allocation() if needs_none else view.allocation
    proxy_ports = {(port.protocol, port.port): port.proxy_port for port in allocation.ports}
    listeners = sorted(
        (
            Listener(port.port, Protocol(port.protocol), port.name, proxy_ports.get((port.protocol, port.port), 0))
            for port in spec.ports
        ),
        key=lambda listener: (listener.port, listener.protocol),
    )
    check = class_spec.health_check
    frontend = FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(listeners),
        address=allocation.address,
        source_ranges=_canonical_ranges(spec.load_balancer_source_ranges),
        affinity=Affinity(spec.session_affinity),
        proxy_protocol=ProxyProtocol(spec.proxy_protocol),
        health_check=None
        if check.disabled
        else HealthCheck(
            interval_s=seconds_from_duration(check.interval),
            timeout_s=seconds_from_duration(check.timeout),
            unhealthy_threshold=check.unhealthy_threshold,
            healthy_threshold=check.healthy_threshold,
        ),
        parameters=dict(sorted(class_spec.parameters.items())),
        owner=_owner(view),
        local_traffic_only=spec.external_traffic_policy == "Local",
    )
    guard = class_spec.guard
    policy = GuardPolicy(guard.max_removal_percent, guard.min_backends)
    return DesiredLoadBalancer(
        spec=frontend,
        targets=targets,
        drain_s=seconds_from_duration(class_spec.drain),
        # A member that the operator has drained on purpose is not held up by what protects from accidents.
        guard=GuardPolicy(100, 0) if view.member.drained else policy,
        stale=view.stale,
        repair_s=repair_s(class_spec.ensure_policy),
        paused=any(
            one is not None and one.annotation(ANNOTATION_PAUSED, "false") != "false"
            for one in (view.load_balancer, view.load_balancer_class)
        ),
    )


def repair_s(policy: EnsurePolicy) -> float:
    """Return how often our own entries are registered again; 0 when what was changed by hand stands."""
    return max(30.0, seconds_from_duration(policy.min_period)) if policy.policy == "Always" else 0.0


def _targets(view: TCPView, spec: TCPLoadBalancerSpec, refused: set[str]) -> dict[ListenerKey, Targets]:
    policy = _target_policy(view)
    out: dict[ListenerKey, Targets] = {}
    nodes = view.nodes.ready
    if spec.targets == "Node" and spec.external_traffic_policy == "Local":
        nodes = local_nodes(view.slices, view.nodes)
    for port in spec.ports:
        if view.member.drained:
            found: dict[TargetKey, Target] = {}
        elif spec.targets == "Node":
            found = targets_from_nodes(nodes, port.node_port, policy, refused)
        else:
            found = targets_from_slices(view.slices, port, policy, refused)
        out[_listener_key(port)] = found
    return out


def _target_policy(view: TCPView) -> TargetPolicy:
    capabilities = view.providers.get(_class_spec(view).provider)
    ranges: list[IPNetwork] = []
    for text in view.tenant.spec.target_ranges if view.tenant else ():
        try:
            ranges.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            # An unreadable range admits nothing, which is the safe side; the Tenant's own status names it.
            ranges.append(ipaddress.ip_network("255.255.255.255/32"))
    return TargetPolicy(
        ranges=tuple(ranges),
        loopback=view.loopback_targets,
        host_names=capabilities is not None and capabilities.host_name_targets,
        ipv6=capabilities is not None and capabilities.ipv6,
    )


def _class_spec(view: TCPView) -> LoadBalancerClassSpec:
    return view.load_balancer_class.spec if view.load_balancer_class else LoadBalancerClassSpec(provider="")


def _listener_key(port: LoadBalancerPort) -> ListenerKey:
    return ListenerKey(Protocol(port.protocol), port.port)


def _canonical_ranges(ranges: list[str]) -> tuple[str, ...]:
    return tuple(sorted({str(ipaddress.ip_network(text.strip(), strict=False)) for text in ranges}))


def _owner(view: TCPView) -> Owner:
    origin = view.load_balancer.spec.origin
    member = view.tenant.metadata.name if view.tenant else ""
    if origin.name:
        return Owner(member, origin.kind, origin.namespace, origin.name, origin.uid)
    meta = view.load_balancer.metadata
    return Owner(member, view.key.kind, meta.namespace, meta.name, meta.uid)


def _accepted(refusal: Condition | None) -> Condition:
    if refusal is None:
        return Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
    message = f"{refusal.message}; the last accepted version is served until then"
    return Condition(ConditionType.ACCEPTED, False, refusal.reason, message)


def _unprogrammed(refusal: Condition) -> Condition:
    return Condition(ConditionType.PROGRAMMED, False, refusal.reason, refusal.message)


def _resolved(spec: TCPLoadBalancerSpec, targets: dict[ListenerKey, Targets], refused: set[str]) -> Condition:
    if refused:
        some = ", ".join(sorted(refused)[:3]) + (" and more" if len(refused) > 3 else "")
        message = (
            f"{len(refused)} addresses may not be targets of this member ({some}); "
            "the operator admits ranges in the Tenant's spec.targetRanges"
        )
        return Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.INVALID, message)
    empty = [str(listener) for listener, found in targets.items() if not any(not t.draining for t in found.values())]
    if empty:
        what = "node" if spec.targets == "Node" else "endpoint"
        message = f"no ready {what} for {', '.join(sorted(empty))}"
        return Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.BACKEND_NOT_FOUND, message)
    return Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS, "")


def _count(spec: TCPLoadBalancerSpec, targets: dict[ListenerKey, Targets]) -> str:
    """Return ready/total of distinct targets.

    Nodes are not counted: they belong to the member, and a node more must not be a write for each load balancer.
    """
    if spec.targets == "Node":
        return "nodes"
    keys: dict[TargetKey, bool] = {}
    for found in targets.values():
        for key, target in found.items():
            keys[key] = keys.get(key, False) or not target.draining
    return f"{sum(keys.values())}/{len(keys)}"
