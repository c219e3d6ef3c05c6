"""What does the hub say of an object's host names?

In: the names in the status of what the agent published for one object. Out: the names that the hub made, and Events
about those that it refuses. Pure.
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
    conditions = names.conditions or ()
    return next((each for each in conditions if _is_refusal(each)), None)


def refused_names(names: Iterable[NamesStatus]) -> list[ServiceEvent]:
    """Return an Event for each refusal, ordered."""
    refusals = {(each.reason, each.message) for each in map(refusal, names) if each is not None}
    return [warning_event(reason, message) for reason, message in sorted(refusals)]


def _is_refusal(condition: WireCondition) -> bool:
    return condition.type == ConditionType.HOSTNAMES_ACCEPTED and condition.status == "False"
