"""Conditions as a status has them: their order, their times, and which of them have changed.

In: conditions of the model, or of another object's status, and those of the status before. Out: ``WireCondition`` in
the order of ``ConditionType``; ``Transition``. Never: reads a clock; ``now`` is RFC 3339 text.
Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fairlead.api.meta import WireCondition
from fairlead.model.condition import GOOD_WHEN_TRUE, Condition, ConditionReason, ConditionType

_STATUS = {True: "True", False: "False", None: "Unknown"}
_ORDER = {kind.value: position for position, kind in enumerate(ConditionType)}


class Transition(NamedTuple):
    """A condition whose status or reason is another than before; ``before`` is None for the first of its type."""

    condition: WireCondition
    before: WireCondition | None

    @property
    def good(self) -> bool:
        """Return whether it became good, or stayed so for another reason; an unknown type is good when False."""
        return (self.condition.status == "True") == (self.condition.type in GOOD_WHEN_TRUE)


def condition_of(conditions: Iterable[WireCondition] | None, kind: str) -> WireCondition | None:
    """Return the condition of one type, None when there is none."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


def is_true(conditions: Iterable[WireCondition] | None, kind: str) -> bool:
    """Return whether the condition of one type is True."""
    condition = condition_of(conditions, kind)
    return condition is not None and condition.status == "True"


def is_taken_over(programmed: WireCondition | None) -> bool:
    """Say whether Programmed means that the proxies have it, but for routes that they refuse: the address is in use."""
    return programmed is not None and (
        programmed.status == "True" or programmed.reason == ConditionReason.ROUTES_REFUSED
    )


def wire_conditions(
    conditions: Iterable[Condition], old: Iterable[WireCondition] | None, *, generation: int, now: str
) -> list[WireCondition]:
    """Return ``conditions`` for a status; lastTransitionTime is kept from ``old`` while the status is the same."""
    return mirrored_conditions(
        (
            WireCondition(
                type=condition.type.value,
                status=_STATUS[condition.status],
                reason=condition.reason.value,
                message=condition.message,
            )
            for condition in conditions
        ),
        old,
        generation=generation,
        now=now,
    )


def mirrored_conditions(
    conditions: Iterable[WireCondition], old: Iterable[WireCondition] | None, *, generation: int, now: str
) -> list[WireCondition]:
    """Return conditions of another object's status for this one.

    A time that they have is kept unless ``old`` has one for the same status; types that we do not know go last.
    """
    known = _by_type(old)
    return [
        msgspec.structs.replace(
            condition,
            observed_generation=generation,
            last_transition_time=_since(condition, known.get(condition.type)) or now,
        )
        for condition in sorted(conditions, key=lambda condition: _ORDER.get(condition.type, len(_ORDER)))
    ]


def is_younger(conditions: Iterable[WireCondition] | None, generation: int) -> bool:
    """Return whether conditions are about a younger version of their object than ``generation``."""
    return any(condition.observed_generation > generation for condition in conditions or ())


def transitions(old: Iterable[WireCondition] | None, new: Iterable[WireCondition] | None) -> list[Transition]:
    """Return the conditions of ``new`` whose status or reason differs from that of ``old``, in the order of ``new``."""
    known = _by_type(old)
    changes = (Transition(condition, known.get(condition.type)) for condition in new or ())
    return [
        change
        for change in changes
        if change.before is None
        or (change.before.status, change.before.reason) != (change.condition.status, change.condition.reason)
    ]


def _since(condition: WireCondition, before: WireCondition | None) -> str | None:
    same = before is not None and before.status == condition.status
    return before.last_transition_time if before is not None and same else condition.last_transition_time


def _by_type(conditions: Iterable[WireCondition] | None) -> dict[str, WireCondition]:
    return {condition.type: condition for condition in conditions or ()}
