"""Two members of one cluster set, which the tests of a process share: each has a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from multicluster_world import Member, SetWorld, new_set

_NUMBERS = itertools.count()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_world() -> AsyncIterator[SetWorld]:
    async with new_set("west", "east") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def world(shared_world: SetWorld) -> SetWorld:
    await shared_world.homes(f"home-{next(_NUMBERS)}")
    return shared_world


@pytest.fixture
def west(world: SetWorld) -> Member:
    return world.members["west"]


@pytest.fixture
def east(world: SetWorld) -> Member:
    return world.members["east"]
