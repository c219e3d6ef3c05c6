"""Filter the addresses of the hub: what may be written into a Service's status.

In: entries of ``status.loadBalancer.ingress`` at the hub. Out: those that are an IP address or a host name, and the
others as they may be shown. A hub that was taken over, or errs, must not put anything else before users.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from fairlead.api.hostnames import RESOLVABLE_NAME
from fairlead.api.kubernetes import Ingress
from fairlead.runtime.legible import legible


def usable_addresses(entries: Iterable[Ingress]) -> tuple[list[Ingress], list[str]]:
    """Return the entries that can be addresses of a load balancer, and the texts of those that cannot."""
    good: list[Ingress] = []
    bad: list[str] = []
    for entry in entries:
        by_ip = entry.ip and not entry.hostname and _is_address(entry.ip)
        by_name = entry.hostname and not entry.ip and RESOLVABLE_NAME.fullmatch(entry.hostname)
        if by_ip or by_name:
            good.append(entry)
        else:
            bad.append(legible(entry.ip or entry.hostname or "")[:100])
    return good, bad


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_multicast or address.is_unspecified or getattr(address, "scope_id", None))
