"""The content of a Hostname: addresses of all load balancers, kept while one is missing; names of objects."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from names_parts import claimant, load_balancer

from fairlead.api.hostname import Hostname, HostnameOwner, HostnameSpec
from fairlead.api.intent import IntentStatus
from fairlead.api.kubernetes import Ingress, LoadBalancerStatus
from fairlead.hub.names.ownership import (
    NOBODYS,
    LoadBalancerAddresses,
    NameDecision,
    hostname_body,
    hostname_spec,
    is_of_claims,
    object_name,
    same_spec,
    space_of,
)

HOST = "shop.example.com"
ONE, TWO = load_balancer("east", "one"), load_balancer("east", "two")
OWNER = claimant("east", gw="one")


def status(*addresses):
    entries = [Ingress(ip=each) if each[0].isdigit() else Ingress(hostname=each) for each in addresses]
    return IntentStatus(load_balancer=LoadBalancerStatus(ingress=entries or None))


def known(**by_name):
    addresses = LoadBalancerAddresses()
    for name, shown in by_name.items():
        addresses.put(load_balancer("east", name), status(*shown))
    return addresses


def spec(addresses, *keys, before=None, down=()):
    return hostname_spec(HOST, OWNER, NameDecision(owner=OWNER, load_balancers=keys), before, addresses, down=down)


def test_a_name_points_to_all_load_balancers_of_its_owner():
    made = spec(known(one=["192.0.2.2"], two=["192.0.2.1", "192.0.2.2"]), ONE, TWO)
    assert made.addresses == ["192.0.2.1", "192.0.2.2"]
    assert made.owner.load_balancer == "HTTPLoadBalancer/tenant-east/one"
    assert (made.cname, made.generated) == ("", False)


def test_a_load_balancer_with_a_host_name_only_becomes_a_cname():
    assert spec(known(one=["lb.cloud.example"]), ONE).cname == "lb.cloud.example"
    both = spec(known(one=["lb.cloud.example"], two=["192.0.2.1"]), ONE, TWO)
    assert (both.addresses, both.cname) == (["192.0.2.1"], "")


@pytest.mark.req("KI-9")
def test_an_address_that_disappears_for_a_moment_stays():
    addresses = known(one=["192.0.2.1"])
    assert not addresses.put(ONE, status()), "nothing changes"
    assert addresses.of(ONE) == ("192.0.2.1",)
    assert addresses.put(ONE, None), "it is gone for good"
    assert addresses.of(ONE) == ()


def test_after_a_restart_a_recorded_address_stays_until_all_load_balancers_have_one():
    before = spec(known(one=["192.0.2.1"], two=["192.0.2.2"]), ONE, TWO)
    assert spec(known(two=["192.0.2.2"]), ONE, TWO, before=before).addresses == ["192.0.2.1", "192.0.2.2"]
    moved = spec(known(one=["192.0.2.9"], two=["192.0.2.2"]), ONE, TWO, before=before)
    assert moved.addresses == ["192.0.2.2", "192.0.2.9"]


def test_an_address_that_another_load_balancer_has_by_now_is_not_kept():
    before = spec(known(one=["192.0.2.1"]), ONE)
    addresses = known(other=["192.0.2.1"])
    assert spec(addresses, ONE, before=before).addresses == []


@pytest.mark.req("MC-22")
def test_only_addresses_of_load_balancers_that_are_down_are_unhealthy():
    before = spec(known(one=["192.0.2.1"], two=["192.0.2.2"]), ONE, TWO)
    assert spec(known(one=["192.0.2.1"], two=["192.0.2.2"]), ONE, TWO, down=[ONE]).unhealthy_addresses == ["192.0.2.1"]
    shared = known(one=["192.0.2.1"], two=["192.0.2.1"])
    assert spec(shared, ONE, TWO, down=[ONE]).unhealthy_addresses == []
    # The second load balancer serves, and its address is missing for a moment.
    made = spec(known(one=["192.0.2.1"]), ONE, TWO, before=before, down=[ONE])
    assert (made.addresses, made.unhealthy_addresses) == (["192.0.2.1", "192.0.2.2"], ["192.0.2.1"])
    made = spec(known(one=["192.0.2.1"]), ONE, TWO, before=before, down=[ONE, TWO])
    assert made.unhealthy_addresses == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.req("MC-22")
def test_no_more_addresses_are_unhealthy_than_a_hostname_has():
    many = [f"192.0.2.{number}" for number in range(200)]
    made = spec(known(one=many), ONE, down=[ONE])
    assert len(made.addresses) == 64
    assert made.unhealthy_addresses == made.addresses


def test_nothing_is_kept_of_another_owner():
    before = HostnameSpec(
        host=HOST, owner=HostnameOwner(load_balancer="HTTPLoadBalancer/tenant-west/gw"), addresses=["192.0.2.7"]
    )
    assert spec(known(), ONE, before=before).addresses == []


def test_additions_of_others_to_a_hostname_are_not_a_difference():
    made = spec(known(one=["192.0.2.1"]), ONE)
    there = msgspec.structs.replace(made, texts=["a"])
    assert same_spec(made, there)
    assert "texts" not in hostname_body(made)
    assert not same_spec(spec(known(one=["192.0.2.2"]), ONE), there)


def test_a_hostname_without_a_load_balancer_is_not_of_claims():
    assert not is_of_claims(Hostname(spec=HostnameSpec(host=HOST)))
    assert space_of(Hostname(spec=HostnameSpec(host=HOST))) == NOBODYS
    assert space_of(Hostname(spec=spec(known(), ONE))) == "tenant-east"


LABEL = st.text("ab-_1", min_size=1, max_size=63)
EXACT = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
NAMES = st.one_of(EXACT, EXACT.map("*.{}".format))


@given(NAMES, NAMES)
def test_two_hosts_never_share_an_object(left, right):
    assert (object_name(left) == object_name(right)) == (left == right)
    assert len(object_name(left)) <= 253


def test_the_object_of_a_host_has_its_name_and_that_of_a_wildcard_a_digest():
    assert object_name(HOST) == HOST
    assert object_name("*.example.com").endswith(".example.com")
    assert len(object_name("*.example.com").partition(".")[0]) == 64
