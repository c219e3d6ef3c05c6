"""What of an object do we keep in memory, and in which one form do we compare it?

In: objects as an API server sends them. Out: the same without what we never read, with defaults made explicit, lists
sorted, and repeated values shared: the canonical form, in which equal meaning is equal value. Caches hold only this.
Never loses anything that is exported.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address
from typing import TypeVar

import msgspec

from fairlead.api.kubernetes import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Node,
    NodeStatus,
)
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    ANNOTATION_STALE,
    FINALIZER_CLEANUP,
    GROUP,
    LABEL_EXCLUDE_NODE,
    LABEL_MANAGED_BY,
    LABEL_SERVICE_NAME,
    LABEL_SLICE_MANAGED_BY,
)
from fairlead.api.tcploadbalancer import TCPLoadBalancer

T = TypeVar("T", bound=KubeObject)

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KEPT_LABELS = frozenset({LABEL_EXCLUDE_NODE, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, LABEL_MANAGED_BY})

#: All that conditions can say, made once: 50,000 endpoints share these eight values.
_CONDITIONS = {
    (ready, serving, terminating): EndpointConditions(ready, serving, terminating)
    for ready in (False, True)
    for serving in (False, True)
    for terminating in (False, True)
}


def conditions_of(raw: EndpointConditions | None) -> EndpointConditions:
    """Make the defaults explicit: unset is ready; serving follows ready; not terminating.

    Source: https://kubernetes.io/docs/reference/kubernetes-api/discovery/endpoint-slice-v1/
    """
    if raw is None:
        return _CONDITIONS[True, True, False]
    ready = raw.ready is not False
    serving = ready if raw.serving is None else raw.serving
    return _CONDITIONS[ready, serving, bool(raw.terminating)]


def make_conditions(*, ready: bool, serving: bool, terminating: bool) -> EndpointConditions:
    """Return the shared value for three facts."""
    return _CONDITIONS[ready, serving, terminating]


def compact_slice(raw: EndpointSlice) -> EndpointSlice:
    """Reduce an EndpointSlice of either side."""
    return EndpointSlice(
        metadata=_compact_meta(raw.metadata),
        address_type=raw.address_type,
        endpoints=sorted((_compact_endpoint(one) for one in raw.endpoints or () if one.addresses), key=_endpoint_order),
        ports=sorted((_compact_port(one) for one in raw.ports or ()), key=_port_order),
    )


def compact_load_balancer(raw: TCPLoadBalancer) -> TCPLoadBalancer:
    """Reduce a TCPLoadBalancer at the hub."""
    ports = sorted(raw.spec.ports, key=lambda port: (port.port, port.protocol))
    return msgspec.structs.replace(raw, spec=msgspec.structs.replace(raw.spec, ports=ports))


def compact_node(raw: Node) -> Node:
    """Reduce a Node: heartbeats every few seconds then change nothing that we hold."""
    ready = [one for one in raw.status.conditions or () if one.type == "Ready"]
    conditions = [msgspec.structs.replace(one, message="", last_transition_time=None) for one in ready]
    status = NodeStatus(addresses=raw.status.addresses, conditions=conditions)
    return Node(metadata=_compact_meta(raw.metadata), spec=raw.spec, status=status)


def without_noise(raw: T) -> T:
    """Drop the copy of the whole object that kubectl keeps in an annotation."""
    annotations = raw.metadata.annotations
    if not annotations or _LAST_APPLIED not in annotations:
        return raw
    kept = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    return msgspec.structs.replace(raw, metadata=msgspec.structs.replace(raw.metadata, annotations=kept))


@lru_cache(maxsize=100_000)
def is_ipv4(address: str) -> bool:
    """Say whether this is an IPv4 address (not a host name, not IPv6)."""
    try:
        IPv4Address(address)
    except ValueError:
        return False
    return True


def _compact_meta(meta: ObjectMeta) -> ObjectMeta:
    labels = {
        _same(key): _same(value)
        for key, value in (meta.labels or {}).items()
        if key in _KEPT_LABELS or key.startswith(f"{GROUP}/")
    }
    stale = (meta.annotations or {}).get(ANNOTATION_STALE)
    return ObjectMeta(
        name=meta.name,
        namespace=_same(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=labels,
        annotations=None if stale is None else {ANNOTATION_STALE: stale},
        finalizers=[FINALIZER_CLEANUP] if FINALIZER_CLEANUP in (meta.finalizers or ()) else None,
    )


def _compact_endpoint(raw: Endpoint) -> Endpoint:
    return Endpoint(
        addresses=raw.addresses,
        conditions=conditions_of(raw.conditions),
        node_name=_same(raw.node_name) if raw.node_name else None,
        zone=_same(raw.zone) if raw.zone else None,
    )


def _compact_port(raw: EndpointPort) -> EndpointPort:
    return EndpointPort(name=raw.name or "", port=raw.port, protocol=raw.protocol or "TCP")


def _endpoint_order(endpoint: Endpoint) -> tuple[list[str], str, str]:
    return (endpoint.addresses or [], endpoint.node_name or "", repr(endpoint.conditions))


def _port_order(port: EndpointPort) -> tuple[str, str, int]:
    return (port.name or "", port.protocol or "", port.port or 0)


@lru_cache(maxsize=65_536)
def _same(text: str) -> str:
    """Return one object for equal strings, as long as they are in use often."""
    return text
