"""How many names a member may have: what is recorded stays, others wait, and get the room of those that go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from names_parts import ask, tenant

from fairlead.hub.names.controller import Quota
from fairlead.hub.names.ownership import NOBODYS, Domains, NameClaims, decide

HOST = "shop.example.com"
OPEN = Domains([tenant("east"), tenant("west")])


EAST = ("east", "")


def nothing(_host):
    return None


def is_east(_host, claimant):
    return claimant.space == "tenant-east"


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
    quota = Quota(lambda _space, _subtenant: 2)
    assert quota.hold("a", "east") == quota.hold("b", "east") == []
    assert quota.full("c", "east")
    assert not quota.full("a", "east"), "it does not count itself"
    assert not quota.full("c", "west")
    for host in ("d", "c"):
        assert quota.refused(host, [EAST]) == []
    assert quota.hold("a", None) == ["d"]
    # Its object went meanwhile: then the next one has the room.
    assert quota.refused("d", []) == ["c"]
    assert quota.hold("c", "east") == []
    assert quota.refused("c", []) == []
    assert quota.room("east") == []


def test_a_limit_that_is_raised_makes_room_and_none_at_all_is_for_any_number():
    limits = {"east": 1}
    quota = Quota(lambda space, _subtenant: limits[space])
    quota.hold("a", "east")
    for host in ("b", "c", "d"):
        quota.refused(host, [EAST])
    assert quota.room("east") == []
    limits["east"] = 3
    assert quota.room("east") == ["b", "c"]
    limits["east"] = 0
    assert quota.room("east") == ["b", "c", "d"]
    assert not quota.full("b", "east")


@pytest.mark.req("F-33")
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=40), st.integers(0, 3), st.integers(0, 2))
def test_no_order_leaves_a_name_waiting_with_room_or_gives_one_too_many(steps, limit, limit_of_shop):
    """The names a, b and c count for the sub-tenant shop, too."""
    limits = {"": limit, "shop": limit_of_shop}
    quota, held, wanted = Quota(lambda _space, subtenant: limits[subtenant]), set[str](), set[str]()
    for host, asks in steps:
        (wanted.add if asks else wanted.discard)(host)
        queue = [host]
        while queue:
            name = queue.pop()
            part = "shop" if name in "abc" else ""
            takes = name in wanted and (name in held or not quota.full(name, "east", part))
            queue += quota.hold(name, "east" if takes else None, part)
            refused = name in wanted and not takes
            queue += quota.refused(name, quota.full_parts(name, "east", part) if refused else [])
            (held.add if takes else held.discard)(name)
        assert held <= wanted
        assert not limit or len(held) <= limit
        shop = held & set("abc")
        assert not limit_of_shop or len(shop) <= limit_of_shop
        for name in wanted - held:
            assert (limit and len(held) == limit) or (name in "abc" and limit_of_shop and len(shop) == limit_of_shop)
