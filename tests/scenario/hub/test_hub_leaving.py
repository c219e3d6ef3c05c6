"""A deleted load balancer that cannot be released yet says why: its condition, an Event, and ``fairlead status``."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hub_world import HubWorld, RunningHub
from shop_world import DrivenShop, open_shop

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.status.fleet import load_balancer_row


@pytest.fixture
async def shop(world: HubWorld) -> AsyncIterator[DrivenShop]:
    async with open_shop(world) as opened:
        await opened.class_("driven", drain="0s")
        await opened.lb("mine", className="driven")
        await opened.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"])
        await opened.driver_has("10.9.0.1")
        await opened.lb_says("Programmed", "True", name="mine")
        yield opened


async def gone(shop: DrivenShop) -> None:
    async def check() -> bool:
        return await shop.world.find(LOAD_BALANCERS, "shop", "mine") is None

    await shop.world.until(check, what="it is gone", limit_s=600)


async def test_a_driver_that_fails_is_named_until_it_has_released_it(shop: DrivenShop) -> None:
    shop.driver.on("deregisterBackend", {"status": "Fail", "msg": "the appliance is in maintenance"})
    await shop.api.delete(LOAD_BALANCERS, "shop", "mine")
    said = await shop.lb_says(
        "Programmed", "False", "being deleted", "webhook", "the appliance is in maintenance", name="mine"
    )
    assert said.reason == "ProviderFailed"
    await shop.warned("mine", "ProviderFailed", "the appliance is in maintenance")
    load_balancer = await shop.api.get(LOAD_BALANCERS, "shop", "mine")
    row = load_balancer_row(load_balancer)
    assert (row.reason, row.programmed) == ("Deleting", False)
    assert "the appliance is in maintenance" in row.message
    shop.driver.on("deregisterBackend", shop.driver._deregister)
    await gone(shop)


async def test_a_driver_that_is_down_is_named_also_by_a_hub_that_starts(shop: DrivenShop) -> None:
    world = shop.world
    await shop.driver.stop()
    await shop.api.delete(LOAD_BALANCERS, "shop", "mine")
    first = await shop.lb_says("Programmed", "False", "being deleted", "webhook", name="mine")
    for hub in list(world.hubs):
        await world.stop(hub)
    await world.start()
    await world.quiet(60)
    again = await shop.lb_says("Programmed", "False", "being deleted", "webhook", name="mine")
    assert (again.reason, again.last_transition_time) == ("ProviderFailed", first.last_transition_time)


async def test_a_hub_without_the_provider_says_that_only_that_can_release_it(shop: DrivenShop) -> None:
    world = shop.world
    for hub in list(world.hubs):
        await world.stop(hub)
    factory = world.factories.pop("webhook")
    await world.start()
    await shop.api.delete(LOAD_BALANCERS, "shop", "mine")
    said = await shop.lb_says("Programmed", "False", "only provider webhook can release", name="mine")
    assert said.reason == "NoSuchProvider"
    await shop.warned("mine", "NoSuchProvider", "only provider webhook can release")
    for hub in list(world.hubs):
        await world.stop(hub)
    world.factories["webhook"] = factory
    await world.start()
    await gone(shop)


async def test_a_deletion_that_takes_no_time_writes_nothing(shop: DrivenShop) -> None:
    hub: RunningHub = shop.world.hubs[0]
    hub.cluster.written.clear()
    await shop.api.delete(LOAD_BALANCERS, "shop", "mine")
    await gone(shop)
    await shop.world.quiet(60)
    assert "patch LoadBalancer mine" in hub.written, "its finalizer"
    assert "apply/status LoadBalancer mine" not in hub.written
