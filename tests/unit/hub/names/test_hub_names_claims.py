"""The index of claims: what a change concerns, and that nothing is left behind."""

from __future__ import annotations

import tracemalloc

from names_parts import ask, claimant, load_balancer, source

from fairlead.hub.names.ownership import NameClaims


def test_a_change_concerns_the_hosts_that_it_adds_and_removes():
    claims = NameClaims()
    assert ask(claims, "east", "a.com", "b.com") == {"a.com", "b.com"}
    assert ask(claims, "east", "b.com", "c.com") == {"a.com", "c.com"}
    assert ask(claims, "east", "b.com", "c.com") == frozenset()
    assert sorted(claims.hosts()) == ["b.com", "c.com"]


def test_the_hosts_of_a_load_balancer_follow_those_of_its_sources():
    claims = NameClaims()
    ask(claims, "east", "a.com", name="one")
    ask(claims, "east", "b.com", name="two")
    ask(claims, "east", "c.com", name="three", gw="other")
    assert claims.at_load_balancer(load_balancer("east")) == {"a.com", "b.com"}
    ask(claims, "east", "a.com", name="one", gw="other")
    assert claims.at_load_balancer(load_balancer("east")) == {"b.com"}
    assert claims.at_load_balancer(load_balancer("east", "other")) == {"a.com", "c.com"}


def test_names_below_a_wildcard_are_known_at_every_depth():
    claims = NameClaims()
    ask(claims, "east", "a.example.com", "b.a.example.com", "*.a.example.com", "example.com", "*.example.com")
    assert claims.below("*.example.com") == {"a.example.com", "b.a.example.com", "*.a.example.com"}
    assert claims.below("*.a.example.com") == {"b.a.example.com"}
    assert claims.in_domain("example.com") == set(claims.hosts())


def test_a_name_of_many_labels_costs_as_much_as_any_other():
    claims = NameClaims()
    tracemalloc.start()
    try:
        ask(claims, "east", *(f"{'a.' * 118}n{number}" for number in range(1000)))
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
    assert len(claims.below("*.n7")) == 1


def test_nothing_is_left_of_a_source_that_asks_for_nothing():
    claims = NameClaims()
    ask(claims, "east", "a.example.com", "*.example.com")
    ask(claims, "east")
    assert (claims.hosts(), claims.sources()) == ([], [])
    assert claims.below("*.example.com") == frozenset()
    assert claims.at_load_balancer(load_balancer("east")) == frozenset()
    assert claims.at("a.example.com") == {}


def test_a_collective_object_follows_individual_claims():
    claims = NameClaims()
    first = claimant("east", "class", age=1, late=True)
    claims.put(source("east", "class"), {"a.com": first})
    ask(claims, "east", "a.com", age=9)
    assert min(claims.at("a.com").values(), key=lambda each: each.order).name == "web"
