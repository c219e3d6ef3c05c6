"""Filter the addresses of the hub: what may be written into a Service's status.

In: entries of ``status.loadBalancer.ingress`` at the hub. Out: those that are an IP address or a host name, and the
others as they may be shown. A hub that was taken over, or errs, must not put anything else before users.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from fairlead.agent.events import ServiceEvent, warning_event
from fairlead.api.hostname import RESOLVABLE_NAME
from fairlead.api.intent import NamesStatus
from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import WireCondition
from fairlead.model.condition import ConditionType
from fairlead.runtime.logs import legible


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


def made_names(names: Iterable[NamesStatus]) -> tuple[str, ...]:
    """Return the names that the hub made, ordered; what cannot be a name is left out."""
    made = sorted({each.hostname for each in names if each.hostname})
    usable, _ = usable_addresses(Ingress(hostname=each) for each in made)
    return tuple(each.hostname or "" for each in usable)


def refusal(names: NamesStatus) -> WireCondition | None:
    """Return the condition that says which names are refused, None when none is."""
    return _bad(names, ConditionType.HOSTNAMES_ACCEPTED)


def unpublished(names: NamesStatus) -> WireCondition | None:
    """Return the condition that says which names have records that cannot be written, None when none has."""
    return _bad(names, ConditionType.HOSTNAMES_PUBLISHED)


def refused_names(names: Iterable[NamesStatus]) -> list[ServiceEvent]:
    """Return an Event for each refusal, and for records that cannot be written, ordered."""
    bad = (condition for each in names for condition in (refusal(each), unpublished(each)))
    return [warning_event(*each) for each in sorted({(each.reason, each.message) for each in bad if each is not None})]


def _bad(names: NamesStatus, kind: ConditionType) -> WireCondition | None:
    return next((each for each in names.conditions or () if each.type == kind and each.status == "False"), None)
