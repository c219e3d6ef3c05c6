"""What does layer 2 make of a PoolService? A TCPLoadBalancer, its EndpointSlices, and a status.

    PoolService                  TCPLoadBalancer <name>.poolservice.fairlead     EndpointSlices labelled with it
    ---------------------------  ---------------------------------------------  --------------------------------
    backends are pods            targets Pod                                     one for each group of pods
    backends are nodes           targets Address                                 one: ready nodes at the nodePorts

In: the PoolService alone, as any other layer 2 could: the Service and the backends are in its annotations. Out: objects
as JSON, and the status to mirror back. Never: an address outside of the pool, or a decision about which pools.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.kubernetes import Service, ServicePort
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    ANNOTATION_ORIGIN,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_SERVICE,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_SLICE_MANAGED_BY,
    LOAD_BALANCER_CLASS_PREFIX,
    MANAGED_BY,
    SLICE_MANAGED_BY,
)
from fairlead.api.naming import fit, label_value
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason
from fairlead.regions.backends import BackendGroup, Backends

_NAME_LIMIT = 253
#: With its two dots it is no name that an agent gives, which is always <namespace>.<service>.
_SUFFIX = ".poolservice.fairlead"
_PROTOCOLS = frozenset({"TCP", "UDP"})


class Refusal(msgspec.Struct, frozen=True):
    """Why a PoolService cannot be served as it stands; what was made for it before stays."""

    reason: ConditionReason
    sentence: str


class Wish(msgspec.Struct, frozen=True):
    """What should be there: the TCPLoadBalancer, and the EndpointSlices by name."""

    load_balancer: JSONObject
    slices: Mapping[str, JSONObject]


def is_our_class(pool_service: PoolService) -> bool:
    """Say whether this layer 2 is the one that is asked."""
    name = pool_service.spec.load_balancer_class
    return name.startswith(LOAD_BALANCER_CLASS_PREFIX) and len(name) > len(LOAD_BALANCER_CLASS_PREFIX)


def load_balancer_name(pool_service_name: str) -> str:
    """Name the TCPLoadBalancer of a PoolService."""
    head = fit(pool_service_name, limit=_NAME_LIMIT - len(_SUFFIX), identity=(pool_service_name,))
    return head + _SUFFIX


def origin_labels(pool_service: PoolService) -> dict[str, str]:
    """Return the labels of everything that is made for a PoolService."""
    return {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_ORIGIN_KIND: POOL_SERVICES.kind,
        LABEL_ORIGIN_NAMESPACE: pool_service.metadata.namespace,
        LABEL_ORIGIN_NAME: label_value(pool_service.metadata.name),
    }


def made_for(obj: TCPLoadBalancer, name: str) -> bool:
    """Say whether a TCPLoadBalancer was made for the PoolService of this name."""
    origin = obj.spec.origin
    return (
        obj.label(LABEL_ORIGIN_KIND) == POOL_SERVICES.kind
        and (origin.kind, origin.name) == (POOL_SERVICES.kind, name)
        and obj.metadata.name == load_balancer_name(name)
    )


def plan_balancer(pool_service: PoolService, backends: Backends, *, region: str) -> Wish | Refusal:
    """Decide what should be there for a PoolService of our class."""
    try:
        service = msgspec.json.decode(pool_service.annotation(ANNOTATION_SERVICE), type=Service)
    except msgspec.DecodeError:
        return Refusal(ConditionReason.INVALID, f"annotation {ANNOTATION_SERVICE} is missing or no Service in JSON")
    ports = sorted(service.spec.ports or (), key=lambda port: (port.port, port.protocol))
    refused = _refused(service, ports, backends)
    if refused is not None:
        return refused
    meta = pool_service.metadata
    name = load_balancer_name(meta.name)
    owner = {
        "apiVersion": POOL_SERVICES.api_version,
        "kind": POOL_SERVICES.kind,
        "name": meta.name,
        "uid": meta.uid,
    }
    spec: JSONObject = {
        "className": pool_service.spec.load_balancer_class.removeprefix(LOAD_BALANCER_CLASS_PREFIX),
        "targets": "Pod" if backends.nodes is None else "Address",
        "externalTrafficPolicy": "Local" if service.spec.external_traffic_policy == "Local" else "Cluster",
        "sessionAffinity": "ClientIP" if service.spec.session_affinity == "ClientIP" else "None",
        "loadBalancerSourceRanges": list(service.spec.load_balancer_source_ranges or ()),
        "proxyProtocol": service.annotation(ANNOTATION_PROXY_PROTOCOL),
        "address": requested_address(service, pool_service.spec.nodepool_name),
        "region": region,
        "origin": {"kind": POOL_SERVICES.kind, "namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
        "ports": [{"port": port.port, "name": port.name, "protocol": port.protocol, "nodePort": 0} for port in ports],
    }
    origin = f"{meta.namespace}/{service.metadata.name} in {pool_service.spec.nodepool_name}"
    load_balancer: JSONObject = {
        "metadata": {
            "namespace": meta.namespace,
            "name": name,
            "labels": origin_labels(pool_service),
            "annotations": {ANNOTATION_ORIGIN: origin},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
    slices = _pod_slices(backends) if backends.nodes is None else _node_slices(service, ports, backends)
    labels = {
        **origin_labels(pool_service),
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
        LABEL_LOAD_BALANCER: label_value(name),
    }
    wanted: dict[str, JSONObject] = {}
    for rest, body in slices.items():
        slice_name = fit(f"{name}.{rest}", limit=_NAME_LIMIT, identity=(name, rest))
        metadata = {"namespace": meta.namespace, "name": slice_name, "labels": labels, "ownerReferences": [owner]}
        wanted[slice_name] = {"metadata": metadata, **body}
    return Wish(load_balancer, wanted)


def _refused(service: Service, ports: list[ServicePort], backends: Backends) -> Refusal | None:
    if not ports:
        return Refusal(ConditionReason.INVALID, "the Service has no ports")
    for port in ports:
        if port.protocol not in _PROTOCOLS:
            sentence = f"port {port.port} asks for {port.protocol}: Fairlead balances TCP and UDP"
            return Refusal(ConditionReason.UNSUPPORTED_PROTOCOL, sentence)
    if backends.nodes is not None:
        missing = [str(port.port) for port in ports if not port.node_port]
        if missing:
            sentence = f"port {', '.join(missing)} has no nodePort, and the backends are nodes"
            return Refusal(ConditionReason.NODE_PORT_MISSING, sentence)
    proxy_protocol = service.annotation(ANNOTATION_PROXY_PROTOCOL)
    if proxy_protocol not in {"", "v1", "v2"}:
        sentence = f"annotation {ANNOTATION_PROXY_PROTOCOL} is {proxy_protocol!r}: it must be v1 or v2"
        return Refusal(ConditionReason.INVALID, sentence)
    return None


def requested_address(service: Service, pool: str) -> str:
    """Return the address asked for in one pool: ``hangzhou=10.1.0.9, beijing=10.2.0.9``, or one for all."""
    text = service.annotation(ANNOTATION_REQUESTED_ADDRESS) or service.spec.load_balancer_ip
    plain = ""
    for part in text.split(","):
        name, equals, address = part.strip().partition("=")
        if not equals:
            plain = plain or name
        elif name.strip() == pool:
            return address.strip()
    return plain


def _pod_slices(backends: Backends) -> dict[str, JSONObject]:
    return {group.slice: _pod_slice(group) for group in backends.groups}


def _pod_slice(group: BackendGroup) -> JSONObject:
    endpoints: list[JSONObject] = []
    for one in group.endpoints:
        endpoint: JSONObject = {"addresses": [one.address], "conditions": {"ready": one.ready}}
        endpoints.append(endpoint | ({"nodeName": one.node} if one.node else {}))
    ports = [{"name": port.name, "port": port.port, "protocol": port.protocol} for port in group.ports]
    return {"addressType": group.address_type, "endpoints": endpoints, "ports": ports}


def _node_slices(service: Service, ports: list[ServicePort], backends: Backends) -> dict[str, JSONObject]:
    nodes = list(backends.nodes or ())
    if service.spec.external_traffic_policy == "Local":
        local = {one.node for group in backends.groups for one in group.endpoints if one.ready}
        nodes = [node for node in nodes if node.name in local]
    by_type: dict[str, list[JSONObject]] = {}
    for node in nodes:
        kind = "IPv6" if ":" in node.address else "IPv4"
        body: JSONObject = {"addresses": [node.address], "conditions": {"ready": node.ready}, "nodeName": node.name}
        by_type.setdefault(kind, []).append(body)
    targets = [{"name": port.name, "port": port.node_port, "protocol": port.protocol} for port in ports]
    return {
        f"nodes.{kind.lower()}": {"addressType": kind, "endpoints": found, "ports": targets}
        for kind, found in sorted(by_type.items())
    }
