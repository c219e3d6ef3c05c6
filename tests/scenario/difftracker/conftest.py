"""The worlds of the hub's and the ledger's scenarios, for the scenarios of the tracker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

# Worlds are shared between directories of scenarios, which are not packages.
for _neighbour in ("hub", "records"):
    sys.path.append(str(Path(__file__).parents[1] / _neighbour))

from hub_world import HubWorld, RunningHub, new_world  # noqa: E402
from records_loop import VirtualLoop  # noqa: E402


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
def virtual() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()
    asyncio.set_event_loop(None)
