"""The world that every scenario starts with: an API server, one leading hub, and one member."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from group_shop import Shop
from hub_world import HubWorld, RunningHub, new_world


@pytest.fixture
async def world() -> AsyncIterator[HubWorld]:
    async with new_world() as made:
        yield made


@pytest.fixture
async def hub(world: HubWorld) -> RunningHub:
    running = await world.start()
    await world.tenant()
    return running


@pytest.fixture
async def shop(world: HubWorld, hub: RunningHub) -> Shop:
    shop = Shop(world)
    await shop.open()
    return shop
