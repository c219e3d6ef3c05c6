"""The rows of a plan: the same table as in the docstring of ``sync/plan.py``."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.change import Action, Outcome, OutcomeStatus, Reason
from fairlead.model.desired import Listener, Target
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
from fairlead.sync.plan import LoadBalancerState, Registered, Tracker, plan_load_balancer
from fairlead.testing.builders import HTTP, desired, lb_key, target
from tests.call_count import count_calls

NOW_S = 100.0
DRAIN_S = 30.0

READY = target("1")
DRAINING = target("1", draining=True)
HEAVY = target("1", weight=5)

L_READY = Registered(READY)
L_DRAINING = Registered(DRAINING)
L_LEAVING = Registered(DRAINING, draining_since=NOW_S - 10)
L_OVER = Registered(DRAINING, draining_since=NOW_S - DRAIN_S)
L_UNKNOWN = Registered(READY, unknown=True)
L_UNACKNOWLEDGED = Registered(READY, unknown=True, unacknowledged=True)


def plan_of(wanted, registered, *, drain_s=DRAIN_S, now_s=NOW_S):
    desired_state = desired([wanted] if wanted else [], drain_s=drain_s)
    done = {HTTP: {READY.key: registered}} if registered else {}
    side = LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec, recorded=done, generation=7)
    return plan_load_balancer(desired_state.key, side, now_s=now_s)


@pytest.mark.req("I-10")
@pytest.mark.parametrize(
    ("wanted", "registered", "row"),
    [
        pytest.param(READY, None, (Action.REGISTER, Reason.NEW), id="ready-nothing"),
        pytest.param(READY, L_READY, None, id="ready-same"),
        pytest.param(HEAVY, L_READY, (Action.UPDATE, Reason.CHANGED), id="ready-another"),
        pytest.param(READY, L_DRAINING, (Action.UPDATE, Reason.CHANGED), id="ready-draining"),
        pytest.param(READY, L_LEAVING, (Action.UPDATE, Reason.CHANGED), id="ready-leaving"),
        pytest.param(READY, L_UNKNOWN, (Action.REGISTER, Reason.NEW), id="ready-unknown"),
        pytest.param(READY, L_UNACKNOWLEDGED, (Action.REGISTER, Reason.NEW), id="ready-unacknowledged"),
        pytest.param(DRAINING, None, None, id="draining-nothing"),
        pytest.param(DRAINING, L_READY, (Action.UPDATE, Reason.TERMINATING), id="draining-ready"),
        pytest.param(DRAINING, L_UNKNOWN, (Action.UPDATE, Reason.TERMINATING), id="draining-unknown"),
        pytest.param(DRAINING, L_DRAINING, None, id="draining-draining"),
        pytest.param(DRAINING, L_LEAVING, None, id="draining-leaving"),
        pytest.param(None, L_READY, (Action.DRAIN, Reason.ABSENT), id="nothing-ready"),
        pytest.param(None, L_DRAINING, (Action.DRAIN, Reason.TERMINATING), id="nothing-draining"),
        pytest.param(None, L_LEAVING, None, id="nothing-leaving"),
        pytest.param(None, L_OVER, (Action.DEREGISTER, Reason.DRAINED), id="nothing-over"),
        pytest.param(None, L_UNKNOWN, (Action.DRAIN, Reason.ABSENT), id="nothing-unknown"),
        pytest.param(None, None, None, id="nothing-nothing"),
    ],
)
def test_row(wanted, registered, row):
    plan = plan_of(wanted, registered)
    assert [(change.action, change.reason) for change in plan.changes] == ([row] if row else [])
    assert all(change.generation == 7 for change in plan.changes)
    assert plan.frontend is None


@pytest.mark.parametrize(
    ("registered", "reason"),
    [(L_READY, Reason.ABSENT), (L_DRAINING, Reason.TERMINATING)],
    ids=["absent", "terminating"],
)
def test_without_drain_time_targets_go_at_once(registered, reason):
    (change,) = plan_of(None, registered, drain_s=0).changes
    assert (change.action, change.reason) == (Action.DEREGISTER, reason)


@pytest.mark.req("L-6", "L-34")
@pytest.mark.parametrize(
    ("owners", "reason"),
    [
        pytest.param({HTTP: frozenset()}, Reason.OWNER_DELETED, id="all-gone"),
        pytest.param({HTTP: frozenset({"b"})}, Reason.OWNER_DELETED, id="only-others-left"),
        pytest.param({HTTP: frozenset({"a", "b"})}, Reason.ABSENT, id="one-is-left"),
        pytest.param({}, Reason.ABSENT, id="nobody-knows"),
    ],
)
def test_what_its_owners_left_behind_goes_on_purpose(owners, reason):
    desired_state = msgspec.structs.replace(desired([], drain_s=DRAIN_S), owners=owners)
    registered = Registered(msgspec.structs.replace(READY, owners=("a",)))
    side = LoadBalancerState(
        desired=desired_state, recorded_spec=desired_state.spec, recorded={HTTP: {READY.key: registered}}
    )
    (change,) = plan_load_balancer(desired_state.key, side, now_s=NOW_S).changes
    assert (change.action, change.reason) == (Action.DRAIN, reason)


def test_a_drained_target_takes_no_new_connections():
    (change,) = plan_of(None, L_READY).changes
    assert change.target.draining


def test_the_plan_wakes_when_the_first_drain_time_is_over():
    first, second = target("1", draining=True), target("2", draining=True)
    desired_state = desired([], drain_s=DRAIN_S)
    done = {HTTP: {first.key: Registered(first, 95.0), second.key: Registered(second, 90.0)}}
    plan = plan_load_balancer(
        desired_state.key,
        LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec, recorded=done),
        now_s=NOW_S,
    )
    assert plan.empty
    assert plan.wake_at_s == 120.0


def test_listeners_that_only_drain_are_not_looked_at_until_a_drain_is_over():
    leaving, listeners = target("2", draining=True), [ListenerKey(Protocol.TCP, port) for port in range(1, 301)]
    desired_state = desired([READY], ports=range(1, 301), drain_s=DRAIN_S)
    done = {
        listener: {READY.key: L_READY, leaving.key: Registered(leaving, NOW_S - 1 + listener.port / 1000)}
        for listener in listeners
    }
    side = LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec, recorded=done)

    def plan(at_s: float):
        return plan_load_balancer(desired_state.key, side, now_s=at_s)

    first = plan(NOW_S)
    assert first.empty
    assert first.wake_at_s == pytest.approx(NOW_S - 1 + 0.001 + DRAIN_S)
    calls = count_calls(lambda: plan(NOW_S + 1))
    assert calls < 50, "300 listeners wait for time only"
    side.entries(listeners[7])
    assert plan(NOW_S + 2).wake_at_s == first.wake_at_s
    over = plan(NOW_S - 1 + 0.1005 + DRAIN_S)
    assert [change.listener for change in over.changes] == listeners[:100]
    assert {change.reason for change in over.changes} == {Reason.DRAINED}
    assert len(plan(NOW_S + 2 + DRAIN_S).changes) == 300, "those that are not done yet and those that are over by now"


def test_the_last_moment_of_a_drain_is_over():
    assert plan_of(None, L_OVER).wake_at_s is None


def test_a_listener_that_is_gone_loses_its_targets_without_a_drain():
    desired_state = desired([READY], ports=[80], drain_s=DRAIN_S)
    old = ListenerKey(Protocol.UDP, 80)
    done = {HTTP: {READY.key: L_READY}, old: {READY.key: L_READY}}
    plan = plan_load_balancer(
        desired_state.key,
        LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec, recorded=done),
        now_s=NOW_S,
    )
    assert [(change.listener, change.action, change.reason) for change in plan.changes] == [
        (old, Action.DEREGISTER, Reason.LISTENER_REMOVED)
    ]


def test_a_deleted_load_balancer_is_emptied_and_deleted():
    desired_state = desired([READY])
    side = LoadBalancerState(
        desired=None, recorded_spec=desired_state.spec, recorded={HTTP: {READY.key: L_READY}}, generation=3
    )
    plan = plan_load_balancer(desired_state.key, side, now_s=NOW_S)
    assert [(change.action, change.reason) for change in plan.changes] == [(Action.DEREGISTER, Reason.OWNER_DELETED)]
    assert plan.frontend is not None
    assert (plan.frontend.action, plan.frontend.reason) == (Action.DELETE, Reason.OWNER_DELETED)
    assert plan.frontend.generation == 3


def test_an_unknown_load_balancer_is_deleted_all_the_same():
    plan = plan_load_balancer(lb_key(), LoadBalancerState(), now_s=NOW_S)
    assert plan.frontend is not None
    assert plan.frontend.action is Action.DELETE
    assert plan.changes == ()


class TestFrontend:
    def test_new(self):
        desired_state = desired([])
        frontend = plan_load_balancer(desired_state.key, LoadBalancerState(desired=desired_state), now_s=NOW_S).frontend
        assert frontend is not None
        assert (frontend.action, frontend.reason, frontend.spec) == (Action.ENSURE, Reason.NEW, desired_state.spec)

    def test_changed(self):
        desired_state, before = desired([], address="192.0.2.2"), desired([], address="192.0.2.1")
        frontend = plan_load_balancer(
            desired_state.key, LoadBalancerState(desired=desired_state, recorded_spec=before.spec), now_s=NOW_S
        ).frontend
        assert frontend is not None
        assert (frontend.action, frontend.reason) == (Action.ENSURE, Reason.CHANGED)

    def test_the_same_again_when_asked_to(self):
        desired_state = desired([])
        side = LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec, ensure_again=True)
        frontend = plan_load_balancer(desired_state.key, side, now_s=NOW_S).frontend
        assert frontend is not None
        assert frontend.action is Action.ENSURE

    def test_the_same(self):
        desired_state = desired([])
        assert plan_load_balancer(
            desired_state.key, LoadBalancerState(desired=desired_state, recorded_spec=desired_state.spec), now_s=NOW_S
        ).empty


def test_a_renamed_port_keeps_its_targets():
    assert Listener(80, name="http").key == Listener(80, name="web").key


PARTS = [READY, DRAINING, HEAVY, target("2")]
PORTS = (80, 443)
DONE, FAILED = Outcome(OutcomeStatus.DONE), Outcome(OutcomeStatus.RETRY, "later")
#: Mappings of targets that stay the same objects, as those that are translated once do.
WANTED = [{each.key: each for each in parts} for parts in ([], PARTS[:1], PARTS[1:2], PARTS[2:], PARTS[3:])]
TRACKED = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(PORTS), st.sampled_from(WANTED)),
        st.tuples(st.sampled_from(["work", "fail", "lose", "restart", "lost"])),
        st.tuples(st.sampled_from(["recall", "forget", "observe"]), st.sampled_from(PORTS), st.sampled_from(PARTS)),
    ),
    max_size=20,
)


@given(TRACKED)
@settings(max_examples=300, deadline=None)
def test_listeners_that_a_plan_passes_over_have_no_rows(steps) -> None:
    tracker, wanted, now_s = Tracker(), desired([READY], ports=PORTS, drain_s=1.0), NOW_S
    key = wanted.key
    tracker.put(wanted)
    for what, *rest in steps:
        now_s += 0.4
        state = tracker.state(key)
        assert state is not None
        plan = plan_load_balancer(key, state, now_s=now_s)
        assert plan == plan_load_balancer(key, msgspec.structs.replace(state, planned=None), now_s=now_s)
        match what:
            case "want":
                listener = ListenerKey(Protocol.TCP, rest[0])
                wanted = msgspec.structs.replace(wanted, targets={**wanted.targets, listener: rest[1]})
                tracker.put(wanted)
            case "restart":
                tracker.mark_unknown(key)
            case "lost":
                tracker.mark_unknown(key, [(HTTP, READY.key)])
            case "recall":
                tracker.request_deregister(key, ListenerKey(Protocol.TCP, rest[0]), rest[1].key)
            case "forget":
                tracker.forget(key, ListenerKey(Protocol.TCP, rest[0]), rest[1].key)
            case "observe":
                tracker.observe(key, ListenerKey(Protocol.TCP, rest[0]), Registered(rest[1]), anew=True)
            case _:
                if plan.frontend is not None:
                    tracker.apply_frontend_result(plan.frontend, DONE)
                tracker.begin_targets(plan.changes)
                if what != "lose":
                    outcomes = [DONE if what == "work" else FAILED] * len(plan.changes)
                    tracker.apply_results(plan.changes, outcomes, now_s=now_s)


def test_a_plan_looks_only_at_listeners_that_changed() -> None:
    class Counted(dict[TargetKey, Target]):
        looks = 0

        def items(self):
            Counted.looks += 1
            return super().items()

    first, second = (ListenerKey(Protocol.TCP, port) for port in PORTS)
    wanted = desired(ports=PORTS)
    wanted = msgspec.structs.replace(wanted, targets={each: Counted({READY.key: READY}) for each in (first, second)})
    recorded = {each: {READY.key: L_READY} for each in (first, second)}
    state = LoadBalancerState(desired=wanted, recorded_spec=wanted.spec, recorded=recorded)
    assert plan_load_balancer(wanted.key, state, now_s=NOW_S).empty
    Counted.looks = 0
    state.desired = msgspec.structs.replace(wanted, targets={**wanted.targets, first: Counted({HEAVY.key: HEAVY})})
    (change,) = plan_load_balancer(wanted.key, state, now_s=NOW_S).changes
    assert (change.listener, change.reason, Counted.looks) == (first, Reason.CHANGED, 1)
