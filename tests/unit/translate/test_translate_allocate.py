"""Which address or proxy port a load balancer gets, and that it is always the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.keys import ListenerKey, Protocol
from fairlead.testing.builders import HTTP, lb_key
from fairlead.translate.addresses import PROXY_PORTS, AddressRanges, allocate_address, allocate_proxy_port

POOL = AddressRanges.parse("192.0.2.0/24")


@pytest.mark.req("I-6")
def test_the_choice_depends_on_the_key_alone():
    first = allocate_address(lb_key("web"), POOL, set())
    assert allocate_address(lb_key("web"), AddressRanges.parse("192.0.2.0/24"), set()) == first
    assert allocate_proxy_port(lb_key("web"), HTTP, set()) == allocate_proxy_port(lb_key("web"), HTTP, set())


def test_choices_are_spread():
    chosen = {allocate_address(lb_key(f"lb-{n}"), AddressRanges.parse("10.0.0.0/16"), set()) for n in range(200)}
    assert len(chosen) > 190
    ports = {allocate_proxy_port(lb_key("web"), ListenerKey(Protocol.TCP, n), set()) for n in range(1, 200)}
    assert len(ports) > 190
    assert all(port in PROXY_PORTS for port in ports)


def test_tcp_and_udp_of_one_number_begin_at_different_ports():
    udp = ListenerKey(Protocol.UDP, 80)
    assert allocate_proxy_port(lb_key(), HTTP, set()) != allocate_proxy_port(lb_key(), udp, set())


@given(st.sets(st.sampled_from([*AddressRanges.parse("192.0.2.0/28")])))
def test_only_free_addresses_are_allocated(taken):
    pool = AddressRanges.parse("192.0.2.0/28")
    address = allocate_address(lb_key(), pool, taken)
    assert (address is None) == (len(taken) == pool.size)
    assert address is None or (address in pool and address not in taken)


def test_exhausted_proxy_ports_end():
    assert allocate_proxy_port(lb_key(), HTTP, PROXY_PORTS) is None
