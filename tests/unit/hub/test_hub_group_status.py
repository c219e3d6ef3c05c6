"""What the status of a BackendGroup sums up: the first thing that is wrong, else how many of its backends are there."""

from __future__ import annotations

import pytest

from fairlead.api.backendgroup import BackendGroup, BackendGroupSpec
from fairlead.api.meta import ObjectMeta
from fairlead.hub.intents.backend_groups import _is_good, _programmed
from fairlead.model.condition import Condition, ConditionReason, ConditionType

ACCEPTED = Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
REFUSED = Condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID, "spec.listener: no such listener")
UNRESOLVED = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.NO_SUCH_LOAD_BALANCER, "no such one")
STALE = Condition(ConditionType.STALE, True, ConditionReason.MEMBER_LOST, "not heard")


@pytest.mark.parametrize(
    ("conditions", "registered", "expected", "reason", "text"),
    [
        ([ACCEPTED], 2, 2, ConditionReason.PROGRAMMED, ""),
        ([ACCEPTED], 1, 2, ConditionReason.PENDING, "1 of 2 backends are registered"),
        ([], 0, 0, ConditionReason.PENDING, "0 of 0"),
        ([ACCEPTED], 0, 0, ConditionReason.BACKEND_NOT_FOUND, "by: fairlead explain lb/shop/shared"),
        ([REFUSED], 2, 2, ConditionReason.INVALID, "no such listener"),
        ([ACCEPTED, UNRESOLVED, REFUSED], 2, 2, ConditionReason.NO_SUCH_LOAD_BALANCER, "no such one"),
        ([ACCEPTED, STALE], 2, 2, ConditionReason.PROGRAMMED, ""),
    ],
)
def test_programmed_is_the_first_refusal_or_the_count(
    conditions: list[Condition], registered: int, expected: int, reason: ConditionReason, text: str
) -> None:
    group = BackendGroup(
        metadata=ObjectMeta(namespace="shop", name="web"), spec=BackendGroupSpec(load_balancers=["shared"])
    )
    summary = _programmed(group, conditions, registered, expected)
    assert (summary.type, summary.reason) == (ConditionType.PROGRAMMED, reason)
    assert summary.status == (reason is ConditionReason.PROGRAMMED)
    assert text in summary.message


def test_a_condition_is_good_when_what_should_hold_holds_and_nothing_else() -> None:
    assert [_is_good(each) for each in (ACCEPTED, REFUSED, UNRESOLVED, STALE)] == [True, False, False, False]
