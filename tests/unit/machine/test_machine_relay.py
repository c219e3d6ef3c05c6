"""What the relay reads on its way: the snapshot has what Envoy has acknowledged, and the hub learns what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlead.machine.relay import StreamTap
from fairlead.machine.snapshot import XdsSnapshot
from fairlead.providers.envoy.resources import EncodedResource, ResourceType, encoded_resource, response
from fairlead.providers.envoy.schema import DeltaRequest, packaged_schema

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
