"""An API server, embedded or real, with nothing of ours in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from deployment_world import World, new_world
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
def authority(request: pytest.FixtureRequest, api: ClusterConfig) -> bytes:
    """What a kubeconfig for ``api`` has to trust; nothing where it speaks plain HTTP on this machine."""
    return request.getfixturevalue("real").authority if api.server.startswith("https") else b""


@pytest.fixture
async def embedded() -> AsyncIterator[ClusterConfig]:
    """For traffic: a real API server refuses endpoints on the loopback interface."""
    server = ApiServer()
    url = await server.start()
    yield ClusterConfig(server=url, sign_in=bearer(server.admin_token), user="admin")
    await server.stop()


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose name leaves room for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def world(api: ClusterConfig, directory: Path) -> AsyncIterator[World]:
    async with new_world(api, directory) as made:
        yield made


@pytest.fixture
async def traffic(embedded: ClusterConfig, directory: Path) -> AsyncIterator[World]:
    async with new_world(embedded, directory) as made:
        yield made
