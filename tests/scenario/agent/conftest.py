"""The world that every scenario starts with: a member with two nodes, and a hub."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from agent_world import World, new_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        await made.node("n1", "10.0.0.1")
        await made.node("n2", "10.0.0.2")
        yield made
