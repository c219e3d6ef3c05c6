"""The gRPC server: what it refuses to listen on, and streams that are not xDS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.health_board import HealthBoard
from fairlead.providers.envoy.resources import packaged_schema
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.store import ResourceStore
from fairlead_demo.worlds.processes import wait_until


async def test_plain_text_to_the_world_is_refused() -> None:
    server = XdsServer(store=ResourceStore(), schema=packaged_schema(), address="0.0.0.0:0")
    with pytest.raises(BadConfiguration, match="mutual TLS"):
        await server.start()


async def test_garbage_ends_the_stream_and_nothing_else(tmp_path: Path) -> None:
    import grpc

    server = XdsServer(store=ResourceStore(), schema=packaged_schema(), address="127.0.0.1:0")
    await server.start()
    method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        for messages, ends_in in (([b"\xff"], grpc.StatusCode.INVALID_ARGUMENT), ([b"", b"\xff"], grpc.StatusCode.OK)):
            call = channel.stream_stream(method)()
            for message in messages:
                await call.write(message)
            assert await call.code() is ends_in
    await server.stop()
    assert server.sessions == []


@pytest.mark.req("K-28")
async def test_a_disconnected_proxy_finds_the_hub_at_the_same_port_again() -> None:
    import grpc

    server = XdsServer(store=ResourceStore(), schema=packaged_schema(), address="127.0.0.1:0")
    await server.start()
    port = server.port

    async def begun() -> bool:
        return bool(server.sessions)

    method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(method)()
        await call.write(b"")
        # A stream that the server has not begun with is sent once more by gRPC itself, and does not end.
        await wait_until(begun, "the server begins with the stream")
        await server.disconnect()
        assert await call.code() is not grpc.StatusCode.OK
        assert server.port == port
        again = channel.stream_stream(method)(wait_for_ready=True)
        await again.write(b"")
        await again.done_writing()
        assert await again.code() is grpc.StatusCode.OK
    await server.stop()
    assert server.sessions == []


@pytest.mark.parametrize(
    ("of", "name", "method"),
    [
        (Session, "on_request", "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"),
        (HealthBoard, "report", "envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck"),
    ],
)
async def test_a_bug_while_a_stream_is_read_is_logged(
    monkeypatch: pytest.MonkeyPatch, of: type, name: str, method: str
) -> None:
    import grpc

    real: Callable[..., None] = getattr(of, name)
    bug, calls = ZeroDivisionError("oops"), 0

    def broken(*args: object, **named: object) -> None:
        nonlocal calls
        calls += 1
        # The first request of a discovery stream is not read by the task that reads the others.
        if of is Session and calls == 1:
            return real(*args, **named)
        raise bug

    monkeypatch.setattr(of, name, broken)
    server = XdsServer(store=ResourceStore(), schema=packaged_schema(), address="127.0.0.1:0")
    await server.start()
    with capture_logs() as logs:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.stream_stream(f"/{method}")()
            await call.write(b"")
            await call.write(b"")
            assert await call.code() is grpc.StatusCode.OK
            # A proxy that disconnects in the middle of a stream is not a bug.
            cut = channel.stream_stream(f"/{method}")()
            await cut.write(b"")
        await server.stop()
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert entry["exc_info"] is bug
