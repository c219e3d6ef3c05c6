"""The same tests against every API server there is: the embedded one, and a real one where its binaries are.

The real one is started by ``tests/contract/podless/real_api.py``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer, tls_context
from podless import ApiServer
from tests.contract.podless import real_api
from tests.contract.podless.real_api import Real

_NUMBERS = itertools.count(1)

#: The fixture of that name.
real = real_api.real


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_api)])
async def config(request: pytest.FixtureRequest) -> AsyncIterator[ClusterConfig]:
    if request.param == "embedded":
        server = ApiServer()
        url = await server.start()
        yield ClusterConfig(server=url, sign_in=bearer(server.admin_token), user="admin")
        await server.stop()
        return
    there: Real = request.getfixturevalue("real")
    tls = tls_context(authority=there.authority)
    yield ClusterConfig(server=there.url, sign_in=bearer(there.token, tls=tls), user="admin")


@pytest.fixture
async def cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    async with Cluster(config, name="contract") as cluster:
        yield cluster


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """A namespace of this test's own: the real server outlives the test."""
    name = f"t-{os.getpid()}-{next(_NUMBERS)}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    return name
