"""Error pages at a real Envoy: for errors that Envoy answers itself."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.http import MAX_PAGE_BYTES, Maintenance, Rule
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("F-22")]


async def test_pages_are_for_errors_of_the_proxy_alone(http: HttpWorld) -> None:
    backend = await http.echo("one")
    rules = Rule(matches=(prefix("/broken"),)), to("one", matches=(prefix("/served"),))
    pages = {"404": "<h1>100 % lost</h1>", "5xx": "sorry" + " " * (MAX_PAGE_BYTES - 5)}
    closed = Maintenance("closed.example.com", page="closed")
    l7 = msgspec.structs.replace(config(route("r", *rules)), error_pages=pages, maintenance=(closed,))
    spec = await http.start(l7, backend)
    missing = await get(spec, "/nothing")
    assert (missing.status, missing.body) == (404, pages["404"])
    assert missing.headers["content-type"] == "text/html; charset=utf-8"
    broken = await get(spec, "/broken")
    assert (broken.status, broken.body) == (500, pages["5xx"])
    for status in (404, 503):
        own = await get(spec, f"/served?status={status}")
        assert not own.body.startswith(("<h1>", "sorry"))
    assert (await get(spec, host="closed.example.com")).body == "closed"
    grpc = await get(spec, "/broken", headers={"Content-Type": "application/grpc"})
    assert "sorry" not in grpc.headers.get("grpc-message", "")
