"""What the relay reads on its way: the snapshot has what Envoy has acknowledged, and the hub learns what it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc import aio

from fairlead.machine.relay import HubLink, StreamTap
from fairlead.machine.snapshot import XdsSnapshot
from fairlead.model.machine import HUB_NAME
from fairlead.providers.envoy.resources import (
    DeltaRequest,
    EncodedResource,
    ResourceType,
    encoded_resource,
    packaged_schema,
    response,
)
from tests.unit.machine.machine_authority import Authority

pytestmark = pytest.mark.req("P-4")

CLUSTER, ENDPOINTS, LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
NAME = "TCPLoadBalancer/shop/web/TCP/80"
REQUEST = "envoy.service.discovery.v3.DeltaDiscoveryRequest"


class Stream:
    """One stream to the hub, its snapshot, and what Envoy rejects."""

    def __init__(self, directory: Path) -> None:
        self.snapshot = XdsSnapshot(directory / "snapshot")
        self.refused: dict[str, str] = {}
        self.changes = 0
        self.tap = StreamTap(self.snapshot, packaged_schema(), self.refused, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def send(
        self, kind: ResourceType, *resources: EncodedResource, removed: tuple[str, ...] = (), nonce: str = "1"
    ) -> None:
        """Let the hub send a response."""
        self.tap.response(response(kind, resources=list(resources), removed=list(removed), nonce=nonce, revision=1))

    def ask(self, kind: ResourceType, **fields: object) -> DeltaRequest:
        """Let Envoy send a request; return what the hub gets."""
        raw = packaged_schema().encode(REQUEST, {"type_url": kind.value, **fields})
        return packaged_schema().read_request(self.tap.request(raw))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def resource(content: bytes, kind: ResourceType = LISTENER, name: str = NAME) -> EncodedResource:
    return encoded_resource(kind, name, content)


def test_a_resource_is_kept_once_envoy_has_acknowledged_it(stream: Stream) -> None:
    first, second = resource(b"first"), resource(b"second")
    stream.send(LISTENER, first)
    assert stream.snapshot.of(LISTENER) == {}
    stream.ask(LISTENER, response_nonce="1")
    assert stream.snapshot.of(LISTENER) == {NAME: first}
    stream.send(LISTENER, second, nonce="2")
    stream.ask(LISTENER, response_nonce="2", error_detail={"code": 13, "message": "cannot bind"})
    assert stream.snapshot.of(LISTENER) == {NAME: first}
    assert stream.refused == {NAME: "cannot bind"}
    stream.send(LISTENER, second, nonce="3")
    stream.ask(LISTENER, response_nonce="3")
    assert stream.snapshot.of(LISTENER) == {NAME: second}
    assert stream.refused == {}
    stream.send(LISTENER, removed=(NAME,), nonce="4")
    stream.ask(LISTENER, response_nonce="4")
    assert stream.snapshot.size == 0
    assert stream.changes == 4


def test_a_rejected_response_of_several_names_none_of_them(stream: Stream) -> None:
    """The hub sends each of them alone then."""
    other = f"{NAME}0"
    stream.send(LISTENER, resource(b"good"), resource(b"bad", name=other))
    stream.ask(LISTENER, response_nonce="1", error_detail={"code": 13, "message": "cannot bind"})
    assert (stream.snapshot.size, stream.refused) == (0, {})


def test_what_envoy_no_longer_asks_for_is_dropped(stream: Stream) -> None:
    for number, kind in enumerate((ENDPOINTS, CLUSTER)):
        stream.send(kind, resource(b"content", kind), nonce=str(number))
        stream.ask(kind, response_nonce=str(number))
        stream.ask(kind, resource_names_unsubscribe=[NAME])
    assert stream.snapshot.of(ENDPOINTS) == {}
    assert stream.snapshot.of(CLUSTER), "Envoy wants all clusters; the hub removes them by name"


@pytest.mark.parametrize(
    ("initial", "shown"),
    [
        ({NAME: resource(b"first").version}, {NAME: resource(b"first").version}),
        ({NAME: "newer"}, {NAME: "unknown"}),
        ({NAME: resource(b"first").version, "lost": "7"}, {NAME: resource(b"first").version, "lost": "unknown"}),
    ],
)
def test_the_hub_learns_what_the_snapshot_lacks(
    stream: Stream, initial: Mapping[str, str], shown: Mapping[str, str]
) -> None:
    stream.snapshot.put(LISTENER, NAME, resource(b"first"))
    request = stream.ask(
        LISTENER,
        node={"id": "m1", "cluster": "machine:m1"},
        resource_names_subscribe=["*"],
        initial_resource_versions=dict(initial),
    )
    assert request.initial_versions == shown
    assert (request.node_id, request.subscribe) == ("m1", ("*",))


def test_bytes_that_are_not_xds_pass_as_they_are(stream: Stream) -> None:
    for raw in (b"\xff", b"", packaged_schema().encode(REQUEST, {"type_url": "type.googleapis.com/other"})):
        assert stream.tap.request(raw) == raw


async def hub_at(authority: Authority, name: bytes) -> tuple[aio.Server, str]:
    """Start a hub that answers each stream with its name."""

    async def answer(_requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        await context.write(name)

    server, pem = aio.server(), authority.hub(HUB_NAME).encode()
    methods: dict[str, Any] = {"Name": grpc.stream_stream_rpc_method_handler(cast("Any", answer))}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
    await server.start()
    return server, f"127.0.0.1:{port}"


@pytest.mark.req("P-37")
async def test_the_connection_moves_to_the_hub_that_leads() -> None:
    authority = Authority()
    (first, at_first), (second, at_second) = [await hub_at(authority, name) for name in (b"first", b"second")]
    link = HubLink()

    async def name_of_hub() -> bytes:
        await link.until_usable()
        return cast("bytes", await link.stream("/test/Name")[1].read())

    try:
        await link.connect((at_first, at_second), grpc.ssl_channel_credentials(authority.ca.encode()))
        async with asyncio.timeout(180):
            assert await name_of_hub() == b"first"
            channel, _ = link.stream("/test/Name")
            link.prefer(at_second)
            await link.until_replaced(channel)
            assert await name_of_hub() == b"second"
            # That hub is gone: the other one is better than none.
            channel, _ = link.stream("/test/Name")
            await second.stop(grace=0)
            await link.until_replaced(channel)
            assert await name_of_hub() == b"first"
    finally:
        await link.close()
        await first.stop(grace=0)
        await second.stop(grace=0)
