"""A hub that serves proxy machines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from machines_world import MachinesWorld, new_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[MachinesWorld]:
    async with new_world(tmp_path) as made:
        yield made
