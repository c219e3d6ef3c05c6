"""How many names a member may have: what is recorded stays, others wait, and get the room of those that go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from names_parts import ask, tenant

from fairlead.hub.names.controller import Quota
from fairlead.hub.names.ownership import NOBODYS, Domains, NameClaims, decide

HOST = "shop.example.com"
OPEN = Domains([tenant("east"), tenant("west")])


def nothing(_host):
    return None


def is_east(_host, space):
    return space == "tenant-east"


def test_a_name_of_a_full_member_goes_to_the_next_in_line():
    claims = NameClaims()
    ask(claims, "east", HOST, age=1)
    assert decide(HOST, claims, nothing, OPEN, is_east).refused == {"tenant-east": "QuotaExceeded"}
    ask(claims, "west", HOST, age=2)
    decision = decide(HOST, claims, nothing, OPEN, is_east)
    assert decision.owner is not None
    assert decision.owner.member == "west"
    assert decision.refused == {"tenant-east": "HostnameTaken"}


def test_a_full_member_keeps_names_and_learns_of_taken_ones():
    claims = NameClaims()
    ask(claims, "east", HOST, age=1)
    kept = decide(HOST, claims, lambda _: "tenant-east", OPEN, is_east)
    assert kept.owner is not None
    assert kept.refused == {}
    assert decide(HOST, claims, lambda _: NOBODYS, OPEN, is_east).refused == {"tenant-east": "HostnameTaken"}


def test_a_name_that_goes_makes_room_for_the_one_that_has_waited_longest():
    quota = Quota(lambda _space: 2)
    assert quota.hold("a", "east") == quota.hold("b", "east") == []
    assert quota.full("c", "east")
    assert not quota.full("a", "east"), "it does not count itself"
    assert not quota.full("c", "west")
    for host in ("d", "c"):
        assert quota.refused(host, ["east"]) == []
    assert quota.hold("a", None) == ["d"]
    # Its object went meanwhile: then the next one has the room.
    assert quota.refused("d", []) == ["c"]
    assert quota.hold("c", "east") == []
    assert quota.refused("c", []) == []
    assert quota.room("east") == []


def test_a_limit_that_is_raised_makes_room_and_none_at_all_is_for_any_number():
    limits = {"east": 1}
    quota = Quota(lambda space: limits[space])
    quota.hold("a", "east")
    for host in ("b", "c", "d"):
        quota.refused(host, ["east"])
    assert quota.room("east") == []
    limits["east"] = 3
    assert quota.room("east") == ["b", "c"]
    limits["east"] = 0
    assert quota.room("east") == ["b", "c", "d"]
    assert not quota.full("b", "east")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=40), st.integers(1, 3))
def test_no_order_leaves_a_name_waiting_while_there_is_room_or_gives_one_too_many(steps, limit):
    quota, held, wanted = Quota(lambda _space: limit), set[str](), set[str]()
    for host, asks in steps:
        (wanted.add if asks else wanted.discard)(host)
        queue = [host]
        while queue:
            each = queue.pop()
            takes = each in wanted and (each in held or not quota.full(each, "east"))
            queue += quota.hold(each, "east" if takes else None)
            queue += quota.refused(each, ["east"] if each in wanted and not takes else [])
            (held.add if takes else held.discard)(each)
        assert len(held) == min(limit, len(wanted))
        assert held <= wanted
