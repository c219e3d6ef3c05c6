"""A world with a router and machines in network namespaces, or the reason why there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_demo.worlds.bgp import BgpWorld, bgp_problem


@pytest.fixture
def speaker() -> str:
    """Return the speaker of the machines; tests override it by parameters."""
    return "bird"


@pytest.fixture
async def world(tmp_path: Path, speaker: str) -> AsyncIterator[BgpWorld]:
    if problem := bgp_problem():
        pytest.skip(problem)
    world = BgpWorld(tmp_path, speaker=speaker)
    try:
        yield world
    finally:
        await world.close()
