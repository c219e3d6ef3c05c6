"""Differences between two statuses of a load balancer: it has stopped, or only awaits an answer.

In: conditions as they were written, and as they would be. Out: yes or no. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api.meta import Transition, WireCondition, condition_of
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.translate.conditions import says_no_ready

_SEEN = frozenset({ConditionType.PROGRAMMED, ConditionType.SERVING})
_MAY_PASS = frozenset({ConditionReason.PENDING, ConditionReason.NO_PROXY_CONNECTED})


def is_passing(old: list[WireCondition] | None, new: list[WireCondition] | None) -> bool:
    """Return whether ``new`` is only the moment until an answer: of a provider, of a proxy, or of the first read-back.

    It is not when nothing is served any more.
    """
    before = condition_of(old, ConditionType.PROGRAMMED)
    return before is not None and before.reason not in _MAY_PASS and awaits(new) and not has_stopped(old, new)


def awaits(conditions: list[WireCondition] | None) -> bool:
    """Return whether it is not programmed only since an answer is awaited."""
    after = condition_of(conditions, ConditionType.PROGRAMMED)
    return after is not None and after.status == "False" and after.reason in _MAY_PASS


def only_seen(old: Any, new: Any) -> bool:
    """Say whether two statuses differ only in what is seen of the provider, and are about one version of the spec."""

    def rest(conditions: list[WireCondition] | None) -> list[WireCondition]:
        return [each for each in conditions or () if each.type not in _SEEN]

    return old.observed_generation == new.observed_generation and rest(old.conditions) == rest(new.conditions)


def has_stopped(old: list[WireCondition] | None, new: list[WireCondition] | None) -> bool:
    """Return whether it serves nothing any more since ``new``; never of one that had no condition Serving before."""
    before, after = (condition_of(conditions, ConditionType.SERVING) for conditions in (old, new))
    return after is not None and after.status == "False" and before is not None and before.status != "False"


def is_without_targets_yet(change: Transition) -> bool:
    """Return whether a condition says that it has no target, of a load balancer that is not known to have had any.

    Its endpoints are written beside it, a moment later.
    """
    reason, before = change.condition.reason, change.before
    if reason == ConditionReason.BACKEND_NOT_FOUND:
        return before is None
    return reason == ConditionReason.NO_TARGETS and (before is None or before.status == "Unknown")


def is_said_by_references(change: Transition, conditions: list[WireCondition] | None) -> bool:
    """Return whether that there is no target has its Event already: no endpoint is ready, which is read first."""
    references = condition_of(conditions, ConditionType.RESOLVED_REFS)
    return (
        change.condition.reason == ConditionReason.NO_TARGETS
        and references is not None
        and says_no_ready(references.reason, references.message)
    )


def uncounted(conditions: list[WireCondition] | None) -> list[WireCondition]:
    """Return ``conditions`` without the numbers in the message of Serving."""
    return [
        msgspec.structs.replace(condition, message="") if condition.type == ConditionType.SERVING else condition
        for condition in conditions or ()
    ]
