"""What a guard holds back, in whose words, and that it releases in the end."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.change import DONE, Action, FrontendChange, Reason
from fairlead.model.desired import GuardPolicy
from fairlead.model.health import HealthCheck
from fairlead.model.observed import Seen
from fairlead.sync.plan import (
    FIRST_CHECK_S,
    LAST_TARGETS,
    PACE_S,
    PAUSED,
    STALE_VIEW,
    TOO_MANY,
    UNHEALTHY_REPLACEMENT,
    WARM_S,
    WARMING,
    LoadBalancerState,
    Registered,
    Tracker,
    guard_plan,
    plan_load_balancer,
)
from fairlead.testing.builders import HTTP, desired, target

NOW_S = 50.0


def side_of(desired_state, ready, **text):
    done = {HTTP: {each.key: Registered(each, **text) for each in ready}} if ready else {}
    return LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec, recorded=done)


def guarded(desired_state, ready, **text):
    side = side_of(desired_state, ready, **text)
    return guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)


def numbers(count, *, start=1, **text):
    return [target(str(start + number), **text) for number in range(count)]


def held_reasons(plan):
    return {row.reason for row in plan.held}


@pytest.mark.req("S-6")
def test_invalid_targets_are_removed_despite_the_guard():
    wanted = msgspec.structs.replace(
        desired([], drain_s=30.0, stale="a slice cannot be read"), excluded_targets={target("1").key}
    )
    plan = guarded(wanted, numbers(2))
    assert [(change.key, change.action, change.reason) for change in plan.changes] == [
        (target("1").key, Action.DEREGISTER, Reason.REPLACED)
    ]
    assert [row.change.key for row in plan.held] == [target("2").key]


@pytest.mark.req("I-1")
class TestLastTargets:
    def test_b01_all_nodes_gone_at_once_keeps_them_all(self):
        plan = guarded(desired([]), numbers(10))
        assert plan.changes == ()
        assert len(plan.held) == 10
        assert held_reasons(plan) == {LAST_TARGETS}
        assert "guard.minBackends 1" in plan.held[0].message

    def test_b03_one_empty_cycle_changes_nothing(self):
        ready = numbers(4)
        assert guarded(desired([]), ready).changes == ()
        assert guarded(desired(ready), ready).changes == ()

    @pytest.mark.req("L4-2")
    def test_a_scale_to_nothing_that_was_reported_is_believed(self):
        plan = guarded(desired(numbers(3, draining=True)), numbers(3))
        assert [(change.action, change.reason) for change in plan.changes] == [(Action.UPDATE, Reason.TERMINATING)] * 3
        assert plan.held == ()

    @pytest.mark.req("L4-2")
    def test_the_last_one_goes_once_it_was_reported_terminating(self):
        for recorded in (target("1", draining=True), target("1", terminating=True)):
            plan = guarded(desired([]), [recorded])
            assert [(change.action, change.reason) for change in plan.changes] == [
                (Action.DEREGISTER, Reason.TERMINATING)
            ]
            assert plan.held == ()

    @pytest.mark.req("L4-2")
    def test_what_vanishes_is_held_when_what_was_reported_goes(self):
        plan = guarded(desired([]), [target("1"), target("2", terminating=True)])
        assert [change.key for change in plan.changes] == [target("2").key]
        assert [row.change.key for row in plan.held] == [target("1").key]

    def test_a_replacement_releases_the_old_one(self):
        plan = guarded(desired([target("9")]), numbers(1))
        assert [change.action for change in plan.changes] == [Action.REGISTER, Action.DEREGISTER]
        assert plan.held == ()

    def test_a_checked_replacement_is_given_a_moment_first(self):
        desired_state = desired([target("9")], health_check=HealthCheck())
        plan = guarded(desired_state, numbers(1))
        assert [change.action for change in plan.changes] == [Action.REGISTER]
        assert held_reasons(plan) == {WARMING}
        assert plan.wake_at_s == NOW_S + WARM_S
        assert guarded(desired_state, [*numbers(1), target("9")]).held == ()

    def test_an_old_one_that_stays_is_warm_enough(self):
        plan = guarded(desired([*numbers(1), target("9")], health_check=HealthCheck()), numbers(2))
        assert plan.held == ()

    def test_a_draining_target_is_not_a_replacement(self):
        plan = guarded(desired([target("9", draining=True)]), numbers(1))
        assert held_reasons(plan) == {LAST_TARGETS}

    def test_the_minimum_of_the_class_counts(self):
        desired_state = desired(numbers(2), guard=GuardPolicy(max_removal_percent=100, min_targets=3))
        plan = guarded(desired_state, numbers(4))
        assert held_reasons(plan) == {LAST_TARGETS}
        assert "left with 2 ready targets" in plan.held[0].message

    def test_a_minimum_of_zero_releases_everything(self):
        plan = guarded(desired([], guard=GuardPolicy(100, 0)), numbers(3))
        assert len(plan.changes) == 3
        assert plan.held == ()

    def test_targets_whose_answer_was_lost_do_not_count_as_left(self):
        desired_state = desired([])
        side = side_of(desired_state, [])
        side.recorded[HTTP] = {target("2").key: Registered(target("2"), unknown=True)}
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert [(change.action, change.target) for change in plan.changes] == [(Action.REGISTER, target("2"))]
        assert held_reasons(plan) == {LAST_TARGETS}

    def test_each_listener_is_judged_by_itself(self):
        desired_state = desired({HTTP: [target("1")]}, ports=[80, 81])
        other = desired_state.spec.listeners[1].key
        first, two = target("1"), target("2")
        side = LoadBalancerState(
            desired=desired_state,
            recorded_spec=desired_state.spec,
            recorded={
                HTTP: {first.key: Registered(first), two.key: Registered(two)},
                other: {first.key: Registered(first)},
            },
        )
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert [(change.listener, change.key) for change in plan.changes] == [(HTTP, two.key)]
        assert [row.change.listener for row in plan.held] == [other]


class TestTooMany:
    @pytest.mark.req("I-1")
    def test_half_of_what_vanished_unexplained_goes_now(self):
        plan = guarded(desired(numbers(1)), numbers(10))
        assert len(plan.changes) == 5
        assert held_reasons(plan) == {TOO_MANY}
        assert "9 of 10 targets" in plan.held[0].message
        assert plan.wake_at_s == NOW_S + PACE_S

    def test_the_portion_is_the_same_whatever_the_order(self):
        first = guarded(desired(numbers(1)), numbers(10))
        second = guarded(desired(numbers(1)), list(reversed(numbers(10))))
        assert sorted(change.key for change in first.changes) == sorted(change.key for change in second.changes)

    def test_one_always_goes(self):
        plan = guarded(desired(numbers(1), guard=GuardPolicy(max_removal_percent=1)), numbers(3))
        assert len(plan.changes) == 1

    def test_targets_reported_terminating_are_removed_at_once(self):
        desired_state = desired([*numbers(9, draining=True), target("10")])
        plan = guarded(desired_state, numbers(10))
        assert [change.reason for change in plan.changes] == [Reason.TERMINATING] * 9
        assert plan.held == ()

    def test_an_earlier_wake_up_is_kept(self):
        desired_state = desired(numbers(1), drain_s=30.0)
        side = side_of(desired_state, numbers(10))
        leaving = target("99", draining=True)
        side.recorded[HTTP][leaving.key] = Registered(leaving, draining_since=NOW_S - 29)
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert plan.wake_at_s == NOW_S + 1

    @pytest.mark.req("I-1")
    def test_pacing_converges(self):
        tracker, now_s = Tracker(), NOW_S
        fold(tracker, desired(numbers(64)), now_s)
        desired_state = desired(numbers(1))
        tracker.put(desired_state)
        left: list[int] = []
        for _ in range(12):
            side = tracker.state(desired_state.key)
            assert side is not None
            plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=now_s), side, now_s=now_s)
            tracker.apply_results(plan.changes, [DONE] * len(plan.changes), now_s=now_s)
            left.append(len(tracker.state(desired_state.key).recorded[HTTP]))
            if plan.wake_at_s is None:
                break
            now_s = plan.wake_at_s
        assert left[0] == 32
        assert left == sorted(left, reverse=True)
        assert left[-1] == 1
        assert now_s - NOW_S <= 8 * PACE_S


def fold(tracker, desired_state, now_s):
    tracker.put(desired_state)
    side = tracker.state(desired_state.key)
    plan = plan_load_balancer(desired_state.key, side, now_s=now_s)
    tracker.apply_frontend_result(plan.frontend, DONE)
    tracker.apply_results(plan.changes, [DONE] * len(plan.changes), now_s=now_s)


class TestStaleView:
    @pytest.mark.req("I-1")
    def test_nothing_is_removed_and_additions_go_on(self):
        plan = guarded(desired([*numbers(9), target("99")], stale="endpointslices: unreachable"), numbers(10))
        assert [change.action for change in plan.changes] == [Action.REGISTER]
        assert held_reasons(plan) == {STALE_VIEW}
        assert plan.held[0].message == "endpointslices: unreachable"

    @pytest.mark.req("I-1")
    def test_a_target_is_not_even_drained(self):
        plan = guarded(desired([target("1", draining=True), target("2")], stale="x"), numbers(2))
        assert plan.changes == ()

    def test_a_port_that_the_user_took_away_goes(self):
        desired_state = desired(numbers(1), ports=[80], stale="x")
        side = side_of(desired_state, numbers(1))
        gone = desired([], ports=[443]).spec.listeners[0].key
        side.recorded[gone] = {target("1").key: Registered(target("1"))}
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert [change.reason for change in plan.changes] == [Reason.LISTENER_REMOVED]


class TestOwnerDeletion:
    @pytest.mark.req("I-3")
    def test_passes_every_guard(self):
        desired_state = desired(numbers(5))
        side = side_of(desired_state, numbers(5))
        side.desired = None
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert len(plan.changes) == 5
        assert plan.held == ()
        assert isinstance(plan.frontend, FrontendChange)

    def test_what_has_been_drained_goes_even_as_the_last_one(self):
        leaving = target("1", draining=True)
        desired_state = desired([], drain_s=5)
        side = LoadBalancerState(
            desired=desired_state,
            recorded_spec=desired_state.spec,
            recorded={HTTP: {leaving.key: Registered(leaving, 0.0)}},
        )
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert [change.reason for change in plan.changes] == [Reason.DRAINED]


@pytest.mark.req("I-10")
class TestPaused:
    def test_nothing_changes_not_even_additions(self):
        plan = guarded(desired([*numbers(2), target("9")], paused=True, address="192.0.2.9"), numbers(3))
        assert plan.empty
        assert held_reasons(plan) == {PAUSED}
        # How it ends depends on what is paused: the condition Paused has the command where there is one.
        assert plan.held[0].message == "paused; the held changes are applied when the pause ends"

    def test_new_load_balancers_are_programmed_once(self):
        desired_state = desired(numbers(2), paused=True)
        side = LoadBalancerState(desired=desired_state)
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert len(plan.changes) == 2

    def test_the_owner_may_still_delete_it(self):
        desired_state = desired(numbers(2), paused=True)
        side = side_of(desired_state, numbers(2))
        side.desired = None
        assert len(guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S).changes) == 2


def test_every_held_row_says_what_it_would_have_done():
    plan = guarded(desired([]), numbers(2))
    assert {(row.change.action, row.change.reason) for row in plan.held} == {(Action.DEREGISTER, Reason.ABSENT)}


class TestHeldAfterALoss:
    """The provider has lost what it had: what a guard keeps in service is registered again."""

    def test_held_backends_are_registered_again_from_records(self):
        recorded = numbers(2, weight=7)
        plan = guarded(desired([], drain_s=5), recorded, unknown=True)
        assert held_reasons(plan) == {LAST_TARGETS}
        assert [(change.action, change.target) for change in plan.changes] == [
            (Action.REGISTER, each) for each in recorded
        ]

    def test_terminating_targets_serve_again_while_held(self):
        wanted = desired(numbers(2, draining=True), stale="a slice cannot be read")
        plan = guarded(wanted, numbers(2), unknown=True)
        assert [(change.action, change.target.draining) for change in plan.changes] == [(Action.REGISTER, False)] * 2

    def test_only_what_is_held_comes_back(self):
        desired_state = desired([target("9")], guard=GuardPolicy(50, 1))
        side = side_of(desired_state, [target("9")])
        side.recorded[HTTP] |= {each.key: Registered(each, unknown=True) for each in numbers(4)}
        plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
        assert held_reasons(plan) == {TOO_MANY}
        again = {change.key for change in plan.changes if change.action is Action.REGISTER}
        assert again == {row.change.key for row in plan.held}

    def test_unanswered_and_leaving_targets_do_not_return(self):
        leaving = numbers(2, draining=True)
        assert guarded(desired([], stale="the view is old"), numbers(2), unknown=True, unacknowledged=True).empty
        assert guarded(desired(leaving, stale="the view is old"), leaving, unknown=True).empty

    def test_paused_load_balancers_keep_serving(self):
        recorded = [target("1", weight=7), target("2")]
        wanted = [target("1", weight=1), target("9")]
        plan = guarded(desired(wanted, paused=True), recorded, unknown=True)
        assert held_reasons(plan) == {PAUSED}
        assert [(change.action, change.target) for change in plan.changes] == [
            (Action.REGISTER, each) for each in recorded
        ]
        assert plan.frontend is None

    def test_paused_and_lost_load_balancers_wait(self):
        side = side_of(desired(numbers(2), paused=True), numbers(2), unknown=True)
        side.missing = True
        assert guard_plan(plan_load_balancer(side.desired.key, side, now_s=NOW_S), side, now_s=NOW_S).empty


@pytest.mark.req("L4-9")
def test_targets_of_an_earlier_service_of_the_name_go_at_once():
    earlier = msgspec.structs.replace(target("1"), owners=("Service/shop/web/first",))
    wanted = msgspec.structs.replace(desired([]), owners={HTTP: frozenset({"Service/shop/web/second"})})
    plan = guarded(wanted, [earlier])
    assert [(change.action, change.reason) for change in plan.changes] == [(Action.DEREGISTER, Reason.OWNER_DELETED)]
    assert plan.held == ()


@pytest.mark.req("L4-8")
@pytest.mark.parametrize(
    ("registered_s", "held"), [(NOW_S - WARM_S, 0), (None, 3)], ids=["replaced", "a-part-is-missing"]
)
def test_a_list_that_was_replaced_as_a_whole_goes_together(registered_s, held):
    """One new target takes over from six; if six of seven old ones are missing, half are removed at once."""
    old, new = numbers(6), target("9")
    desired_state = desired([new], health_check=HealthCheck())
    side = side_of(desired_state, old)
    side.recorded[HTTP][new.key] = Registered(new, since=registered_s)
    plan = guard_plan(plan_load_balancer(desired_state.key, side, now_s=NOW_S), side, now_s=NOW_S)
    assert len(plan.held) == held
    assert len(plan.changes) == 6 - held


@pytest.mark.req("L4-8")
def test_the_old_targets_stay_until_the_new_ones_can_be_checked():
    old, new = numbers(6), target("9")
    plan = guarded(desired([new], health_check=HealthCheck()), old)
    assert [change.key for change in plan.changes] == [new.key]
    assert held_reasons(plan) == {WARMING}
    assert plan.wake_at_s == NOW_S + WARM_S


def replaced(seen, *, since=NOW_S - 2 * WARM_S, new_reason=None):
    """Return the plan of a list of six that one new target replaced, with what is seen of each target."""
    old, new = numbers(6), target("9")
    desired_state = desired([new], health_check=HealthCheck())
    side = side_of(desired_state, old)
    side.recorded[HTTP][new.key] = Registered(new, since=since, reason=new_reason)
    whole = plan_load_balancer(desired_state.key, side, now_s=NOW_S)
    return guard_plan(whole, side, now_s=NOW_S, seen_of=lambda _key, _listener, key: seen.get(key, Seen.UNCHECKED))


@pytest.mark.req("L4-8")
@pytest.mark.parametrize(
    ("new", "since", "held_by"),
    [
        (Seen.HEALTHY, NOW_S - 2, None),
        (Seen.UNHEALTHY, NOW_S - 2, UNHEALTHY_REPLACEMENT),
        (Seen.UNHEALTHY, NOW_S - 40, UNHEALTHY_REPLACEMENT),
        (Seen.WAITING, NOW_S - 2, WARMING),
        (Seen.WAITING, NOW_S - FIRST_CHECK_S - 1, None),
        (Seen.UNCHECKED, NOW_S - 2, None),
    ],
)
def test_the_old_targets_serve_until_a_new_one_is_healthy(new, since, held_by):
    seen = {target("9").key: new} | {each.key: Seen.HEALTHY for each in numbers(6)}
    plan = replaced(seen, since=since)
    assert held_reasons(plan) == ({held_by} if held_by else set())
    assert len(plan.changes) == (0 if held_by else 6)
    assert (plan.wake_at_s is not None) == bool(held_by), "a held plan is looked at again"


@pytest.mark.req("L4-8")
def test_old_targets_that_are_not_healthy_make_way_for_new_ones_that_are_not():
    seen = {target("9").key: Seen.UNHEALTHY, target("1").key: Seen.HEALTHY, target("2").key: Seen.UNHEALTHY}
    plan = replaced(seen)
    assert [row.change.key for row in plan.held] == [target("1").key]
    assert len(plan.changes) == 5


@pytest.mark.req("L4-8")
def test_targets_reported_as_leaving_leave():
    old, new = numbers(2, terminating=True), target("9")
    desired_state = desired([new], health_check=HealthCheck())
    side = side_of(desired_state, [*old, new])
    whole = plan_load_balancer(desired_state.key, side, now_s=NOW_S)
    seen = {new.key: Seen.UNHEALTHY} | {each.key: Seen.HEALTHY for each in old}
    plan = guard_plan(whole, side, now_s=NOW_S, seen_of=lambda _key, _listener, key: seen[key])
    assert plan.held == ()
    assert [change.reason for change in plan.changes] == [Reason.TERMINATING] * 2
