"""Where load balancers answer: two sources, and a call for each difference between them and nothing else."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from fairlead.hub.inventory import AddressesInUse, AddressSource
from fairlead.model.keys import TargetKey
from fairlead.testing.builders import lb_key

AT = TargetKey("192.0.2.1", 80)
MORE = TargetKey("192.0.2.1", 443)


@pytest.fixture
def changes() -> list[set[TargetKey]]:
    return []


@pytest.fixture
def given(changes: list[set[TargetKey]]) -> AddressesInUse:
    def changed(pairs: Collection[TargetKey]) -> None:
        changes.append(set(pairs))

    return AddressesInUse(changed)


def test_what_either_source_knows_counts(given: AddressesInUse, changes: list[set[TargetKey]]) -> None:
    given.put(lb_key(), AddressSource.ALLOCATED, addresses=["192.0.2.1"], ports=[80])
    given.put(lb_key(), AddressSource.SHOWN, addresses=["192.0.2.1"], ports=[80])
    assert given.holders == {AT: {lb_key()}}
    # Its spec asks for another address, and it is paused: it serves where it served.
    given.put(lb_key(), AddressSource.ALLOCATED, addresses=["192.0.2.2"], ports=[80])
    assert AT in given.holders
    given.put(lb_key(), AddressSource.SHOWN)
    assert given.holders == {TargetKey("192.0.2.2", 80): {lb_key()}}
    assert changes == [{AT}, {TargetKey("192.0.2.2", 80)}, {AT}]


def test_only_differences_are_reported(given: AddressesInUse, changes: list[set[TargetKey]]) -> None:
    given.put(lb_key("tcp"), AddressSource.ALLOCATED, addresses=["192.0.2.1"], ports=[80])
    given.put(lb_key("udp"), AddressSource.ALLOCATED, addresses=["192.0.2.1"], ports=[80, 443])
    given.put(lb_key("udp"), AddressSource.ALLOCATED, addresses=["192.0.2.1"], ports=[443, 80])
    given.put(lb_key("tcp"), AddressSource.ALLOCATED)
    assert changes == [{AT}, {MORE}]
    given.put(lb_key("udp"), AddressSource.ALLOCATED)
    given.put(lb_key("udp"), AddressSource.ALLOCATED)
    assert changes == [{AT}, {MORE}, {AT, MORE}]
    assert given.holders == {}


def test_addresses_have_one_spelling(given: AddressesInUse) -> None:
    given.put(
        lb_key(), AddressSource.SHOWN, addresses=["::ffff:192.0.2.1", "2001:DB8:0::1", "LB.example.com."], ports=[80]
    )
    assert {key.address for key in given.holders} == {"192.0.2.1", "2001:db8::1", "lb.example.com"}
