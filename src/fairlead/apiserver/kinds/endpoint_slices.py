"""Behaviour of EndpointSlices beyond their schema.

In: an EndpointSlice before and after a write. Out: the object as kube-apiserver would store it, or causes. Unlike
there, loopback addresses are accepted, so that demos and tests can run a fleet on one machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import cast

from fairlead.apiserver.failure import (
    Cause,
    duplicate_value,
    immutable_field,
    invalid_value,
    required_value,
    too_many,
    unsupported_value,
)
from fairlead.apiserver.kinds.kind import Behaviour, ObjectChange
from fairlead.apiserver.kinds.names import DNS_LABEL, DNS_SUBDOMAIN, LABEL_RULE, PORT_RULE
from fairlead.apiserver.objects import Obj, child, items

MAX_ENDPOINTS, MAX_ADDRESSES = 1000, 100
_MAX_NAME = 253


def _host_name(text: str) -> None:
    if len(text) > _MAX_NAME or not DNS_SUBDOMAIN.match(text.removesuffix(".")):
        raise ValueError


def _ipv6(text: str) -> None:
    if ipaddress.IPv6Address(text).scope_id is not None:
        raise ValueError  # a zone is a text of any length


_PARSERS: dict[str, Callable[[str], object]] = {
    "FQDN": _host_name,
    "IPv4": ipaddress.IPv4Address,
    "IPv6": _ipv6,
}


class EndpointSliceBehaviour(Behaviour):
    """EndpointSlices."""

    def default(self, obj: Obj) -> None:
        """Set the fields as Go serializes them: empty lists are null, and conditions are always present."""
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
            causes.append(required_value("addressType"))
        elif kind not in _PARSERS:
            causes.append(unsupported_value("addressType", kind, list(_PARSERS)))
        if old is not None and old.get("addressType") != kind:
            causes.append(immutable_field("addressType", kind))
        endpoints = items(new, "endpoints")
        causes += too_many("endpoints", len(endpoints), MAX_ENDPOINTS)
        if old is None or old.get("endpoints") != new.get("endpoints"):
            for index, endpoint in enumerate(endpoints):
                causes += _check_addresses(cast("Obj", endpoint), kind, f"endpoints[{index}].addresses")
        return causes + _check_ports(cast("list[Obj]", items(new, "ports")))


def _check_addresses(endpoint: Obj, kind: str, field: str) -> list[Cause]:
    addresses = cast("list[str]", endpoint.get("addresses") or [])
    if not addresses:
        return [required_value(field, "must contain at least 1 address")]
    if causes := too_many(field, len(addresses), MAX_ADDRESSES):
        return causes
    parse = _PARSERS.get(kind, str)
    for index, address in enumerate(addresses):
        try:
            parse(address)
        except ValueError:
            causes.append(invalid_value(f"{field}[{index}]", address, f"must be an {kind} address"))
    return causes


def _check_ports(ports: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name") or "", port.get("port")
        if name in names:
            causes.append(duplicate_value(f"ports[{index}].name", name))
        names.add(name)
        if name and (len(name) > 63 or not DNS_LABEL.match(name)):
            causes.append(invalid_value(f"ports[{index}].name", name, LABEL_RULE))
        if number is not None and not 1 <= number <= 65535:
            causes.append(invalid_value(f"ports[{index}].port", number, PORT_RULE))
        if port.get("protocol") not in {"TCP", "UDP", "SCTP"}:
            causes.append(unsupported_value(f"ports[{index}].protocol", port.get("protocol"), ["SCTP", "TCP", "UDP"]))
    return causes
