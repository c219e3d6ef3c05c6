"""The world that every scenario starts with: an API server with Cluster API's kinds, a hub, and the controller."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from capi_world import World, new_world

from fairlead.kube.config import ClusterConfig
from tests.scenario.any_api import api_with_kinds as api
from tests.scenario.any_api import authority, real

__all__ = ["api", "authority", "real"]


@pytest.fixture
async def world(api: ClusterConfig) -> AsyncIterator[World]:
    async with new_world(api) as made:
        yield made
