"""Objects as in a watch cache after they were published at a hub.

In: a desired object. Out: the object with a uid, a resourceVersion and the fields that an API server adds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.publish.objects import (
    canonical_load_balancer,
    canonical_slice,
    object_from_load_balancer,
    object_from_slice,
)


def stored_load_balancer(desired: TCPLoadBalancer, **status: Any) -> TCPLoadBalancer:
    """Return a TCPLoadBalancer after it was applied."""
    body = object_from_load_balancer(desired)
    body["metadata"] |= {"uid": "hub-uid", "resourceVersion": "7", "generation": 1}
    body["metadata"]["labels"] = {**body["metadata"]["labels"], "added-by": "an-operator"}
    body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), "note": "kept"}
    body["status"] = status
    return canonical_load_balancer(msgspec.json.decode(msgspec.json.encode(body), type=TCPLoadBalancer))


def stored_slice(desired: EndpointSlice) -> EndpointSlice:
    """Return an EndpointSlice after it was applied."""
    body = object_from_slice(desired)
    body["metadata"] |= {"uid": f"uid-{desired.metadata.name}", "resourceVersion": "7", "generation": 1}
    # kube-apiserver returns null for empty lists.
    body["endpoints"] = body["endpoints"] or None
    body["ports"] = body["ports"] or None
    return canonical_slice(
        msgspec.json.decode(msgspec.json.encode(body), type=EndpointSlice), owners=True, targets=True
    )
