"""What of slices and nodes do regions keep in memory? Only what they read, so that heartbeats change nothing of it.

In: objects as an API server sends them. Out: the same without the rest. Never: loses an address, a node or a readiness.
"""

from __future__ import annotations

import msgspec

from fairlead.api.kubernetes import Endpoint, EndpointConditions, EndpointSlice, Node, NodeStatus
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.regions.backends import is_ready
from fairlead.regions.source import ServiceKey

_NOT_READY = EndpointConditions(ready=False)


def service_of_slice(one: EndpointSlice) -> ServiceKey:
    """Return the Service that an EndpointSlice belongs to."""
    return (one.metadata.namespace, one.label(LABEL_SERVICE_NAME))


def compact_slice(raw: EndpointSlice) -> EndpointSlice:
    """Keep of a slice what regions read."""
    endpoints = [
        Endpoint(
            addresses=one.addresses[:1], conditions=_NOT_READY if not is_ready(one) else None, node_name=one.node_name
        )
        for one in raw.endpoints or ()
        if one.addresses
    ]
    labels = {LABEL_SERVICE_NAME: raw.label(LABEL_SERVICE_NAME)}
    return msgspec.structs.replace(raw, metadata=_compact_meta(raw.metadata, labels), endpoints=endpoints)


def compact_node(raw: Node) -> Node:
    """Keep of a node what regions read: heartbeats change nothing of it."""
    ready = [
        msgspec.structs.replace(one, message="", reason="", last_transition_time=None)
        for one in raw.status.conditions or ()
        if one.type == "Ready"
    ]
    status = NodeStatus(addresses=raw.status.addresses, conditions=ready)
    return Node(metadata=_compact_meta(raw.metadata, raw.metadata.labels), spec=raw.spec, status=status)


def _compact_meta(meta: ObjectMeta, labels: dict[str, str] | None) -> ObjectMeta:
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=labels,
    )
