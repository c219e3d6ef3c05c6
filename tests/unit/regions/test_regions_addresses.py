"""Addresses of regions come from their hub's pool: unique, as asked for, recorded, and given back (O-53, W-O-14)."""

from __future__ import annotations

import pytest
from regions_builders import pool_service, service

from fairlead.api.intent import Allocation
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.hub.tenants.addresses import AddressAllocator, listeners_of
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.publish.objects import Publication
from fairlead.regions.balancer_plan import translate
from fairlead.regions.source import Backends
from fairlead.runtime.clock import VirtualClock
from fairlead.translate.addresses import AddressRanges

ADDRESS = "fairlead.dev/address-request"


def load_balancer(pool: str, requested: str = "") -> TCPLoadBalancer:
    of = service(annotations={ADDRESS: requested} if requested else None, class_name="fairlead.dev/envoy")
    translated = translate(pool_service("test", pool, of=of, class_name="fairlead.dev/envoy"), Backends(), region=pool)
    assert isinstance(translated, Publication)
    return translated.load_balancer


def key_of(load_balancer: TCPLoadBalancer) -> LoadBalancerKey:
    return LoadBalancerKey("TCPLoadBalancer", load_balancer.metadata.namespace, load_balancer.metadata.name)


def allocate(book: AddressAllocator, load_balancer: TCPLoadBalancer) -> tuple[str, str]:
    allocation, problem = book.allocate(
        key_of(load_balancer),
        AllocationKind.ADDRESS,
        requested=load_balancer.spec.address,
        recorded=load_balancer.status.allocation,
        listeners=listeners_of(load_balancer.spec),
    )
    return allocation.address, problem.reason if problem is not None else ""


@pytest.mark.req("O-53", "W-O-14", "O-54")
def test_each_region_has_an_address_of_its_own_and_keeps_it() -> None:
    book = AddressAllocator(AddressRanges.parse("192.0.2.0/29"), clock=VirtualClock())
    first = allocate(book, load_balancer("east"))
    assert allocate(book, load_balancer("west"))[0] != first[0]
    assert allocate(book, load_balancer("east")) == first


@pytest.mark.req("O-53", "W-O-14")
def test_an_address_that_is_asked_for_is_given_or_refused_with_a_reason() -> None:
    book = AddressAllocator(AddressRanges.parse("192.0.2.0/29"), clock=VirtualClock())
    assert allocate(book, load_balancer("east", "east=192.0.2.5, west=192.0.2.6")) == ("192.0.2.5", "")
    assert allocate(book, load_balancer("west", "east=192.0.2.5, west=192.0.2.6")) == ("192.0.2.6", "")
    assert allocate(book, load_balancer("north", "192.0.2.5"))[1] == "PortConflict"
    assert allocate(book, load_balancer("south", "south=203.0.113.1"))[1] == "AddressNotUsable"


@pytest.mark.req("O-53", "W-O-14")
def test_an_exhausted_pool_is_reported_until_an_address_is_released() -> None:
    book = AddressAllocator(AddressRanges.parse("192.0.2.1/32"), clock=VirtualClock())
    assert allocate(book, load_balancer("east")) == ("192.0.2.1", "")
    assert allocate(book, load_balancer("west")) == ("", "AddressPoolExhausted")
    book.release(key_of(load_balancer("east")))
    assert allocate(book, load_balancer("west")) == ("192.0.2.1", "")


@pytest.mark.req("T-O-81")
def test_unknown_or_outside_addresses_affect_no_others() -> None:
    book = AddressAllocator(AddressRanges.parse("192.0.2.0/30"), clock=VirtualClock())
    book.release(key_of(load_balancer("never")))
    first = allocate(book, load_balancer("east"))
    # On record from a time when the pool was another one: it is held for its owner, and no other gets it.
    foreign = Allocation(address="203.0.113.9")
    book.hold(key_of(load_balancer("west")), foreign, [])
    assert allocate(book, load_balancer("north"))[0] not in ("", "203.0.113.9", first[0])
    book.release(key_of(load_balancer("west")))
    book.release(key_of(load_balancer("west")))
    assert allocate(book, load_balancer("east")) == first
