"""The book: who has which address and port, through restarts, in any order, and never that of another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from allocator_book import ADDRESS, PROXY_PORT, book_of, give, key_of, load_balancer_named, restarted
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.addresspool import AddressPool
from fairlead.api.intent import Allocation
from fairlead.hub.tenants.addresses import REST_S, PortLimit, listeners_of
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import IPV4, IPV6, ListenerKey, Protocol, WantedFamilies
from fairlead.testing.builders import lb_key
from fairlead.translate.addresses import AddressRanges, Pool, Pools, usable_pools


class TestAddress:
    def test_is_given_once_and_kept(self):
        book = book_of()
        first, problem = give(book, load_balancer_named("a"))
        assert problem is None
        assert first.address in book.pools
        assert give(book, load_balancer_named("a")) == (first, None)
        assert len(book) == 1

    @pytest.mark.req("I-6")
    def test_two_get_two(self):
        book = book_of()
        given_ = {give(book, load_balancer_named(f"lb-{n}"))[0].address for n in range(6)}
        assert len(given_) == 6

    @pytest.mark.req("KI-10")
    def test_an_exhausted_pool_is_a_reason_and_not_the_address_of_another(self):
        book = book_of()
        for n in range(6):
            give(book, load_balancer_named(f"lb-{n}"))
        allocation, problem = give(book, load_balancer_named("late"))
        assert allocation == Allocation()
        assert problem.reason is ConditionReason.ADDRESS_POOL_EXHAUSTED
        assert "all 6 addresses of the pool 192.0.2.0/29" in problem.message

    def test_the_pool_of_the_flag_is_used_up_before_that_of_an_object_for_all(self):
        book = book_of("198.51.100.0/29")
        object_ = {"metadata": {"name": "edge"}, "spec": {"addresses": ["192.0.2.1"]}}
        pools, _ = usable_pools(
            AddressRanges.parse("198.51.100.0/29"), [msgspec.convert(object_, AddressPool)], region=""
        )
        book.use(pools, "test")
        given_ = [give(book, load_balancer_named(f"lb-{n}"))[0] for n in range(8)]
        assert [each.pool for each in given_] == ["", "", "", "", "", "", "edge", ""]
        assert given_[6].address == "192.0.2.1"
        assert given_[7] == Allocation()

    @pytest.mark.req("O-53")
    def test_who_was_refused_hears_of_what_is_given_back(self):
        book = book_of("192.0.2.1/32")
        give(book, load_balancer_named("a"))
        late, later = load_balancer_named("late"), load_balancer_named("later")
        for refused in (late, later):
            give(book, refused)
        book.leave(key_of(load_balancer_named("a")))
        assert book.woken() == {key_of(late), key_of(later)}
        give(book, late)
        book.leave(key_of(later))
        assert book.woken() == set(), "one has it now, the other is gone"

    @pytest.mark.req("I-6")
    def test_b12_deleting_one_does_not_move_another(self):
        book = book_of()
        first, second = load_balancer_named("a"), load_balancer_named("b")
        give(book, first)
        kept, _ = give(book, second)
        book.release(key_of(first))
        assert give(book, second)[0] == kept

    @pytest.mark.req("I-6")
    def test_a_re_created_object_gets_the_address_it_had(self):
        book = book_of("10.0.0.0/16")
        had, _ = give(book, load_balancer_named("a"))
        book.release(lb_key("a"))
        give(book, load_balancer_named("b"))
        assert give(book, load_balancer_named("a"))[0] == had

    def test_release_twice_is_once(self):
        book = book_of()
        give(book, load_balancer_named("a"))
        book.release(lb_key("a"))
        book.release(lb_key("a"))
        assert len(book) == 0

    def test_without_a_pool_there_is_a_reason(self):
        _, problem = give(book_of(""), load_balancer_named("a"))
        assert problem.reason is ConditionReason.ADDRESS_NOT_ASSIGNED
        assert "--address-pool" in problem.message

    @pytest.mark.req("I-6")
    def test_a_smaller_pool_after_a_restart_takes_nothing_away(self):
        book = book_of("198.51.100.0/30")
        allocation, problem = give(book, load_balancer_named("a", recorded={"address": "192.0.2.5"}))
        assert (allocation.address, problem) == ("192.0.2.5", None)

    def test_a_provider_that_needs_nothing_gets_nothing(self):
        assert give(book_of(), load_balancer_named("a"), AllocationKind.NONE) == (Allocation(), None)


class TestRequestedAddress:
    def test_is_given_when_it_is_free(self):
        assert give(book_of(), load_balancer_named("a", address="192.0.2.3"))[0].address == "192.0.2.3"

    @pytest.mark.parametrize("address", ["203.0.113.9", "192.0.2.0", "192.0.2.7"])
    def test_outside_the_pool_is_refused(self, address):
        allocation, problem = give(book_of(), load_balancer_named("a", address=address))
        assert allocation == Allocation()
        assert problem.reason is ConditionReason.ADDRESS_NOT_USABLE
        assert f"spec.address: {address} is not in the hub's address pool" in problem.message

    def test_is_shared_within_a_member_by_different_ports(self):
        book = book_of()
        give(book, load_balancer_named("a", address="192.0.2.3", ports=[80]))
        allocation, problem = give(book, load_balancer_named("b", address="192.0.2.3", ports=[443]))
        assert (allocation.address, problem) == ("192.0.2.3", None)
        assert len(book) == 1
        book.release(lb_key("a"))
        assert give(book, load_balancer_named("c", address="192.0.2.3", ports=[443]))[1] is not None

    @pytest.mark.parametrize(
        "other", [{"ports": [80, 443]}, {"ports": [443], "namespace": "tenant-west"}], ids=["same-port", "other-member"]
    )
    def test_a_clash_is_refused_and_names_who_is_in_the_way(self, other):
        book = book_of()
        give(book, load_balancer_named("a", address="192.0.2.3", ports=[80]))
        allocation, problem = give(book, load_balancer_named("b", address="192.0.2.3", **other))
        assert allocation == Allocation()
        assert problem.reason is ConditionReason.PORT_CONFLICT
        same_member = "namespace" not in other
        assert ("TCPLoadBalancer/tenant-east/a" in problem.message) == same_member

    @pytest.mark.parametrize("recorded", [False, True])
    def test_a_port_that_is_taken_at_the_own_address_moves_only_what_was_never_recorded(self, recorded):
        book = book_of()
        had, _ = give(book, load_balancer_named("b", address="192.0.2.3", ports=[443]))
        give(book, load_balancer_named("a", address="192.0.2.3", ports=[80]))
        allocation, problem = give(book, load_balancer_named("b", ports=[80], recorded=had if recorded else None))
        if recorded:
            assert allocation == had
            assert problem.reason is ConditionReason.PORT_CONFLICT
            assert "leave spec.address empty" not in problem.message
        else:
            assert problem is None
            assert allocation.address not in ("", "192.0.2.3")
            assert give(book, load_balancer_named("c", address="192.0.2.3", ports=[443]))[1] is None

    @pytest.mark.req("I-6")
    def test_a_clash_leaves_what_it_had(self):
        book = book_of()
        give(book, load_balancer_named("a", address="192.0.2.3"))
        had, _ = give(book, load_balancer_named("b"))
        allocation, problem = give(book, load_balancer_named("b", address="192.0.2.3"))
        assert allocation == had
        assert problem is not None
        assert give(book, load_balancer_named("b")) == (had, None)

    def test_a_free_address_is_never_one_that_is_shared(self):
        book = book_of("192.0.2.0/31")
        give(book, load_balancer_named("a", address="192.0.2.0", ports=[80]))
        give(book, load_balancer_named("b", address="192.0.2.1", ports=[80]))
        assert give(book, load_balancer_named("c", ports=[443]))[1].reason is ConditionReason.ADDRESS_POOL_EXHAUSTED


class TestProxyPorts:
    def test_each_listener_gets_its_own(self):
        allocation, problem = give(book_of(""), load_balancer_named("a", ports=[80, 443]), PROXY_PORT)
        assert problem is None
        assert [(port.port, port.protocol) for port in allocation.ports] == [(80, "TCP"), (443, "TCP")]
        assert len({port.proxy_port for port in allocation.ports}) == 2

    @pytest.mark.req("I-6")
    def test_a_port_more_does_not_move_the_others(self):
        book = book_of("")
        first, _ = give(book, load_balancer_named("a", ports=[80, 443]), PROXY_PORT)
        second, _ = give(book, load_balancer_named("a", ports=[443, 8080, 80]), PROXY_PORT)
        before = {port.port: port.proxy_port for port in first.ports}
        assert before.items() <= {port.port: port.proxy_port for port in second.ports}.items()

    @pytest.mark.req("I-6")
    def test_b19_a_recorded_duplicate_moves_only_one_of_the_two(self):
        recorded = {"ports": [{"port": 80, "protocol": "TCP", "proxyPort": 10080}]}
        first, second = load_balancer_named("a", recorded=recorded), load_balancer_named("b", recorded=recorded)
        book = restarted(book_of(""), [(lb, lb.status.allocation) for lb in (first, second)])
        kept, _ = give(book, first, PROXY_PORT)
        moved, _ = give(book, second, PROXY_PORT)
        assert kept.ports[0].proxy_port == 10080
        assert moved.ports[0].proxy_port != 10080

    def test_members_do_not_share_a_table(self):
        book = book_of("")
        east, _ = give(book, load_balancer_named("a"), PROXY_PORT)
        west, _ = give(book, load_balancer_named("a", namespace="tenant-west"), PROXY_PORT)
        assert east.ports
        assert west.ports

    def test_a_released_port_is_free_again(self):
        book = book_of("")
        had, _ = give(book, load_balancer_named("a"), PROXY_PORT)
        book.release(lb_key("a"))
        assert give(book, load_balancer_named("a"), PROXY_PORT) == (had, None)


names = st.lists(st.integers(0, 40).map(lambda n: f"lb-{n}"), unique=True, min_size=1, max_size=6)


@given(names, st.data(), st.sampled_from([ADDRESS, PROXY_PORT]))
@pytest.mark.req("I-6")
def test_b11_b13_a_restart_in_any_order_moves_no_address(everyone, data, kind):
    """Pending ones are looked at first: they get what is free, and none that had something loses it."""
    served = data.draw(st.lists(st.sampled_from(everyone), unique=True))
    book = book_of()
    given_ = []
    for name in served:
        allocation, problem = give(book, load_balancer_named(name), kind)
        assert problem is None
        given_.append((load_balancer_named(name), allocation))
    pending = [name for name in everyone if name not in served]
    again = restarted(book, given_)
    after: dict[str, Allocation] = {}
    for name in data.draw(st.permutations(pending)) + data.draw(st.permutations(served)):
        allocation, problem = give(again, load_balancer_named(name), kind)
        assert problem is None
        after[name] = allocation
    for load_balancer, allocation in given_:
        assert after[load_balancer.metadata.name] == allocation
    if kind is ADDRESS:
        assert len({allocation.address for allocation in after.values()}) == len(everyone)
    else:
        ports = [port.proxy_port for allocation in after.values() for port in allocation.ports]
        assert len(set(ports)) == len(ports)


def of_member(most):
    return PortLimit(most, "the member", "spec.maxPorts")


@pytest.mark.req("S-7")
class TestPortQuota:
    @pytest.mark.req("F-33")
    def test_a_sub_tenant_has_a_limit_of_its_own(self):
        book, names = book_of(), {"shop": ("a", "b"), "search": ("c",)}

        def ask(name, *ports):
            subtenant = next(label for label, members in names.items() if name in members)
            load_balancers = [key_of(load_balancer_named(member)) for member in names[subtenant]]
            limit = PortLimit(2, f"sub-tenant {subtenant}", "spec.subtenants.maxPorts", load_balancers)
            asked = load_balancer_named(name, ports=ports)
            listeners = listeners_of(asked.spec)
            return book.allocate(
                key_of(asked),
                ADDRESS,
                requested="",
                recorded=Allocation(),
                listeners=listeners,
                limits=[of_member(9), limit],
            )[1]

        assert ask("a", 1, 2) is None
        problem = ask("b", 3)
        assert problem.reason is ConditionReason.QUOTA_EXCEEDED
        assert "sub-tenant shop has 2 others of at most 2" in problem.message
        assert ask("c", 1, 2) is None, "another sub-tenant"
        assert ask("a", 1, 2) is None, "what is served stays"
        book.leave(key_of(load_balancer_named("a")))
        assert key_of(load_balancer_named("b")) in book.woken()
        assert ask("b", 3) is None

    def give(self, book, load_balancer, kind=ADDRESS):
        recorded, listeners = load_balancer.status.allocation, listeners_of(load_balancer.spec)
        return book.allocate(
            key_of(load_balancer), kind, requested="", recorded=recorded, listeners=listeners, limits=[of_member(4)]
        )

    @pytest.mark.parametrize("kind", [ADDRESS, PROXY_PORT])
    def test_a_member_gets_no_more_ports_than_it_may_have(self, kind):
        book = book_of()
        assert self.give(book, load_balancer_named("a", ports=(1, 2, 3)), kind)[1] is None
        _, problem = self.give(book, load_balancer_named("b", ports=(4, 5)), kind)
        assert problem.reason is ConditionReason.QUOTA_EXCEEDED
        assert "needs 2, and the member has 3 others of at most 4" in problem.message
        assert self.give(book, load_balancer_named("b", ports=(4,)), kind)[1] is None
        _, problem = self.give(book, load_balancer_named("a", ports=(1, 2, 3, 6)), kind)
        assert problem.reason is ConditionReason.QUOTA_EXCEEDED, "one that grows counts, too"
        assert self.give(book, load_balancer_named("c", ports=(1, 2, 3, 4), namespace="tenant-west"), kind)[1] is None
        book.leave(key_of(load_balancer_named("a")))
        assert key_of(load_balancer_named("b")) not in book.woken()
        assert self.give(book, load_balancer_named("b", ports=(1, 2, 3, 4)), kind)[1] is None

    @pytest.mark.parametrize("kind", [ADDRESS, PROXY_PORT])
    def test_ports_that_the_hub_opens_of_itself_do_not_count(self, kind):
        book, web = book_of(), load_balancer_named("a", ports=(80, 81, 82))
        https = ListenerKey(Protocol.TCP, 443)
        allocation, problem = book.allocate(
            key_of(web),
            kind,
            requested="",
            recorded=Allocation(),
            listeners=listeners_of(web.spec),
            internal=[https],
            limits=[of_member(3)],
        )
        assert problem is None
        if kind is PROXY_PORT:
            assert [each.port for each in allocation.ports] == [80, 81, 82, 443]
        assert self.give(book, load_balancer_named("b", ports=(4,)), kind)[1] is None
        _, problem = self.give(book, load_balancer_named("c", ports=(5,)), kind)
        assert "needs 1, and the member has 4 others" in problem.message
        if kind is ADDRESS:
            rival = load_balancer_named("d", ports=(443,), address=allocation.address)
            assert give(book, rival)[1].reason is ConditionReason.PORT_CONFLICT, "it is taken all the same"

    def test_who_was_refused_hears_when_ports_are_given_back(self):
        book = book_of()
        self.give(book, load_balancer_named("a", ports=(1, 2, 3)))
        self.give(book, load_balancer_named("b", ports=(4, 5)))
        book.leave(key_of(load_balancer_named("a")))
        assert book.woken() == {key_of(load_balancer_named("b"))}

    def test_recorded_names_are_kept_beyond_the_quota(self):
        book, old = book_of(), load_balancer_named("a", ports=tuple(range(1, 9)), recorded={"address": "192.0.2.1"})
        book.hold(key_of(old), old.status.allocation, listeners_of(old.spec))
        allocation, problem = self.give(book, old)
        assert (allocation.address, problem) == ("192.0.2.1", None)
        assert self.give(book, load_balancer_named("b", ports=(80,)))[1].reason is ConditionReason.QUOTA_EXCEEDED

    def test_a_provider_that_opens_no_ports_of_ours_has_no_quota(self):
        assert self.give(book_of(), load_balancer_named("a", ports=tuple(range(1, 9))), AllocationKind.NONE)[1] is None


@pytest.mark.req("X-13")
def test_who_has_an_address_is_not_for_another_member_to_know():
    book = book_of()
    give(book, load_balancer_named("secret-shop", address="192.0.2.3", namespace="tenant-east"))
    _, problem = give(book, load_balancer_named("mine", address="192.0.2.3", namespace="tenant-west"))
    assert problem.reason is ConditionReason.PORT_CONFLICT
    assert "192.0.2.3 is taken by another load balancer; leave spec.address empty" in problem.message
    assert "east" not in problem.message
    assert "secret-shop" not in problem.message
    _, own = give(book, load_balancer_named("second", address="192.0.2.3", namespace="tenant-east"))
    assert "taken by TCPLoadBalancer/tenant-east/secret-shop" in own.message


ONE = "192.0.2.1/32"


def moved(book, load_balancer, before, **more):
    """Give ``load_balancer`` what it asks for now; ``before`` is on record, and then no longer."""
    spec = load_balancer.spec
    text: dict[str, Any] = {"requested": spec.address, "listeners": listeners_of(spec), **more}
    key, recorded = key_of(load_balancer), before
    allocation, problem = book.allocate(key, ADDRESS, recorded=recorded, **text)
    assert problem is None
    assert book.woken() == set(), "what is on record may still be served"
    book.allocate(key, ADDRESS, recorded=allocation, **{**text, "served": ()})
    return allocation


@pytest.mark.req("L4-3")
class TestWhatIsReleasedWakesWhoWaits:
    def test_a_changed_address(self):
        book = book_of()
        first, _ = give(book, load_balancer_named("a", address="192.0.2.2"))
        waiting = load_balancer_named("b", address="192.0.2.2")
        assert give(book, waiting)[1].reason is ConditionReason.PORT_CONFLICT
        moved(book, load_balancer_named("a", address="192.0.2.3"), first)
        assert book.woken() == {key_of(waiting)}
        assert give(book, waiting)[0].address == "192.0.2.2"

    def test_a_dropped_port_of_a_shared_address(self):
        book = book_of()
        both = load_balancer_named("a", address="192.0.2.2", ports=(80, 81))
        first, _ = give(book, both)
        waiting = load_balancer_named("b", address="192.0.2.2", ports=(81,))
        give(book, waiting)
        moved(book, load_balancer_named("a", address="192.0.2.2"), first, served=listeners_of(both.spec))
        assert book.woken() == {key_of(waiting)}
        assert give(book, waiting)[1] is None

    def test_a_part_of_the_quota_for_ports(self):
        book = book_of()
        large = load_balancer_named("a", ports=(1, 2, 3))
        first, _ = book.allocate(
            key_of(large),
            ADDRESS,
            requested="",
            recorded=Allocation(),
            listeners=listeners_of(large.spec),
            limits=[of_member(4)],
        )
        waiting = load_balancer_named("b", ports=(4, 5))
        text: dict[str, Any] = {
            "requested": "",
            "recorded": Allocation(),
            "listeners": listeners_of(waiting.spec),
            "limits": [of_member(4)],
        }
        assert book.allocate(key_of(waiting), ADDRESS, **text)[1].reason is ConditionReason.QUOTA_EXCEEDED
        moved(book, load_balancer_named("a", ports=(1,)), first, limits=[of_member(4)], served=listeners_of(large.spec))
        assert book.woken() == {key_of(waiting)}
        assert book.allocate(key_of(waiting), ADDRESS, **text)[1] is None

    def test_an_address_of_a_full_pool_whose_holder_moves_to_another(self):
        book = book_of(ONE)
        first, _ = give(book, load_balancer_named("a"))
        give(book, load_balancer_named("b"))
        edge = Pool(name="edge", ranges=AddressRanges.parse("198.51.100.1/32"), classes=frozenset({"edge"}))
        book.use(msgspec.structs.replace(book.pools, pools=(*book.pools.pools, edge)), "test")
        book.woken()
        moved(book, load_balancer_named("a", address="198.51.100.1"), first, class_name="edge")
        assert book.woken() == {key_of(load_balancer_named("b"))}
        assert give(book, load_balancer_named("b"))[0].address == "192.0.2.1"

    def test_the_second_address_of_one_that_becomes_single_stack(self):
        book = book_of("192.0.2.0/29,2001:db8::1/128")
        web, waiting = key_of(load_balancer_named("a")), key_of(load_balancer_named("b"))
        text: dict[str, Any] = {"requested": "", "listeners": [], "recorded": Allocation()}
        both, _ = book.allocate(web, ADDRESS, families=WantedFamilies((IPV4, IPV6), all_required=True), **text)
        six = WantedFamilies((IPV6,), all_required=True)
        assert book.allocate(waiting, ADDRESS, families=six, **text)[1] is not None
        four = WantedFamilies((IPV4,), all_required=True)
        single, _ = book.allocate(web, ADDRESS, families=four, requested="", listeners=[], recorded=both)
        assert book.woken() == set()
        book.allocate(web, ADDRESS, families=four, requested="", listeners=[], recorded=single)
        assert book.woken() == {waiting}
        assert book.allocate(waiting, ADDRESS, families=six, **text)[0].address == "2001:db8::1"

    def test_the_share_of_a_member(self):
        book = book_of()
        book.use(Pools((msgspec.structs.replace(book.pools.pools[0], max_per_tenant=1),)), "test")
        first, _ = give(book, load_balancer_named("a", address="192.0.2.2"))
        assert give(book, load_balancer_named("b"))[1].reason is ConditionReason.QUOTA_EXCEEDED
        moved(book, load_balancer_named("a", address="192.0.2.3"), first)  # within its own share
        book.leave(key_of(load_balancer_named("a")))
        assert key_of(load_balancer_named("b")) in book.woken()

    def test_load_balancers_over_the_quota(self):
        book = book_of()
        book.wait(key_of(load_balancer_named("b")))
        book.leave(key_of(load_balancer_named("a")))
        assert book.woken() == {key_of(load_balancer_named("b"))}


@pytest.mark.req("X-37")
class TestAReleasedAddressRests:
    def test_a_former_address_is_reused_only_as_the_last_resort(self):
        book = book_of("192.0.2.1-192.0.2.2")
        first, _ = give(book, load_balancer_named("a"))
        book.leave(key_of(load_balancer_named("a")))
        second, _ = give(book, load_balancer_named("b"))
        third, _ = give(book, load_balancer_named("c"))
        assert (second.address != first.address, third.address) == (True, first.address)

    def test_the_address_released_first_is_reused_first(self):
        book = book_of("192.0.2.1-192.0.2.6")
        names = ["a", "b", "c", "d", "e", "f"]
        had = {name: give(book, load_balancer_named(name))[0].address for name in names}
        for name in ("c", "a"):
            book.leave(key_of(load_balancer_named(name)))
        assert give(book, load_balancer_named("x"))[0].address == had["c"]

    def test_the_former_owner_gets_the_address_back_at_once(self):
        book = book_of()
        first, _ = give(book, load_balancer_named("a", address="192.0.2.5"))
        book.leave(key_of(load_balancer_named("a")))
        assert give(book, load_balancer_named("a"))[0].address == first.address

    def test_the_same_member_gets_it_by_asking_and_another_one_after_the_rest(self):
        book = book_of()
        for name in ("a", "b"):
            give(book, load_balancer_named(name, address="192.0.2.5"))
            book.leave(key_of(load_balancer_named(name)))
        other = load_balancer_named("c", address="192.0.2.5", namespace="tenant-west")
        problem = give(book, other)[1]
        assert problem.reason is ConditionReason.ADDRESS_NOT_USABLE
        assert "east" not in problem.message
        book.clock.jump(REST_S - 1)
        assert give(book, other)[1] is not None
        book.clock.jump(1)
        book.woken()
        assert book.wake_rested() is None
        assert book.woken() == {key_of(other)}
        assert give(book, other)[0].address == "192.0.2.5"


@pytest.mark.req("CORE-05")
@pytest.mark.parametrize(
    "address", ["0.0.0.0", "::", "::ffff:192.0.2.2", "fe80::1%eth0", "224.0.0.1", "255.255.255.255"]
)
def test_without_a_pool_only_a_single_address_is_accepted(address):
    allocation, problem = give(book_of(""), load_balancer_named("a", address=address))
    assert (allocation, problem.reason) == (Allocation(), ConditionReason.ADDRESS_NOT_USABLE)
    assert give(book_of(""), load_balancer_named("a", address="192.0.2.2"))[1] is None
