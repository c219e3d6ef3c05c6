"""What carrying out a plan came to, and when its load balancer is due again: tables over results, in virtual time."""

from __future__ import annotations

import pytest

from fairlead.errors import Bug, Retry, Terminal, Throttled
from fairlead.model.change import DONE, Outcome, OutcomeStatus
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.sync.history import Failed, Finished, InProgress, UnexpectedError, failure_of, result_of, result_of_error
from fairlead.sync.worker import POLL_S, Schedule
from fairlead.testing.builders import lb_key

KEY = lb_key()


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (None, Finished()),
        (Outcome(OutcomeStatus.RUNNING, "creating", 3.0), InProgress(3.0)),
        (Outcome(OutcomeStatus.RETRY, "busy", 7.0), Failed("busy", "Retry", 7.0)),
        (Outcome(OutcomeStatus.REJECTED, "no"), Failed("no", "Rejected", 0.0)),
    ],
)
def test_the_result_of_a_plan(outcome, result):
    assert result_of(outcome) == result
    assert DONE.status is OutcomeStatus.DONE


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (Retry("down", reason="Down"), Failed("down", "Down", 0.0)),
        (Throttled("429", after_s=9.0), Failed("429", "Throttled", 9.0)),
        (Terminal("quota", reason="QuotaExceeded"), Failed("quota", "QuotaExceeded", 0.0)),
        (Bug("impossible"), Failed("impossible", "Bug", 0.0)),
        (ZeroDivisionError("secret"), UnexpectedError()),
    ],
)
def test_the_result_of_an_error(error, result):
    assert result_of_error(error) == result


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        (Finished(), ("", "")),
        (InProgress(1.0), ("", "")),
        (Failed("quota", "QuotaExceeded"), ("quota", "QuotaExceeded")),
        (UnexpectedError(), ("an internal error of the hub; its log says more", "InternalError")),
    ],
)
def test_what_the_status_says_of_a_result(result, failure):
    assert failure_of(result) == failure


def scheduled(*results, drained_s=None):
    """Return a schedule after ``results`` at second 0."""
    schedule = Schedule(VirtualClock())
    for result in results:
        schedule.ended(KEY, result, drained_s=drained_s)
    return schedule


@pytest.mark.parametrize(
    ("result", "least_s", "most_s"),
    [
        (InProgress(), POLL_S, POLL_S),
        (InProgress(2.0), 2.0, 2.0),
        (Failed("x", "X"), 0.05, 0.1),
        (Failed("x", "X", 30.0), 30.0, 30.0),
        (UnexpectedError(), BUG_RETRY_S, BUG_RETRY_S),
    ],
)
def test_when_it_is_due_again(result, least_s, most_s):
    assert least_s <= scheduled(result).next_s <= most_s


def test_finished_work_is_due_as_planned():
    schedule = scheduled(Finished())
    assert schedule.next_s is None
    schedule.planned(KEY, 5.0)
    schedule.ended(KEY, Finished(), drained_s=None)
    assert schedule.next_s == 5.0
    schedule.planned(KEY, None)
    assert schedule.next_s is None


def test_pauses_grow_with_each_failure_in_a_row_and_only_failures_count():
    failures = [Failed("x", "X")] * 6
    assert scheduled(*failures).next_s >= 1.6
    schedule = scheduled(*failures, Finished())
    assert (schedule.failing, schedule.retries) == (0, 6)
    schedule = scheduled(*failures, InProgress())
    assert (schedule.failing, schedule.next_s) == (0, POLL_S)
    assert scheduled(*failures, Failed("x", "X")).failing == 1


def test_a_guard_that_wants_to_go_on_does_not_shorten_the_pause_after_a_failure():
    schedule = Schedule(VirtualClock())
    schedule.planned(KEY, 1.0)
    schedule.ended(KEY, Failed("x", "X", 30.0), drained_s=None)
    assert schedule.next_s == 30.0


def test_the_end_of_a_drain_counts_also_after_a_failure():
    assert scheduled(Failed("x", "X", 30.0), drained_s=12.0).next_s == 12.0


async def test_due_keys_are_handed_over_once():
    clock = VirtualClock()
    schedule = Schedule(clock)
    schedule.add(KEY, 5.0)
    schedule.add(KEY, 9.0)
    schedule.add(lb_key("other"), 6.0)
    assert schedule.take_due() == []
    clock.jump(5.0)
    assert schedule.take_due() == [KEY]
    assert schedule.take_due() == []
    clock.jump(5.0)
    assert schedule.next_s == 0.0, "a time that has passed is now"
