"""How are parts of a status written? With every field that the API server wants to see, defaults included.

In: values as they were decoded. Out: JSON. Never: a field left out because it has its default.
"""

from __future__ import annotations

from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import JSONObject, WireCondition


def json_ingress(one: Ingress) -> JSONObject:
    """Write one access point."""
    body: JSONObject = {}
    if one.ip:
        body["ip"] = one.ip
        if one.ip_mode:
            body["ipMode"] = one.ip_mode
    if one.hostname:
        body["hostname"] = one.hostname
    if one.ports:
        body["ports"] = [
            {"port": port.port, "protocol": port.protocol} | ({"error": port.error} if port.error else {})
            for port in one.ports
        ]
    return body


def json_condition(one: WireCondition) -> JSONObject:
    """Write one condition."""
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "observedGeneration": one.observed_generation,
        "lastTransitionTime": one.last_transition_time,
    }
