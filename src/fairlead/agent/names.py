"""The host names that the hub reports for an object of the member.

In: the names in the status of what the agent published for one object. Out: the names that the hub made, and Events
about those that it refuses, or whose records it cannot write. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.agent.addresses import usable_addresses
from fairlead.agent.events import ServiceEvent, warning_event
from fairlead.api.intent import NamesStatus
from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import WireCondition
from fairlead.model.condition import ConditionType


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
