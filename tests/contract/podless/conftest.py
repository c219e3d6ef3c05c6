"""The API under test: the embedded server on both of its stores, and a real one (see ``real_api``)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from podless_client import Api

from podless import ApiServer
from tests.contract.podless import real_api
from tests.contract.podless.real_api import Real

#: The fixtures of these names.
real = real_api.real
real_single = real_api.real_single


@dataclass(frozen=True)
class Target:
    """A server under test; ``kubeconfig`` opens it for kubectl."""

    name: str
    url: str
    token: str
    kubeconfig: Path
    trust: ssl.SSLContext | bool = True
    controllers: bool = True  # whether deletions are carried through


@pytest.fixture
async def memory_server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(params=["memory", "sqlite", pytest.param("real", marks=pytest.mark.real_api)])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    kubeconfig = tmp_path / "kubeconfig"
    if request.param == "real":
        there: Real = request.getfixturevalue("real")
        trust = ssl.create_default_context(cadata=there.authority.decode())
        yield Target("real", there.url, there.token, there.kubeconfig(kubeconfig), trust, there.controllers)
        return
    server = ApiServer(tmp_path / "data" if request.param == "sqlite" else None)
    url = await server.start()
    server.write_kubeconfig(kubeconfig)
    yield Target(request.param, url, server.admin_token, kubeconfig)
    await server.stop()


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.real_api)])
async def single_stack(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """An API of IPv4 alone."""
    if request.param == "real":
        there: Real = request.getfixturevalue("real_single")
        trust = ssl.create_default_context(cadata=there.authority.decode())
        async with _client(there.url, there.token, trust) as api:
            yield api
        return
    server = ApiServer(service_range="10.96.0.0/16")
    async with _client(await server.start(), server.admin_token, True) as api:
        yield api
    await server.stop()


@pytest.fixture
async def api(target: Target) -> AsyncIterator[Api]:
    async with _client(target.url, target.token, target.trust) as api:
        yield api


@asynccontextmanager
async def _client(url: str, token: str, trust: ssl.SSLContext | bool) -> AsyncGenerator[Api]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        api = Api(session, url, token)
        (await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})).ok(201)
        yield api
        await api.delete(f"/api/v1/namespaces/{api.ns}")


@pytest.fixture
def controllers(target: Target) -> None:
    """Skip where nothing carries deletions through or fills in secrets."""
    if not target.controllers:
        pytest.skip("there is no kube-controller-manager in KUBEBUILDER_ASSETS")


@pytest.fixture
async def own(memory_server: ApiServer) -> AsyncIterator[tuple[ApiServer, Api]]:
    """The embedded server itself, for what a real one does not offer."""
    async with aiohttp.ClientSession() as session:
        api = Api(session, memory_server.url, memory_server.admin_token)
        (await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})).ok(201)
        yield memory_server, api
