"""The world that every scenario starts with: an API server, and whoever plays users, nodes and layer 2 there.

Every scenario runs against the embedded API server, and where KUBEBUILDER_ASSETS names its binaries against a real
kube-apiserver as well.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from regions_world import World, new_world
from tests.contract.kube.conftest import Real, real

from fairlead.apiserver import ApiServer
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.credentials import tls_context

__all__ = ["real"]

_SERVERS = ["embedded"]
if os.environ.get("KUBEBUILDER_ASSETS"):
    _SERVERS.append("real")


@pytest.fixture(params=[pytest.param(one, marks=[pytest.mark.real_api] if one == "real" else []) for one in _SERVERS])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ClusterConfig]:
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
async def world(api: ClusterConfig) -> AsyncIterator[World]:
    async with new_world(api) as made:
        yield made
