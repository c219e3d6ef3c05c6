"""The table of the states of a BackendRecord, line by line."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import Bug
from fairlead.ledger.records import state_after, state_intended
from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange
from fairlead.testing.builders import HTTP, lb_key, target

STATES = ("", "Pending", "Registered", "Draining", "Deregistering", "Failed")
DONE, RUNNING, RETRY, REJECTED = OutcomeStatus.DONE, OutcomeStatus.RUNNING, OutcomeStatus.RETRY, OutcomeStatus.REJECTED


def change_of(action, *, draining=False):
    return TargetChange(lb_key(), HTTP, msgspec.structs.replace(target("1"), draining=draining), action, Reason.NEW)


@pytest.mark.parametrize("action", [Action.REGISTER, Action.UPDATE])
@pytest.mark.parametrize(
    ("status", "after"),
    [
        (DONE, ["Registered"] * 6),
        (RUNNING, ["", "Pending", "Registered", "Draining", "Deregistering", "Pending"]),
        (RETRY, ["Failed", "Failed", "Registered", "Failed", "Failed", "Failed"]),
        (REJECTED, ["Failed", "Failed", "Registered", "Failed", "Failed", "Failed"]),
    ],
)
def test_an_answer_to_a_registration_decides_the_state(action, status, after):
    assert [state_after(before, change_of(action), status) for before in STATES] == after


@pytest.mark.parametrize("before", STATES)
def test_a_registration_of_a_draining_target_is_draining(before):
    assert state_after(before, change_of(Action.UPDATE, draining=True), DONE) == "Draining"


@pytest.mark.parametrize("action", [Action.DRAIN, Action.DEREGISTER])
@pytest.mark.parametrize("status", list(OutcomeStatus))
@pytest.mark.parametrize("before", STATES)
def test_an_answer_to_a_removal_keeps_the_state_of_the_intent(before, action, status):
    assert state_after(before, change_of(action), status) == before


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize(
    ("action", "intended"),
    [
        (Action.REGISTER, "Pending"),
        (Action.UPDATE, "Pending"),
        (Action.DRAIN, "Draining"),
        (Action.DEREGISTER, "Deregistering"),
    ],
)
def test_an_intent_sets_the_state_whatever_it_was_and_a_change_of_owners_none(before, action, intended):
    change = change_of(action)
    assert state_intended(before, change) == intended
    assert state_intended(before, msgspec.structs.replace(change, reason=Reason.OWNERS_CHANGED)) == before


@pytest.mark.parametrize("action", [Action.ENSURE, Action.DELETE])
def test_changes_without_a_backend_have_no_record(action):
    with pytest.raises(Bug, match="not a change of a backend"):
        state_intended("Pending", change_of(action))
