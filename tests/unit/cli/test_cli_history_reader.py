"""Where ``fairlead explain --history`` reads: ConfigMaps at the hub's API, and the memory of a hub over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.cli.explain import read_history
from fairlead.errors import BadConfiguration, Unauthorized, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.ledger.history import HISTORY_MAPS, map_name, newest
from fairlead.model.change import HistoryEntry, HistoryKind
from fairlead.testing.builders import lb_key
from podless.server import ApiServer

KEY = lb_key("web", namespace="shop")
AT = datetime(2030, 1, 1, tzinfo=UTC)
STORED = HistoryEntry(1, AT, HistoryKind.FAILED, "stored")
IN_MEMORY = HistoryEntry(2, AT.replace(hour=1), HistoryKind.WOKEN, "in memory")


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = ApiServer()
    url = await server.start()
    try:
        async with Cluster(ClusterConfig(server=url, sign_in=bearer(server.admin_token)), name="hub") as cluster:
            yield cluster
    finally:
        await server.stop()


@pytest_asyncio.fixture
async def hub() -> AsyncIterator[str]:
    """A server that has the history of KEY at /debug/keys; its URL."""

    async def keys(request: web.Request) -> web.Response:
        if request.path.endswith("/other"):
            return web.Response(status=404)
        if request.path.endswith("/closed") and request.headers.get("Authorization") != "Bearer abc":
            return web.Response(status=401, text="sign in\n")
        if request.path.endswith("/closed"):
            return web.Response(body=msgspec.json.encode({"history": [IN_MEMORY]}))
        if request.path.endswith("/broken"):
            return web.Response(text="<html>")
        assert request.path == f"/debug/keys/{KEY.kind}/shop/web"
        return web.Response(body=msgspec.json.encode({"kind": KEY.kind, "providers": [], "history": [IN_MEMORY]}))

    app = web.Application()
    app.router.add_get("/debug/keys/{kind}/{namespace}/{name}", keys)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_stored_and_recent_entries_are_one_history(cluster: Cluster, hub: str) -> None:
    assert await read_history(cluster, KEY) == []
    await cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
    metadata = {"name": map_name(KEY), "namespace": SYSTEM_NAMESPACE}
    await cluster.create(HISTORY_MAPS, {"metadata": metadata, "data": {"history": newest([STORED])}})
    assert await read_history(cluster, KEY) == [STORED]
    assert await read_history(cluster, KEY, hub) == [STORED, IN_MEMORY]
    assert await read_history(cluster, lb_key("other", namespace="shop"), hub) == []


async def test_a_hub_that_asks_for_a_token_gets_the_one_of_the_file(cluster: Cluster, hub: str, tmp_path: Path) -> None:
    key, file = lb_key("closed", namespace="shop"), tmp_path / "token"
    with pytest.raises(Unauthorized, match="sign in; give it with --token-file"):
        await read_history(cluster, key, hub)
    file.write_text("abc\n")
    assert await read_history(cluster, key, hub, file) == [IN_MEMORY]


async def test_an_address_without_a_hub_is_an_error_with_a_next_step(cluster: Cluster, hub: str) -> None:
    with pytest.raises(BadConfiguration, match="does not serve a history of a hub"):
        await read_history(cluster, lb_key("broken", namespace="shop"), hub)
    with pytest.raises(Unreachable, match="No hub answers"):
        await read_history(cluster, KEY, "http://127.0.0.1:1")
    with pytest.raises(BadConfiguration, match="is not a URL such as"):
        await read_history(cluster, KEY, "nonsense")
