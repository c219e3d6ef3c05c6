"""Which address or proxy port a load balancer gets, and that it is always the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import BadConfiguration
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.testing.builders import HTTP, lb_key
from fairlead.translate.allocate import PROXY_PORTS, AddressPool, allocate_address, allocate_proxy_port

POOL = AddressPool.parse("192.0.2.0/24")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("192.0.2.7/32", ["192.0.2.7"]),
        ("192.0.2.6/31", ["192.0.2.6", "192.0.2.7"]),
        ("192.0.2.4/30", ["192.0.2.5", "192.0.2.6"]),
        ("192.0.2.7", ["192.0.2.7"]),
        ("192.0.2.5/30", ["192.0.2.5", "192.0.2.6"]),
        ("192.0.2.0/32, 198.51.100.8/30 ,", ["192.0.2.0", "198.51.100.9", "198.51.100.10"]),
    ],
    ids=["32", "31", "30", "no-length", "host-bits", "several"],
)
def test_the_addresses_of_a_pool(text, addresses):
    pool = AddressPool.parse(text)
    assert list(pool) == addresses
    assert len(pool) == len(addresses)
    assert all(address in pool for address in addresses)
    with pytest.raises(IndexError):
        pool[len(pool)]


@pytest.mark.parametrize("other", ["192.0.2.0", "192.0.2.255", "192.0.3.1", "web", 7, None, "2001:db8::1"])
def test_what_is_not_in_a_pool(other):
    assert other not in POOL


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["--address-pool", "is empty", "192.0.2.0/24"]),
        (" , ", ["is empty"]),
        ("192.0.2.0/33", ["--address-pool", "'192.0.2.0/33'", "not an IPv4 CIDR"]),
        ("10.0.0.0/8,nonsense", ["'nonsense'"]),
        ("2001:db8::/64", ["'2001:db8::/64'", "is IPv6"]),
        ("10.0.0.0/8,10.1.0.0/16", ["'10.1.0.0/16'", "overlaps"]),
    ],
    ids=["nothing", "commas", "length", "word", "ipv6", "overlap"],
)
def test_a_bad_pool_is_named(text, parts):
    with pytest.raises(BadConfiguration) as caught:
        AddressPool.parse(text)
    for word in parts:
        assert word in caught.value.sentence


def test_a_pool_says_what_it_is():
    assert str(AddressPool.parse("10.0.0.1/8, 192.0.2.0/24")) == "10.0.0.0/8,192.0.2.0/24"


@pytest.mark.req("I-6")
def test_the_choice_depends_on_the_key_alone():
    first = allocate_address(lb_key("web"), POOL, set())
    assert allocate_address(lb_key("web"), AddressPool.parse("192.0.2.0/24"), set()) == first
    assert allocate_proxy_port(lb_key("web"), HTTP, set()) == allocate_proxy_port(lb_key("web"), HTTP, set())


def test_choices_are_spread():
    chosen = {allocate_address(lb_key(f"lb-{n}"), AddressPool.parse("10.0.0.0/16"), set()) for n in range(200)}
    assert len(chosen) > 190
    ports = {allocate_proxy_port(lb_key("web"), ListenerKey(Protocol.TCP, n), set()) for n in range(1, 200)}
    assert len(ports) > 190
    assert all(port in PROXY_PORTS for port in ports)


def test_tcp_and_udp_of_one_number_begin_at_different_ports():
    udp = ListenerKey(Protocol.UDP, 80)
    assert allocate_proxy_port(lb_key(), HTTP, set()) != allocate_proxy_port(lb_key(), udp, set())


@given(st.sets(st.sampled_from(list(AddressPool.parse("192.0.2.0/28")))))
def test_what_is_taken_is_never_given_and_what_is_free_always_found(taken):
    pool = AddressPool.parse("192.0.2.0/28")
    address = allocate_address(lb_key(), pool, taken)
    assert (address is None) == (len(taken) == len(pool))
    assert address is None or (address in pool and address not in taken)


def test_exhausted_proxy_ports_end():
    assert allocate_proxy_port(lb_key(), HTTP, PROXY_PORTS) is None
