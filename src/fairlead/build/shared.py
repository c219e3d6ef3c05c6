"""A LoadBalancer and the BackendGroups that use it become one desired load balancer.

    pod ready                              -> target
    pod deleting                           -> draining target
    pod not ready, but kept by policy      -> target, if it is on record: a policy never registers
    pod not ready otherwise, or gone       -> no target

In: a ``SharedView``. Out: ``Built``. Two groups that want one address own it together: it goes with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.api.backendgroup import BackendGroup, BackendPort
from fairlead.api.durations import seconds_from_duration
from fairlead.api.kubernetes import Node, Service
from fairlead.api.loadbalancer import LoadBalancer, LoadBalancerListener
from fairlead.api.loadbalancerclass import LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.names import ANNOTATION_PAUSED
from fairlead.api.pods import Pod
from fairlead.build.endpoints import TargetPolicy, admit
from fairlead.build.tcp import repair_s
from fairlead.build.view import Built
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import Capabilities
from fairlead.model.desired import (
    DesiredLoadBalancer,
    GuardPolicy,
    HealthCheck,
    Listener,
    LoadBalancerSpec,
    Owner,
    Target,
    Targets,
)
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey

_INGRESS_FAMILIES = ("InternalIP",)


class GroupView(msgspec.Struct, frozen=True):
    """One BackendGroup with what it selects. ``kept``: (namespace, name) of pods that keep their place by policy."""

    group: BackendGroup
    pods: tuple[Pod, ...] = ()
    service: Service | None = None
    nodes: tuple[Node, ...] = ()
    kept: frozenset[tuple[str, str]] = frozenset()
    out_of_scope: bool = False


class SharedView(msgspec.Struct, frozen=True):
    """The view of one LoadBalancer; ``recorded`` is what the ledger holds, ``conflict`` who has the same identity."""

    key: LoadBalancerKey
    load_balancer: LoadBalancer
    load_balancer_class: LoadBalancerClass | None
    providers: Mapping[str, Capabilities]
    groups: tuple[GroupView, ...] = ()
    recorded: frozenset[tuple[ListenerKey, TargetKey]] = frozenset()
    conflict: str = ""
    stale: str = ""
    loopback_targets: bool = False


def build_shared(view: SharedView) -> Built:
    """Decide what ``view`` should be."""
    refusal = _refusal(view)
    class_spec = view.load_balancer_class.spec if view.load_balancer_class else LoadBalancerClassSpec(provider="")
    if refusal is not None:
        unprogrammed = msgspec.structs.replace(refusal, type=ConditionType.PROGRAMMED)
        return Built(None, (refusal, unprogrammed), provider=class_spec.provider)
    refused: set[str] = set()
    targets = _targets(view, refused)
    desired = _desired(view, class_spec, targets)
    conditions = [Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, ""), _resolved(view, refused)]
    if desired.paused:
        text = f"annotation {ANNOTATION_PAUSED} is set; nothing is changed or removed until it is taken away"
        conditions.append(Condition(ConditionType.PAUSED, True, ConditionReason.PAUSED_BY_USER, text))
    expected = sum(len(found) for found in targets.values())
    return Built(desired, tuple(conditions), targets=str(expected), provider=class_spec.provider)


def _refusal(view: SharedView) -> Condition | None:
    def no(reason: ConditionReason, text: str) -> Condition:
        return Condition(ConditionType.ACCEPTED, False, reason, text)

    name = view.load_balancer.spec.class_name
    if view.load_balancer_class is None:
        return no(ConditionReason.NO_SUCH_CLASS, f"spec.className: there is no LoadBalancerClass {name!r} at the hub")
    capabilities = view.providers.get(view.load_balancer_class.spec.provider)
    if capabilities is None:
        provider = view.load_balancer_class.spec.provider
        return no(
            ConditionReason.NO_SUCH_CLASS, f"LoadBalancerClass {name!r} names provider {provider!r}, unknown here"
        )
    for one in view.load_balancer.spec.listeners:
        if Protocol(one.protocol) not in capabilities.protocols:
            text = f"spec.listeners: {one.protocol}/{one.port}: this class has no {one.protocol}"
            return no(ConditionReason.UNSUPPORTED_PROTOCOL, text)
    if view.conflict:
        return no(ConditionReason.INVALID, f"spec.existing: {view.conflict} has this load balancer already")
    return None


def _desired(
    view: SharedView, class_spec: LoadBalancerClassSpec, targets: dict[ListenerKey, Targets]
) -> DesiredLoadBalancer:
    one = view.load_balancer
    meta, spec, check = one.metadata, one.spec, class_spec.health_check
    listeners = sorted(
        (Listener(each.port, Protocol(each.protocol), each.name) for each in spec.listeners),
        key=lambda each: (each.port, each.protocol),
    )
    parameters = {**class_spec.parameters, **(spec.parameters or {}), **(spec.existing or {})}
    frontend = LoadBalancerSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(listeners),
        health_check=None
        if check.disabled
        else HealthCheck(
            interval_s=seconds_from_duration(check.interval),
            timeout_s=seconds_from_duration(check.timeout),
            unhealthy_threshold=check.unhealthy_threshold,
            healthy_threshold=check.healthy_threshold,
        ),
        parameters=dict(sorted(parameters.items())),
        attributes=dict(sorted((spec.attributes or {}).items())),
        owner=Owner("", view.key.kind, meta.namespace, meta.name, meta.uid),
        existing=bool(spec.existing),
    )
    class_paused = view.load_balancer_class is not None and _paused(view.load_balancer_class)
    return DesiredLoadBalancer(
        spec=frontend,
        targets=targets,
        drain_s=seconds_from_duration(class_spec.drain),
        guard=GuardPolicy(class_spec.guard.max_removal_percent, class_spec.guard.min_backends),
        stale=view.stale,
        # What belonged to groups that are gone goes without a guard: somebody took them away on purpose.
        owners=None if view.stale else frozenset(_owner(one) for one in view.groups if not one.out_of_scope),
        paused=_paused(one) or class_paused,
        repair_s=repair_s(spec.ensure_policy or class_spec.ensure_policy),
    )


def _owner(view: GroupView) -> str:
    meta = view.group.metadata
    return f"BackendGroup/{meta.namespace}/{meta.name}"


def _paused(one: LoadBalancer | LoadBalancerClass) -> bool:
    return one.annotation(ANNOTATION_PAUSED, "false") != "false"


def _targets(view: SharedView, refused: set[str]) -> dict[ListenerKey, Targets]:
    capabilities = (
        view.providers[view.load_balancer_class.spec.provider] if view.load_balancer_class else Capabilities()
    )
    policy = TargetPolicy(
        loopback=view.loopback_targets, host_names=capabilities.host_name_targets, ipv6=capabilities.ipv6
    )
    listeners = view.load_balancer.spec.listeners
    out: dict[ListenerKey, dict[TargetKey, Target]] = {_key(one): {} for one in listeners}
    for group in sorted(view.groups, key=lambda one: one.group.key):
        if group.out_of_scope:
            continue
        for listener, target in _of_group(group, listeners, policy, view.recorded, refused):
            known = out[listener].get(target.key)
            out[listener][target.key] = target if known is None else _together(known, target)
    return {listener: dict(sorted(found.items())) for listener, found in out.items()}


def _together(one: Target, other: Target) -> Target:
    """Let two groups own one backend; the first by name says with which parameters."""
    owners = tuple(sorted({*one.owners, *other.owners}))
    return msgspec.structs.replace(
        one, owners=owners, draining=one.draining and other.draining, source=one.source or other.source
    )


def _of_group(
    view: GroupView,
    listeners: Iterable[LoadBalancerListener],
    policy: TargetPolicy,
    recorded: frozenset[tuple[ListenerKey, TargetKey]],
    refused: set[str],
) -> Iterable[tuple[ListenerKey, Target]]:
    spec = view.group.spec
    parameters = tuple(sorted((spec.parameters or {}).items()))
    weight = int(text) if (text := (spec.parameters or {}).get("weight", "1")).isdecimal() else 1

    def target(raw: str, port: int, source: str, *, draining: bool = False) -> Target | None:
        address = admit(raw, policy)
        if address is None or not 0 < port < 65536:
            refused.add(raw)
            return None
        return Target(TargetKey(address, port), weight, draining, (_owner(view),), parameters, source)

    for backend in spec.static or ():
        raw, _, port = backend.rpartition(":")
        found = target(raw.strip("[]"), int(port) if port.isdecimal() else 0, "")
        for listener in _listeners(listeners, spec.listener, "TCP"):
            if found is not None:
                yield listener, found
    if spec.pods is not None:
        for pod, port in ((pod, port) for pod in view.pods for port in spec.pods.ports):
            meta = pod.metadata
            source = f"Pod/{meta.namespace}/{meta.name}/{meta.uid}"
            found = (
                target(pod.status.pod_ip or "", port.port, source, draining=pod.deleting) if pod.status.pod_ip else None
            )
            for listener in _listeners(listeners, port.listener or spec.listener, port.protocol):
                if found is not None and _has_place(pod, view, (listener, found.key) in recorded):
                    yield listener, found
    if spec.service is not None and view.service is not None:
        number = _node_port(view.service, spec.service.port)
        for node in view.nodes if number else ():
            raw = next((one.address for one in node.status.addresses or () if one.type in _INGRESS_FAMILIES), "")
            found = target(raw, number, f"Node//{node.metadata.name}/{node.metadata.uid}") if raw else None
            for listener in _listeners(
                listeners, spec.service.port.listener or spec.listener, spec.service.port.protocol
            ):
                if found is not None:
                    yield listener, found


def _has_place(pod: Pod, view: GroupView, recorded: bool) -> bool:
    if pod.ready:
        return True
    if not recorded:
        return False
    if pod.deleting:
        return True  # as a draining one
    policy = view.group.spec.deregister_policy
    if policy == "IfNotRunning":
        return pod.status.phase == "Running"
    return policy == "Webhook" and pod.key in view.kept


def _listeners(listeners: Iterable[LoadBalancerListener], name: str, protocol: str) -> list[ListenerKey]:
    """Return the listeners that a backend is for: the named one, else all of its protocol."""
    return [_key(one) for one in listeners if one.protocol == protocol and (not name or one.name == name)]


def _node_port(service: Service, wanted: BackendPort) -> int:
    for port in service.spec.ports or ():
        if port.port == wanted.port and (port.protocol or "TCP") == wanted.protocol:
            return port.node_port or 0
    return 0


def _key(one: LoadBalancerListener) -> ListenerKey:
    return ListenerKey(Protocol(one.protocol), one.port)


def _resolved(view: SharedView, refused: set[str]) -> Condition:
    out = sorted("/".join(one.group.key) for one in view.groups if one.out_of_scope)
    if out:
        text = f"BackendGroup {out[0]} is not in spec.scope; add its namespace there to let it in"
        return Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.OUT_OF_SCOPE, text)
    if refused:
        text = f"{len(refused)} addresses may not be backends: {', '.join(sorted(refused)[:3])}"
        return Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.INVALID, text)
    return Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS, "")
