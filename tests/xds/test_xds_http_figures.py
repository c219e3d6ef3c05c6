"""Traffic figures of HTTP, from the real Envoy's own statistics: of a load balancer, and of each of its backends."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from fairlead.model.http import L7Listener
from fairlead.model.observed import Counted, Totals
from fairlead.providers.envoy.traffic import EnvoyTraffic
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to
from tests.xds.world import TIMEOUT_S, local_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.req("OP-11")
async def test_requests_are_counted_by_class_and_by_backend(http: HttpWorld) -> None:
    backends = [await http.echo("shop"), await http.echo("api")]
    rules = to("shop", matches=(prefix("/shop"),)), to("api", matches=(prefix("/api"),))
    spec = await http.start(config(route("r", *rules)), *backends)
    envoy = local_envoy(http.provider)
    reader = EnvoyTraffic(envoy.admin, name="the Envoy of this machine")
    seen: dict[Counted, Totals] = {}
    for path, count in (("/shop", 3), ("/api", 2), ("/none", 1)):
        for _ in range(count):
            await get(spec, path)

    async with asyncio.timeout(TIMEOUT_S):
        # Envoy's workers hand their counts over a moment later.
        while seen.get(Counted(spec.key), Totals()).requests != (0, 5, 0, 1, 0):
            (reading,) = await reader.read()
            assert not reading.problem
            seen |= reading.totals
    whole = seen[Counted(spec.key)]
    assert (whole.connections, whole.bytes_out > 0) == (6, True)
    by_backend = {each.backend: totals for each, totals in seen.items() if each.backend and each[0] == spec.key}
    assert {name: totals.requests for name, totals in by_backend.items()} == {
        "shop": (0, 3, 0, 0, 0),
        "api": (0, 2, 0, 0, 0),
    }
    assert all(totals.bytes_in > 0 and totals.bytes_out > 0 for totals in by_backend.values())


@pytest.mark.req("OP-11")
async def test_routes_are_counted_where_that_is_asked_for(http: HttpWorld) -> None:
    backend = await http.echo("shop")
    rules = to("shop", matches=(prefix("/shop"),)), to("", matches=(prefix("/none"),))
    asked = msgspec.structs.replace(config(route("r", rules[0]), route("s", rules[1])), route_figures=True)
    plain = await http.start(config(route("r", rules[0])), backend)
    envoy = local_envoy(http.provider)
    await get(plain, "/shop")
    _, text = await envoy.admin("/stats?filter=^vhost.*route")
    assert text.strip() == "", "nothing is kept of routes"
    spec = await http.start(asked, backend)
    reader = EnvoyTraffic(envoy.admin, name="the Envoy of this machine")
    for _ in range(3):
        await get(spec, "/shop")
    wanted = Counted(spec.key, route="r/r")
    seen: dict[Counted, Totals] = {}
    async with asyncio.timeout(TIMEOUT_S):
        while seen.get(wanted, Totals()).requests != (0, 3, 0, 0, 0) or seen[wanted].p99_ms is None:
            (reading,) = await reader.read()
            seen |= reading.totals
    assert {each.route for each in seen if each.route} == {"r/r"}


@pytest.mark.req("MC-14", "MC-25")
async def test_failed_connections_of_routes_count_as_such_only_without_http(http: HttpWorld) -> None:
    l7 = config(
        route("r", to("web")),
        route("t", to("raw"), kind="TCP", listeners=("tcp",)),
        listeners=(L7Listener("http", 80), L7Listener("tcp", 9000, "TCP")),
    )
    backends = [await http.echo(name) for name in ("web", "raw")]
    spec = await http.start(l7, *backends)
    reader = EnvoyTraffic(local_envoy(http.provider).admin, name="the Envoy of this machine")
    for backend in backends:
        await backend.stop()
    assert [(await get(spec)).status for _ in range(3)] == [503, 503, 503]
    for _ in range(3):
        stream, writer = await asyncio.open_connection(spec.address, 9000)
        assert await stream.read() == b""
        writer.close()
    web, raw = (Counted(spec.key, name) for name in ("web", "raw"))
    seen: dict[Counted, Totals] = {}
    async with asyncio.timeout(TIMEOUT_S):
        while seen.get(raw, Totals()).failed != 3 or seen.get(web, Totals()).requests[4] != 3:
            (reading,) = await reader.read()
            seen |= reading.totals
    assert seen[web].failed == 0
