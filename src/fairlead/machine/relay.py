"""Envoy's xDS and health streams: forwarded to the hub, or answered from the snapshot while there is no hub.

    Envoy ──unix socket──► Relay ──HubLink, mutual TLS──► hub        bytes as they are; what Envoy acknowledges
                             │                                       goes into the snapshot
                             └──────Session───────────► Envoy        no hub: from the snapshot, as a hub would

An Envoy that has just started is always served from the snapshot first, so that it serves within a second of a reboot.
It then reconnects, with the versions that it has, and the hub sends what differs. When the hub returns, or the
certificate is renewed, Envoy's streams are ended for the same reason: it reconnects and nothing is sent again.
What Envoy has and the snapshot lacks is shown to the hub as an unknown version: then the hub sends or removes it.
Never: sends an older version than the one that Envoy has.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import msgspec
import structlog
from grpc import aio

from fairlead.errors import BadConfiguration
from fairlead.machine.snapshot import XdsSnapshot
from fairlead.model.machine import HUB_NAME
from fairlead.providers.envoy.resources import EncodedResource, ResourceType, Schema, delimited, fields_of, header, text
from fairlead.providers.envoy.server import first_request, messages_of
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.store import ResourceChange, ResourceStore
from fairlead.runtime.background import end, first_done, keep_running, watched
from fairlead.runtime.queue import doubled_s

_CONFIGURATION = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
_HEALTH = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck"
_LARGEST = 256 * 1024 * 1024
_SIZES = [("grpc.max_receive_message_length", _LARGEST), ("grpc.max_send_message_length", _LARGEST)]
#: Envoy pings every ten seconds, which gRPC treats as an attack by default.
_TO_ENVOY = [*_SIZES, ("grpc.http2.min_ping_interval_without_data_ms", 5_000)]
_TO_HUB = [
    *_SIZES,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.ssl_target_name_override", HUB_NAME),
]
#: A hub that refused a stream is not asked again for so long; twice as long after each further time, up to the longest.
_REFUSED_S, _LONGEST_REFUSED_S = 5.0, 60.0
#: Before the next hub is tried, and for what is under way on an earlier connection.
_NEXT_HUB_S, _GRACE_S = 0.3, 0.2
#: An Envoy that starts again and again is served from the snapshot first at most this often.
_FIRST_S = 60.0
#: A version that no resource ever has.
_UNKNOWN = "unknown"

# Field numbers of DeltaDiscoveryRequest, DeltaDiscoveryResponse and Resource.
_TYPE, _UNSUBSCRIBE, _INITIAL, _NONCE, _ERROR, _LAST = 2, 4, 5, 6, 7, 9
_RESOURCES, _RESPONSE_TYPE, _RESPONSE_NONCE, _REMOVED = 2, 4, 5, 6
_VERSION, _NAME = 1, 3
_KINDS = {kind.value: kind for kind in ResourceType}
_WILDCARD = frozenset({ResourceType.CLUSTER, ResourceType.LISTENER})

log = structlog.get_logger(__name__)


class HubLink:
    """The connection to the xDS server of one of the hubs; ``usable`` while it is there and takes streams."""

    def __init__(self, *, on_change: Callable[[], None] = lambda: None) -> None:
        self.usable = False
        self._on_change = on_change
        self._addresses: Sequence[str] = ()
        #: The address of the present connection.
        self._address = ""
        self._channel: aio.Channel | None = None
        #: Set, and replaced, whenever ``usable`` or the connection changes.
        self._turn = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._refused_until_s = 0.0
        self._refusals = 0

    async def connect(self, addresses: Sequence[str], credentials: grpc.ChannelCredentials) -> None:
        """Connect with these credentials from now on; the caller ends streams of an earlier connection."""
        await end(self._watcher)
        self._addresses, self._refused_until_s, self._refusals = tuple(addresses), 0.0, 0
        await self._open(self._addresses[0], credentials)
        self._watcher = keep_running("connection to the hub", lambda: self._watch(credentials))

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Try these hubs when the present one does not answer; the connection stays."""
        self._addresses = (
            *self._addresses[:1],
            *(address for address in addresses if address not in self._addresses[:1]),
        )

    def prefer(self, address: str) -> None:
        """Connect to this hub in place of another one: the leader has to see the Envoys of all machines."""
        self._addresses = (address, *(other for other in self._addresses if other != address))
        self._set(usable=self.usable)

    async def close(self) -> None:
        """Disconnect."""
        await end(self._watcher)
        channel, self._channel = self._channel, None
        self._set(usable=False)
        if channel is not None:
            await channel.close(grace=0)

    def stream(self, method: str) -> tuple[aio.Channel, aio.StreamStreamCall[bytes, bytes]]:
        """Open a stream; returns its connection, too."""
        if self._channel is None:
            raise aio.UsageError("there is no connection")
        call: aio.StreamStreamCall[bytes, bytes] = cast("Any", self._channel.stream_stream(method))()
        return self._channel, call

    def refused(self, why: str) -> None:
        """Note that the hub has refused a stream."""
        self._refusals += 1
        pause_s = doubled_s(self._refusals, base_s=_REFUSED_S, limit_s=_LONGEST_REFUSED_S)
        log.warning("the hub has refused a stream", why=why, again_in_s=pause_s)
        self._refused_until_s = time.monotonic() + pause_s
        self._set(usable=False)

    def accepted(self) -> None:
        """Note that the hub answers on a stream."""
        self._refusals = 0

    async def until_usable(self) -> None:
        """Return when the hub can be asked."""
        while not self.usable:
            await self._turn.wait()

    async def until_replaced(self, channel: aio.Channel) -> None:
        """Return when this connection has been replaced."""
        while self._channel is channel:
            await self._turn.wait()

    async def changed(self) -> None:
        """Return when ``usable`` or the connection has changed."""
        await self._turn.wait()

    def _set(self, *, usable: bool) -> None:
        self.usable = usable
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
        self._on_change()

    async def _open(self, address: str, credentials: grpc.ChannelCredentials) -> None:
        before, self._channel = self._channel, aio.secure_channel(address, credentials, options=_TO_HUB)
        self._address = address
        self._set(usable=False)
        if before is not None:
            await before.close(grace=_GRACE_S)

    async def _watch(self, credentials: grpc.ChannelCredentials) -> None:
        while self._channel is not None:
            if self._address != self._addresses[0]:
                await self._open(self._addresses[0], credentials)
            state = self._channel.get_state(try_to_connect=True)
            ready = state is grpc.ChannelConnectivity.READY
            if ready and (pause_s := self._refused_until_s - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
                continue
            if ready != self.usable:
                self._set(usable=ready)
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and len(self._addresses) > 1:
                first, *others = self._addresses
                self._addresses = (*others, first)
                await asyncio.sleep(_NEXT_HUB_S)
                await self._open(self._addresses[0], credentials)
                continue
            await first_done(self._channel.wait_for_state_change(state), self.changed())


class Relay:
    """The gRPC server of the local Envoy. ``refused`` are the listeners that Envoy has rejected, with its message."""

    def __init__(
        self,
        *,
        socket: Path,
        snapshot: XdsSnapshot,
        link: HubLink,
        schema: Schema,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.refused: dict[str, str] = {}
        self._socket = socket
        self._snapshot = snapshot
        self._link = link
        self._schema = schema
        self._on_change = on_change
        self._server: aio.Server | None = None
        self._forwarding: list[StreamTap] = []
        self._served_first_s = float("-inf")

    @property
    def synced(self) -> bool:
        """Return whether Envoy is connected to a hub and has acknowledged or rejected all resources."""
        return bool(self._forwarding) and not any(tap.in_flight for tap in self._forwarding)

    async def start(self) -> None:
        """Listen; ``BadConfiguration`` when the socket cannot be made."""
        server = aio.server(options=_TO_ENVOY)
        for method, handler in ((_CONFIGURATION, self._configuration), (_HEALTH, self._health)):
            _, service, name = method.split("/")
            methods: dict[str, Any] = {name: grpc.stream_stream_rpc_method_handler(cast("Any", handler))}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        try:
            server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as error:
            raise BadConfiguration(f"cannot listen for Envoy on {self._socket}", detail=str(error)) from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End all streams; Envoy continues with what it has."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=0)

    async def _configuration(self, _requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        begun = await first_request(context, self._schema.read_request)
        if begun is None:
            return
        first, request = begun
        kind = _KINDS.get(request.type_url)
        has_nothing = kind is not None and bool(self._snapshot.of(kind)) and not request.initial_versions
        if self._link.usable and not (has_nothing and self._may_serve_first()):
            tap = StreamTap(self._snapshot, self._schema, self.refused, self._on_change)
            self._forwarding.append(tap)
            log.info("envoy is connected to the hub")
            try:
                await self._forward(_CONFIGURATION, first, context, tap)
            finally:
                self._forwarding.remove(tap)
                self._on_change()
        else:
            log.info("envoy is served from the snapshot", resources=self._snapshot.size)
            await self._serve(first, context, starting=has_nothing)

    def _may_serve_first(self) -> bool:
        now_s = time.monotonic()
        before_s, self._served_first_s = self._served_first_s, now_s
        return now_s - before_s > _FIRST_S

    async def _health(self, _requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        if (first := await anext(messages_of(context.read), None)) is None:
            return
        if self._link.usable:
            await self._forward(_HEALTH, first, context, None)
        else:
            # Without a hub the health of targets is not reported. Envoy's own checks continue.
            await self._link.until_usable()

    async def _forward(
        self, method: str, first: bytes, context: aio.ServicerContext[bytes, bytes], tap: StreamTap | None
    ) -> None:
        channel, call = self._link.stream(method)

        async def up() -> None:
            await call.write(first if tap is None else tap.request(first))
            async for message in messages_of(context.read):
                await call.write(message if tap is None else tap.request(message))

        async def down() -> None:
            async for message in messages_of(call.read):
                self._link.accepted()
                if tap is not None:
                    tap.response(message)
                await context.write(message)

        try:
            await first_done(up(), down(), self._link.until_replaced(channel))
        except (grpc.RpcError, aio.BaseError, asyncio.InvalidStateError):
            code = await call.code()
            if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.OK):
                self._link.refused(await call.details() or code.name)
        finally:
            call.cancel()

    async def _serve(self, first: bytes, context: aio.ServicerContext[bytes, bytes], *, starting: bool) -> None:
        """Answer from the snapshot until the hub can be asked, and Envoy has all that the snapshot has."""
        store = ResourceStore()
        group = store.group("")
        everything = [
            ResourceChange(kind, name, resource)
            for kind in ResourceType
            for name, resource in self._snapshot.of(kind).items()
        ]
        group.apply(everything)
        store.publish()
        wake = asyncio.Event()
        session = Session(group=group, node_id="", wake=wake.set)
        answered: set[ResourceType] = set()

        def take(raw: bytes) -> None:
            request = self._schema.read_request(raw)
            kind = _KINDS.get(request.type_url)
            if kind is None:
                return
            # What Envoy has is never older than the snapshot: nothing is sent in its place.
            group.apply(
                [
                    ResourceChange(kind, name, EncodedResource(version=version, field=b""))
                    for name, version in request.initial_versions.items()
                    if self._snapshot.version(kind, name) != version
                ]
            )
            if request.nonce:
                answered.add(kind)
            session.on_request(request, now=time.monotonic())
            wake.set()  # the last acknowledgement leaves nothing to send, and ends this

        async def read() -> None:
            try:
                take(first)
                async for message in messages_of(context.read):
                    take(message)
            except ValueError as error:
                log.warning("envoy does not speak xDS; closing its stream", error=str(error))
            finally:
                wake.set()

        async def look() -> None:
            while True:
                await self._link.changed()
                wake.set()

        reader = watched("stream of envoy", read(), expected=aio.BaseError)
        looker = watched("connection to the hub", look())
        try:
            while not reader.done():
                wake.clear()
                for message in session.pump(now=time.monotonic()):
                    await context.write(message)
                if self._link.usable and session.synced and (not starting or ResourceType.LISTENER in answered):
                    return
                deadline_s = session.deadline()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        None if deadline_s is None else max(0.01, deadline_s - time.monotonic())
                    ):
                        await wake.wait()
        finally:
            await end(reader, looker)
            session.close()


class _Response(msgspec.Struct):
    """The changes in a response; None is a removal."""

    kind: ResourceType
    resources: dict[str, EncodedResource | None]


class StreamTap:
    """Observer of one stream to the hub: resources that Envoy acknowledges go into the snapshot."""

    def __init__(
        self, snapshot: XdsSnapshot, schema: Schema, refused: dict[str, str], on_change: Callable[[], None]
    ) -> None:
        self.in_flight: dict[str, _Response] = {}
        self._snapshot = snapshot
        self._schema = schema
        self._refused = refused
        self._on_change = on_change

    def response(self, raw: bytes) -> None:
        """Read a response of the hub, which Envoy has not acknowledged yet."""
        kind = _KINDS.get(_string(raw, _RESPONSE_TYPE))
        if kind is None:
            return
        resources: dict[str, EncodedResource | None] = {}
        for content in fields_of(raw, _RESOURCES):
            field = header(_RESOURCES, len(content)) + content
            resources[_string(content, _NAME)] = EncodedResource(version=_string(content, _VERSION), field=field)
        for name in fields_of(raw, _REMOVED):
            resources[name.decode()] = None
        self.in_flight[_string(raw, _RESPONSE_NONCE)] = _Response(kind, resources)

    def request(self, raw: bytes) -> bytes:
        """Read a request of Envoy; return the request to forward to the hub."""
        try:
            kind = _KINDS.get(_string(raw, _TYPE))
            if kind is None:
                return raw
            self._answered(raw)
            if kind not in _WILDCARD:
                for name in fields_of(raw, _UNSUBSCRIBE):
                    self._snapshot.remove(kind, name.decode())
            # The request with the version ``unknown`` for each resource that the snapshot does not have so.
            entries = {entry: _string(entry, 1) for entry in fields_of(raw, _INITIAL)}
            if all(self._snapshot.version(kind, name) == _string(entry, 2) for entry, name in entries.items()):
                return raw
            parts: list[bytes] = []
            for field in range(1, _LAST + 1):
                for content in fields_of(raw, field):
                    name = entries.get(content) if field == _INITIAL else None
                    if name is not None and self._snapshot.version(kind, name) != _string(content, 2):
                        parts.append(delimited(field, text(1, name) + text(2, _UNKNOWN)))
                    else:
                        parts.append(delimited(field, content))
            return b"".join(parts)
        except ValueError:
            return raw  # the hub says what is wrong with it

    def _answered(self, raw: bytes) -> None:
        response = self.in_flight.pop(_string(raw, _NONCE), None)
        if response is None:
            return
        if next(fields_of(raw, _ERROR), None) is None:
            for name, resource in response.resources.items():
                if resource is None:
                    self._snapshot.remove(response.kind, name)
                else:
                    self._snapshot.put(response.kind, name, resource)
                if response.kind is ResourceType.LISTENER:
                    self._refused.pop(name, None)
        elif response.kind is ResourceType.LISTENER and len(response.resources) == 1:
            message = self._schema.read_request(raw).error or ""
            self._refused.update(dict.fromkeys(response.resources, message))
        if response.kind is ResourceType.LISTENER or not self.in_flight:
            self._on_change()


def _string(message: bytes, field: int) -> str:
    return next((content.decode() for content in fields_of(message, field)), "")
