"""Hubs of two regions at one API, whose load balancers are at one provider: neither takes anything from the other."""

from __future__ import annotations

import pytest

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import is_true
from fairlead.testing.builders import NAMESPACE, lb_key

ADDRESSES = {"north": {"10.1.0.1:8080", "10.1.0.2:8080"}, "south": {"10.2.0.1:8080"}}


@pytest.fixture
async def north(world):
    """The first hub, and a load balancer in each region, of one class whose provider keeps its own memory."""
    hub = await world.start(identity="north", region="north")
    await world.tenant()
    body = {"metadata": {"name": "edge"}, "spec": {"provider": "memory", "targets": "Pod", "drain": "0s"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
    for region, addresses in ADDRESSES.items():
        await world.slice(region, *(address.split(":")[0] for address in sorted(addresses)))
        await world.lb(region, spec={"className": "edge", "region": region})
    return hub


def there(world, region):
    return {str(at) for _, at in world.outside.members(lb_key(region))}


async def settled(world, *regions):
    await world.until(
        lambda: all(there(world, region) == ADDRESSES[region] for region in regions), what=f"{regions} serve"
    )

    async def registered():
        backend_records = await world.user.list(BACKEND_RECORDS, NAMESPACE)
        states = [backend_record.status.state for backend_record in backend_records]
        return states == ["Registered"] * sum(len(ADDRESSES[region]) for region in regions)

    await world.until(registered)


@pytest.mark.req("I-4", "I-5")
async def test_what_another_region_has_on_record_is_left_to_its_hub(world, north):
    await settled(world, "north")
    south = await world.start(identity="south", region="south")
    await settled(world, "north", "south")
    before = {
        backend_record.metadata.name: backend_record.metadata.resource_version
        for backend_record in await world.user.list(BACKEND_RECORDS)
    }
    await world.stop(south)
    again = await world.start(identity="south", region="south")
    await world.quiet(30)
    assert {region: there(world, region) for region in ADDRESSES} == ADDRESSES
    assert {name: count for name, count in again.durable.calls.items() if name != "observe"} == {}
    after = {
        backend_record.metadata.name: backend_record.metadata.resource_version
        for backend_record in await world.user.list(BACKEND_RECORDS)
    }
    assert after == before
    await world.stop(north)
    await world.quiet(30)
    assert there(world, "north") == ADDRESSES["north"], "nobody serves it now, and nobody takes it away"


@pytest.mark.req("I-5")
async def test_a_load_balancer_of_no_region_is_for_the_hub_that_serves_all(world, north):
    spec = {"className": "edge", "listeners": [{"name": "http", "port": 80}]}
    body = {"metadata": {"name": "shared", "namespace": NAMESPACE}, "spec": spec}
    await world.user.apply(LOAD_BALANCERS, body, manager="kubectl")
    await world.quiet(30)
    load_balancer = await world.user.get(LOAD_BALANCERS, NAMESPACE, "shared")
    assert not load_balancer.metadata.finalizers
    assert load_balancer.status.conditions is None
    await world.stop(north)
    await world.start(identity="all")

    async def programmed():
        load_balancer = await world.user.get(LOAD_BALANCERS, NAMESPACE, "shared")
        return is_true(load_balancer.status.conditions, "Programmed")

    await world.until(programmed)
