"""What holds for every desired state and all that was done: fixed point, no order, nothing foreign, no half view."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.change import DONE, Action, Reason
from fairlead.model.desired import GuardPolicy
from fairlead.sync.plan import LoadBalancerState, Registered, Tracker, guard_plan, order_changes, plan_load_balancer
from fairlead.testing.builders import HTTP, desired, target

NOW_S = 1000.0

targets = st.lists(
    st.builds(target, st.integers(1, 12).map(str), draining=st.booleans(), weight=st.sampled_from([1, 1, 3])),
    max_size=8,
    unique_by=lambda item: item.key,
)
desired_states = st.builds(
    desired,
    targets,
    ports=st.sampled_from([(80,), (443, 80)]),
    drain_s=st.sampled_from([0.0, 30.0]),
    guard=st.builds(GuardPolicy, st.sampled_from([1, 50, 100]), st.integers(0, 3)),
    paused=st.sampled_from([False, False, False, True]),
)
registered = st.builds(
    Registered,
    st.builds(target, st.just("0"), draining=st.booleans()),
    draining_since=st.sampled_from([None, None, NOW_S - 40, NOW_S - 10]),
    unknown=st.sampled_from([False, False, True]),
)


@st.composite
def sides(draw, desired_state=desired_states):
    given = draw(desired_state)
    done = {}
    for listener in draw(st.sets(st.sampled_from([HTTP, *given.targets]), max_size=2)):
        entries = {}
        for number in draw(st.sets(st.integers(1, 14), min_size=1, max_size=8)):
            entry = draw(registered)
            key = target(str(number)).key
            entries[key] = msgspec.structs.replace(entry, target=msgspec.structs.replace(entry.target, key=key))
        done[listener] = entries
    return LoadBalancerState(
        desired=given, recorded_spec=draw(st.sampled_from([None, given.spec])), recorded=done, generation=1
    )


def decide(side, now_s=NOW_S):
    return guard_plan(plan_load_balancer(side.desired.key, side, now_s=now_s), side, now_s=now_s)


def tracker_of(side):
    tracker = Tracker()
    tracker.put(side.desired)
    own = tracker.state(side.desired.key)
    own.recorded_spec, own.recorded = (
        side.recorded_spec,
        {listener: dict(each) for listener, each in side.recorded.items()},
    )
    return tracker


def carry_out(tracker, key, now_s):
    """Plan, guard, and let everything succeed; returns the plan."""
    side = tracker.state(key)
    plan = guard_plan(plan_load_balancer(key, side, now_s=now_s), side, now_s=now_s)
    if plan.frontend is not None:
        tracker.begin_frontend(plan.frontend)
        tracker.apply_frontend_result(plan.frontend, DONE)
    tracker.begin_targets(plan.changes)
    tracker.apply_results(plan.changes, [DONE] * len(plan.changes), now_s=now_s)
    return plan


@given(sides())
@settings(max_examples=400)
@pytest.mark.req("KI-6")
def test_b34_what_was_carried_out_is_not_planned_again(side):
    tracker, key, now_s = tracker_of(side), side.desired.key, NOW_S
    carry_out(tracker, key, now_s)
    for _ in range(60):
        side_now = tracker.state(key)
        assert side_now is not None
        plan = guard_plan(plan_load_balancer(key, side_now, now_s=now_s), side_now, now_s=now_s)
        if plan.empty and plan.wake_at_s is None:
            break
        carry_out(tracker, key, now_s)
        now_s += 5.0
    final = tracker.state(key)
    assert final is not None
    plan = guard_plan(plan_load_balancer(key, final, now_s=now_s), final, now_s=now_s)
    assert plan.empty
    if not plan.held:
        wanted = {
            listener: {key for key, target in targets.items() if not target.draining}
            for listener, targets in side.desired.targets.items()
        }
        ready = {
            listener: {
                key
                for key, registered in final.recorded.get(listener, {}).items()
                if not registered.target.draining and registered.draining_since is None
            }
            for listener in wanted
        }
        assert ready == wanted


@given(sides(), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_any_order(side, rng):
    def shuffled(mapping):
        items = list(mapping.items())
        rng.shuffle(items)
        return dict(items)

    def shuffled_twice(rows):
        return shuffled({listener: shuffled(targets) for listener, targets in rows.items()})

    mixed = LoadBalancerState(
        desired=msgspec.structs.replace(side.desired, targets=shuffled_twice(side.desired.targets)),
        recorded_spec=side.recorded_spec,
        recorded=shuffled_twice(side.recorded),
        generation=1,
    )
    first, second = decide(side), decide(mixed)
    assert order_changes(first.changes) == order_changes(second.changes)
    assert sorted(map(repr, first.held)) == sorted(map(repr, second.held))
    assert (first.frontend, first.wake_at_s) == (second.frontend, second.wake_at_s)
    assert decide(side) == first


@given(sides(desired_states.map(lambda item: msgspec.structs.replace(item, stale="endpointslices: 503"))))
@pytest.mark.req("I-1")
def test_on_half_a_view_nothing_is_taken_that_was_not_leaving_already(side):
    for change in decide(side).changes:
        if change.action in (Action.DRAIN, Action.DEREGISTER) or change.target.draining:
            assert change.reason in (Reason.DRAINED, Reason.LISTENER_REMOVED)


@given(sides())
@pytest.mark.req("I-4")
def test_only_what_is_desired_or_on_record_is_ever_named(side):
    for change in decide(side).changes:
        known = {**side.desired.targets.get(change.listener, {}), **side.recorded.get(change.listener, {})}
        assert change.key in known
        if change.action in (Action.DRAIN, Action.DEREGISTER):
            assert change.key in side.recorded[change.listener]


@given(sides())
@pytest.mark.req("I-1", "I-9")
def test_a_listener_never_falls_below_its_minimum_by_guesswork(side):
    """Whatever is let through leaves enough ready targets, unless there were too few to begin with."""
    minimum = side.desired.guard.min_targets
    plan = decide(side)
    for listener in side.desired.targets:
        done = side.recorded.get(listener, {})
        ready = {k for k, r in done.items() if not r.target.draining and r.draining_since is None and not r.unknown}
        after = set(ready)
        for change in plan.changes:
            if change.listener != listener:
                continue
            if change.action in (Action.DRAIN, Action.DEREGISTER) or change.target.draining:
                after.discard(change.key)
            else:
                after.add(change.key)
        assert len(after) >= min(len(ready), minimum)
