"""Would writing it change anything? What layer 2 wants, against what is there.

In: objects to apply, and the same as they are. Out: yes or no. What others have added is no difference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import JSONObject
from fairlead.api.tcploadbalancer import TCPLoadBalancer


def load_balancer_differs(wanted: JSONObject, present: TCPLoadBalancer | None) -> bool:
    """Say whether applying ``wanted`` would change anything that is ours."""
    if present is None:
        return True
    spec = msgspec.convert(wanted["spec"], type=type(present.spec))
    there = msgspec.structs.replace(
        present.spec, ports=sorted(present.spec.ports, key=lambda port: (port.port, port.protocol))
    )
    return spec != there or _metadata_differs(wanted["metadata"], present)


def slice_differs(wanted: JSONObject, present: EndpointSlice | None) -> bool:
    """Say whether applying ``wanted`` would change anything that is ours."""
    if present is None:
        return True
    endpoints = [
        {
            "addresses": one.addresses,
            "conditions": {"ready": one.conditions is None or one.conditions.ready is not False},
        }
        | ({"nodeName": one.node_name} if one.node_name else {})
        for one in present.endpoints or ()
    ]
    ports = [{"name": p.name or "", "port": p.port, "protocol": p.protocol or "TCP"} for p in present.ports or ()]
    return (wanted["endpoints"], wanted["ports"]) != (endpoints, ports) or _metadata_differs(
        wanted["metadata"], present
    )


def _metadata_differs(wanted: JSONObject, present: Any) -> bool:
    references = {one.uid for one in present.metadata.owner_references or ()}
    return any(present.label(key) != value for key, value in wanted["labels"].items()) or any(
        one["uid"] not in references for one in wanted["ownerReferences"]
    )
