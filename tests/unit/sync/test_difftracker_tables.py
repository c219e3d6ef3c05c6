"""Two models, what differs, and what they are after the calls: tables of given, when, then.

A state is written {load balancer: addresses}. An identity of an address is a load balancer that has it: an address may
have any number of them. What is sent about a load balancer is always a part: only rows that differ.
"""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from fairlead.errors import Bug
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import GuardPolicy
from fairlead.sync.plan import Plan, Registered, Tracker, plan_load_balancer
from fairlead.testing.builders import (
    ABLE,
    HTTP,
    PLAIN,
    desired,
    endpoint,
    endpoint_slice,
    lb_key,
    target,
    tcp,
    tcp_view,
    tenant,
)
from fairlead.translate.member import decide_tcp

RETRY = Outcome(OutcomeStatus.RETRY, "busy")
ADDRESSES = {"s1": {"1"}, "s2": {"2"}}


def desired_state(name, addresses):
    return desired([target(address) for address in sorted(addresses)], key=lb_key(name), guard=GuardPolicy(100, 0))


def step(tracker, outcome=DONE):
    """Plan everything that is dirty, answer it with ``outcome``, and return the rows."""
    rows = set()
    for key in tracker.pop_dirty():
        plan = plan_load_balancer(key, tracker.state(key), now_s=0.0)
        frontend = plan.frontend
        if frontend is not None:
            rows.add((frontend.action.value, key.name))
        rows |= {(change.action.value, key.name, short(change.key)) for change in plan.changes}
        if frontend is not None and frontend.action is Action.ENSURE:
            tracker.begin_frontend(frontend)
            tracker.apply_frontend_result(frontend, outcome)
        tracker.begin_targets(plan.changes)
        tracker.apply_results(plan.changes, [outcome] * len(plan.changes), now_s=0.0)
        if frontend is not None and frontend.action is Action.DELETE:
            tracker.begin_frontend(frontend)
            tracker.apply_frontend_result(frontend, outcome)
    return rows


def short(key):
    return key.address.removeprefix("10.0.0.")


def ask(tracker, wanted):
    """Desire exactly ``wanted``."""
    for name, addresses in wanted.items():
        tracker.put(desired_state(name, addresses))
    for key in list(tracker):
        if key.name not in wanted:
            tracker.remove(key)


def with_there(there):
    tracker = Tracker()
    ask(tracker, there)
    step(tracker)
    assert on_record(tracker) == there
    return tracker


def on_record(tracker):
    result = {}
    for key in tracker:
        side = tracker.state(key)
        if side.recorded_spec is not None:
            result[key.name] = {short(at) for targets in side.recorded.values() for at in targets}
    return result


def identities(state):
    result: dict[str, set[str]] = {}
    for name, addresses in state.items():
        for address in addresses:
            result.setdefault(address, set()).add(name)
    return result


@pytest.mark.req("A-7", "A-14", "A-15", "A-24", "A-25", "A-26", "A-27")
@pytest.mark.parametrize(
    ("wanted", "there", "rows"),
    [
        pytest.param(
            {"s1": (), "s2": (), "s3": ()},
            {"s2": (), "s3": (), "s4": ()},
            {("Ensure", "s1"), ("Delete", "s4")},
            id="AT-1",
        ),
        pytest.param(
            {"lb": ("1", "3", "5")},
            {"lb": ("1", "2", "4")},
            {("Register", "lb", "3"), ("Register", "lb", "5"), ("Deregister", "lb", "2"), ("Deregister", "lb", "4")},
            id="AT-2",
        ),
        pytest.param({}, {}, set(), id="AT-2-empty"),
        pytest.param(
            {"lb": ("1", "2")},
            {},
            {("Ensure", "lb"), ("Register", "lb", "1"), ("Register", "lb", "2")},
            id="AT-2-only-wanted",
        ),
        pytest.param({}, {"lb": ("1",)}, {("Deregister", "lb", "1"), ("Delete", "lb")}, id="AT-2-only-there"),
        pytest.param({"lb": ("1", "2")}, {"lb": ("1", "2")}, set(), id="AT-2-equal"),
        pytest.param(
            {"s1": ("1",), "public1": ("1",)},
            {"s1": (), "public1": ()},
            {("Register", "s1", "1"), ("Register", "public1", "1")},
            id="AT-3",
        ),
        pytest.param(
            {"s1": ("1",), "s2": ("1",), "public1": ("1",)},
            {"s1": ("1",), "s2": (), "public1": ()},
            {("Register", "s2", "1"), ("Register", "public1", "1")},
            id="AT-4",
        ),
        pytest.param({"s1": ("1",), "s2": ()}, {"s1": ("1",), "s2": ("2",)}, {("Deregister", "s2", "2")}, id="AT-5"),
        pytest.param(
            {"s1": ("1",)},
            {"s1": ("1",), "s2": ("2", "3")},
            {("Deregister", "s2", "2"), ("Deregister", "s2", "3"), ("Delete", "s2")},
            id="AT-6",
        ),
        pytest.param(
            {"s1": ("1",), "s2": (), "s3": ("1",), "s4": (), "s5": ("5",), "public1": ("1",)},
            {"s1": ("1",), "s2": ("1",), "s3": ("3",), "s4": ("2",), "s5": (), "public1": ()},
            {
                ("Deregister", "s2", "1"),
                ("Register", "s3", "1"),
                ("Deregister", "s3", "3"),
                ("Deregister", "s4", "2"),
                ("Register", "s5", "5"),
                ("Register", "public1", "1"),
            },
            id="AT-7",
        ),
        pytest.param({"s1": ("1",), "s2": ("2",)}, {"s1": ("1",), "s2": ("2",)}, set(), id="AT-8"),
        pytest.param({"s1": (), "s2": ("2",)}, ADDRESSES, {("Deregister", "s1", "1")}, id="AT-10"),
        pytest.param({"s1": (), "s2": ("1",)}, {"s1": ("1",), "s2": ("1",)}, {("Deregister", "s1", "1")}, id="AT-11"),
        pytest.param(
            {"s1": (), "s2": ("2", "1")}, ADDRESSES, {("Deregister", "s1", "1"), ("Register", "s2", "1")}, id="AT-12"
        ),
    ],
)
def test_diff_and_fold(wanted, there, rows):
    wanted = {name: set(addresses) for name, addresses in wanted.items()}
    tracker = with_there({name: set(addresses) for name, addresses in there.items()})
    before = on_record(tracker)
    ask(tracker, wanted)
    assert step(tracker, RETRY) == rows
    tracker.touch(list(tracker))
    still = on_record(tracker)
    # After a failure nothing leaves the record, and no load balancer is added to it.
    assert {name: before[name] - still.get(name, set()) for name in before} == {name: set() for name in before}
    assert still.keys() == before.keys()
    step(tracker)
    assert on_record(tracker) == wanted
    assert identities(on_record(tracker)) == identities(wanted)
    tracker.touch(list(tracker))
    assert step(tracker) == set(), "the two models are equal, and the next run is a no-op"
    assert all(targets for key in tracker for targets in tracker.state(key).recorded.values()), "nothing empty is kept"


@pytest.mark.req("A-27", "A-32")
def test_at9_everything_that_happened_while_no_process_ran():
    """What the ledger says is restored, with nothing desired yet; then come the desired state of the day."""
    there = {"s0": {"34", "0", "4", "5"}, "s5": {"34"}, "s6": {"00"}, "e0": {"0"}, "e5": {"00"}, "e6": set()}
    wanted = {"s0": {"34", "0"}, "s1": {"1", "2"}, "s2": {"1"}, "e0": {"0"}, "e1": {"1"}, "e2": {"3", "2"}}
    tracker = Tracker()
    for name, addresses in there.items():
        given = desired_state(name, addresses)
        done = {HTTP: {at: Registered(it) for at, it in given.targets[HTTP].items()}} if addresses else {}
        tracker.restore(given.spec, done, certain=True)
    assert step(tracker) == set()
    ask(tracker, wanted)
    assert step(tracker) == {
        ("Deregister", "s0", "4"),
        ("Deregister", "s0", "5"),
        *(("Ensure", name) for name in ("s1", "s2", "e1", "e2")),
        *(("Delete", name) for name in ("s5", "s6", "e5", "e6")),
        ("Register", "s1", "1"),
        ("Register", "s1", "2"),
        ("Register", "s2", "1"),
        ("Register", "e1", "1"),
        ("Register", "e2", "3"),
        ("Register", "e2", "2"),
        ("Deregister", "s5", "34"),
        ("Deregister", "s6", "00"),
        ("Deregister", "e5", "00"),
    }
    assert on_record(tracker) == wanted


@pytest.mark.req("A-29")
def test_at12_an_address_that_moves_is_in_one_run_for_both():
    tracker = with_there(ADDRESSES)
    ask(tracker, {"s1": set(), "s2": {"1", "2"}})
    assert [key.name for key in tracker.pop_dirty()] == ["s1", "s2"]


@pytest.mark.req("A-27")
def test_at13_an_address_that_is_wanted_and_not_on_record_is_recorded_again():
    tracker = with_there(ADDRESSES)
    tracker.forget(lb_key("s1"), HTTP, target("1").key)
    assert not tracker.put(desired_state("s1", {"1"})), "the desired state is as it was"
    assert step(tracker) == {("Register", "s1", "1")}
    assert on_record(tracker) == ADDRESSES


@pytest.mark.req("A-20", "A-28")
@pytest.mark.parametrize("leaves", ["lb1", "a"])
def test_at14_one_identity_of_an_address_goes_and_the_others_stay(leaves):
    tracker = with_there({"lb1": {"1", "2"}, "a": {"1"}, "b": {"1"}})
    stays = {"lb1": {"1", "2"}, "a": {"1"}, "b": {"1"}}
    gone = stays.pop(leaves)
    ask(tracker, stays)
    assert step(tracker) == {("Delete", leaves), *(("Deregister", leaves, each) for each in gone)}
    assert identities(on_record(tracker)) == identities(stays)
    assert lb_key(leaves) not in tracker


def built(*endpoints, provider=ABLE, **text):
    slices = [endpoint_slice("s", endpoints, load_balancer="web")]
    given = tcp(ports=[{"port": 80}], spec={"targets": "Pod"})
    return decide_tcp(tcp_view(given, slices=slices, capabilities=provider, **text))


def put(tracker, translation):
    """Put what was translated; returns whether anything differs."""
    assert translation.desired is not None
    return tracker.put(translation.desired)


def addresses_of(item):
    return {at.address for targets in item.desired.targets.values() for at in targets}


@pytest.mark.req("A-24", "A-45")
@pytest.mark.parametrize(
    ("first", "other", "canonical"),
    [
        pytest.param("Egress2.example", "egress2.EXAMPLE.", "egress2.example", id="AT-15"),
        pytest.param("FD00::A", "fd00:0:0::000a", "fd00::a", id="IPv6"),
        pytest.param("::ffff:10.0.0.9", "10.0.0.9", "10.0.0.9", id="mapped"),
    ],
)
def test_two_spellings_are_one_address(first, other, canonical):
    tracker = Tracker()
    put(tracker, built(first))
    step(tracker)
    assert not put(tracker, built(other)), "nothing differs"
    assert not put(tracker, built(first, other)), "nor when it is listed in both spellings"
    assert addresses_of(built(first)) == {canonical}


@pytest.mark.req("A-43", "A-36")
@pytest.mark.parametrize(
    ("bad", "reported"),
    [
        pytest.param("", True, id="AT-16-empty"),
        pytest.param("10.0.0.999", True, id="AT-16-malformed"),
        pytest.param("10.0.0.0/24", True, id="AT-16-subnet"),
        pytest.param("169.254.1.1", True, id="AT-16-link-local"),
        pytest.param({"addresses": []}, False, id="AT-16-no-address"),
        pytest.param(endpoint("10.0.0.7", ready=False), False, id="not-ready"),
        pytest.param(endpoint("10.0.0.7", ready=False, terminating=True), False, id="terminating"),
    ],
)
def test_an_invalid_backend_does_not_stop_the_others(bad, reported):
    given = built("10.0.0.1", bad, endpoint("10.0.0.2"))
    tracker = Tracker()
    put(tracker, given)
    assert step(tracker) == {("Ensure", "web"), ("Register", "web", "1"), ("Register", "web", "2")}
    assert (given.condition(ConditionReason.INVALID) is not None) == reported


@pytest.mark.req("A-27")
@pytest.mark.parametrize("action", [Action.ENSURE, Action.DELETE])
def test_at16_a_row_of_the_wrong_kind_is_a_mistake_and_changes_nothing(action):
    tracker = with_there(ADDRESSES)
    key = lb_key("s1")
    row = TargetChange(key, HTTP, target("9"), action, Reason.NEW, tracker.state(key).generation)
    with pytest.raises(Bug):
        tracker.apply_results([row], [DONE], now_s=0.0)
    assert on_record(tracker) == ADDRESSES


@pytest.mark.req("A-25")
def test_at17_words_on_the_wire():
    tracker = Tracker()
    ask(tracker, {"s1": {"1"}})
    key = lb_key("s1")
    state = tracker.state(key)
    assert state is not None
    plan = json.loads(msgspec.json.encode(plan_load_balancer(key, state, now_s=0.0)))
    assert (plan["frontend"]["action"], plan["frontend"]["reason"]) == ("Ensure", "New")
    assert [(row["action"], row["reason"]) for row in plan["changes"]] == [("Register", "New")]
    assert [each.value for each in Action] == ["Ensure", "Register", "Update", "Drain", "Deregister", "Delete"]
    empty = json.loads(msgspec.json.encode(Plan(key)))
    assert (empty["changes"], empty["held"]) == ([], [])


@pytest.mark.req("A-44")
@pytest.mark.parametrize("order", range(4))
def test_membership_is_the_union_of_all_slices(order):
    """What leaves one slice and is listed in another does not leave; slices may be packed again at any time."""
    rng = random.Random(order)

    def packed(*slices):
        parts = [endpoint_slice(f"s{number}", each, load_balancer="web") for number, each in enumerate(slices)]
        rng.shuffle(parts)
        return decide_tcp(tcp_view(tcp(ports=[{"port": 80}], spec={"targets": "Pod"}), slices=parts))

    tracker = Tracker()
    put(tracker, packed(["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "10.0.0.3"]))
    step(tracker)
    assert not put(tracker, packed(["10.0.0.1"], ["10.0.0.2", "10.0.0.3"]))
    assert not put(tracker, packed(["10.0.0.3"], [], ["10.0.0.2"], ["10.0.0.1", "10.0.0.1"]))
    put(tracker, packed(["10.0.0.1"], ["10.0.0.3"]))
    assert step(tracker) == {("Drain", "web", "2")}, "listed nowhere any more"


@pytest.mark.req("A-19")
def test_backends_of_several_subnets_are_one_load_balancer():
    ranges = tenant(spec={"targetRanges": ["10.0.0.0/24", "172.16.0.0/16", "fd00:1::/64"]})
    inside = ("10.0.0.1", "172.16.9.9", "fd00:1::7")
    given = built(*inside, "10.0.1.1", "fd00:2::7", tenant=ranges)
    assert addresses_of(given) == set(inside)
    assert given.condition(ConditionReason.INVALID) is not None
    tracker = Tracker()
    put(tracker, given)
    assert {row[0] for row in step(tracker)} == {"Ensure", "Register"}
    assert {at.address for at in tracker.state(lb_key()).recorded[HTTP]} == set(inside)


@pytest.mark.req("A-45")
def test_a_family_that_the_provider_does_not_serve_is_never_sent():
    assert addresses_of(built("10.0.0.1", "fd00::1", provider=PLAIN)) == {"10.0.0.1"}
    assert addresses_of(built("10.0.0.1", "fd00::1")) == {"10.0.0.1", "fd00::1"}
