"""Behaviour of EndpointSlices beyond their schema.

In: an EndpointSlice before and after a write. Out: the object as a Kubernetes API server would store it, or causes.
Loopback addresses are accepted, unlike there, so that one machine can play a fleet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import cast

from fairlead.apiserver.failure import Cause, duplicate, immutable, missing, too_many, unsupported, wrong
from fairlead.apiserver.kinds.kind import Behaviour, ObjectChange
from fairlead.apiserver.kinds.names import DNS_LABEL, LABEL_RULE, PORT_RULE
from fairlead.apiserver.objects import Obj, child, items

MAX_ENDPOINTS, MAX_ADDRESSES = 1000, 100
_PARSERS: dict[str, Callable[[str], object]] = {
    "FQDN": str,
    "IPv4": ipaddress.IPv4Address,
    "IPv6": ipaddress.IPv6Address,
}


class EndpointSliceBehaviour(Behaviour):
    """EndpointSlices."""

    def default(self, obj: Obj) -> None:
        """Print what Go prints: empty lists are null, conditions are always there."""
        obj["endpoints"] = obj.get("endpoints") or None
        obj["ports"] = obj.get("ports") or None
        for endpoint in items(obj, "endpoints"):
            if isinstance(endpoint, dict):
                child(cast("Obj", endpoint), "conditions")
        for port in items(obj, "ports"):
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check sizes, addresses and ports."""
        new, old = change.new, change.old
        causes: list[Cause] = []
        kind = new.get("addressType") or ""
        if not kind:
            causes.append(missing("addressType"))
        elif kind not in _PARSERS:
            causes.append(unsupported("addressType", kind, list(_PARSERS)))
        if old is not None and old.get("addressType") != kind:
            causes.append(immutable("addressType", kind))
        endpoints = items(new, "endpoints")
        causes += too_many("endpoints", len(endpoints), MAX_ENDPOINTS)
        if old is None or old.get("endpoints") != new.get("endpoints"):
            for index, endpoint in enumerate(endpoints):
                causes += _check_addresses(cast("Obj", endpoint), kind, f"endpoints[{index}].addresses")
        return causes + _check_ports(cast("list[Obj]", items(new, "ports")))


def _check_addresses(endpoint: Obj, kind: str, field: str) -> list[Cause]:
    addresses = cast("list[str]", endpoint.get("addresses") or [])
    if not addresses:
        return [missing(field, "must contain at least 1 address")]
    if causes := too_many(field, len(addresses), MAX_ADDRESSES):
        return causes
    parse = _PARSERS.get(kind, str)
    for index, address in enumerate(addresses):
        try:
            parse(address)
        except ValueError:
            causes.append(wrong(f"{field}[{index}]", address, f"must be an {kind} address"))
    return causes


def _check_ports(ports: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name") or "", port.get("port")
        if name in names:
            causes.append(duplicate(f"ports[{index}].name", name))
        names.add(name)
        if name and (len(name) > 63 or not DNS_LABEL.match(name)):
            causes.append(wrong(f"ports[{index}].name", name, LABEL_RULE))
        if number is not None and not 1 <= number <= 65535:
            causes.append(wrong(f"ports[{index}].port", number, PORT_RULE))
        if port.get("protocol") not in {"TCP", "UDP", "SCTP"}:
            causes.append(unsupported(f"ports[{index}].protocol", port.get("protocol"), ["SCTP", "TCP", "UDP"]))
    return causes
