"""Reduces slices and nodes in memory to what regions read, so that heartbeats change nothing of it.

In: objects as an API server sends them. Out: the same without the rest. Pure. Never: loses an address, a node or a
readiness.
"""

from __future__ import annotations

import msgspec

from fairlead.api.kubernetes import Endpoint, EndpointSlice, Node
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.publish.canonical import conditions_of, node_status
from fairlead.regions.source import ServiceKey


def service_of_slice(endpoint_slice: EndpointSlice) -> ServiceKey:
    """Return the Service that an EndpointSlice belongs to."""
    return (endpoint_slice.metadata.namespace, endpoint_slice.label(LABEL_SERVICE_NAME))


def compact_slice(raw: EndpointSlice) -> EndpointSlice:
    """Keep of a slice what regions read."""
    endpoints = [
        Endpoint(
            addresses=endpoint.addresses[:1],
            conditions=conditions_of(endpoint.conditions),
            node_name=endpoint.node_name,
        )
        for endpoint in raw.endpoints or ()
        if endpoint.addresses
    ]
    labels = {LABEL_SERVICE_NAME: raw.label(LABEL_SERVICE_NAME)}
    return msgspec.structs.replace(raw, metadata=_compact_meta(raw.metadata, labels), endpoints=endpoints)


def compact_node(raw: Node) -> Node:
    """Keep of a node what regions read: heartbeats change nothing of it."""
    meta = _compact_meta(raw.metadata, raw.metadata.labels)
    return Node(metadata=meta, spec=raw.spec, status=node_status(raw.status))


def _compact_meta(meta: ObjectMeta, labels: dict[str, str] | None) -> ObjectMeta:
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=labels,
    )
