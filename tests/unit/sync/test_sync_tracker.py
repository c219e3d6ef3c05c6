"""Two models and what differs: only a success is kept as done, and nothing old overwrites a newer desired state."""

from __future__ import annotations

import pytest

from fairlead.errors import Bug
from fairlead.model.change import DONE, Action, FrontendChange, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.sync.plan import Registered, Tracker, plan_load_balancer
from fairlead.testing.builders import HTTP, desired, lb_key, target

RETRY = Outcome(OutcomeStatus.RETRY, "busy")
REJECTED = Outcome(OutcomeStatus.REJECTED, "no")
KEY = lb_key()


def plan_of(tracker, *, now_s=0.0):
    return plan_load_balancer(KEY, tracker.state(KEY), now_s=now_s)


def carry_out(tracker, outcome=DONE, *, now_s=0.0):
    plan = plan_of(tracker, now_s=now_s)
    tracker.begin_targets(plan.changes)
    if plan.frontend is not None:
        tracker.begin_frontend(plan.frontend)
        tracker.apply_frontend_result(plan.frontend, outcome)
    tracker.apply_results(plan.changes, [outcome] * len(plan.changes), now_s=now_s)
    return plan


def begin(tracker, plan):
    """Begin what ``plan`` has to do about the load balancer itself."""
    assert plan.frontend is not None
    tracker.begin_frontend(plan.frontend)


def fold(tracker, plan):
    """Have that done."""
    assert plan.frontend is not None
    tracker.apply_frontend_result(plan.frontend, DONE)


def engaged(*targets):
    tracker = Tracker()
    tracker.put(desired(targets))
    carry_out(tracker)
    tracker.pop_dirty()
    return tracker


class TestPut:
    def test_a_new_desired_state_is_dirty_once(self):
        tracker = Tracker()
        assert tracker.put(desired([target("1")]))
        assert not tracker.put(desired([target("1")]))
        assert tracker.pop_dirty() == [KEY]
        assert tracker.dirty == 0

    def test_double_create_does_not_reset_state(self):
        tracker = engaged(target("1"))
        tracker.put(desired([target("1")]))
        assert tracker.dirty == 0
        assert target("1").key in tracker.state(KEY).recorded[HTTP]

    def test_dirty_keys_come_oldest_first(self):
        tracker = Tracker()
        for name in ("c", "a", "b"):
            tracker.put(desired([], key=lb_key(name)))
        assert [key.name for key in tracker.pop_dirty()] == ["c", "a", "b"]

    def test_a_desired_state_that_is_taken_back_before_the_run_leaves_no_rows(self):
        tracker = engaged(target("1"))
        tracker.put(desired([target("1"), target("2")]))
        tracker.put(desired([target("1")]))
        assert plan_of(tracker).empty


class TestFold:
    def test_only_what_succeeded_is_done(self):
        tracker = Tracker()
        tracker.put(desired([target("1"), target("2"), target("3")]))
        plan = plan_of(tracker)
        tracker.begin_targets(plan.changes)
        tracker.apply_results(plan.changes, [DONE, RETRY, REJECTED], now_s=0)
        done = tracker.state(KEY).recorded[HTTP]
        assert done[plan.changes[0].key] == Registered(plan.changes[0].target, since=0, reason=Reason.NEW)
        assert done[plan.changes[1].key].unknown
        assert plan.changes[2].key not in done

    def test_unanswered_registrations_are_removed(self):
        tracker = engaged(target("1"))
        tracker.put(desired([target("1"), target("2")]))
        tracker.begin_targets(plan_of(tracker).changes)
        tracker.put(desired([target("1")]))
        (change,) = plan_of(tracker).changes
        assert (change.key, change.action) == (target("2").key, Action.DEREGISTER)

    def test_an_unanswered_change_is_undone_when_desired_state_reverts(self):
        tracker = engaged(target("1"), target("2"))
        tracker.put(desired([target("1"), target("2", draining=True)]))
        tracker.begin_targets(plan_of(tracker).changes)
        tracker.put(desired([target("1"), target("2")]))
        (change,) = plan_of(tracker).changes
        assert (change.key, change.action, change.target.draining) == (target("2").key, Action.REGISTER, False)

    def test_a_refusal_is_an_answer(self):
        tracker = engaged(target("1"))
        tracker.put(desired([target("1", weight=3)]))
        plan = plan_of(tracker)
        tracker.begin_targets(plan.changes)
        tracker.apply_results(plan.changes, [REJECTED], now_s=0)
        as_before = Registered(target("1"), since=0.0, reason=Reason.NEW)
        assert tracker.state(KEY).recorded[HTTP] == {target("1").key: as_before}

    def test_the_refusal_of_the_only_target_leaves_no_empty_listener(self):
        tracker = Tracker()
        tracker.put(desired([target("1")]))
        carry_out(tracker, REJECTED)
        assert tracker.state(KEY).recorded == {}

    def test_served_and_drain_times_restart_independently(self):
        tracker = engaged(target("1"))

        def stands():
            known = tracker.state(KEY).recorded[HTTP][target("1").key]
            return (known.since, known.reason, known.draining)

        assert stands() == (0.0, Reason.NEW, False)
        tracker.put(desired([target("1", weight=3)]))
        carry_out(tracker, now_s=5.0)
        tracker.mark_unknown(KEY)
        carry_out(tracker, now_s=6.0)
        assert stands() == (0.0, Reason.NEW, False), "another weight, and registering it again, change nothing of that"
        tracker.put(desired([target("1", draining=True)]))
        carry_out(tracker, now_s=7.0)
        assert stands() == (7.0, Reason.TERMINATING, True)
        tracker.put(desired([target("1")]))
        carry_out(tracker, now_s=9.0)
        assert stands() == (9.0, Reason.CHANGED, False)
        tracker.put(desired([target("2")], drain_s=30))
        carry_out(tracker, now_s=11.0)
        assert stands() == (11.0, Reason.ABSENT, True)

    def test_a_drain_begins_when_it_was_answered(self):
        tracker = engaged(target("1"), target("2"))
        tracker.put(desired([target("1")], drain_s=30))
        carry_out(tracker, now_s=12.0)
        assert tracker.state(KEY).recorded[HTTP][target("2").key].draining_since == 12.0
        assert plan_of(tracker, now_s=12.0).wake_at_s == 42.0

    def test_a_target_that_comes_back_while_leaving_is_ready_again(self):
        tracker = engaged(target("1"), target("2"))
        tracker.put(desired([target("1")], drain_s=30))
        carry_out(tracker, now_s=12.0)
        tracker.put(desired([target("1"), target("2")], drain_s=30))
        carry_out(tracker, now_s=13.0)
        assert tracker.state(KEY).recorded[HTTP][target("2").key] == Registered(
            target("2"), since=13.0, reason=Reason.CHANGED
        )

    def test_a_stale_delete_of_a_target_is_ignored(self):
        tracker = engaged(target("1"))
        change = TargetChange(KEY, HTTP, target("9"), Action.DEREGISTER, Reason.ABSENT, tracker.state(KEY).generation)
        tracker.apply_results([change], [DONE], now_s=0)
        assert set(tracker.state(KEY).recorded[HTTP]) == {target("1").key}

    def test_results_of_an_earlier_life_are_not_applied(self):
        tracker = Tracker()
        tracker.put(desired([target("1")]))
        before = plan_of(tracker)
        tracker.remove(KEY)
        gone = plan_of(tracker)
        fold(tracker, gone)
        tracker.put(desired([]))
        tracker.begin_targets(before.changes)
        fold(tracker, before)
        tracker.apply_results(before.changes, [DONE], now_s=0)
        assert tracker.state(KEY).recorded == {}
        assert tracker.state(KEY).recorded_spec is None

    def test_a_fold_for_an_unknown_key_is_ignored(self):
        tracker = Tracker()
        tracker.apply_frontend_result(FrontendChange(KEY, None, Action.DELETE, Reason.OWNER_DELETED), DONE)
        tracker.apply_results([TargetChange(KEY, HTTP, target("1"), Action.REGISTER, Reason.NEW)], [DONE], now_s=0)
        assert KEY not in tracker

    def test_a_row_about_a_load_balancer_is_not_about_a_target(self):
        tracker = engaged(target("1"))
        change = TargetChange(KEY, HTTP, target("1"), Action.ENSURE, Reason.NEW, tracker.state(KEY).generation)
        with pytest.raises(Bug):
            tracker.apply_results([change], [DONE], now_s=0)

    def test_outcomes_that_do_not_match_are_a_mistake(self):
        tracker = engaged(target("1"))
        with pytest.raises(ValueError, match="zip"):
            tracker.apply_results([], [DONE], now_s=0)


class TestRemove:
    def test_delete_during_create_routes_to_deletion(self):
        tracker = Tracker()
        tracker.put(desired([target("1")]))
        tracker.pop_dirty()
        creating = plan_of(tracker)
        begin(tracker, creating)
        assert tracker.remove(KEY)
        fold(tracker, creating)
        assert tracker.pop_dirty() == [KEY]
        deleting = plan_of(tracker)
        assert deleting.frontend.action is Action.DELETE
        fold(tracker, deleting)
        assert KEY not in tracker

    @pytest.mark.req("I-3")
    def test_an_unknown_one_is_deleted_when_an_earlier_process_may_have_made_it(self):
        tracker = Tracker()
        assert not tracker.remove(KEY)
        assert KEY not in tracker
        assert tracker.remove(KEY, though_unknown=True)
        assert plan_of(tracker).frontend.action is Action.DELETE

    def test_twice_is_once(self):
        tracker = engaged(target("1"))
        assert tracker.remove(KEY)
        assert not tracker.remove(KEY)
        assert not tracker.remove(KEY, though_unknown=True)

    def test_an_object_recreated_during_deletion_is_created_again(self):
        tracker = engaged(target("1"))
        tracker.remove(KEY)
        tracker.pop_dirty()
        deleting = plan_of(tracker)
        tracker.begin_targets(deleting.changes)
        assert tracker.put(desired([target("1")]))
        tracker.apply_results(deleting.changes, [DONE], now_s=0)
        fold(tracker, deleting)
        assert tracker.pop_dirty() == [KEY]
        plan = plan_of(tracker)
        assert (plan.frontend.action, plan.frontend.reason) == (Action.ENSURE, Reason.NEW)
        assert [change.action for change in plan.changes] == [Action.REGISTER]

    def test_recreate_after_a_deletion_whose_answer_was_lost_is_ensured(self):
        tracker = engaged(target("1"))
        tracker.remove(KEY)
        deleting = plan_of(tracker)
        tracker.apply_results(deleting.changes, [DONE], now_s=0)
        begin(tracker, deleting)
        tracker.put(desired([target("1")]))
        assert plan_of(tracker).frontend.action is Action.ENSURE

    def test_revived_before_the_deletion_began_nothing_happens(self):
        tracker = engaged(target("1"))
        tracker.remove(KEY)
        tracker.put(desired([target("1")]))
        assert plan_of(tracker).empty


class TestRestore:
    @pytest.mark.req("I-4")
    def test_what_the_ledger_does_not_hold_is_in_no_plan(self):
        tracker = Tracker()
        desired_state = desired([target("1")])
        tracker.restore(desired_state.spec, {HTTP: {target("1").key: Registered(target("1"))}})
        tracker.put(desired_state)
        assert plan_of(tracker).changes == ()

    def test_the_frontend_is_ensured_again_since_the_record_may_be_older_than_it(self):
        tracker = Tracker()
        desired_state = desired([target("1")])
        tracker.restore(desired_state.spec, {HTTP: {target("1").key: Registered(target("1"))}})
        tracker.put(desired_state)
        assert carry_out(tracker).frontend.action is Action.ENSURE
        assert plan_of(tracker).empty

    def test_what_the_ledger_holds_and_no_object_wants_is_deleted(self):
        tracker = Tracker()
        tracker.restore(desired([]).spec, {HTTP: {target("1").key: Registered(target("1"))}})
        assert tracker.pop_dirty() == []
        assert plan_of(tracker).empty, "nobody has said yet that it is not wanted"
        assert tracker.remove(KEY)
        assert tracker.pop_dirty() == [KEY]
        plan = plan_of(tracker)
        assert [change.action for change in plan.changes] == [Action.DEREGISTER]

    def test_twice_is_a_mistake(self):
        tracker = engaged(target("1"))
        with pytest.raises(Bug):
            tracker.restore(desired([]).spec, {})


class TestTouch:
    def test_only_what_is_known_becomes_dirty(self):
        tracker = engaged(target("1"))
        tracker.touch([KEY, lb_key("other")])
        assert tracker.pop_dirty() == [KEY]

    def test_ensure_again_makes_the_frontend_due(self):
        tracker = engaged(target("1"))
        tracker.ensure_again([KEY, lb_key("other")])
        assert tracker.pop_dirty() == [KEY]
        assert plan_of(tracker).frontend.action is Action.ENSURE
        carry_out(tracker)
        assert plan_of(tracker).empty

    def test_unhealthy_and_total_are_counted(self):
        tracker = engaged(target("1"))
        assert (len(tracker), list(tracker), KEY in tracker) == (1, [KEY], True)
        assert not tracker.state(KEY).gone


@pytest.mark.req("A-27")
@pytest.mark.parametrize("status", [status for status in OutcomeStatus if status is not OutcomeStatus.DONE])
def test_other_addresses_of_the_same_call_are_recorded_by_their_own_outcomes(status):
    """One call about three addresses: each is recorded as its own answer says, whatever the answers about others."""
    tracker = Tracker()
    tracker.put(desired([target("1"), target("2"), target("3")]))
    plan = plan_of(tracker)
    begin(tracker, plan)
    fold(tracker, plan)
    tracker.begin_targets(plan.changes)
    failed = target("2").key
    outcomes = [Outcome(status, "no") if change.key == failed else DONE for change in plan.changes]
    tracker.apply_results(plan.changes, outcomes, now_s=0)
    recorded = tracker.state(KEY).recorded[HTTP]
    assert {key for key, registered in recorded.items() if not registered.unknown} == {target("1").key, target("3").key}
    if status is OutcomeStatus.REJECTED:
        assert failed not in recorded, "a refusal is an answer: nothing has happened"
    else:
        assert recorded[failed].unknown
    assert {change.key for change in plan_of(tracker).changes} == {failed}
