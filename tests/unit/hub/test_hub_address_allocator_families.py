"""The book of addresses, for load balancers of both families."""

from __future__ import annotations

import pytest
from allocator_book import ADDRESS, book_of, key_of, load_balancer_named, restarted

from fairlead.api.addresspool import Reservation
from fairlead.api.intent import Allocation
from fairlead.hub.tenants.addresses import listeners_of
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import ANY_FAMILY, WantedFamilies, family_of
from fairlead.translate.addresses import AddressRanges, Pool, Pools

BOTH = "192.0.2.0/29,2001:db8::/64"
DUAL, REQUIRED = WantedFamilies(("IPv4", "IPv6")), WantedFamilies(("IPv4", "IPv6"), all_required=True)
V6_FIRST = WantedFamilies(("IPv6", "IPv4"))


def give_of(book, load_balancer, families, *, asked="", recorded=None):
    listeners = listeners_of(load_balancer.spec)
    had = recorded or Allocation()
    key = key_of(load_balancer)
    return book.allocate(key, ADDRESS, requested=asked, recorded=had, listeners=listeners, families=families)


@pytest.mark.req("K-58")
class TestFamilies:
    def test_one_address_of_each_in_the_order_asked_for(self):
        book = book_of(BOTH)
        allocation, problem = give_of(book, load_balancer_named("a"), V6_FIRST)
        assert problem is None
        assert (family_of(allocation.address), family_of(allocation.second_address)) == ("IPv6", "IPv4")
        assert len(book) == 2
        assert give_of(book, load_balancer_named("a"), V6_FIRST) == (allocation, None)

    def test_of_64_bits_each_gets_one_without_listing_them(self):
        book = book_of("2001:db8::/64")
        given = {give_of(book, load_balancer_named(f"lb-{n}"), ANY_FAMILY)[0].address for n in range(500)}
        assert len(given) == 500
        assert all(address in book.pools for address in given)

    def test_an_address_of_a_family_is_added_and_taken_away_and_the_other_stays(self):
        book, web = book_of(BOTH), load_balancer_named("a")
        single, _ = give_of(book, web, WantedFamilies(("IPv4",)))
        dual, _ = give_of(book, web, DUAL)
        assert (dual.address, bool(dual.second_address)) == (single.address, True)
        assert give_of(book, web, WantedFamilies(("IPv4",)))[0] == single
        other = load_balancer_named("b")
        assert give_of(book, other, DUAL, asked=dual.second_address)[1] is None

    def test_without_the_other_family_one_is_enough_unless_both_are_required(self):
        book, web = book_of(), load_balancer_named("a")
        allocation, problem = give_of(book, web, DUAL)
        assert (problem, allocation.second_address, bool(allocation.address)) == (None, "", True)
        kept, problem = give_of(book, web, REQUIRED)
        assert kept == allocation
        assert problem.reason is ConditionReason.UNSUPPORTED_ADDRESS_FAMILY
        assert "has an IPv6 address (the hub's address pool (192.0.2.0/29))" in problem.message
        nothing, problem = give_of(book, load_balancer_named("b"), WantedFamilies(("IPv6",)))
        assert nothing == Allocation()
        assert "ask for IPv4 alone (spec.ipFamilies)" in problem.message

    def test_who_has_one_of_two_hears_of_new_pools(self):
        book, web = book_of(), load_balancer_named("a")
        single, _ = give_of(book, web, DUAL)
        book.use(Pools.own(AddressRanges.parse(BOTH)), "test")
        assert book.woken() == {key_of(web)}
        dual, _ = give_of(book, web, DUAL)
        assert (dual.address, family_of(dual.second_address)) == (single.address, "IPv6")
        book.use(book.pools, "test")
        assert book.woken() == set()

    def test_both_are_held_over_a_restart(self):
        book, web = book_of(BOTH), load_balancer_named("a")
        dual, _ = give_of(book, web, DUAL)
        again = restarted(book, [(web, dual)])
        for address in (dual.address, dual.second_address):
            _, problem = give_of(again, load_balancer_named("thief"), ANY_FAMILY, asked=address)
            assert problem.reason is ConditionReason.PORT_CONFLICT
        again.release(key_of(web))
        assert (len(again), list(again.given())) == (0, [])

    def test_an_address_may_be_asked_for_of_each_family_in_any_spelling(self):
        book = book_of(BOTH)
        allocation, problem = give_of(book, load_balancer_named("a"), DUAL, asked="2001:DB8:0::9, 192.0.2.3")
        assert problem is None
        assert (allocation.address, allocation.second_address) == ("192.0.2.3", "2001:db8::9")
        _, problem = give_of(book, load_balancer_named("b"), WantedFamilies(("IPv4",)), asked="2001:db8::a")
        assert problem.reason is ConditionReason.ADDRESS_NOT_USABLE
        assert "2001:db8::a is not IPv4, which spec.ipFamilies asks for" in problem.message

    def test_what_asks_for_no_family_gets_one_address_and_ipv4_where_there_is_any(self):
        assert family_of(give_of(book_of(BOTH), load_balancer_named("a"), ANY_FAMILY)[0].address) == "IPv4"
        book = book_of("2001:db8::/64")
        allocation, _ = give_of(book, load_balancer_named("a"), ANY_FAMILY)
        assert (family_of(allocation.address), allocation.second_address) == ("IPv6", "")
        book.use(Pools.own(AddressRanges.parse(BOTH)), "test")
        assert give_of(book, load_balancer_named("a"), ANY_FAMILY) == (allocation, None)

    def test_an_exhausted_family_is_named_and_a_share_counts_each_family(self):
        book = book_of("192.0.2.1/32,2001:db8::/64")
        give_of(book, load_balancer_named("a"), DUAL)
        _, problem = give_of(book, load_balancer_named("b"), REQUIRED)
        assert "all 1 IPv4 addresses of the pool 192.0.2.1/32,2001:db8::/64 are taken" in problem.message
        pool = Pool(name="edge", ranges=AddressRanges.parse(BOTH), max_per_tenant=1)
        book = book_of()
        book.use(Pools((pool,)), "test")
        allocation, problem = give_of(book, load_balancer_named("a"), REQUIRED)
        assert (problem, bool(allocation.second_address)) == (None, True)
        _, problem = give_of(book, load_balancer_named("b"), REQUIRED)
        assert problem.reason is ConditionReason.QUOTA_EXCEEDED
        assert "uses 1 of the IPv4 addresses of AddressPool edge" in problem.message

    def test_reservations_of_both_families_are_for_their_load_balancer(self):
        kept = {each: Reservation(each, "east", "a") for each in ("192.0.2.2", "2001:db8::2")}
        pool = Pool(name="edge", ranges=AddressRanges.parse(BOTH), reservations=kept)
        book = book_of()
        book.use(Pools((pool,)), "test")
        web = load_balancer_named("a")
        allocation, _ = book.allocate(
            key_of(web), ADDRESS, requested="", recorded=Allocation(), listeners=[], tenant="east", families=V6_FIRST
        )
        assert (allocation.address, allocation.second_address) == ("2001:db8::2", "192.0.2.2")
        assert (allocation.pool, allocation.second_pool) == ("edge", "edge")


def test_only_allocations_of_0_1_have_no_connection_limit():
    book, web, old = book_of(), load_balancer_named("web"), load_balancer_named("old")
    given, _ = give_of(book, web, ANY_FAMILY)
    assert given.limits_connections
    assert give_of(restarted(book, [(web, given)]), web, ANY_FAMILY, recorded=given)[0] == given
    of_old = Allocation("192.0.2.3")
    assert give_of(book, old, ANY_FAMILY, recorded=of_old)[0] == of_old
