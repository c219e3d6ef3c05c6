"""A member of a GlobalService is down at once, and returns with care."""

from __future__ import annotations

import pytest

from fairlead.api.globalservice import GlobalMember, GlobalMemberStatus
from fairlead.model.observed import MemberSeen
from fairlead.translate.returning import MemberReturn

WEST = GlobalMember("west")
LIMITED = GlobalMember("west", min_healthy_percent=50)
DELAY_S, RAMP_S = 15.0, 60.0


class Member:
    def __init__(self, member=WEST, history=None):
        self.member, self.history = member, history or MemberReturn()
        self.now_s = 0.0

    def see(self, healthy, *, known=2, at_s=None):
        self.now_s = self.now_s if at_s is None else at_s
        seen = None if healthy is None else MemberSeen("west", healthy, known)
        return self.history.see(self.member, seen, now_s=self.now_s, delay_s=DELAY_S, ramp_s=RAMP_S)

    @property
    def part(self):
        returning = self.history.returning(now_s=self.now_s, ramp_s=RAMP_S)
        return 1.0 if returning is None else round(returning.part, 2)


@pytest.mark.req("MC-15")
def test_a_member_returns_after_a_delay_and_a_ramp():
    west = Member()
    west.see(2)
    assert (west.part, west.see(0, at_s=10)) == (1.0, None)
    assert west.part == 0.0
    assert west.see(1, at_s=20) == DELAY_S
    assert west.see(2, at_s=34) == pytest.approx(1.0)
    assert west.part == 0.0
    due_s = west.see(2, at_s=35)
    parts = [west.part]
    while due_s is not None:
        due_s = west.see(2, at_s=west.now_s + due_s)
        parts.append(west.part)
    assert parts[0] == 0.1
    assert parts[-1] == 1.0
    assert parts == sorted(parts)
    assert west.now_s == 35 + RAMP_S


@pytest.mark.req("MC-15")
def test_a_member_that_was_never_healthy_has_nothing_to_return_from():
    west = Member()
    west.see(None)
    west.see(0)
    assert west.part == 1.0
    west.see(1)
    assert west.part == 1.0


@pytest.mark.req("MC-16")
def test_the_delay_counts_from_the_last_failure_and_unknown_health_is_not_health():
    west = Member()
    west.see(1)
    west.see(0, at_s=1)
    west.see(1, at_s=2)
    west.see(0, at_s=10)
    west.see(1, at_s=11)
    west.see(None, at_s=25)
    west.see(1, at_s=27)
    assert west.part == 0.0
    west.see(1, at_s=40)
    assert west.part == 0.1


@pytest.mark.req("MC-12")
def test_a_limit_that_no_longer_applies_takes_effect_at_once():
    west = Member(LIMITED)
    west.see(2)
    west.see(4, known=10, at_s=1)
    assert west.history.limited
    west.see(None, at_s=2)
    assert west.history.limited, "unknown health changes nothing"
    west.member = WEST
    west.see(4, known=10, at_s=3)
    assert (west.history.limited, west.part) == (False, 1.0)


@pytest.mark.parametrize(
    ("state", "part"), [("Serving", 1.0), ("Missing", 1.0), ("Down", 0.0), ("Flapping", 0.0), ("Returning", 0.1)]
)
def test_a_restart_goes_on_from_the_status(state, part):
    assert Member(history=recorded(state)).part == part


def recorded(state, *, served=True):
    return MemberReturn.recorded(GlobalMemberStatus("west", state=state, served=served), WEST, now_s=0.0)


@pytest.mark.req("MC-15")
@pytest.mark.parametrize("state", ["Serving", "Draining", "Standby", "Missing"])
@pytest.mark.parametrize("served", [True, False])
def test_after_a_restart_only_a_member_that_has_served_falls(state, served):
    west = Member(history=recorded(state, served=served))
    west.see(0)
    west.see(1)
    assert west.part == (0.0 if served else 1.0)
