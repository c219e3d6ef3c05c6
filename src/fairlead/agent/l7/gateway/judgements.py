"""Judgements as conditions of a status: how they are made, and how they get a generation and a time.

In: what was decided of a Gateway, ListenerSet, listener or route. Out: conditions as the API has them, which always
have a message. Never: reads a clock; ``now`` is RFC 3339 text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from fairlead.agent.addresses import refusal, unpublished
from fairlead.agent.l7.gateway.plan import ConditionStatus, Judgement
from fairlead.api.gateway import PolicyAncestorStatus, RouteParentStatus
from fairlead.api.intent import NamesStatus
from fairlead.api.meta import KubeObject, WireCondition, is_younger, mirrored_conditions
from fairlead.api.names import GROUP
from fairlead.model.condition import ConditionType

E = TypeVar("E", RouteParentStatus, PolicyAncestorStatus)

ACCEPTED = "Accepted"
RESOLVED_REFS = "ResolvedRefs"
PARTIALLY_INVALID = "PartiallyInvalid"
PROGRAMMED = "Programmed"
CONFLICTED = "Conflicted"
#: Not of Gateway API, which has no word for names that resolve: with our prefix, and only while one is refused.
HOSTNAMES_ACCEPTED = f"{GROUP}/{ConditionType.HOSTNAMES_ACCEPTED}"
HOSTNAMES_PUBLISHED = f"{GROUP}/{ConditionType.HOSTNAMES_PUBLISHED}"

_MESSAGES = {
    (ACCEPTED, "True"): "accepted",
    (RESOLVED_REFS, "True"): "all references are resolved",
    (PROGRAMMED, "True"): "served",
}


def good(kind: str, message: str = "") -> Judgement:
    """Return the judgement that all is well in one respect; its reason is its type."""
    return Judgement(kind, "True", kind, message)


def bad(kind: str, reason: str, message: str, *, status: ConditionStatus = "False") -> Judgement:
    """Return the judgement that something is wrong, and why."""
    return Judgement(kind, status, reason, message)


def find(judgements: Iterable[Judgement], kind: str) -> Judgement | None:
    """Return the judgement of one type, None when there is none."""
    return next((each for each in judgements if each.type == kind), None)


def holds(judgements: Iterable[Judgement], kind: str) -> bool:
    """Return whether the judgement of one type is there and True."""
    judgement = find(judgements, kind)
    return judgement is not None and judgement.status == "True"


def of_names(names: Iterable[NamesStatus]) -> list[Judgement]:
    """Return the judgements about host names that the hub refuses, or cannot publish; none while all is well."""
    known = list(names)
    judgements: list[Judgement] = []
    for kind, condition_of in ((HOSTNAMES_ACCEPTED, refusal), (HOSTNAMES_PUBLISHED, unpublished)):
        shown = sorted({(each.reason, each.message) for each in map(condition_of, known) if each is not None})
        judgements += [bad(kind, reason, message) for reason, message in shown[:1]]
    return judgements


def wire_judgements(
    judgements: Iterable[Judgement], old: Iterable[WireCondition] | None, *, generation: int, now: str
) -> list[WireCondition]:
    """Return ``judgements`` as conditions; lastTransitionTime is kept from ``old`` while the status is the same."""
    conditions = [
        WireCondition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message or _MESSAGES.get((each.type, each.status), each.reason),
        )
        for each in judgements
    ]
    return mirrored_conditions(conditions, old, generation=generation, now=now)


def renewed(entry: E, judgements: Iterable[Judgement], obj: KubeObject, now: str) -> E:
    """Return the entry of one parent in the status of ``obj``; one about a younger generation stays as it is."""
    generation = obj.metadata.generation
    if is_younger(entry.conditions, generation):
        return entry
    conditions = wire_judgements(judgements, entry.conditions, generation=generation, now=now)
    return msgspec.structs.replace(entry, conditions=conditions)
