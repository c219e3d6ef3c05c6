"""A hub without a region and the hub of a region over one API: each load balancer has one of them."""

from __future__ import annotations

import pytest

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.kubernetes import LEASES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import FINALIZER_CLEANUP, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.testing.builders import lb_key
from fairlead.translate.addresses import AddressRanges
from tests.scenario.hub.hub_world import POOL, RunningHub, store

pytestmark = pytest.mark.req("CORE-09")
POOL_EU = "198.51.100.0/29"
LEASE_EU = "fairlead-hub-eu"


@pytest.fixture
async def both(world):
    """A class of each kind of provider; load balancers of each class, in the region and in none."""
    world.everywhere = await world.start(identity="everywhere")
    await world.tenant("east")
    spec = {"provider": "memory", "parameters": {"address": "203.0.113.1"}, "drain": "4s"}
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "hw"}, "spec": spec})
    return world


async def start_eu(world) -> RunningHub:
    return await world.start(identity="eu", pool=POOL_EU, region="eu")


async def create(world, name, **spec):
    await world.lb(name, spec=spec)
    await world.slice(name, "10.1.0.1", "10.1.0.2")
    await world.programmed(name)


async def create_all(world):
    await create(world, "here")
    await create(world, "there", region="eu")
    await create(world, "hw-here", className="hw")
    await create(world, "hw-there", className="hw", region="EU")


def registered(world, name):
    return {target.address for _, target in world.outside.members(lb_key(name))}


def is_at_eu(world, name, address):
    return {target.address for _, target in world.regional_clouds["eu"].members(lb_key(name))} == {address}


def is_of(pool, address):
    return address in AddressRanges.parse(pool)


async def watch_quietly(world, seconds):
    """Let time pass; at no moment may a backend of a durable provider be missing, or a record be gone."""
    uids = {record.metadata.uid for record in await world.user.list(BACKEND_RECORDS)}
    for _ in range(seconds):
        await world.quiet(1)
        for name in ("hw-here", "hw-there"):
            assert registered(world, name) == {"10.1.0.1", "10.1.0.2"}
    assert {record.metadata.uid for record in await world.user.list(BACKEND_RECORDS)} == uids


async def state(world):
    objects = [await world.get(name) for name in ("here", "there", "hw-here", "hw-there")]
    return [(obj.metadata.name, obj.status.allocation, obj.status.addresses, obj.status.conditions) for obj in objects]


async def test_two_hubs_write_nothing_over_each_other(both):
    eu = await start_eu(both)
    await create_all(both)
    await both.quiet(70)
    before, writes = await state(both), (len(both.everywhere.written), len(eu.written))
    await watch_quietly(both, 30)
    assert (len(both.everywhere.written), len(eu.written)) == writes
    assert await state(both) == before
    assert is_of(POOL, await both.programmed("here"))
    assert is_of(POOL_EU, await both.programmed("there"))
    assert lb_key("there") in both.regional_clouds["eu"].load_balancers
    assert lb_key("here") not in both.regional_clouds["eu"].load_balancers


async def test_new_load_balancers_of_a_region_do_not_restart_its_hub(both, monkeypatch):
    eu = await start_eu(both)
    loads, load = [], eu.hub.providers.load
    monkeypatch.setattr(eu.hub.providers, "load", lambda: loads.append(1) or load())
    for name in ("first", "second"):
        meta = {"name": name, "namespace": "tenant-east", "finalizers": [FINALIZER_CLEANUP]}
        spec = {"className": "envoy", "targets": "Pod", "region": "eu", "ports": [{"port": 80}]}
        await both.user.create(TCP_LOAD_BALANCERS, {"metadata": meta, "spec": spec})
        await both.slice(name, "10.1.0.1")
        await both.programmed(name)
    assert not loads


async def test_a_region_that_gets_a_hub_is_handed_over_without_a_gap(both):
    await create_all(both)
    await both.quiet()
    before = await both.programmed("there")
    eu = RunningHub(both, identity="eu", pool=POOL_EU, region="eu", refuse_writes=False, refuse_preparing=False)
    both.hubs.append(eu)
    while not eu.hub.leading:
        assert both.address_at_cloud("there") == before
        await watch_quietly(both, 1)
    await watch_quietly(both, 70)
    assert await both.programmed("there") == both.address_at_cloud("there") == before
    assert both.regional_clouds["eu"].load_balancers[lb_key("there")].spec.address == before
    writes = len(both.everywhere.written)
    await both.slice("there", "10.1.0.3")
    await both.slice("hw-there", "10.1.0.2", "10.1.0.3")
    await both.until(lambda: registered(both, "hw-there") == {"10.1.0.2", "10.1.0.3"})
    # The proxies of both hubs may still get connections.
    await both.until(lambda: both.at_cloud("there") == {"10.1.0.3:8080"})
    await both.until(lambda: is_at_eu(both, "there", "10.1.0.3"))
    await both.delete_lb("hw-there")
    await both.delete_lb("there")
    await both.until(lambda: _is_gone(both, "hw-there"))
    await both.until(lambda: _is_gone(both, "there"))
    assert registered(both, "hw-there") == set()
    await both.until(lambda: lb_key("there") not in both.cloud.load_balancers)
    changed = [write for write in both.everywhere.written[writes:] if "there" in write]
    assert changed == []


@pytest.mark.parametrize("how", ["stopped", "lease deleted"])
async def test_a_region_is_not_taken_over_while_its_hub_may_return(both, how):
    eu = await start_eu(both)
    await create_all(both)
    await both.quiet()
    before = await state(both)
    if how == "stopped":
        await both.stop(eu)
        await watch_quietly(both, 120)
        await start_eu(both)
    else:
        await both.user.delete(LEASES, SYSTEM_NAMESPACE, LEASE_EU)
    await watch_quietly(both, 60)
    assert await state(both) == before


async def test_a_lease_that_cannot_be_read_is_still_that_of_a_region(both):
    eu = await start_eu(both)
    await create_all(both)
    await both.quiet()
    await both.stop(eu)
    await both.stop(both.everywhere)
    store(both, LEASES, SYSTEM_NAMESPACE, LEASE_EU, lambda lease: lease["spec"].update(leaseTransitions="four"))
    both.everywhere = await both.start(identity="everywhere")
    writes = len(both.everywhere.written)
    await both.slice("hw-there", "10.1.0.9")
    await watch_quietly(both, 60)
    assert [write for write in both.everywhere.written[writes:] if "there" in write] == []
    await both.user.delete(LEASES, SYSTEM_NAMESPACE, LEASE_EU)
    await both.until(lambda: registered(both, "hw-there") == {"10.1.0.9"})


async def test_a_region_whose_lease_is_deleted_for_good_is_served_again(both):
    eu = await start_eu(both)
    await create_all(both)
    await both.quiet()
    await both.stop(eu)
    await both.user.delete(LEASES, SYSTEM_NAMESPACE, LEASE_EU)
    await watch_quietly(both, 60)
    assert is_of(POOL_EU, await both.programmed("there"))
    assert both.address_at_cloud("there") == await both.programmed("there")
    await both.slice("hw-there", "10.1.0.2")
    await both.until(lambda: registered(both, "hw-there") == {"10.1.0.2"})
    await both.delete_lb("hw-there")
    await both.until(lambda: _is_gone(both, "hw-there"))
    assert registered(both, "hw-there") == set()


async def test_a_record_seen_before_its_object_is_not_an_orphan(both):
    await start_eu(both)
    both.everywhere.cluster.lagging_kind = "TCPLoadBalancer"
    await create(both, "hw-here-too", className="hw", region="eu")
    await create(both, "hw-there", className="hw", region="eu")
    for _ in range(20):
        await both.quiet(1)
        assert registered(both, "hw-there") == {"10.1.0.1", "10.1.0.2"}
    both.everywhere.cluster.caught_up.set()
    await both.quiet()
    assert registered(both, "hw-there") == {"10.1.0.1", "10.1.0.2"}


@pytest.mark.parametrize("regions", [("", "eu"), ("eu", "")])
async def test_a_load_balancer_that_changes_its_region_has_one_hub(both, regions):
    eu = await start_eu(both)
    old, new = regions
    await create(both, "moves", className="hw", region=old)
    await both.quiet()
    await both.lb("moves", spec={"className": "hw", "region": new})
    await both.slice("moves", "10.1.0.2", "10.1.0.3")
    await both.until(lambda: registered(both, "moves") == {"10.1.0.2", "10.1.0.3"})
    await both.quiet(70)
    writes = (len(both.everywhere.written), len(eu.written))
    for _ in range(30):
        await both.quiet(1)
        assert registered(both, "moves") == {"10.1.0.2", "10.1.0.3"}
    assert (len(both.everywhere.written), len(eu.written)) == writes


async def _is_gone(world, name):
    return await world.get(name) is None
