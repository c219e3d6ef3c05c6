"""What the operators' verbs say is what the hub then does."""

from __future__ import annotations

import pytest
from test_hub_backend_groups import PODS_OF_WEB, Shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.cli.explain import explained
from fairlead.cli.plan import rows_of
from fairlead.hub.preview import preview


@pytest.fixture
async def shop(world, hub):
    one = Shop(world)
    await one.open()
    return one


@pytest.mark.req("I-10", "L-41")
async def test_what_would_change_is_told_with_its_reason_and_nothing_is_written(shop, world, hub):
    await shop.pod("web-0", "10.1.0.1")
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.1.0.1", "10.9.0.1")
    await shop.registered(2)
    await world.quiet(10)
    (calm,) = await preview(world.user)
    assert calm.plan.empty
    await world.stop(hub)
    await shop.group("fixed", static=["10.9.0.2:8080"])
    written = len(world.user.written)
    (found,) = await preview(world.user)
    assert {(row["action"], row["target"], row["reason"]) for row in rows_of(found)} == {
        ("Register", "TCP/80 10.9.0.2:8080", "New"),
        ("Deregister", "TCP/80 10.9.0.1:8080", "Absent"),
    }
    assert len(world.user.written) == written
    text = "\n".join(explained(found))
    assert "10.1.0.1:8080 (Pod/shop/web-0/" in text
    assert "Registered since" in text
    assert "wanted by BackendGroup/shop/fixed" in text
    assert "10.9.0.2:8080: Register is next, New" in text
    await world.start(identity="hub-1")
    await shop.until("10.1.0.1", "10.9.0.2")


@pytest.mark.req("I-10")
async def test_paused_holds_everything_and_says_so(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    patch = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", patch)
    await world.quiet(3)
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await world.quiet(20)
    assert shop.at_cloud() == {"10.9.0.1:8080", "10.9.0.2:8080"}
    (found,) = await preview(world.user)
    assert found.plan.empty
    assert {held.reason for held in found.plan.held} == {"Paused"}


@pytest.mark.req("I-2", "L-6")
async def test_a_load_balancer_whose_object_was_torn_away_is_told_as_an_orphan_and_cleaned_up(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    await world.quiet(5)
    await world.stop(hub)
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", {"metadata": {"finalizers": None}})
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    (found,) = await preview(world.user)
    assert found.built is None
    assert {row["reason"] for row in rows_of(found)} == {"OwnerDeleted"}
    await world.start(identity="hub-1")
    await shop.until()

    async def gone():
        return not await shop.records()

    await world.until(gone)
