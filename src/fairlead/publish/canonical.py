"""The one form in which published objects are held in memory and compared: equal meaning is equal value.

In: objects as an API server sends them. Out: the same without fields that are never read, with defaults explicit, lists
sorted, and repeated strings shared. Never loses anything that is published.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from fairlead.api.kubernetes import Endpoint, EndpointConditions, EndpointPort, EndpointSlice, NodeStatus
from fairlead.api.meta import ObjectMeta, WireCondition
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

_KEPT_LABELS = frozenset({LABEL_EXCLUDE_NODE, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, LABEL_MANAGED_BY})

#: All that conditions can say, made once: 50,000 endpoints share these eight values.
_CONDITIONS = {
    (ready, serving, terminating): EndpointConditions(ready, serving, terminating)
    for ready in (False, True)
    for serving in (False, True)
    for terminating in (False, True)
}


def conditions_of(raw: EndpointConditions | None) -> EndpointConditions:
    """Make the defaults explicit, as kube-proxy reads them: unset is ready, serving and not terminating.

    Source: https://kubernetes.io/docs/reference/kubernetes-api/discovery/endpoint-slice-v1/
    """
    if raw is None:
        return _CONDITIONS[True, True, False]
    return _CONDITIONS[raw.ready is not False, raw.serving is not False, bool(raw.terminating)]


def make_conditions(*, ready: bool, serving: bool, terminating: bool) -> EndpointConditions:
    """Return the shared value for three facts."""
    return _CONDITIONS[ready, serving, terminating]


def canonical_endpoints(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Return endpoints in canonical order."""
    return sorted(endpoints, key=_endpoint_order)


def canonical_ports(ports: list[EndpointPort]) -> list[EndpointPort]:
    """Return the ports of a slice in canonical order."""
    return sorted(ports, key=_port_order)


def canonical_slice(raw: EndpointSlice, *, owners: bool = False, targets: bool = False) -> EndpointSlice:
    """Reduce an EndpointSlice of either side; ``owners``: with its owner references; ``targets``: with its pods."""
    meta = canonical_meta(raw.metadata)
    if owners:
        meta = msgspec.structs.replace(meta, owner_references=raw.metadata.owner_references)
    return EndpointSlice(
        metadata=meta,
        address_type=raw.address_type,
        endpoints=canonical_endpoints(
            [_endpoint(each, targets=targets) for each in raw.endpoints or () if each.addresses]
        ),
        ports=canonical_ports([_port(port) for port in raw.ports or ()]),
    )


def canonical_load_balancer(raw: TCPLoadBalancer) -> TCPLoadBalancer:
    """Return a TCPLoadBalancer with its ports sorted."""
    ports = sorted(raw.spec.ports, key=lambda port: (port.port, port.protocol))
    return msgspec.structs.replace(raw, spec=msgspec.structs.replace(raw.spec, ports=ports))


def node_status(raw: NodeStatus) -> NodeStatus:
    """Return what heartbeats leave as it is: the addresses, and whether the node is Ready."""
    ready = [WireCondition(type=each.type, status=each.status) for each in raw.conditions or () if each.type == "Ready"]
    return NodeStatus(addresses=raw.addresses, conditions=ready)


def canonical_meta(meta: ObjectMeta) -> ObjectMeta:
    """Return metadata with the labels, annotations and finalizers that are read, and no others."""
    labels = {
        shared_string(key): shared_string(value)
        for key, value in (meta.labels or {}).items()
        if key in _KEPT_LABELS or key.startswith(f"{GROUP}/")
    }
    stale = (meta.annotations or {}).get(ANNOTATION_STALE)
    return ObjectMeta(
        name=meta.name,
        namespace=shared_string(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=labels,
        annotations=None if stale is None else {ANNOTATION_STALE: stale},
        finalizers=[FINALIZER_CLEANUP] if FINALIZER_CLEANUP in (meta.finalizers or ()) else None,
    )


@lru_cache(maxsize=65_536)
def shared_string(text: str) -> str:
    """Return one string object for equal strings, as long as they are used often."""
    return text


def published_endpoints(endpoints: list[Endpoint] | None) -> list[Endpoint]:
    """Return endpoints of the member as they are published: which pods they are stays in the member."""
    return [msgspec.structs.replace(each, target_ref=None) if each.target_ref else each for each in endpoints or ()]


def _endpoint(raw: Endpoint, *, targets: bool) -> Endpoint:
    return Endpoint(
        addresses=raw.addresses,
        conditions=conditions_of(raw.conditions),
        node_name=shared_string(raw.node_name) if raw.node_name else None,
        zone=shared_string(raw.zone) if raw.zone else None,
        target_ref=raw.target_ref if targets else None,
    )


def _port(raw: EndpointPort) -> EndpointPort:
    return EndpointPort(name=raw.name or "", port=raw.port, protocol=raw.protocol or "TCP")


def _endpoint_order(endpoint: Endpoint) -> tuple[list[str], str, str, str]:
    return (endpoint.addresses or [], endpoint.node_name or "", endpoint.zone or "", repr(endpoint.conditions))


def _port_order(port: EndpointPort) -> tuple[str, str, int]:
    return (port.name or "", port.protocol or "", port.port or 0)
