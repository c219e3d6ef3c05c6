"""Gradual changes of weights: their steps, what stops them, and what they survive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.globalservice import GlobalMember, GlobalServiceSpec, GlobalServiceStatus, GlobalShift
from fairlead.model.observed import Totals
from fairlead.translate.shift import (
    Errors,
    begun,
    errors_in,
    gaining,
    in_words,
    is_unapplied,
    next_step,
    shifted,
    stop_reason,
    unmeasured,
    wait_s,
    weights_in_force,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHIFT = GlobalShift(step=10, every="1m", stop_on="5xx>1%")


def spec(shift: GlobalShift | None = SHIFT, **weights):
    return GlobalServiceSpec(members=[GlobalMember(name, weight) for name, weight in weights.items()], shift=shift)


def in_force(wanted, status):
    return {member.tenant: member.weight for member in shifted(wanted, status).members}


def served(**weights):
    return GlobalServiceStatus(accepted=spec(**weights))


def stepped(wanted, shift, *, now, errors, waits=""):
    """Return the shift after a step that all proxies apply at once."""
    after = next_step(wanted, shift, now=now, errors=errors, waits=waits)
    return next_step(wanted, after, now=now, errors=Errors()) if is_unapplied(after) else after


def steps(wanted, status):
    """Return the weights in force after each step, until the shift is at an end."""
    seen, now = [], NOW
    status = msgspec.structs.replace(status, shift=begun(wanted, status))
    while status.shift.state == "Shifting":
        status = msgspec.structs.replace(status, shift=stepped(wanted.shift, status.shift, now=now, errors=Errors()))
        seen.append(in_force(wanted, status))
        now += timedelta(seconds=wait_s(wanted.shift, status.shift, now=now))
    return seen, status.shift


@pytest.mark.req("MC-14")
def test_each_step_moves_so_many_percent_until_the_weights_of_the_spec_are_in_force():
    wanted = spec(west=10, east=90)
    seen, shift = steps(wanted, served(west=100, east=0))
    # The errors after the last step are waited for.
    assert [weights["east"] for weights in seen] == [100, 200, 300, 400, 500, 600, 700, 800, 900, 90]
    assert seen[-1] == {"west": 10, "east": 90}
    assert shift.state == "Done"
    assert begun(wanted, msgspec.structs.replace(served(west=10, east=90), shift=shift)) == shift


@pytest.mark.req("MC-14")
def test_nothing_moves_before_the_shift_is_on_record():
    wanted = spec(west=10, east=90)
    assert in_force(wanted, served(west=3, east=1)) == {"west": 750, "east": 250}
    # Without spec.shift, and for an object that was never served, the weights are in force at once.
    assert in_force(spec(None, west=10, east=90), served(west=3, east=1)) == {"west": 10, "east": 90}
    assert in_force(wanted, GlobalServiceStatus()) == {"west": 10, "east": 90}


@pytest.mark.req("MC-14")
def test_errors_stop_it_at_the_step_before_until_another_request():
    wanted = spec(west=0, east=100)
    status = served(west=100, east=0)
    first = stepped(SHIFT, begun(wanted, status), now=NOW, errors=Errors(100, 50))
    assert (first.state, first.moved) == ("Shifting", 10), "errors from before the first step are not its own"
    second = stepped(SHIFT, first, now=NOW + timedelta(minutes=1), errors=Errors(1000, 10))
    assert second.moved == 20
    assert stepped(SHIFT, second, now=NOW + timedelta(minutes=1), errors=Errors(10, 10)) == second, "too few answers"
    stopped = stepped(SHIFT, second, now=NOW + timedelta(minutes=1), errors=Errors(1000, 11))
    assert (stopped.state, stopped.moved) == ("Stopped", 10)
    assert "1.1 %" in stopped.message
    status = msgspec.structs.replace(status, shift=stopped)
    assert in_force(wanted, status) == {"west": 900, "east": 100}
    assert stepped(SHIFT, stopped, now=NOW + timedelta(days=1), errors=Errors()) == stopped
    again = msgspec.structs.replace(wanted, shift=msgspec.structs.replace(SHIFT, request="2"))
    assert begun(again, status).state == "Shifting"
    assert in_force(again, status) == {"west": 900, "east": 100}


@pytest.mark.req("MC-14")
@pytest.mark.parametrize(("step", "before"), [(40, 80), (100, 0)])
def test_errors_after_the_last_step_stop_it_too(step, before):
    shift, wanted, now = GlobalShift(step=step, stop_on="failed>1%"), spec(west=10, east=90), NOW
    status = begun(wanted, served(west=100, east=0))
    while status.moved < 90:
        status, now = stepped(shift, status, now=now, errors=Errors()), now + timedelta(minutes=1)
    assert status.state == "Shifting"
    stopped = stepped(shift, status, now=now, errors=Errors(100, 50))
    assert (stopped.state, stopped.moved) == ("Stopped", before)
    assert stepped(shift, status, now=now, errors=Errors(100, 1)).state == "Done"


@pytest.mark.req("MC-14")
def test_a_step_waits_for_its_time_and_for_the_members_that_gain():
    wanted = spec(west=0, east=100)
    first = stepped(SHIFT, begun(wanted, served(west=1, east=0)), now=NOW, errors=Errors())
    assert stepped(SHIFT, first, now=NOW + timedelta(seconds=59), errors=Errors()) == first
    waiting = stepped(SHIFT, first, now=NOW + timedelta(hours=1), errors=Errors(), waits="east is Down")
    assert (waiting.moved, waiting.message) == (10, "east is Down")
    assert "east is Down" in in_words(waiting)
    moved = stepped(SHIFT, waiting, now=NOW + timedelta(hours=1), errors=Errors())
    assert (moved.moved, moved.message) == (20, "")
    # A clock that went back holds it for one step at most.
    assert wait_s(SHIFT, moved, now=NOW - timedelta(days=1)) == 60
    # The largest time that the API takes ends after all dates.
    assert wait_s(GlobalShift(every="99999999999999h"), moved, now=NOW) > 0


@pytest.mark.req("MC-14")
@pytest.mark.parametrize("stop_on", ["", "5xx>1%"])
def test_the_time_of_a_step_begins_once_the_proxies_have_its_weights(stop_on):
    how = GlobalShift(step=50, every="1m", stop_on=stop_on)
    wanted, now = spec(how, west=0, east=100), NOW
    shift = begun(wanted, served(west=100, east=0))
    assert next_step(how, shift, now=now, errors=Errors(), unapplied="p1 lacks them").moved == 0
    for moved in (50, 100):
        shift = next_step(how, shift, now=now, errors=Errors())
        now += timedelta(hours=1)
        waiting = next_step(how, shift, now=now, errors=Errors(), unapplied="p1 lacks them")
        assert (waiting.state, waiting.moved, waiting.message) == ("Shifting", moved, "p1 lacks them")
        assert next_step(how, waiting, now=now, errors=Errors(), unapplied="p1 lacks them") == waiting
        # The proxies that have the weights may fail meanwhile.
        failed = next_step(how, waiting, now=now, errors=Errors(100, 50), unapplied="p1 lacks them")
        assert (failed.state, failed.moved) == (("Stopped", moved - 50) if stop_on else ("Shifting", moved))
        shift = next_step(how, waiting, now=now, errors=Errors())
        assert (shift.moved, shift.message) == (moved, "")
        if shift.state == "Shifting":
            early = now + timedelta(seconds=59)
            assert next_step(how, shift, now=early, errors=Errors()) == shift
        now += timedelta(minutes=1)
    assert next_step(how, shift, now=now, errors=Errors()).state == "Done"


@pytest.mark.req("MC-14")
def test_other_weights_meanwhile_are_approached_from_where_it_is():
    status = served(west=100, east=0)
    first = stepped(SHIFT, begun(spec(west=0, east=100), status), now=NOW, errors=Errors())
    status = msgspec.structs.replace(status, shift=first)
    other = spec(west=50, east=40, north=10)
    assert in_force(other, status) == {"west": 900, "east": 100, "north": 0}
    assert steps(other, status)[0][-1] == {"west": 50, "east": 40, "north": 10}


def with_members(wanted, **fields):
    """Return ``wanted`` with other fields of some members."""
    members = [msgspec.structs.replace(member, **fields.get(member.tenant, {})) for member in wanted.members]
    return msgspec.structs.replace(wanted, members=members)


@pytest.mark.req("MC-14")
@pytest.mark.parametrize("idle", [{"priority": 1}, {"drain": True}])
def test_members_without_connections_do_not_make_a_step_larger(idle):
    wanted = with_members(spec(west=10, east=90, north=1000), north=idle)
    before = with_members(spec(west=100, east=0, north=1000), north=idle)
    seen, shift = steps(wanted, GlobalServiceStatus(accepted=before))
    assert [round(100 * weights["east"] / (weights["east"] + weights["west"])) for weights in seen[:3]] == [10, 20, 30]
    assert (len(seen), shift.state, shift.moved) == (10, "Done", 90)


@pytest.mark.req("MC-14")
def test_a_drain_meanwhile_continues_from_where_it_is_and_resumes_no_stopped_shift():
    wanted = spec(west=10, east=90, north=50)
    status = GlobalServiceStatus(accepted=spec(west=100, east=0, north=50))
    first = stepped(SHIFT, begun(wanted, status), now=NOW, errors=Errors())
    before = weights_in_force(first)
    for state in ("Shifting", "Stopped"):
        status = msgspec.structs.replace(status, shift=msgspec.structs.replace(first, state=state))
        drained = with_members(wanted, north={"drain": True})
        shift = begun(drained, status)
        assert (shift.state, shift.moved, shift.stepped_at) == (state, 0, first.stepped_at)
        now = weights_in_force(shift)
        assert now["east"] / now["west"] == pytest.approx(before["east"] / before["west"], abs=0.01)
        status = msgspec.structs.replace(status, shift=shift)
        assert begun(drained, status) == shift
        # Used again, it has the share that the spec gives it, and not a share of its own group.
        again = weights_in_force(begun(wanted, status))
        assert again["north"] / sum(again.values()) == pytest.approx(50 / 150, abs=0.01)


@pytest.mark.req("MC-14")
def test_a_shift_waits_for_those_whose_share_grows_and_for_no_others():
    # A member that may be left because it is down gains by its weight alone.
    assert gaining(begun(spec(west=10, east=90), served(west=1, east=1))) == {"east"}
    first = stepped(SHIFT, begun(spec(west=0, east=100), served(west=1, east=0)), now=NOW, errors=Errors())
    status = msgspec.structs.replace(served(west=1, east=0), shift=first)
    assert gaining(begun(spec(west=20, east=80), status)) == {"east"}, "weights in force are parts of 1000"
    assert gaining(begun(with_members(spec(west=10, east=90), east={"drain": True}), served(west=1, east=1))) == set()


@pytest.mark.req("MC-14")
@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=5),
    st.lists(st.integers(0, 1000), min_size=2, max_size=5),
    st.integers(1, 100),
)
def test_every_shift_ends_and_no_step_moves_more_than_it_should(before, after, step):
    names = [f"m{number}" for number in range(max(len(before), len(after)))]
    start = dict(zip(names, before, strict=False))
    end = {name: (after[number] if number < len(after) else 0) for number, name in enumerate(names)}
    if not any(start.values()) or not any(end.values()):
        return
    wanted = spec(GlobalShift(step=step), **end)
    begins = served(**{name: start.get(name, 0) for name in names})
    seen, shift = steps(wanted, begins)
    assert shift.state == "Done"
    assert weights_in_force(shift) == end
    assert len(seen) <= -(-100 // step)
    last = {name: 100 * start.get(name, 0) / sum(start.values()) for name in names}
    for weights in seen:
        now = {name: 100 * weight / sum(weights.values()) for name, weight in weights.items()}
        assert all(abs(now[name] - last[name]) <= step + 0.6 for name in names), (last, now)
        last = now


HTTP = Totals(connections=3, requests=(0, 90, 0, 0, 10))
TCP = Totals(connections=100, failed=5)


@pytest.mark.req("MC-14")
@pytest.mark.parametrize(
    ("counted", "stop_on", "errors", "reason"),
    [
        ([HTTP], "5xx>1%", Errors(100, 10), "10.0 % of 100 answers were 5xx"),
        ([HTTP], "5xx>10%", Errors(100, 10), ""),
        ([TCP], "failed>1%", Errors(100, 5, "connections failed"), "5.0 % of 100 connections failed"),
        ([HTTP, TCP], "5xx>9%", Errors(100, 10), "10.0 % of 100"),
        ([HTTP, TCP], "failed>4%", Errors(100, 5, "connections failed"), "5.0 % of 100"),
        ([Totals(connections=19, failed=19)], "failed>1%", Errors(19, 19, "connections failed"), ""),
        ([TCP], "none", Errors(100, 5, "connections failed"), ""),
    ],
)
def test_errors_are_of_answers_or_of_connections(counted, stop_on, errors, reason):
    assert errors_in(counted, stop_on) == errors
    assert (reason in stop_reason(stop_on, errors)) if reason else not stop_reason(stop_on, errors)


@pytest.mark.req("MC-14")
def test_a_condition_that_this_traffic_cannot_meet_is_named():
    assert "100 requests of routes and 0 other connections" in unmeasured([HTTP], "failed>1%")
    assert "use 5xx>1%" in unmeasured([HTTP], "failed>1%")
    assert not unmeasured([HTTP], "5xx>1%")
    assert not unmeasured([HTTP, TCP], "failed>1%")
    assert not unmeasured([Totals()], "failed>1%")
