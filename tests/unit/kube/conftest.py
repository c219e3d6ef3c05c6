from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kube_scripted import ScriptedApi

from fairlead.kube.cluster import Cluster


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as server:
        yield server


@pytest.fixture
async def cluster(api: ScriptedApi) -> AsyncIterator[Cluster]:
    async with api.cluster() as cluster:
        yield cluster
