from __future__ import annotations

import msgspec
import pytest

from fairlead.api.meta import (
    Transition,
    WireCondition,
    condition_of,
    is_true,
    mirrored_conditions,
    transitions,
    wire_conditions,
    with_summary,
)
from fairlead.model.condition import Condition, ConditionReason, ConditionType

EARLIER, NOW = "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"
ACCEPTED = Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED)
PENDING = Condition(ConditionType.PROGRAMMED, False, ConditionReason.PENDING, "waiting")
GUARDED = Condition(ConditionType.GUARDED, True, ConditionReason.REMOVALS_HELD, "2 removals held")


def wire(kind: str, status: str, reason: str, *, since: str | None = EARLIER, message: str = "") -> WireCondition:
    return WireCondition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)


def test_conditions_are_written_in_the_order_of_their_types():
    written = wire_conditions([GUARDED, PENDING, ACCEPTED], None, generation=3, now=NOW)
    assert [condition.type for condition in written] == ["Accepted", "Programmed", "Guarded"]
    assert written[1] == WireCondition("Programmed", "False", "Pending", "waiting", 3, NOW)


def test_the_time_is_that_of_the_last_change_of_the_status():
    old = [wire("Accepted", "True", "Other"), wire("Programmed", "True", "Programmed")]
    accepted, programmed, guarded = wire_conditions([ACCEPTED, PENDING, GUARDED], old, generation=1, now=NOW)
    assert accepted.last_transition_time == EARLIER
    assert programmed.last_transition_time == guarded.last_transition_time == NOW


def test_a_mirrored_condition_keeps_its_own_time_and_unknown_types_go_last():
    mirrored = [wire("Novel", "True", "X", since=None), wire("Programmed", "True", "Programmed")]
    programmed, novel = mirrored_conditions(mirrored, None, generation=7, now=NOW)
    assert (programmed.type, programmed.last_transition_time) == ("Programmed", EARLIER)
    assert (novel.type, novel.last_transition_time, novel.observed_generation) == ("Novel", NOW, 7)


def test_a_time_that_was_written_before_wins_over_the_mirrored_one():
    old = [wire("Programmed", "True", "Programmed", since=EARLIER)]
    (programmed,) = mirrored_conditions(
        [wire("Programmed", "True", "Programmed", since=NOW)], old, generation=1, now=NOW
    )
    assert programmed.last_transition_time == EARLIER


def test_a_transition_is_another_status_or_reason_and_no_other_message():
    old = [
        wire("Accepted", "True", "Accepted"),
        wire("Programmed", "False", "Pending"),
        wire("Guarded", "True", "Held"),
    ]
    new = [
        wire("Accepted", "True", "Accepted", message="other words"),
        wire("Programmed", "False", "ProviderFailed"),
        wire("Drifted", "True", "Drifted"),
    ]
    ended, *others = transitions(old, new)
    assert others == [Transition(new[1], old[1]), Transition(new[2], None)]
    assert (ended.condition.type, ended.good, ended.before) == ("Guarded", True, old[2])
    assert transitions(old, [*new, wire("Guarded", "True", "Held")]) == others
    assert transitions([wire("Serving", "False", "NoTargets")], []) == [], "it is not known to be good"
    assert transitions(None, None) == []


def test_good_depends_on_the_type():
    good = {
        (kind, status): Transition(wire(kind, status, ""), None).good
        for kind in ("Accepted", "Guarded", "Novel")
        for status in ("True", "False", "Unknown")
    }
    assert [key for key, is_good in good.items() if is_good] == [
        ("Accepted", "True"), ("Guarded", "False"), ("Guarded", "Unknown"), ("Novel", "False"), ("Novel", "Unknown"),
    ]  # fmt: skip
    assert (ACCEPTED.good, PENDING.good, GUARDED.good) == (True, False, False)


def test_a_condition_is_found_by_its_type():
    conditions = [wire("Accepted", "True", ""), wire("Programmed", "Unknown", "")]
    assert condition_of(conditions, ConditionType.PROGRAMMED) is conditions[1]
    assert condition_of(conditions, "Serving") is condition_of(None, "Serving") is None
    assert [is_true(conditions, kind) for kind in ("Accepted", "Programmed", "Serving")] == [True, False, False]


def generation_1(*conditions: WireCondition) -> list[WireCondition]:
    return [msgspec.structs.replace(condition, observed_generation=1) for condition in conditions]


GOOD = [wire("Accepted", "True", "Accepted"), wire("Programmed", "True", "Programmed")]


@pytest.mark.req("F-24")
@pytest.mark.parametrize(
    ("conditions", "held", "ready", "stalled"),
    [
        ([*GOOD, wire("Serving", "True", "Serving")], False, ("True", "Ready"), ""),
        ([*GOOD, wire("Serving", "Unknown", "NotChecked")], False, ("True", "Ready"), ""),
        ([*GOOD, wire("Serving", "Unknown", "WaitingForFirstCheck")], False, ("Unknown", "WaitingForFirstCheck"), ""),
        ([*GOOD, wire("Serving", "False", "NoTargets")], False, ("False", "NoTargets"), ""),
        ([*GOOD, wire("Paused", "True", "PausedByUser")], True, ("Unknown", "PausedByUser"), ""),
        ([*GOOD, wire("Paused", "True", "PausedByUser")], False, ("True", "Ready"), ""),
        ([wire("Accepted", "False", "Invalid"), GOOD[1]], False, ("False", "Invalid"), "Invalid"),
        ([wire("Accepted", "False", "QuotaExceeded"), GOOD[1]], False, ("False", "QuotaExceeded"), ""),
        (
            [GOOD[0], wire("Programmed", "False", "UnsupportedAddressFamily")],
            False,
            ("False", "UnsupportedAddressFamily"),
            "",
        ),
        (
            [wire("Accepted", "False", "UnsupportedAddressFamily"), GOOD[1]],
            False,
            ("False", "UnsupportedAddressFamily"),
            "UnsupportedAddressFamily",
        ),
        (
            [GOOD[0], wire("Programmed", "False", "RejectedByProxy")],
            False,
            ("False", "RejectedByProxy"),
            "RejectedByProxy",
        ),
        ([wire("Accepted", "False", "Invalid"), wire("Ready", "True", "Ready")], False, ("True", "Ready"), "Invalid"),
        ([wire("Exists", "False", "Pending")], False, None, ""),
        ([wire("InUse", "True", "InUse")], False, None, ""),
    ],
)
def test_ready_and_stalled_summarize_the_others(
    conditions: list[WireCondition], held: bool, ready: tuple[str, str] | None, stalled: str
) -> None:
    summary = with_summary(generation_1(*conditions), None, held=held)
    shown = condition_of(summary, "Ready")
    assert (None if shown is None else (shown.status, shown.reason)) == ready
    assert ((condition_of(summary, "Stalled") or WireCondition()).reason) == stalled
    assert {condition.observed_generation for condition in summary} == {1}
    assert with_summary(summary, summary, held=held) == summary


@pytest.mark.req("F-24")
def test_the_time_of_ready_is_kept_while_its_status_is_the_same() -> None:
    before = with_summary(generation_1(*GOOD), None)
    assert condition_of(before, "Ready") == WireCondition("Ready", "True", "Ready", "", 1, EARLIER)
    later = generation_1(GOOD[0], wire("Programmed", "False", "Pending", since=NOW))
    after = with_summary(later, before)
    assert condition_of(after, "Ready") == WireCondition("Ready", "False", "Pending", "", 1, NOW)
    again = with_summary(generation_1(GOOD[0], wire("Programmed", "False", "Rejected", since=EARLIER)), after)
    assert (condition_of(again, "Ready") or WireCondition()).last_transition_time == NOW


def test_a_summary_is_not_a_transition() -> None:
    refused = with_summary(generation_1(wire("Accepted", "False", "Invalid")), None)
    (change,) = transitions(refused, wire_conditions([ACCEPTED], refused, generation=2, now=NOW))
    assert (change.condition.type, change.good) == ("Accepted", True)
