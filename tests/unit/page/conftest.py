"""Fixtures of the tests next to this file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from tests.scenario.installed_kinds import server_with_kinds

ADMIN = "for-these-tests-only"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = await server_with_kinds(admin_token=ADMIN)
    await server.start()
    async with Cluster(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), name="hub") as cluster:
        yield cluster
    await server.stop()
