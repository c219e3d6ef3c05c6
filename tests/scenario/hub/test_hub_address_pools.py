"""AddressPools at a hub: which address a load balancer gets, what a person reads, and what a change leaves."""

from __future__ import annotations

import pytest

from fairlead.api.addresspool import ADDRESS_POOLS, COUNTED
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES

pytestmark = pytest.mark.req("K-58", "OP-12")


@pytest.fixture
async def plain(world):
    """A hub without --address-pool, with two members."""
    running = await world.start(pool="")
    for name in ("east", "west"):
        await world.tenant(name)
    return running


async def pool(world, name, *addresses, **spec):
    body = {"metadata": {"name": name}, "spec": {"addresses": list(addresses), **spec}}
    await world.user.apply(ADDRESS_POOLS, body, manager="kubectl")


async def counts(world, name, **expected):
    """Wait until the status of a pool says this; returns it."""

    async def shown():
        status = (await world.user.get(ADDRESS_POOLS, "", name)).status
        return status if all(getattr(status, field) == value for field, value in expected.items()) else None

    return await world.until(shown, what=f"{expected} in the status of AddressPool {name}")


async def accepted(world, name, status):
    async def shown():
        conditions = (await world.user.get(ADDRESS_POOLS, "", name)).status.conditions or ()
        return next((each for each in conditions if each.status == status), None)

    return await world.until(shown, what=f"Accepted={status} of AddressPool {name}")


async def served(world, name="web", member="east", **options):
    namespace = f"tenant-{member}"
    await world.lb(name, namespace=namespace, **options)
    await world.slice(name, "10.1.0.1", namespace=namespace)
    return await world.programmed(name, namespace)


async def test_a_load_balancer_waits_for_a_pool_and_is_counted_in_it(world, plain):
    await world.lb()
    waiting = await world.said("Programmed", "False")
    assert waiting.reason == "AddressNotAssigned"
    assert "create an AddressPool" in waiting.message
    await pool(world, "edge", "192.0.2.0/29", avoid=["192.0.2.2-192.0.2.6"])
    await world.slice("web", "10.1.0.1")
    assert await world.programmed() == "192.0.2.1"
    await counts(world, "edge", size=1, used=1, free=0)
    await world.lb("late")
    full = await world.said("Programmed", "False", name="late")
    assert full.reason == "AddressPoolExhausted"
    assert "all 1 addresses of AddressPool edge (192.0.2.0/29) are taken" in full.message
    await world.delete_lb()
    await world.slice("late", "10.1.0.1")
    assert await world.programmed("late") == "192.0.2.1"
    await world.delete_lb("late")
    await counts(world, "edge", size=1, used=0, free=1)


async def test_classes_and_tenants_choose_their_pools(world, plain):
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "gold"}, "spec": {"provider": "envoy"}})
    await pool(world, "gold", "198.51.100.7", classes=["gold"])
    await pool(world, "west", "203.0.113.9", tenants=["west"])
    await world.lb()
    refused = await world.said("Programmed", "False")
    assert refused.reason == "AddressNotAssigned"
    assert "no AddressPool serves LoadBalancerClass" in refused.message
    assert await served(world, "rich", spec={"className": "gold"}) == "198.51.100.7"
    assert await served(world, "web", "west") == "203.0.113.9"


async def test_a_reserved_address_is_kept_over_deletion_and_moves_to_another_member(world, plain):
    ours = [{"address": "192.0.2.9", "tenant": "east", "loadBalancer": "default/web"}]
    await pool(world, "edge", "192.0.2.9-192.0.2.10", reservations=ours)
    assert await served(world, "default.web") == "192.0.2.9"
    assert await served(world, "other") == "192.0.2.10"
    await counts(world, "edge", used=2, reserved=0, free=0)
    await world.delete_lb("default.web")
    await counts(world, "edge", used=1, reserved=1, free=0)
    await world.lb("greedy", spec={"address": "192.0.2.9"})
    refused = await world.said("Programmed", "False", name="greedy")
    assert refused.reason == "AddressNotUsable"
    assert "192.0.2.9 is reserved for another load balancer" in refused.message
    assert await served(world, "default.web") == "192.0.2.9", "created again"
    theirs = [{"address": "192.0.2.9", "tenant": "west", "loadBalancer": "default/web"}]
    await pool(world, "edge", "192.0.2.9-192.0.2.10", reservations=theirs)
    await world.lb("default.web", namespace="tenant-west")
    await world.slice("default.web", "10.2.0.1", namespace="tenant-west")
    waits = await world.said("Programmed", "False", name="default.web", namespace="tenant-west")
    assert waits.reason == "AddressPoolExhausted"
    assert await world.programmed("default.web") == "192.0.2.9", "it is not taken away"
    await world.delete_lb("default.web")
    assert await world.programmed("default.web", "tenant-west") == "192.0.2.9"


async def test_a_member_gets_its_share_and_may_share_an_address(world, plain):
    await pool(world, "edge", "192.0.2.0/28", maxPerTenant=1)
    first = await served(world)
    await world.lb("more", ports=[{"port": 8080}])
    refused = await world.said("Programmed", "False", name="more")
    assert refused.reason == "QuotaExceeded"
    assert (
        "uses 1 of the addresses of AddressPool edge (192.0.2.0/28), and spec.maxPerTenant allows 1" in refused.message
    )
    assert await served(world, "more", ports=[{"port": 8080}], spec={"address": first}) == first
    assert await served(world, "web", "west") != first


async def test_a_pool_that_shrinks_overlaps_or_goes_takes_nothing_away(world, plain):
    await pool(world, "edge", "192.0.2.9", "198.51.100.9")
    had = {name: await served(world, name) for name in ("a", "b")}
    assert set(had.values()) == {"192.0.2.9", "198.51.100.9"}
    await pool(world, "edge", "192.0.2.9")
    shrunk = await counts(world, "edge", size=1, used=1, free=0, outside=1)
    assert "no longer contains 198.51.100.9" in shrunk.conditions[0].message
    await pool(world, "young", "192.0.2.0/24")
    refused = await accepted(world, "young", "False")
    assert refused.reason == "Invalid"
    assert "overlaps 192.0.2.9/32 of AddressPool edge" in refused.message
    await world.user.delete(ADDRESS_POOLS, "", "edge")
    await accepted(world, "young", "True")
    await counts(world, "young", used=1)
    await world.stop(plain)
    again = await world.start(pool="")
    await world.quiet()
    assert {name: await world.programmed(name) for name in had} == had
    assert [each for each in again.written if "TCPLoadBalancer" in each or "AddressPool" in each] == []
    assert all(world.address_at_cloud(name) == address for name, address in had.items())


async def test_a_typo_in_a_pool_gives_none_of_its_addresses_to_a_younger_one(world, plain):
    ours = [{"address": "192.0.2.9", "tenant": "east", "loadBalancer": "default/web"}]
    await pool(world, "edge", "192.0.2.9-192.0.2.10", reservations=ours)
    await counts(world, "edge", size=2, reserved=1, accepted_addresses=["192.0.2.9-192.0.2.10"])
    await pool(world, "young", "192.0.2.0/24")
    await accepted(world, "young", "False")
    await pool(world, "edge", "192.0.2.9-192.0.2.1O", reservations=ours)
    wrong = await accepted(world, "edge", "False")
    assert "spec.addresses: '192.0.2.9-192.0.2.1O' is not" in wrong.message
    await world.lb("greedy", namespace="tenant-west", spec={"address": "192.0.2.9"})
    refused = await world.said("Programmed", "False", name="greedy", namespace="tenant-west")
    assert "192.0.2.9 is in AddressPool edge, whose spec is invalid" in refused.message
    await world.stop(plain)
    await world.start(pool="")
    await world.quiet()
    waits = await world.said("Programmed", "False", name="greedy", namespace="tenant-west")
    assert waits.reason == "AddressNotUsable"
    assert (await accepted(world, "young", "False")).reason == "Invalid"
    await pool(world, "edge", "192.0.2.9-192.0.2.10", reservations=ours)
    await accepted(world, "edge", "True")
    assert await served(world, "default.web") == "192.0.2.9"


async def test_a_pool_of_both_families_gives_one_address_of_each_and_says_what_is_left(world, plain):
    both = {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"}
    await pool(world, "edge", "192.0.2.0/29")
    await world.lb(spec=both)
    await world.slice("web", "10.1.0.1")
    missing = await world.said("Programmed", "False")
    assert missing.reason == "UnsupportedAddressFamily"
    assert "has an IPv6 address (AddressPool edge (192.0.2.0/29))" in missing.message
    await counts(world, "edge", used=0, free_ipv4=6, free_ipv6=None)

    await pool(world, "edge", "192.0.2.0/29", "2001:db8::/64")
    six = await world.programmed()
    status = (await world.get("web", "tenant-east")).status
    assert [":" in each for each in status.addresses] == [True, False]
    assert (status.addresses[0], status.allocation.second_pool) == (six, "edge")
    await counts(world, "edge", used=2, size=COUNTED, free=COUNTED, free_ipv4=5, free_ipv6=COUNTED)

    # What was given stays when the pool loses the family.
    await pool(world, "edge", "192.0.2.0/29")
    await counts(world, "edge", used=1, outside=1, free_ipv4=5, free_ipv6=None)
    assert (await world.get("web", "tenant-east")).status.addresses == status.addresses


@pytest.mark.req("L4-3")
async def test_an_address_that_a_load_balancer_leaves_goes_to_the_one_that_waits_for_it(world):
    await world.start()
    await world.tenant("east")
    for name in ("c1", "c2"):
        await world.lb(name, spec={"address": "192.0.2.2"})
        await world.slice(name, "10.1.0.1")
        await world.quiet(4)
    assert await world.programmed("c1") == "192.0.2.2"
    assert (await world.said("Programmed", "False", name="c2")).reason == "PortConflict"
    await world.lb("c1", spec={"address": "192.0.2.3"})
    assert await world.programmed("c2") == "192.0.2.2"
    assert await world.programmed("c1") == "192.0.2.3"


@pytest.mark.req("X-37")
async def test_an_address_that_an_edit_frees_is_not_given_to_the_next(world):
    await world.start()
    await world.tenant("east")
    await world.lb("c1")
    await world.slice("c1", "10.1.0.1")
    freed = await world.programmed("c1")
    other = "192.0.2.2" if freed != "192.0.2.2" else "192.0.2.3"
    await world.lb("c1", spec={"address": other})
    await world.until(lambda: world.address_at_cloud("c1") == other)
    await world.quiet()
    for name in ("n1", "n2", "n3", "n4"):
        await world.lb(name, namespace="tenant-east")
        await world.slice(name, "10.1.0.2")
        assert await world.programmed(name) != freed
    # Nothing else is free in a pool of six.
    await world.lb("n5")
    await world.slice("n5", "10.1.0.2")
    assert await world.programmed("n5") == freed
