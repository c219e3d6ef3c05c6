"""The backends that one BackendGroup contributes to the listeners of one load balancer.

    static                                 -> target; draining target when it is in spec.draining too
    pod ready                              -> target
    pod deleting, and not ready            -> draining target
    pod deleting, and still ready          -> draining target; stays a target while no other of its listener is ready
    pod not ready, but kept by policy      -> target, if it is on record: a policy never registers
    pod not ready otherwise, or gone       -> no target
    node ready                             -> target at the Service's node port
    node not ready                         -> no target; but when none of them is ready: those that are on record

In: a group with what it selects, and the parameters in force. Out: targets by listener, and refused addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from fairlead.api.backendgroup import BackendPort
from fairlead.api.kubernetes import Node, Pod, Service
from fairlead.api.loadbalancer import LoadBalancerListener
from fairlead.model.desired import Listener, Target
from fairlead.model.in_words import whole_number
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
from fairlead.translate.endpoints import EndpointState, TargetPolicy, admit
from fairlead.translate.view import GroupView, Recorded

#: The highest weight that every provider with weights accepts.
HEAVIEST = 256


def owner_of(view: GroupView) -> str:
    """Return the name under which the ledger records the group."""
    return f"BackendGroup/{'/'.join(view.group.key)}"


def is_node_ready(node: Node) -> bool:
    """Return whether a node may be registered."""
    return node.ready and not node.deleting


def weight_of(parameters: Mapping[str, str]) -> int | None:
    """Return the weight in ``parameters``, 1 when they have none; None when it is not a weight."""
    return whole_number(parameters.get("weight", "1"), most=HEAVIEST)


class _SelectedAddress(msgspec.Struct, frozen=True):
    """One address that the group selects; ``new``: it may be registered, else it only stays if it is recorded."""

    raw: str
    port: int
    source: str = ""
    listener: str = ""
    protocol: str = "TCP"
    state: EndpointState = EndpointState.READY
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
) -> Iterator[tuple[ListenerKey, Target, EndpointState]]:
    """Yield the targets of the group with ``parameters``, and their states; adds to ``refused`` the others."""
    ordered = tuple(sorted(parameters.items()))
    weight = weight_of(parameters)
    if weight is None:
        weight = 1  # accepted before weights were validated
    for offer in (*_static(view), *_pods(view), *_nodes(view)):
        address = admit(offer.raw, policy)
        if address is None or not 0 < offer.port < 65536:
            refused.add(offer.written or offer.raw)
            continue
        key = TargetKey(address, offer.port)
        target = Target(key, weight, owners=(owner_of(view),), parameters=ordered, source=offer.source)
        for listener in listeners_named(listeners, offer.listener, offer.protocol):
            if offer.new or (listener, key) in recorded:
                yield listener, target, offer.state


def listeners_named(
    listeners: Iterable[Listener] | Iterable[LoadBalancerListener], name: str, protocol: str
) -> list[ListenerKey]:
    """Return the listener called ``name`` of ``protocol``; without a name all of that protocol."""
    return [
        ListenerKey(Protocol(listener.protocol), listener.port)
        for listener in listeners
        if listener.protocol == protocol and (not name or listener.name == name)
    ]


def node_port_of(service: Service, wanted: BackendPort) -> int:
    """Return the node port of ``wanted``, 0 when the Service has none."""
    for port in service.spec.ports or ():
        if port.port == wanted.port and (port.protocol or "TCP") == wanted.protocol:
            return port.node_port or 0
    return 0


def _static(view: GroupView) -> Iterator[_SelectedAddress]:
    spec = view.group.spec
    for backend in spec.static or ():
        raw, _, port = backend.rpartition(":")
        number = whole_number(port) or 0
        state = EndpointState.UNREADY if backend in (spec.draining or ()) else EndpointState.READY
        yield _SelectedAddress(raw.strip("[]"), number, listener=spec.listener, state=state, written=backend)


def _pods(view: GroupView) -> Iterator[_SelectedAddress]:
    spec = view.group.spec
    for pod in view.pods:
        if not pod.status.pod_ip or not (pod.ready or _keeps_place(pod, view)):
            continue
        meta = pod.metadata
        source = f"Pod/{meta.namespace}/{meta.name}/{meta.uid}"
        state = EndpointState.READY
        if pod.deleting:
            state = EndpointState.SERVING if pod.serving else EndpointState.GONE
        for port in spec.pods.ports if spec.pods is not None else ():
            name = port.listener or spec.listener
            yield _SelectedAddress(pod.status.pod_ip, port.port, source, name, port.protocol, state, pod.ready)


def _keeps_place(pod: Pod, view: GroupView) -> bool:
    """Return whether a recorded pod that is not ready stays registered (one that is being deleted drains)."""
    policy = view.group.spec.deregister_policy
    if pod.deleting:
        return True
    if policy == "IfNotRunning":
        return pod.status.phase == "Running"
    return policy == "Webhook" and pod.key in view.kept


def _nodes(view: GroupView) -> Iterator[_SelectedAddress]:
    wanted = view.group.spec.service
    if wanted is None or view.service is None or not (number := node_port_of(view.service, wanted.port)):
        return
    none_ready = not any(map(is_node_ready, view.nodes))
    name = wanted.port.listener or view.group.spec.listener
    for node in view.nodes:
        ready = is_node_ready(node)
        addresses = (item.address for item in node.status.addresses or () if item.type == "InternalIP")
        if (raw := next(addresses, "")) and (ready or none_ready):
            source = f"Node//{node.metadata.name}/{node.metadata.uid}"
            yield _SelectedAddress(raw, number, source, name, wanted.port.protocol, new=ready)
