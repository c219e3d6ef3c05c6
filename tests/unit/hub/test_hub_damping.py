"""What comes and goes is shown with care; that it serves nothing is shown at once."""

from __future__ import annotations

import pytest

from fairlead.api.meta import WireCondition
from fairlead.hub.intents.status import FLAPS, STABLE_S, UNKNOWN_S, WINDOW_S, Damping
from fairlead.model.condition import Condition, ConditionReason, ConditionType

pytestmark = pytest.mark.req("X-1")
R = ConditionReason
UP = Condition(ConditionType.SERVING, True, R.SERVING, "all targets are healthy")
DOWN = Condition(ConditionType.SERVING, False, R.NO_HEALTHY_TARGETS, "none of 2 targets is healthy")
WAITING = Condition(ConditionType.SERVING, None, R.WAITING_FOR_FIRST_CHECK, "no proxy has reported yet")
EMPTY = Condition(ConditionType.SERVING, False, R.NO_TARGETS, "no target")
REFUSED = Condition(ConditionType.SERVING, None, R.NOT_PROGRAMMED, "its targets are healthy, but RejectedByProxy")
SILENT = Condition(ConditionType.SERVING, None, R.PROXIES_SILENT, "hung")
UNCHECKED = Condition(ConditionType.SERVING, None, R.NOT_CHECKED, "UDP")


class Shown:
    """A status that shows at once what it is given, as the writer does."""

    def __init__(self, written: WireCondition | None = None) -> None:
        self.damping = Damping()
        self.written = written
        self.writes = 0

    def at(self, now_s: float, seen: Condition) -> tuple[ConditionReason, float]:
        condition, again_s = self.damping.shown(seen, self.written, now_s=now_s)
        status = {True: "True", False: "False", None: "Unknown"}[condition.status]
        wire = WireCondition("Serving", status, condition.reason.value, condition.message)
        self.writes += wire != self.written
        self.written = wire
        return condition.reason, again_s


def test_the_first_changes_are_shown_at_once():
    shown = Shown()
    assert [shown.at(at_s, seen) for at_s, seen in enumerate([WAITING, UP, DOWN, UP])] == [
        (R.WAITING_FOR_FIRST_CHECK, 0.0),
        (R.SERVING, 0.0),
        (R.NO_HEALTHY_TARGETS, 0.0),
        (R.SERVING, 0.0),
    ]


def flapping() -> Shown:
    shown = Shown()
    for at_s in range(FLAPS + 1):
        shown.at(float(at_s), DOWN if at_s % 2 else UP)
    assert shown.at(float(FLAPS), DOWN)[0] is R.NO_HEALTHY_TARGETS
    return shown


def test_better_news_of_what_flaps_has_to_last():
    shown = flapping()
    begun_s = FLAPS + 1.0
    assert shown.at(begun_s, UP) == (R.FLAPPING, STABLE_S)
    assert shown.at(begun_s + 1, UP) == (R.FLAPPING, STABLE_S - 1)
    assert shown.at(begun_s + STABLE_S, UP) == (R.SERVING, 0.0)


def test_what_flaps_on_is_written_no_more():
    shown = flapping()
    shown.at(FLAPS + 1.0, UP)
    writes = shown.writes
    for at_s in range(FLAPS + 2, 40):
        reason, again_s = shown.at(float(at_s), UP if at_s % 2 else DOWN)
        assert reason is R.FLAPPING
        assert again_s > 0
    assert shown.writes == writes


def test_a_load_balancer_is_down_again_after_flapping():
    shown = flapping()
    shown.at(FLAPS + 1.0, UP)
    reason, again_s = shown.at(FLAPS + 2.0, DOWN)
    assert reason is R.FLAPPING
    assert again_s <= WINDOW_S
    assert shown.at(FLAPS + 2.0 + WINDOW_S, DOWN) == (R.NO_HEALTHY_TARGETS, 0.0)


def test_what_an_earlier_hub_wrote_stays_until_something_is_known_again():
    shown = Shown(WireCondition("Serving", "False", "NoHealthyTargets", "none of 2 targets is healthy"))
    assert shown.at(0.0, WAITING) == (R.NO_HEALTHY_TARGETS, UNKNOWN_S)
    assert shown.at(4.0, WAITING) == (R.NO_HEALTHY_TARGETS, UNKNOWN_S - 4)
    assert shown.writes == 0
    assert shown.at(5.0, DOWN) == (R.NO_HEALTHY_TARGETS, 0.0)
    assert shown.writes == 0
    assert shown.at(6.0, WAITING) == (R.NO_HEALTHY_TARGETS, UNKNOWN_S)
    assert shown.at(6.0 + UNKNOWN_S, WAITING) == (R.WAITING_FOR_FIRST_CHECK, 0.0)


def test_disabled_checks_are_not_a_pause():
    shown = Shown(WireCondition("Serving", "True", "Serving", "all targets are healthy"))
    assert shown.at(0.0, UNCHECKED) == (R.NOT_CHECKED, 0.0)


def test_that_a_proxy_reports_no_more_is_shown_at_once_since_it_has_lasted_already():
    shown = Shown()
    shown.at(0.0, UP)
    assert shown.at(1.0, SILENT) == (R.PROXIES_SILENT, 0.0)


@pytest.mark.parametrize(("written", "seen"), [(EMPTY, WAITING), (EMPTY, REFUSED), (DOWN, REFUSED)])
def test_outdated_entries_are_not_kept(written, seen):
    shown = Shown()
    shown.at(0.0, written)
    assert shown.at(1.0, seen) == (seen.reason, 0.0)


def test_what_served_is_kept_while_a_change_is_on_its_way():
    shown = Shown()
    shown.at(0.0, UP)
    assert shown.at(1.0, REFUSED) == (R.SERVING, UNKNOWN_S)


def test_targets_that_come_and_go_are_damped_though_each_has_to_be_checked_first():
    shown = Shown()
    for at_s in range(FLAPS):
        shown.at(float(3 * at_s), UP)
        shown.at(3 * at_s + 1.0, EMPTY)
        shown.at(3 * at_s + 2.0, WAITING)
    assert shown.at(3.0 * FLAPS, UP) == (R.FLAPPING, STABLE_S)


@pytest.mark.req("CORE-19")
def test_a_reason_of_a_newer_release_is_not_kept():
    now = Condition(ConditionType.SERVING, None, ConditionReason.PENDING, "x")
    written = WireCondition("Serving", "True", "SomethingOfANewerRelease", "y")
    assert Damping().shown(now, written, now_s=1.0) == (now, 0.0)
