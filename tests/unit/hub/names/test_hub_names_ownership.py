"""Who owns a name: first come, kept while it is asked for, passed on in order, wildcards and reserved domains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from names_parts import ask, claimant, load_balancer, source, tenant

from fairlead.hub.names.ownership import NOBODYS, Domains, NameClaims, decide

HOST = "shop.example.com"
OPEN = Domains()


def nothing(_host):
    return None


def recorded(**owners):
    by_host = {host.replace("_", ".").replace("ANY", "*"): space for host, space in owners.items()}
    return by_host.get


@pytest.mark.req("KI-9")
def test_the_oldest_claim_gets_a_name_that_has_no_owner():
    claims = NameClaims()
    ask(claims, "west", HOST, age=2)
    ask(claims, "east", HOST, age=1)
    decision = decide(HOST, claims, nothing, OPEN)
    assert decision.owner == claimant("east", age=1)
    assert decision.refused == {"tenant-west": "HostnameTaken"}
    assert decision.waiting == 1


@pytest.mark.req("KI-9")
def test_claims_of_one_moment_are_ordered_by_member_then_by_name():
    claims = NameClaims()
    ask(claims, "west", HOST)
    ask(claims, "east", HOST, name="b")
    ask(claims, "east", HOST, name="a")
    assert decide(HOST, claims, nothing, OPEN).owner == claimant("east", "a")


@pytest.mark.req("KI-9")
def test_an_owner_keeps_the_name_from_an_older_claim():
    claims = NameClaims()
    ask(claims, "west", HOST, age=9)
    ask(claims, "east", HOST, age=1)
    decision = decide(HOST, claims, recorded(shop_example_com="tenant-west"), OPEN)
    assert decision.owner is not None
    assert decision.owner.member == "west"


@pytest.mark.req("KI-9")
def test_an_owner_that_asks_no_more_is_followed_by_the_next_in_order():
    claims = NameClaims()
    ask(claims, "west", HOST, age=9)
    ask(claims, "north", HOST, age=5)
    decision = decide(HOST, claims, recorded(shop_example_com="tenant-east"), OPEN)
    assert decision.owner is not None
    assert decision.owner.member == "north"


def test_all_objects_of_the_owner_share_the_name():
    claims = NameClaims()
    ask(claims, "east", HOST, name="a", gw="one", age=2)
    ask(claims, "east", HOST, name="b", gw="two", age=1)
    ask(claims, "west", HOST, name="c", age=3)
    decision = decide(HOST, claims, nothing, OPEN)
    assert decision.load_balancers == (load_balancer("east", "two"), load_balancer("east", "one"))
    assert decision.waiting == 1


@pytest.mark.req("KI-9")
@pytest.mark.parametrize("wildcard", ["*.com", "*.example.com", "*.b.example.com"])
@pytest.mark.parametrize("holder", [None, "tenant-east"])
def test_a_wildcard_takes_names_only_in_the_members_domain(wildcard, holder):
    claims = NameClaims()
    ask(claims, "east", wildcard, age=1)
    ask(claims, "west", "a.b.example.com", "*.a.b.example.com", age=9)
    owned = {wildcard: holder}.get
    for host in ("a.b.example.com", "*.a.b.example.com"):
        open_to_all = decide(host, claims, owned, OPEN).owner
        assert open_to_all is not None
        assert open_to_all.member == "west"
        granted = Domains([tenant("east", wildcard.removeprefix("*."))])
        assert decide(host, claims, owned, granted).refused == {"tenant-west": "DomainReserved"}


@pytest.mark.req("KI-9")
def test_a_wildcard_itself_is_given_as_any_name_is():
    claims = NameClaims()
    ask(claims, "west", "*.example.com", age=9)
    ask(claims, "east", "*.example.com", age=1)
    decision = decide("*.example.com", claims, nothing, OPEN)
    assert decision.owner == claimant("east", age=1)
    assert decision.refused == {"tenant-west": "HostnameTaken"}


@pytest.mark.req("KI-9")
@pytest.mark.parametrize("host", ["*.com", "*.lan", "*.example.com"])
def test_a_wildcard_over_a_zone_needs_the_members_own_domain(host):
    claims, domain = NameClaims(), host.removeprefix("*.")
    ask(claims, "east", host, domain, f"*.shop.{domain}", age=1)
    ask(claims, "west", host, age=9)
    zones = ["example.com"]
    decision = decide(host, claims, nothing, Domains(zones=zones))
    assert decision.owner is None
    assert decision.refused == {"tenant-east": "WildcardNotGranted", "tenant-west": "WildcardNotGranted"}
    for allowed in (domain, f"*.shop.{domain}"):
        assert decide(allowed, claims, nothing, Domains(zones=zones)).owner is not None
    granted = decide(host, claims, nothing, Domains([tenant("west", domain)], zones=zones))
    assert granted.owner is not None
    assert granted.owner.member == "west"
    assert granted.refused == {"tenant-east": "DomainReserved"}
    # It is in DNS already, and is served on.
    kept = decide(host, claims, {host: "tenant-east"}.get, Domains(zones=zones)).owner
    assert kept is not None
    assert kept.member == "east"


@pytest.mark.req("KI-9")
@pytest.mark.parametrize("host", ["*.lan", "*.example.com"])
def test_the_only_member_keeps_its_wildcard_without_a_grant(host):
    claims = NameClaims()
    ask(claims, "east", host, age=1)
    alone, two = (
        Domains([tenant(name) for name in names], zones=["example.com"]) for names in (["east"], ["east", "west"])
    )
    assert alone.differ_for_wildcards(two)
    assert not two.differ_for_wildcards(two)
    assert decide(host, claims, nothing, alone).owner == claimant("east", age=1)
    assert decide(host, claims, nothing, two).refused == {"tenant-east": "WildcardNotGranted"}
    assert decide(host, claims, {host: "tenant-east"}.get, two).owner == claimant("east", age=1)


@pytest.mark.req("KI-9")
def test_the_only_member_gets_no_name_in_the_domain_of_the_hub():
    assert not Domains([tenant("east")], "hub.example").gives("*.hub.example", "tenant-east")


def test_a_zone_that_comes_or_goes_is_named_among_what_differs():
    before, after = Domains(zones=["a.com", "b.com"]), Domains(zones=["b.com", "c.com"])
    assert before.differences(after) == {"a.com", "c.com"}


def test_a_name_of_the_operator_belongs_to_no_member():
    claims = NameClaims()
    ask(claims, "west", HOST)
    decision = decide(HOST, claims, recorded(shop_example_com=NOBODYS), OPEN)
    assert decision.owner is None
    assert decision.refused == {"tenant-west": "HostnameTaken"}


@pytest.mark.req("KI-9")
@pytest.mark.parametrize("host", ["example.com", "shop.example.com", "*.example.com", "*.a.example.com"])
def test_a_reserved_domain_is_for_its_member_only_also_against_an_owner(host):
    claims = NameClaims()
    ask(claims, "west", host, age=1)
    ask(claims, "east", host, age=9)
    domains = Domains([tenant("east", "example.com"), tenant("west")])
    decision = decide(host, claims, lambda _: "tenant-west", domains)
    assert decision.owner is not None
    assert decision.owner.member == "east"
    assert decision.refused == {"tenant-west": "DomainReserved"}


def test_the_longest_domain_counts_and_of_two_equal_ones_that_of_the_older_tenant():
    old, young = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    domains = Domains(
        [tenant("young", "example.com", created=young), tenant("old", "example.com", created=old)], "lb.example.com"
    )
    assert domains.allows("example.com", "tenant-old")
    assert not domains.allows("example.com", "tenant-young")
    assert not domains.allows("free.lb.example.com", "tenant-old"), "the hub's own domain is no member's"
    assert domains.allows("example.org", "tenant-young")
    assert domains.allows("notexample.com", "tenant-young")


@pytest.mark.req("KI-9", "K-48")
def test_no_member_gets_a_name_in_the_domain_of_another_one():
    claims = NameClaims()
    ask(claims, "west", "web-shop.east.lb.example.com", "anything.nosuch.lb.example.com", "own.west.lb.example.com")
    members = [tenant("east", domain="east.lb.example.com"), tenant("west", domain="west.lb.example.com")]
    domains = Domains(members, "lb.example.com")
    owners = {host: decide(host, claims, nothing, domains).owner for host in claims.hosts()}
    assert [host for host, owner in owners.items() if owner is not None] == ["own.west.lb.example.com"]


def test_domains_that_change_hands_are_named():
    before = Domains([tenant("east", "a.com", "b.com")])
    assert before.differences(Domains([tenant("east", "b.com", "c.com")])) == {"a.com", "c.com"}


MEMBERS = ("east", "north", "west")
HOSTS = ("a.example.com", "b.a.example.com", "*.example.com", "*.a.example.com", "c.org")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(MEMBERS),
        st.sampled_from(("one", "two")),
        st.integers(1, 50),
        st.sets(st.sampled_from(HOSTS), max_size=3),
    ),
    max_size=12,
)


class Hub:
    """Claims and records as the controller keeps them: what is decided is recorded."""

    def __init__(self, records=None):
        self.claims, self.records = NameClaims(), records if records is not None else {}

    def step(self, member, name, age, hosts):
        self.claims.put(source(member, name), dict.fromkeys(hosts, claimant(member, name, age=age)))

    def settle(self):
        for host in sorted({*self.claims.hosts(), *self.records}):
            owner = decide(host, self.claims, self.records.get, OPEN).owner
            self.records.pop(host, None)
            if owner is not None:
                self.records[host] = owner.space


@pytest.mark.req("KI-9")
@given(STEPS)
def test_no_order_of_requests_takes_a_name_from_its_owner(steps):
    hub = Hub()
    for step in steps:
        before = dict(hub.records)
        hub.step(*step)
        hub.settle()
        for host, space in before.items():
            asks = any(each.space == space for each in hub.claims.at(host).values())
            assert not asks or hub.records[host] == space, "the owner that asks keeps it"
        for host in hub.claims.hosts():
            claimants = {each.space for each in hub.claims.at(host).values()}
            assert hub.records.get(host) in claimants, (
                "who asks for a name alone has it, whatever wildcards others have"
            )


@pytest.mark.req("KI-9")
@given(STEPS, st.randoms(use_true_random=False))
def test_a_restart_finds_the_same_owners_whatever_is_read_first(steps, order):
    hub = Hub()
    for step in steps:
        hub.step(*step)
        hub.settle()
    before = dict(hub.records)
    again = Hub(dict(before))
    last = {(member, name): (member, name, age, hosts) for member, name, age, hosts in steps}
    rows = list(last.values())
    order.shuffle(rows)
    for row in rows:
        again.step(*row)
    again.settle()
    assert again.records == before


@given(st.permutations([("east", 3), ("north", 1), ("west", 2)]))
def test_a_name_passes_on_in_order_of_age_whatever_came_first(arrivals):
    hub = Hub()
    for member, age in arrivals:
        hub.step(member, "web", age, {HOST})
    order = []
    while hub.claims.at(HOST):
        hub.settle()
        owner = hub.records[HOST].removeprefix("tenant-")
        order.append(owner)
        hub.step(owner, "web", 1, set())
    assert order == ["north", "west", "east"]
