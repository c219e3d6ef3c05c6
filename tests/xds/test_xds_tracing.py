"""Traces of a real Envoy: spans at a collector, W3C trace context, sampling, a dead collector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
import pytest_asyncio

from fairlead.providers.envoy.settings import COLLECTOR_CA, TRACING, TRACING_SINK
from tests.xds.collector import BROKEN, Collector, ask_many
from tests.xds.http_world import Authority, HttpWorld, config, get, prefix, route, server_context, to
from tests.xds.world import TIMEOUT_S

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("F-15")]

_TRACE, _PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{_TRACE}-{_PARENT}-01", "tracestate": "vendor=x"}


class Span(msgspec.Struct):
    """The fields of a span that tests read."""

    trace: str
    parent: str
    name: str
    text: bytes


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the fields of a protobuf message that have a length."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not message[at - 1] & 0x80:
                return value, at

    at = 0
    while at < len(message):
        tag, at = number(at)
        match tag & 7:
            case 0:
                _, at = number(at)
            case 1:
                at += 8
            case 2:
                length, at = number(at)
                yield tag >> 3, message[at : at + length]
                at += length
            case _:
                at += 4


def inside(message: bytes, field: int) -> list[bytes]:
    return [content for number, content in fields_of(message) if number == field]


def only(message: bytes, field: int) -> bytes:
    return b"".join(inside(message, field))


class TraceCollector(Collector):
    """A collector that reads the spans it is sent."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None, **over_http: Any) -> None:
        super().__init__("trace.v1.TraceService", credentials, **over_http)

    def of(self, **tracing: Any) -> dict[str, str]:
        return {TRACING: json.dumps(tracing), TRACING_SINK: self.sink}

    def spans(self) -> list[Span]:
        return [
            Span(only(span, 1).hex(), only(span, 4).hex(), only(span, 5).decode(), span)
            for request in self.requests
            for resource in inside(request, 1)
            for scope in inside(resource, 2)
            for span in inside(scope, 2)
        ]

    async def until_spans(self, enough: Callable[[list[Span]], bool]) -> list[Span]:
        """Wait until it has enough; Envoy sends what it has every few seconds."""
        async with asyncio.timeout(TIMEOUT_S):
            while not enough(spans := self.spans()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return spans


@pytest_asyncio.fixture(loop_scope="session")
async def collector() -> AsyncIterator[TraceCollector]:
    collector = TraceCollector()
    await collector.server.start()
    yield collector
    await collector.server.stop(None)


ALL = {"samplingRate": {"numerator": 100}}
NONE = {"samplingRate": {"numerator": 0}}


def trace_of(answer: Any) -> tuple[str, str, str]:
    _, trace, parent, flags = answer.echo["headers"]["traceparent"].split("-")
    return trace, parent, flags


async def test_spans_name_the_route_and_the_context_is_made_and_passed_on(
    http: HttpWorld, collector: TraceCollector
) -> None:
    backend = await http.echo("one")
    attributes = [{"name": "env", "literalValue": "production"}]
    parameters = collector.of(**ALL, serviceName="edge", attributes=attributes)
    routes = config(route("shop", to("one", matches=(prefix("/"),), name="cart")))
    spec = await http.start(routes, backend, parameters=parameters)
    made = trace_of(await get(spec, "/cart"))
    answer = await get(spec, "/cart", headers=SAMPLED)
    passed = trace_of(answer)
    assert passed[0] == _TRACE
    assert passed[1] != _PARENT
    assert answer.echo["headers"]["tracestate"] == "vendor=x"
    assert answer.echo["headers"]["x-request-id"]
    assert (await get(spec, "/cart", host="unknown.example.org")).status in {200, 404}
    spans = {span.trace: span for span in await collector.until_spans(lambda spans: len(spans) >= 3)}
    assert {spans[trace].name for trace in (made[0], _TRACE)} == {"shop/cart/0"}
    assert (spans[made[0]].parent, spans[_TRACE].parent) == ("", _PARENT)
    documented = (b"http.url", b"http.method", b"http.status_code", b"upstream_cluster")
    for part in (b"production", spec.key.namespace.encode(), str(spec.key).encode(), *documented):
        assert part in spans[_TRACE].text
    assert b"edge" in collector.text


async def test_clients_cannot_have_more_sampled_unless_the_class_trusts_them(
    http: HttpWorld, collector: TraceCollector
) -> None:
    backend = await http.echo("one")
    # Several headers of clients that make an Envoy sample.
    forced = {**SAMPLED, "x-envoy-force-trace": "1", "x-client-trace-id": "1"}
    closed = await http.start(config(route("closed", to("one"))), backend, parameters=collector.of(**NONE))
    assert trace_of(await get(closed, "/", headers=forced))[0::2] == (_TRACE, "00")
    trusting = await http.start(
        config(route("trusting", to("one"))),
        backend,
        parameters=collector.of(**NONE, parentBasedSampling={"mode": "Enabled"}),
    )
    assert trace_of(await get(trusting, "/"))[2] == "00"
    assert trace_of(await get(trusting, "/", headers=SAMPLED))[::2] == (_TRACE, "01")
    unsampled = {"traceparent": f"00-{_TRACE}-{_PARENT}-00"}
    eager = collector.of(**ALL, parentBasedSampling={"mode": "Enabled"})
    spec = await http.start(config(route("eager", to("one"))), backend, parameters=eager)
    assert trace_of(await get(spec, "/", headers=unsampled))[2] == "00"
    assert trace_of(await get(spec, "/"))[2] == "01"
    spans = await collector.until_spans(lambda spans: len(spans) >= 2)
    assert sorted(span.name.partition("/")[0] for span in spans) == ["eager", "trusting"]


async def test_a_share_of_the_requests_is_sampled(http: HttpWorld, collector: TraceCollector) -> None:
    parameters = collector.of(samplingRate={"numerator": 100, "denominator": 1000})
    spec = await http.start(config(route("r", BROKEN)), parameters=parameters)
    many = 5_000
    await ask_many(spec, ["/broken"] * many)
    # Four standard deviations of 5,000 draws at 10 %.
    spans = await collector.until_spans(lambda spans: len(spans) >= many / 10 - 85)
    assert len(spans) <= many / 10 + 85


async def test_a_route_has_a_share_of_its_own(http: HttpWorld, collector: TraceCollector) -> None:
    half = '{"samplingRate": {"numerator": 1, "denominator": 2}}'
    routes = tuple(
        msgspec.structs.replace(
            route(name, msgspec.structs.replace(BROKEN, matches=(prefix(f"/{name}"),))), tracing=tracing
        )
        for name, tracing in (("half", half), ("all", json.dumps(ALL)), ("none", "off"), ("class", ""))
    )
    # The share of the class is that of requests without a route too.
    spec = await http.start(config(*routes), parameters=collector.of(**NONE))
    many = 2_000
    await ask_many(spec, ["/none", "/class", "/nothing"] * 20 + ["/half"] * many + ["/all"] * 20)

    def counts(spans: list[Span]) -> dict[str, int]:
        return {name: sum(span.name.startswith(f"{name}/") for span in spans) for name in ("half", "all")}

    # Four standard deviations of 2,000 draws at 50 %.
    spans = await collector.until_spans(
        lambda spans: counts(spans)["half"] >= many / 2 - 90 and counts(spans)["all"] == 20
    )
    assert counts(spans)["half"] <= many / 2 + 90
    assert len(spans) == sum(counts(spans).values())
    # A change of a share is one of the route alone: connections stay open.
    reader, writer = await asyncio.open_connection(spec.address, 80)
    writer.write(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 500 " in await reader.readuntil(b"\r\n\r\n")
    again = tuple(msgspec.structs.replace(entry, tracing=json.dumps(ALL)) for entry in routes)
    await http.serve(msgspec.structs.replace(spec, l7=config(*again)))
    writer.write(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 500 " in await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await collector.until_spans(lambda spans: any(span.name.startswith("none/") for span in spans))


@pytest.mark.req("F-14")
async def test_a_collector_over_http_is_verified_by_tls(http: HttpWorld, tmp_path: Path) -> None:
    authority, backend = Authority(), await http.echo("one")
    certificate = authority.issue("collector", "localhost")
    tls = server_context(certificate, tmp_path)
    plain, trusted, unknown = (TraceCollector(over_http=True, tls=tls) for tls in (None, tls, tls))
    collectors = (plain, trusted, unknown)
    await asyncio.gather(*(collector.server.start() for collector in collectors))
    for collector, bundle in ((plain, ""), (unknown, Authority("other").pem), (trusted, authority.pem)):
        sink = f"https://localhost:{collector.port}/custom/traces" if bundle else collector.sink
        parameters = {TRACING: json.dumps(ALL), TRACING_SINK: sink, **({COLLECTOR_CA: bundle} if bundle else {})}
        spec = await http.start(config(route(f"to-{collector.port}", to("one"))), backend, parameters=parameters)
        assert (await get(spec, "/")).status == 200
    for collector, path in ((plain, "/v1/traces"), (trusted, "/custom/traces")):
        (span,) = await collector.until_spans(bool)
        assert span.name.startswith(f"to-{collector.port}/")
        assert collector.paths == {path}
    assert unknown.spans() == []
    await asyncio.gather(*(collector.server.stop(None) for collector in collectors))


@pytest.mark.req("F-14")
async def test_a_collector_over_tls_is_verified(http: HttpWorld) -> None:
    authority, backend = Authority(), await http.echo("one")
    certificate = authority.issue("collector", "localhost")
    credentials = grpc.ssl_server_credentials([(certificate.key, certificate.chain)])
    trusted, unknown = TraceCollector(credentials), TraceCollector(credentials)
    await asyncio.gather(trusted.server.start(), unknown.server.start())
    for collector, bundle in ((unknown, Authority("other").pem), (trusted, authority.pem)):
        sink = f"otlps://localhost:{collector.port}"
        parameters = {TRACING: json.dumps(ALL), TRACING_SINK: sink, COLLECTOR_CA: bundle}
        spec = await http.start(config(route(f"to-{collector.port}", to("one"))), backend, parameters=parameters)
        assert (await get(spec, "/")).status == 200
    (span,) = await trusted.until_spans(bool)
    assert span.name.startswith(f"to-{trusted.port}/")
    assert unknown.spans() == []
    await asyncio.gather(trusted.server.stop(None), unknown.server.stop(None))


async def test_a_collector_that_is_down_fails_no_request(http: HttpWorld) -> None:
    backend = await http.echo("one")
    parameters = {TRACING: json.dumps(ALL), TRACING_SINK: "otlp://127.0.0.1:1"}
    spec = await http.start(config(route("r", to("one"))), backend, parameters=parameters)
    assert {(await get(spec, "/")).status for _ in range(50)} == {200}
