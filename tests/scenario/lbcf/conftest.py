"""Every scenario starts with an API, one leading hub, and a shop that has a class and a load balancer at a driver."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

# Worlds are shared between directories of scenarios, which are not packages.
sys.path.append(str(Path(__file__).parents[1] / "hub"))

from hub_world import RunningHub
from lbcf_driver import Driver
from lbcf_world import LbcfWorld, Shop, new_lbcf_world


@pytest.fixture
async def world() -> AsyncIterator[LbcfWorld]:
    async with new_lbcf_world() as made:
        yield made


@pytest.fixture
async def hub(world: LbcfWorld) -> RunningHub:
    return await world.start()


@pytest.fixture
async def shop(world: LbcfWorld, hub: RunningHub) -> Shop:
    shop = Shop(world)
    await shop.open(lbs=("shared",))
    return shop


@pytest.fixture
def driver(world: LbcfWorld) -> Driver:
    return world.driver
