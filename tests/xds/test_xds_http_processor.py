"""External processors (``ext_proc``) that inspect requests, at a real Envoy."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import aiohttp
import grpc
import pytest
import pytest_asyncio
from grpc import aio
from h2.connection import H2Connection
from h2.events import ResponseReceived

from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.http import MIN_PROCESSOR_BODY, Backend, ExternalProcessor
from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.resources import delimited, fields_of, number, text
from tests.xds.grpc_echo import GrpcBackend
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to, web_socket, with_config

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

#: Numbers of fields: of a request, its headers and body; of an answer, those to headers, to a body, and the end.
_HEADERS, _BODY = 2, 4
_TO_HEADERS, _TO_BODY, _END = 1, 3, 7
#: Long enough for a loaded machine.
_SLOW_MS = 5_000


class Processor:
    """A firewall: ``/denied`` in a path, or ``attack`` in a body, is answered 403; ``/hangs`` is not answered."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[int] = []
        #: Headers that the answer to the headers of a request sets.
        self.sets: dict[str, str] = {}
        self._server = aio.server()
        #: Messages about anything but the headers and the body of a request.
        self.others = 0

    async def start(self, address: str) -> Target:
        handler = grpc.stream_stream_rpc_method_handler(self._process)  # type: ignore[arg-type]
        service = "envoy.service.ext_proc.v3.ExternalProcessor"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Process": handler}),))
        port = self._server.add_insecure_port(f"{address}:0")
        await self._server.start()
        return Target(TargetKey(address, port))

    async def stop(self) -> None:
        await self._server.stop(grace=0)

    async def _process(self, requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for request in requests:
            headers = next(fields_of(request, _HEADERS), None)
            message = next(fields_of(request, _BODY), None)
            if headers is None and message is None:
                self.others += 1
                continue
            if headers is None or message is not None:
                body = next(fields_of(message or b"", 1), b"")
                self.bodies.append(len(body))
                yield _DENIED if b"attack" in body else delimited(_TO_BODY, b"")
                continue
            path = _path(headers)
            self.paths.append(path)
            if "/hangs" in path:
                await asyncio.sleep(60)
            values = [delimited(1, text(1, name) + text(3, value)) for name, value in self.sets.items()]
            # CommonResponse 1 {header_mutation 2 {set_headers 1 {header 1 {key 1, raw_value 3}, append_action 3}}}
            options = b"".join(delimited(1, value + number(3, 2)) for value in values)
            # It asks for another route (clear_route_cache), and for responses (mode_override), in vain.
            answer = delimited(_TO_HEADERS, delimited(1, delimited(2, options) + number(5, 1)))
            answer += delimited(9, number(2, 1) + number(4, 2))
            yield _DENIED if "/denied" in path else answer


#: ImmediateResponse {status 1 {code 1}, body 3}
_DENIED = delimited(_END, delimited(1, number(1, 403)) + text(3, "blocked"))


def _path(headers: bytes) -> str:
    for header in fields_of(next(fields_of(headers, 1)), 1):
        if next(fields_of(header, 1)) == b":path":
            return next(fields_of(header, 3)).decode()
    raise AssertionError("no path")


@pytest_asyncio.fixture(loop_scope="session")
async def processor() -> AsyncIterator[Processor]:
    service = Processor()
    yield service
    await service.stop()


async def serve(http: HttpWorld, inspected: ExternalProcessor, *targets: Target) -> FrontendSpec:
    """Serve a route whose paths but those below /open are inspected by the backend waf, which has these targets."""
    echo = await http.echo("one")
    rules = (to("one", matches=(prefix("/open"),)), to("one", processor=inspected))
    spec = http.spec(config(route("r", *rules), backends=[Backend("waf", protocol="HTTP2")]))
    return await http.serve(spec, {"one": [echo.target], "waf": targets})


def waf(**fields: object) -> ExternalProcessor:
    return ExternalProcessor("waf", **{"timeout_ms": _SLOW_MS, **fields})  # type: ignore[arg-type]


@pytest.mark.req("F-21")
async def test_requests_pass_or_are_answered_by_the_processor(http: HttpWorld, processor: Processor) -> None:
    spec = await serve(http, waf(), await processor.start(http.world.addresses.take()))
    assert (await get(spec, "/page", method="POST", data=b"attack")).status == 200, "no body is shown by default"
    denied = await get(spec, "/denied")
    assert (denied.status, denied.body) == (403, "blocked")
    assert (await get(spec, "/open/denied")).status == 200
    assert processor.paths == ["/page", "/denied"]
    assert processor.bodies == []


@pytest.mark.req("F-21")
async def test_a_body_is_shown_up_to_a_size_and_larger_ones_are_refused(http: HttpWorld, processor: Processor) -> None:
    mebibyte = 1024 * 1024
    spec = await serve(http, waf(max_size=mebibyte), await processor.start(http.world.addresses.take()))
    assert (await get(spec, "/page", method="POST", data=io.BytesIO(b"x" * mebibyte))).status == 200
    assert processor.bodies == [mebibyte]
    assert (await get(spec, "/page", method="POST", data=b"an attack")).status == 403
    assert (await get(spec, "/page", method="POST", data=io.BytesIO(b"x" * 2 * mebibyte))).status == 413
    assert (await get(spec, "/page")).status == 200


@pytest.mark.req("F-21")
@pytest.mark.parametrize("size", [MIN_PROCESSOR_BODY, 40_000])
async def test_the_limit_of_a_body_is_exact(http: HttpWorld, processor: Processor, size: int) -> None:
    spec = await serve(http, waf(max_size=size), await processor.start(http.world.addresses.take()))
    assert (await get(spec, "/page", method="POST", data=io.BytesIO(b"x" * size))).status == 200
    assert (await get(spec, "/page", method="POST", data=io.BytesIO(b"x" * (size + 1)))).status == 413


@pytest.mark.req("F-21")
async def test_a_processor_changes_headers_but_not_what_frames_or_routes(http: HttpWorld, processor: Processor) -> None:
    spec = await serve(http, waf(), await processor.start(http.world.addresses.take()))
    processor.sets = {
        "x-score": "7",
        ":path": "/open/elsewhere",
        "host": "other.example.com",
        "transfer-encoding": "chunked",
        "x-envoy-retry-on": "5xx",
        "upgrade": "websocket",
    }
    seen = (await get(spec, "/page")).echo
    assert (seen["path"], seen["host"], seen["headers"]["x-score"]) == ("/page", "shop.example.com", "7")
    assert not {"transfer-encoding", "x-envoy-retry-on", "upgrade"} & seen["headers"].keys()
    assert processor.others == 0, "it sees no response, though it asks for them"


@pytest.mark.req("F-21")
@pytest.mark.parametrize("max_size", [0, MIN_PROCESSOR_BODY])
async def test_a_web_socket_and_a_stream_pass(http: HttpWorld, processor: Processor, max_size: int) -> None:
    spec = await serve(http, waf(max_size=max_size), await processor.start(http.world.addresses.take()))
    async with web_socket(spec) as socket:
        await socket.send_str("an attack")
        assert (await socket.receive_str()) == "one: an attack"
    assert processor.paths == ["/ws"]


@pytest.mark.req("F-21")
async def test_grpc(http: HttpWorld, processor: Processor) -> None:
    backend = await GrpcBackend("one").start(http.world.addresses.take())
    rules = (
        to("one", matches=(prefix("/small.Service"),), processor=waf(max_size=MIN_PROCESSOR_BODY)),
        to("one", processor=waf()),
    )
    backends = [Backend("one", protocol="HTTP2"), Backend("waf", protocol="HTTP2")]
    spec = http.spec(config(route("r", *rules, kind="GRPC"), backends=backends))
    target = await processor.start(http.world.addresses.take())
    await http.serve(spec, {"one": [backend.target], "waf": [target]})
    async with aio.insecure_channel(f"{spec.address}:80") as channel:
        stream = channel.stream_stream("/pkg.Service/Stream")(timeout=30)
        for message in (b"1", b"2"):
            await stream.write(message)
            assert await stream.read() == b"one: " + message
        stream.cancel()
        assert await channel.unary_unary("/small.Service/Method")(b"hello", timeout=30) == b"one: hello"
        for method in ("/pkg.Service/denied", "/small.Service/denied"):
            with pytest.raises(aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"hello", timeout=30)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/small.Service/Method")(b"an attack", timeout=30)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await backend.stop()


@pytest.mark.req("F-21")
async def test_a_processor_that_hangs_or_is_down_closes_unless_fail_open(http: HttpWorld, processor: Processor) -> None:
    target = await processor.start(http.world.addresses.take())
    closed = await serve(http, ExternalProcessor("waf"), target)
    assert (await get(closed, "/hangs")).status == 504
    opened = await serve(http, ExternalProcessor("waf", fail_open=True), target)
    assert (await get(opened, "/hangs")).status == 200
    await processor.stop()
    assert (await get(closed, "/page")).status == 503
    assert (await get(opened, "/page")).status == 200
    assert (await get(closed, "/open/page")).status == 200
    without_targets = await serve(http, waf())
    assert (await get(without_targets, "/page")).status == 503
    unresolved = await serve(http, ExternalProcessor("", fail_open=True))
    assert (await get(unresolved, "/page")).status == 500


@pytest.mark.req("F-21")
@pytest.mark.parametrize("upgrade", ["websocket", "SPDY/3.1", "tcp"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_upgrade_hides_a_body(http: HttpWorld, processor: Processor, upgrade: str, method: str) -> None:
    """Envoy takes what follows the headers of an upgrade for a stream: its end, and so the body, never comes."""
    spec = await serve(http, waf(max_size=MIN_PROCESSOR_BODY), await processor.start(http.world.addresses.take()))
    lines = (f"{method} /page HTTP/1.1", "Host: shop.example.com", "Connection: upgrade", f"Upgrade: {upgrade}")
    assert (await send(spec, *lines, "Content-Length: 9", "", "an attack")).startswith(b"HTTP/1.1 403")
    assert http._echoes[-1].seen == []
    await send(spec, *lines, "Transfer-Encoding: chunked", "", "9", "an attack", "0", "", "")
    assert [{"content-length", "transfer-encoding"} & seen["headers"].keys() for seen in http._echoes[-1].seen] == [
        set()
    ]


@pytest.mark.req("F-21")
async def test_each_time_out_has_a_filter_and_other_load_balancers_have_none(
    http: HttpWorld, processor: Processor
) -> None:
    """The listener gets a filter for each time-out; its connections never meet the routes without it."""
    target = await processor.start(http.world.addresses.take())
    other = await http.start(config(route("r", to("one"))), await http.echo("one"))
    echo = await http.echo("one")
    backends = [Backend("waf", protocol="HTTP2")]
    spec = http.spec(config(route("r", to("one")), backends=backends))
    await http.serve(spec, {"one": [echo.target], "waf": [target]})
    async with aiohttp.ClientSession() as session:
        for rules in (
            (to("one", processor=waf()),),
            (to("one", matches=(prefix("/slow"),), processor=waf(timeout_ms=9_000)), to("one", processor=waf())),
        ):
            await http.provider.ensure(with_config(spec, config(route("r", *rules), backends=backends)))
            await http.programmed(spec)
            for path in ("/denied", "/slow/denied"):
                assert (await get(spec, path)).status == 403
                async with session.get(f"http://{spec.address}{path}", headers={"Host": "a"}) as answer:
                    assert answer.status == 403, "a connection that was open before"
    assert (await get(other, "/denied")).status == 200


async def send(spec: FrontendSpec, *lines: str) -> bytes:
    """Return the answer to a request of these lines, whose connection the proxy closes."""
    reader, writer = await asyncio.open_connection(spec.address, 80)
    writer.write("\r\n".join(lines).encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


@pytest.mark.req("F-21")
async def test_a_slow_client_does_not_use_up_the_time_of_the_processor(http: HttpWorld, processor: Processor) -> None:
    """Public reports: a body that arrives late, in pieces, or is refused must not hang or pass uninspected."""
    inspected = waf(max_size=MIN_PROCESSOR_BODY, timeout_ms=1_000)
    spec = await serve(http, inspected, await processor.start(http.world.addresses.take()))
    sizes = (9, MIN_PROCESSOR_BODY + 1)
    for size in sizes:
        reader, writer = await asyncio.open_connection(spec.address, 80)
        writer.write(b"POST /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
        for part in (b"an at", b"tack".ljust(size - 5, b".")):
            await writer.drain()
            await asyncio.sleep(1.2)
            writer.write(part)
        answer = await asyncio.wait_for(reader.read(), 20)
        assert answer.startswith(b"HTTP/1.1 403" if size == 9 else b"HTTP/1.1 413")
        writer.close()
    assert processor.bodies == [9]
    assert http._echoes[-1].seen == []


@pytest.mark.req("F-21")
async def test_trailers_after_a_body_do_not_hide_it(http: HttpWorld, processor: Processor) -> None:
    """A public report: with trailers, the message with the body is not the end of the stream."""
    inspected = waf(max_size=MIN_PROCESSOR_BODY)
    spec = await serve(http, inspected, await processor.start(http.world.addresses.take()))
    reader, writer = await asyncio.open_connection(spec.address, 80)
    client = H2Connection()
    client.initiate_connection()
    names = ((":method", "POST"), (":path", "/page"), (":scheme", "http"), (":authority", "shop.example.com"))
    client.send_headers(1, names)
    client.send_data(1, b"an attack")
    client.send_headers(1, (("x-trailer", "1"),), end_stream=True)
    writer.write(client.data_to_send())
    status = b""
    async with asyncio.timeout(20):
        while not status:
            events = client.receive_data(await reader.read(65536))
            answers = [dict(event.headers) for event in events if isinstance(event, ResponseReceived)]
            status = next((answer[b":status"] for answer in answers), b"")
            writer.write(client.data_to_send())
    writer.close()
    assert status == b"403"
    assert processor.bodies == [9]
