"""The world that every scenario starts with: an API server, and a client that plays users, nodes and layer 2 there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from regions_world import World, new_world

from fairlead.kube.config import ClusterConfig
from tests.scenario.any_api import api_with_kinds as api
from tests.scenario.any_api import authority, real

__all__ = ["api", "authority", "real"]


@pytest.fixture
async def world(api: ClusterConfig) -> AsyncIterator[World]:
    async with new_world(api) as made:
        yield made
