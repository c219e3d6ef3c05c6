"""The API under test: the embedded server on both of its stores, or a real one named by its URL.

With ``FAIRLEAD_TEST_API_URL`` and ``FAIRLEAD_TEST_API_TOKEN`` every test that asks only for ``api`` runs against that
server too.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from apiserver_client import Api

from fairlead.apiserver import ApiServer

REAL = os.environ.get("FAIRLEAD_TEST_API_URL", "")


@pytest.fixture
async def memory_server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(params=["memory", "sqlite", *(["real"] if REAL else [])])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    if request.param == "real":
        yield REAL, os.environ.get("FAIRLEAD_TEST_API_TOKEN", "")
        return
    server = ApiServer(tmp_path / "data" if request.param == "sqlite" else None)
    yield await server.start(), server.admin_token
    await server.stop()


@pytest.fixture
async def api(target: tuple[str, str]) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        api = Api(session, *target)
        (await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})).ok(201)
        yield api
        await api.delete(f"/api/v1/namespaces/{api.ns}")


@pytest.fixture
async def own(memory_server: ApiServer) -> AsyncIterator[tuple[ApiServer, Api]]:
    """The embedded server itself, for what a real one does not offer."""
    async with aiohttp.ClientSession() as session:
        api = Api(session, memory_server.url, memory_server.admin_token)
        (await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})).ok(201)
        yield memory_server, api
