"""Access logs of a real Envoy: fields, filters, sampling, sinks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from fairlead.model.change import Action
from fairlead.model.desired import Listener
from fairlead.model.http import Filters, L7Listener, Redirect, Rule
from fairlead.model.keys import Protocol
from fairlead.providers.envoy.settings import ACCESS_LOG, ACCESS_LOG_SINK
from tests.xds.collector import BROKEN, FILTERS, Collector, ask_many
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to
from tests.xds.world import TIMEOUT_S, World, ask, ask_udp, local_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("F-14")]

_MANY = 10_000
ANSWERED = Rule(matches=(prefix("/"),), filters=Filters(redirect=Redirect("https")))


def logged_to(path: Path, **log: Any) -> dict[str, str]:
    return {ACCESS_LOG: json.dumps(log), ACCESS_LOG_SINK: f"file:{path}"}


async def lines_of(path: Path, enough: Callable[[list[str]], bool]) -> list[str]:
    """Wait until a log has enough lines; Envoy writes it at intervals."""

    def lines() -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    async with asyncio.timeout(TIMEOUT_S):
        while not enough(lines()):  # noqa: ASYNC110 (Envoy writes it every second)
            await asyncio.sleep(0.05)
    return lines()


@pytest_asyncio.fixture(loop_scope="session")
async def collector(request: pytest.FixtureRequest) -> AsyncIterator[Collector]:
    collector = Collector(over_http=getattr(request, "param", False))
    await collector.server.start()
    yield collector
    await collector.server.stop(None)


async def test_a_share_of_the_requests_is_logged_and_all_errors(http: HttpWorld, collector: Collector) -> None:
    log = {"sampling": 10, "keepErrors": True, "format": "template", "template": "code=%RESPONSE_CODE%;"}
    spec = await http.start(config(route("r", BROKEN, ANSWERED)), parameters=collector.gets(**log))
    errors = 50
    await ask_many(spec, ["/"] * _MANY + ["/broken"] * errors)
    await collector.until(lambda text: text.count(b"code=500;") == errors)
    # Four standard deviations of 10,000 draws at 10 %: a correct share is outside once in 16,000 runs.
    assert abs(collector.text.count(b"code=302;") - _MANY / 10) <= 120


async def test_a_line_names_member_load_balancer_route_and_target_and_no_credentials(
    http: HttpWorld, tmp_path: Path
) -> None:
    backend = await http.echo("one")
    path = tmp_path / "log"
    log = {"addFields": {"site": "west", "agent": "%REQ(USER-AGENT)%"}, "removeFields": ["path"], "headers": ["X-Team"]}
    spec = await http.start(config(route("my-route", to("one"))), backend, parameters=logged_to(path, **log))
    secret = {"Authorization": "Bearer hidden", "Cookie": "session=hidden", "X-Team": "blue", "User-Agent": "tests"}
    assert (await get(spec, "/?token=x", headers=secret)).status == 200
    (line,) = await lines_of(path, bool)
    entry = json.loads(line)
    assert entry["kind"] == "request"
    assert (entry["member"], entry["load_balancer"]) == (spec.key.namespace, str(spec.key))
    assert (entry["route"], entry["upstream_host"]) == ("my-route/0/0", str(backend.target.key))
    assert entry["upstream_cluster"].endswith("/backend/one")
    assert (entry["site"], entry["agent"], entry["header_x_team"]) == ("west", "tests", "blue")
    assert "path" not in entry
    assert "hidden" not in line


async def test_a_template_and_filters(http: HttpWorld, tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = {"format": "template", "template": "%REQ(:PATH)% %RESPONSE_CODE%", "minStatus": 400}
    spec = await http.start(config(route("r", BROKEN, ANSWERED)), parameters=logged_to(path, **log))
    await ask_many(spec, ["/", "/broken", "/"])
    assert await lines_of(path, bool) == ["/broken 500"]


async def test_envoy_accepts_all_filters(http: HttpWorld, tmp_path: Path) -> None:
    path = tmp_path / "log"
    rules = (BROKEN, ANSWERED)
    routes = [
        msgspec.structs.replace(route("whole", *rules), access_log=""),
        *(
            msgspec.structs.replace(
                route(f"r{number}", msgspec.structs.replace(ANSWERED, matches=(prefix(f"/{number}"),))),
                access_log=json.dumps({"filter": text}),
            )
            for number, text in enumerate(FILTERS)
        ),
    ]
    wanted = "(request.path.startsWith('/api') || request.headers['x-team'] == 'blue') && !(response.code >= 500)"
    log = {"format": "template", "template": "%REQ(:PATH)% %RESPONSE_CODE%", "filter": wanted, "keepErrors": True}
    spec = await http.start(config(*routes), parameters=logged_to(path, **log))
    await ask_many(spec, ["/other", "/api/1", "/broken"])
    await get(spec, "/team", headers={"X-Team": "blue"})
    await get(spec, "/team", headers={"X-Team": "red"})
    expected = ["/api/1 302", "/broken 500", "/team 302"]
    assert sorted(await lines_of(path, lambda lines: len(lines) >= len(expected))) == expected
    # A header that is missing meets no condition, and no negation of one.
    missing = {"filter": "!(request.headers['x-none'] == 'a') || request.path == '/end'"}
    parameters = logged_to(tmp_path / "missing", format="template", template="%REQ(:PATH)%", **missing)
    absent = await http.start(config(route("r", ANSWERED)), parameters=parameters)
    await ask_many(absent, ["/a", "/end"])
    assert await lines_of(tmp_path / "missing", bool) == ["/end"]


async def test_rejected_requests_are_logged(http: HttpWorld, tmp_path: Path) -> None:
    path = tmp_path / "log"
    routes = (
        msgspec.structs.replace(
            route("own", msgspec.structs.replace(ANSWERED, matches=(prefix("/own"),))), access_log="off"
        ),
        route("closed", Rule(matches=(prefix("/closed"),), denied_sources=("127.0.0.0/8",))),
    )
    log = {"format": "template", "template": "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS%"}
    spec = await http.start(config(*routes), parameters=logged_to(path, **log))
    for request in (b"GET / HTTP/1.1\r\n\r\n", b"GET /closed HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / NONSENSE\r\n\r\n"):
        reader, writer = await asyncio.open_connection(spec.address, 80)
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
    lines = await lines_of(path, lambda lines: len(lines) >= 3)
    assert sorted(line[:3] for line in lines) == ["400", "400", "403"]


async def test_a_collector_that_starts_later_gets_the_lines(http: HttpWorld) -> None:
    late = Collector(over_http=True)
    spec = await http.start(config(route("my-route", ANSWERED)), parameters=late.gets(format="json"))
    await ask_many(spec, ["/before"])
    await late.server.start()
    async with asyncio.timeout(TIMEOUT_S):
        while b"/after" not in late.text:
            await ask_many(spec, ["/after"])
            await asyncio.sleep(0.2)
    await late.server.stop(None)


async def test_connections_are_logged(http: HttpWorld, tmp_path: Path) -> None:
    backend = await http.echo("one")
    path = tmp_path / "log"
    streams = config(route("t", to("one"), listeners=("tcp",), kind="TCP"), listeners=(L7Listener("tcp", 80, "TCP"),))
    spec = await http.start(streams, backend, parameters=logged_to(path, format="json"))
    assert (await get(spec)).status == 200
    (line,) = await lines_of(path, bool)
    entry = json.loads(line)
    assert (entry["kind"], entry["upstream_host"]) == ("connection", str(backend.target.key))
    assert entry["bytes_sent"] > 0


@pytest.mark.parametrize("collector", [False, True], ids=["grpc", "http"], indirect=True)
async def test_a_collector_of_otlp_gets_the_fields(http: HttpWorld, collector: Collector) -> None:
    spec = await http.start(config(route("my-route", ANSWERED)), parameters=collector.gets(format="json"))
    await ask_many(spec, ["/found"])
    await collector.until(lambda text: b"/found" in text and b"my-route/0/0" in text)
    assert b"log_name" in collector.text
    assert collector.paths <= {"", "/v1/logs"}
    # Connections to the collector are not those of the load balancer.
    _, text = await local_envoy(http.provider).admin("/stats?filter=collector/logs")
    assert text.strip() == ""


async def test_a_route_has_a_log_of_its_own_or_none(http: HttpWorld, tmp_path: Path) -> None:
    path = tmp_path / "log"
    quiet, own = (prefix("/quiet"),), (prefix("/own"),)
    routes = (
        msgspec.structs.replace(route("quiet", msgspec.structs.replace(ANSWERED, matches=quiet)), access_log="off"),
        msgspec.structs.replace(
            route("own", msgspec.structs.replace(ANSWERED, matches=own, requests_per_second=1000)),
            access_log='{"format": "template", "template": "own %REQ(:PATH)%"}',
        ),
        route("rest", msgspec.structs.replace(ANSWERED, matches=(prefix("/rest"),))),
    )
    spec = await http.start(config(*routes), parameters=logged_to(path, format="template", template="%REQ(:PATH)%"))
    await ask_many(spec, ["/quiet", "/own", "/rest", "/nothing"])
    expected = ["/nothing", "/rest", "own /own"]
    assert sorted(await lines_of(path, lambda lines: len(lines) >= len(expected))) == expected
    # Without a log of the class, the routes of their own are logged alone.
    alone = await http.start(config(*routes), parameters={ACCESS_LOG_SINK: f"file:{tmp_path / 'alone'}"})
    await ask_many(alone, ["/quiet", "/own", "/rest", "/nothing"])
    assert await lines_of(tmp_path / "alone", bool) == ["own /own"]


@pytest.mark.parametrize("collector", [False, True], ids=["grpc", "http"], indirect=True)
async def test_connections_and_udp_sessions_of_a_service_are_logged(world: World, collector: Collector) -> None:
    tcp, udp = await world.backend("a"), await world.udp_backend("b")
    ports = Listener(8080, Protocol.TCP), Listener(8053, Protocol.UDP)
    spec = world.spec(*ports[::-1], parameters=collector.gets(keepErrors=True))
    await world.provider.ensure(spec)
    await world.change(spec, Action.REGISTER, tcp.target, listener=ports[0].key)
    await world.change(spec, Action.REGISTER, udp.target, listener=ports[1].key)
    assert await ask(spec.address, 8080) == "a"
    assert await ask_udp(spec.address, 8053) == "b"
    # A session ends after a minute, or with its listener.
    await world.provider.ensure(msgspec.structs.replace(spec, listeners=ports[:1]))
    for named in (b"connection", str(tcp.target.key).encode(), b"session", b"datagrams_sent"):
        await collector.until(lambda text, named=named: named in text)


@pytest.mark.parametrize("scheme", ["otlp", "http"])
async def test_a_dead_collector_delays_no_request_and_drops_are_counted(http: HttpWorld, scheme: str) -> None:
    sink = {ACCESS_LOG: '{"format":"json"}', ACCESS_LOG_SINK: f"{scheme}://127.0.0.1:1"}
    spec = await http.start(config(route("r", ANSWERED)), parameters=sink)
    await ask_many(spec, ["/"] * 2000)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            _, text = await local_envoy(http.provider).admin("/stats?filter=logs_dropped")
            if any(int(line.rpartition(" ")[2]) for line in text.splitlines()):
                break
            await ask_many(spec, ["/"] * 100)
