from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kube_scripted import ScriptedApi

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.apiserver import ApiServer
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.preflight import install_crds


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as server:
        yield server


@pytest.fixture
async def cluster(api: ScriptedApi) -> AsyncIterator[Cluster]:
    async with api.cluster() as cluster:
        yield cluster


@pytest.fixture
async def embedded() -> AsyncIterator[Cluster]:
    """A cluster that is served by the embedded API, with our kinds and the namespace ``a``."""
    server = ApiServer()
    url = await server.start()
    try:
        async with Cluster(ClusterConfig(server=url, sign_in=bearer(server.admin_token)), name="one") as cluster:
            assert await install_crds(cluster, all_crds(), "test") == []
            await cluster.create(NAMESPACES, {"metadata": {"name": "a"}})
            yield cluster
    finally:
        await server.stop()
