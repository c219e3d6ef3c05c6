"""Build objects as an API server would send them, and desired load balancers.

In: the fields that a test sets. Out: valid objects with defaults for all other fields, equal on every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import JSONMapping, JSONObject, KubeObject
from fairlead.api.names import (
    AGENT_LEASE,
    DEFAULT_CLASS,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    label_value,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import StampedLease, Tenant
from fairlead.model.contract import EVERY_FEATURE, AllocationKind, Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, GuardPolicy, Listener, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import IPV4, IPV6, Family, ListenerKey, LoadBalancerKey, Protocol, TargetKey, family_of
from fairlead.translate.view import NodeAddresses, TCPView

NAMESPACE = "tenant-east"

#: A provider that can do everything.
ABLE = EVERY_FEATURE
#: A provider for which the hub allocates addresses and ports.
_GIVEN = replace(ABLE, allocation=AllocationKind.ADDRESS)
#: A provider without any optional capability.
PLAIN = Capabilities()


def decoded(body: JSONObject, wire_type: type[KubeObject]) -> Any:
    """Return ``body`` decoded to ``wire_type``, as in a watch cache."""
    return msgspec.json.decode(msgspec.json.encode(body), type=wire_type)


def tcp_body(
    name: str = "web",
    *,
    namespace: str = NAMESPACE,
    ports: Sequence[JSONMapping] = ({"port": 80, "nodePort": 30080},),
    spec: JSONMapping | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> JSONObject:
    """Return the JSON of a TCPLoadBalancer; ``spec`` has further fields of its spec."""
    meta: JSONObject = {"name": name, "namespace": namespace}
    if labels:
        meta["labels"] = dict(labels)
    if annotations:
        meta["annotations"] = dict(annotations)
    return {"metadata": meta, "spec": {"ports": [dict(port) for port in ports], **(spec or {})}}


def tcp(
    name: str = "web",
    *,
    namespace: str = NAMESPACE,
    ports: Sequence[JSONMapping] = ({"port": 80, "nodePort": 30080},),
    spec: JSONMapping | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    status: JSONMapping | None = None,
    generation: int = 1,
) -> TCPLoadBalancer:
    """Return a TCPLoadBalancer as in a watch cache."""
    body = tcp_body(name, namespace=namespace, ports=ports, spec=spec, annotations=annotations, labels=labels)
    body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1", "generation": generation}
    return decoded({**body, "status": dict(status or {})}, TCPLoadBalancer)


def tenant(name: str = "east", *, spec: JSONMapping | None = None, status: JSONMapping | None = None) -> Tenant:
    """Return a Tenant as in a watch cache."""
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 1}
    return decoded({"metadata": metadata, "spec": spec or {}, "status": status or {}}, Tenant)


def lb_class(
    name: str = DEFAULT_CLASS, *, provider: str = "memory", spec: JSONMapping | None = None
) -> LoadBalancerClass:
    """Return a LoadBalancerClass as in a watch cache."""
    return decoded({"metadata": {"name": name}, "spec": {"provider": provider, **(spec or {})}}, LoadBalancerClass)


def slice_body(
    name: str,
    endpoints: Iterable[str | JSONMapping],
    *,
    namespace: str = NAMESPACE,
    load_balancer: str = "",
    nodes: bool = False,
    family: Family = IPV4,
    ports: Sequence[JSONMapping] | None = ({"port": 8080, "protocol": "TCP", "name": ""},),
    annotations: Mapping[str, str] | None = None,
) -> JSONObject:
    """Return an EndpointSlice: of one load balancer, or with ``nodes`` of a member's nodes in ``family``.

    ``endpoints`` are addresses, which are then ready, or endpoint objects.
    """
    labels = {LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY}
    if load_balancer:
        labels[LABEL_LOAD_BALANCER] = label_value(load_balancer)
    if nodes:
        labels[LABEL_NODES if family == IPV4 else LABEL_NODES_IPV6] = "true"
    meta: JSONObject = {"name": name, "namespace": namespace, "labels": labels}
    if annotations:
        meta["annotations"] = dict(annotations)
    return {
        "metadata": meta,
        "addressType": family,
        "endpoints": [
            {"addresses": [item], "conditions": {"ready": True}} if isinstance(item, str) else dict(item)
            for item in endpoints
        ],
        "ports": [] if nodes else (None if ports is None else [dict(port) for port in ports]),
    }


def endpoint(address: str, *, ready: bool | None = None, **conditions: bool) -> JSONObject:
    """Return an endpoint with conditions; ``ready`` None omits the condition ``ready``."""
    all_conditions = dict(conditions) if ready is None else {"ready": ready, **conditions}
    return {"addresses": [address], "conditions": all_conditions}


def endpoint_slice(name: str, endpoints: Iterable[str | JSONMapping], **others: Any) -> EndpointSlice:
    """Return an EndpointSlice as in a watch cache; the parameters are those of ``slice_body``."""
    body = slice_body(name, endpoints, **others)
    body["metadata"]["resourceVersion"] = "1"
    return decoded(body, EndpointSlice)


def agent_lease(namespace: str = NAMESPACE, *, renewed: str, stored: str = "", name: str = AGENT_LEASE) -> StampedLease:
    """Return the Lease of an agent; ``renewed`` by its own clock, ``stored`` by that of the API server (RFC 3339)."""
    meta: JSONObject = {"name": name, "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
    if stored:
        meta["managedFields"] = [{"manager": "fairlead-agent", "time": stored}]
    return decoded({"metadata": meta, "spec": {"renewTime": renewed}}, StampedLease)


def ready_nodes(nodes: Iterable[str | tuple[str, str]], *, stale: str = "") -> NodeAddresses:
    """Return the nodes of a member; each is (name, address), or an address that is also the name."""
    ready: dict[Family, dict[str, str]] = {IPV4: {}, IPV6: {}}
    for node in nodes:
        name, address = (node, node) if isinstance(node, str) else node
        ready[family_of(address) or IPV4][name] = address
    return NodeAddresses(ready, {IPV4: stale} if stale else {})


def tcp_view(
    load_balancer: TCPLoadBalancer | None = None,
    *,
    slices: Iterable[EndpointSlice] = (),
    nodes: Iterable[str | tuple[str, str]] = ("10.0.0.1", "10.0.0.2"),
    nodes_stale: str = "",
    capabilities: Capabilities = _GIVEN,
    allocation: Allocation | None = None,
    **others: Any,
) -> TCPView:
    """Return the view of a valid load balancer; ``others`` are further fields of ``TCPView``."""
    viewed = load_balancer if load_balancer is not None else tcp()
    fields: dict[str, Any] = {
        "tenant": tenant(),
        "load_balancer_class": lb_class(),
        "accepted_class": lb_class() if viewed.status.accepted is not None else None,
        **others,
    }
    return TCPView(
        key=LoadBalancerKey(TCP_LOAD_BALANCERS.kind, viewed.metadata.namespace, viewed.metadata.name),
        load_balancer=viewed,
        providers={"memory": capabilities},
        slices=tuple(slices),
        nodes=ready_nodes(nodes, stale=nodes_stale),
        allocation=allocation if allocation is not None else viewed.status.allocation,
        **fields,
    )


# --- the model -------------------------------------------------------------------------------------------------


def lb_key(name: str = "web", *, namespace: str = NAMESPACE) -> LoadBalancerKey:
    """Return the key of a TCPLoadBalancer."""
    return LoadBalancerKey(TCP_LOAD_BALANCERS.kind, namespace, name)


def target(
    address: str, port: int = 8080, *, draining: bool = False, weight: int = 1, terminating: bool = False
) -> Target:
    """Return a target; an ``address`` without dots is the last part of an address in 10.0.0.0/24."""
    key = TargetKey(f"10.0.0.{address}" if address.isdecimal() else address, port)
    return Target(key, weight, draining, terminating=terminating)


def desired(
    targets: Iterable[Target] | Mapping[ListenerKey, Iterable[Target]] = (),
    *,
    key: LoadBalancerKey | None = None,
    ports: Sequence[int] = (80,),
    drain_s: float = 0.0,
    guard: GuardPolicy | None = None,
    stale: str = "",
    paused: bool = False,
    address: str = "192.0.2.1",
    health_check: HealthCheck | None = None,
) -> DesiredLoadBalancer:
    """Return a desired load balancer; ``targets`` without listeners are used for each of ``ports``."""
    listeners = tuple(Listener(port) for port in sorted(ports))
    own_targets: Mapping[ListenerKey, Iterable[Target]]
    if isinstance(targets, Mapping):
        own_targets = cast("Mapping[ListenerKey, Iterable[Target]]", targets)
    else:
        own_targets = dict.fromkeys((listener.key for listener in listeners), tuple(targets))
    by_listener = {listener.key: tuple(own_targets.get(listener.key, ())) for listener in listeners}
    own = key or lb_key()
    return DesiredLoadBalancer(
        spec=FrontendSpec(
            key=own, group=own.namespace, listeners=listeners, address=address, health_check=health_check
        ),
        targets={listener: {target.key: target for target in targets} for listener, targets in by_listener.items()},
        drain_s=drain_s,
        guard=guard or GuardPolicy(),
        stale=stale,
        paused=paused,
    )


#: The listener of ``desired`` by default.
HTTP = ListenerKey(Protocol.TCP, 80)
