"""A provider with a ledger is looked at load balancer by load balancer: until its turn each keeps the status it has."""

from __future__ import annotations

import pytest
from group_shop import KEY, Shop

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.model.condition import ConditionType
from fairlead.providers.memory import Faults, MemoryProvider

LOAD_BALANCERS_THERE = tuple(f"lb{number}" for number in range(12))


async def state(world, name, kind=ConditionType.PROGRAMMED):
    there = await world.user.get(LOAD_BALANCERS, "shop", name)
    return next((f"{each.status} {each.message}" for each in there.status.conditions or () if each.type == kind), "")


@pytest.fixture
async def shop(world, hub):
    shop = Shop(world)
    await shop.open()
    for name in LOAD_BALANCERS_THERE:
        await shop.lb(name)
    await shop.pod("web-0", "10.1.0.1")
    pods = {"byLabel": {"selector": {"app": "web"}}, "ports": [{"port": 8080}]}
    await shop.group("web", lbs=("shared", *LOAD_BALANCERS_THERE), pods=pods)
    await shop.registered(1 + len(LOAD_BALANCERS_THERE))
    await world.quiet()
    await world.stop(hub)
    return shop


def slow(world):
    """Have every look at the provider of the next hub take two seconds: all of them take 26."""
    world.factories["memory"] = lambda: MemoryProvider(cloud=world.outside, faults=Faults(latency_s=(2.0, 2.0)))


@pytest.mark.req("KI-6", "I-8")
async def test_a_restart_writes_no_status_however_long_it_takes_to_look_at_each(world, shop):
    slow(world)
    again = await world.start()
    await world.quiet(60)
    assert [each for each in again.written if "LoadBalancer " in each] == []
    assert await state(world, "lb7") == "True "


async def test_vanished_entries_are_written_after_a_lookup(world, shop):
    world.outside.delete(KEY)
    slow(world)
    await world.start()

    async def drifted():
        return "deleted outside Fairlead" in await state(world, "shared", ConditionType.DRIFTED)

    await world.until(drifted, what="the status says that it is gone")


async def test_what_needs_no_look_is_written_at_once(world, shop):
    pause = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "lb7", pause)
    slow(world)
    await world.start()

    async def paused():
        return "True" in await state(world, "lb7", ConditionType.PAUSED)

    await world.until(paused, what="the status says that it is paused", limit_s=1)
