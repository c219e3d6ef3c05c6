"""What a guard or a pause holds is in the status at every moment of a restart of the hub."""

from __future__ import annotations

from typing import Any

import pytest
from group_shop import Shop
from hub_world import HubWorld, RunningHub

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

PAUSED = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}


@pytest.fixture
async def shop(shop: Shop) -> Shop:
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    return shop


def shown(status: Any, kind: str) -> tuple[int, str]:
    """Return how many changes a status says are held, and the message of the condition about them."""
    return status.held_total, next((each.message for each in status.conditions or () if each.type == kind), "")


@pytest.mark.req("X-17", "I-10")
async def test_a_paused_load_balancer_with_records_shows_what_is_held_through_a_restart(
    shop: Shop, world: HubWorld, hub: RunningHub
) -> None:
    async def status() -> tuple[int, str]:
        return shown((await world.user.get(LOAD_BALANCERS, "shop", "shared")).status, "Paused")

    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", PAUSED)
    await world.quiet(3)
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    held = await world.until(lambda: _once(status, 2), what="2 held")
    assert "2 held: Deregister 10.9.0.1:8080, Deregister 10.9.0.2:8080" in held[1]
    await world.quiet()
    await world.stop(hub)
    again = await world.start(identity="hub-1")
    await world.quiet()
    assert await status() == held
    assert [write for write in again.written if "LoadBalancer shared" in write] == []


@pytest.mark.req("X-17", "I-10")
@pytest.mark.parametrize("kind", ["Guarded", "Paused"])
async def test_a_served_load_balancer_shows_what_is_held_through_a_restart(
    world: HubWorld, hub: RunningHub, kind: str
) -> None:
    async def status() -> tuple[int, str]:
        return shown((await world.user.get(TCP_LOAD_BALANCERS, "tenant-east", "web")).status, kind)

    await world.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.programmed()
    if kind == "Paused":
        await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", "web", PAUSED)
        await world.said("Paused", "True")
        await world.slice("web", "10.1.0.1")
    else:
        await world.slice("web")
    held = await world.until(lambda: _once(status, 1 if kind == "Paused" else 2), what="held")
    assert "10.1.0.2:8080" in held[1]
    await world.quiet()
    await world.stop(hub)
    again = await world.start(identity="hub-1")
    await world.quiet()
    assert await status() == held
    assert [write for write in again.written if "LoadBalancer web" in write] == []


async def _once(status: Any, count: int) -> Any:
    now = await status()
    return now if now[0] == count else None
