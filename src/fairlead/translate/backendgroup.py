"""Which backends does one BackendGroup bring to the listeners of one load balancer?

    pod ready                              -> target
    pod deleting                           -> draining target
    pod not ready, but kept by policy      -> target, if it is on record: a policy never registers
    pod not ready otherwise, or gone       -> no target
    node ready                             -> target at the Service's node port
    node not ready                         -> no target; but when none of them is ready: those that are on record

In: a group with what it selects, and the parameters that count. Out: targets by listener, what was refused, and what
is to be told of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from fairlead.api.backendgroup import BackendGroup, BackendPort
from fairlead.api.kubernetes import Node, Service
from fairlead.api.loadbalancer import LoadBalancerListener
from fairlead.api.pods import Pod
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.desired import Listener, Target
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
from fairlead.translate.endpoints import TargetPolicy, admit

#: What every provider with weights understands.
HEAVIEST = 256
_INGRESS_FAMILIES = ("InternalIP",)

Recorded = frozenset[tuple[ListenerKey, TargetKey]]


class GroupView(msgspec.Struct, frozen=True):
    """One BackendGroup with what it selects. ``kept``: (namespace, name) of pods that keep their place by policy.

    ``accepted`` are the parameters with which this load balancer has taken it on, None when it never has. ``verdict``
    is the provider's, when that is not yes. ``judge`` says why the driver could not be asked which pods stay.
    """

    group: BackendGroup
    pods: tuple[Pod, ...] = ()
    service: Service | None = None
    nodes: tuple[Node, ...] = ()
    kept: frozenset[tuple[str, str]] = frozenset()
    out_of_scope: bool = False
    accepted: Mapping[str, str] | None = None
    verdict: Condition | None = None
    judge: str = ""


def owner_of(view: GroupView) -> str:
    """Return how the ledger calls the group."""
    meta = view.group.metadata
    return f"BackendGroup/{meta.namespace}/{meta.name}"


def is_node_ready(node: Node) -> bool:
    """Say whether a node may take traffic that it does not take yet."""
    return not node.deleting and any(
        one.type == "Ready" and one.status == "True" for one in node.status.conditions or ()
    )


def weight_of(parameters: Mapping[str, str]) -> int | None:
    """Return the weight that ``parameters`` ask for, 1 when they do not; None when it is not one."""
    text = parameters.get("weight", "1")
    if not text.isascii() or not text.isdecimal() or len(text) > 4 or int(text) > HEAVIEST:
        return None
    return int(text)


class _Offer(msgspec.Struct, frozen=True):
    """One address that the group selects. ``new``: it may be registered; else only what is on record may stay."""

    raw: str
    port: int
    source: str = ""
    listener: str = ""
    protocol: str = "TCP"
    draining: bool = False
    new: bool = True
    #: As the user wrote it, when it is more than the address.
    written: str = ""


def targets_of_group(
    view: GroupView,
    parameters: Mapping[str, str],
    listeners: Sequence[Listener],
    policy: TargetPolicy,
    recorded: Recorded,
    refused: set[str],
) -> Iterator[tuple[ListenerKey, Target]]:
    """Yield what the group brings, with ``parameters``; ``refused`` gets the addresses that may not be targets."""
    told = tuple(sorted(parameters.items()))
    # One that was taken on before weights were checked counts as it did then.
    weight = weight_of(parameters)
    for one in (*_static(view), *_pods(view), *_nodes(view)):
        address = admit(one.raw, policy)
        if address is None or not 0 < one.port < 65536:
            refused.add(one.written or one.raw)
            continue
        at = TargetKey(address, one.port)
        found = Target(at, 1 if weight is None else weight, one.draining, (owner_of(view),), told, one.source)
        for listener in _listeners(listeners, one.listener, one.protocol):
            if one.new or (listener, at) in recorded:
                yield listener, found


def _static(view: GroupView) -> Iterator[_Offer]:
    spec = view.group.spec
    for backend in spec.static or ():
        raw, _, port = backend.rpartition(":")
        number = int(port) if port.isdecimal() else 0
        yield _Offer(raw.strip("[]"), number, listener=spec.listener, written=backend)


def _pods(view: GroupView) -> Iterator[_Offer]:
    spec = view.group.spec
    for pod in view.pods:
        if not pod.status.pod_ip or not (pod.ready or _keeps_place(pod, view)):
            continue
        meta = pod.metadata
        source = f"Pod/{meta.namespace}/{meta.name}/{meta.uid}"
        for port in spec.pods.ports if spec.pods is not None else ():
            name = port.listener or spec.listener
            yield _Offer(pod.status.pod_ip, port.port, source, name, port.protocol, pod.deleting, pod.ready)


def _nodes(view: GroupView) -> Iterator[_Offer]:
    wanted = view.group.spec.service
    if wanted is None or view.service is None or not (number := _node_port(view.service, wanted.port)):
        return
    nobody = not any(map(is_node_ready, view.nodes))
    for node in view.nodes:
        ready = is_node_ready(node)
        raw = next((one.address for one in node.status.addresses or () if one.type in _INGRESS_FAMILIES), "")
        if raw and (ready or nobody):
            source, name = f"Node//{node.metadata.name}/{node.metadata.uid}", wanted.port.listener
            listener = name or view.group.spec.listener
            yield _Offer(raw, number, source, listener, wanted.port.protocol, new=ready)


def resolve_group(
    view: GroupView, listeners: Sequence[LoadBalancerListener], load_balancer: str, refused: Collection[str] = ()
) -> list[Condition]:
    """Return what is to be told of what the group refers to: ResolvedRefs, and Stale."""

    def no(reason: ConditionReason, text: str) -> list[Condition]:
        return [Condition(ConditionType.RESOLVED_REFS, False, reason, text)]

    spec = view.group.spec
    if view.out_of_scope:
        text = (
            f"LoadBalancer {load_balancer} does not admit namespace {view.group.metadata.namespace}; "
            "whoever owns it adds the namespace to its spec.scope"
        )
        return no(ConditionReason.OUT_OF_SCOPE, text)
    for port in _ports(view.group):
        name = port.listener or spec.listener
        if not any(_listeners(listeners, name, port.protocol)):
            what = f"listener {name!r} of protocol {port.protocol}" if name else f"{port.protocol} listener"
            text = f"LoadBalancer {load_balancer} has no {what}; its spec.listeners are what there is"
            return no(ConditionReason.BACKEND_NOT_FOUND, text)
    if view.judge:
        policy = spec.deregister_webhook.failure_policy if spec.deregister_webhook is not None else "DoNothing"
        text = f"{view.judge}; until it answers, spec.deregisterWebhook.failurePolicy {policy} counts"
        return no(ConditionReason.PROVIDER_FAILED, text)
    if spec.service is not None and (text := _unusable(view)):
        return no(ConditionReason.BACKEND_NOT_FOUND, text)
    if refused:
        return no(ConditionReason.INVALID, refused_addresses(refused, "spec.static: " if spec.static else ""))
    good = Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS, "")
    if spec.service is not None and view.nodes and not any(map(is_node_ready, view.nodes)):
        text = f"none of {len(view.nodes)} nodes that spec.service chooses is Ready; those that are registered stay"
        return [good, Condition(ConditionType.STALE, True, ConditionReason.ALL_NODES_NOT_READY, text)]
    return [good]


def refused_addresses(refused: Collection[str], field: str = "") -> str:
    """Say which addresses were left out, and what one has to be."""
    some = ", ".join(sorted(refused)[:3]) + (" and more" if len(refused) > 3 else "")
    return f"{field}no backend can be at {some}; write address:port, with an address that the provider can reach"


def _ports(group: BackendGroup) -> list[BackendPort]:
    spec = group.spec
    if spec.pods is not None:
        return list(spec.pods.ports)
    return [spec.service.port] if spec.service is not None else [BackendPort(0)]


def _unusable(view: GroupView) -> str:
    wanted = view.group.spec.service
    if wanted is None:
        return ""
    name = f"{view.group.metadata.namespace}/{wanted.name}"
    if view.service is None:
        return f"spec.service.name: there is no Service {name}"
    if not _node_port(view.service, wanted.port):
        port = f"{wanted.port.protocol}/{wanted.port.port}"
        return (
            f"spec.service.port: Service {name} has no node port for {port}; make it of type NodePort, with that port"
        )
    if not view.nodes:
        return "spec.service.nodeSelector: no node has these labels"
    return ""


def _keeps_place(pod: Pod, view: GroupView) -> bool:
    """Say whether a pod that is not ready stays, if it is on record."""
    if pod.deleting:
        return True  # as a draining one
    policy = view.group.spec.deregister_policy
    if policy == "IfNotRunning":
        return pod.status.phase == "Running"
    return policy == "Webhook" and pod.key in view.kept


def _listeners(
    listeners: Iterable[Listener] | Iterable[LoadBalancerListener], name: str, protocol: str
) -> list[ListenerKey]:
    """Return the listeners that a backend is for: the named one, else all of its protocol."""
    return [
        ListenerKey(Protocol(one.protocol), one.port)
        for one in listeners
        if one.protocol == protocol and (not name or one.name == name)
    ]


def _node_port(service: Service, wanted: BackendPort) -> int:
    for port in service.spec.ports or ():
        if port.port == wanted.port and (port.protocol or "TCP") == wanted.protocol:
            return port.node_port or 0
    return 0
