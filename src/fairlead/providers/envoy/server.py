"""The gRPC server that Envoys connect to.

In: gRPC streams: delta ADS, and HDS for what proxies see of the health of targets. Out: the responses of ``Session``
and ``HealthStream``, written as they come. Raw bytes both ways: one parse for a request, none for a response. A unix
socket carries no identity but the file system's; over TCP there must be mutual TLS, and the node group is then the one
in the client certificate's SPIFFE URI (``identity``), not the one it claims. Proxy machines connect to a second port,
which ``open_to_machines`` opens.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, cast

import grpc
import structlog
from grpc import aio

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.fleet import ServerCertificate, group_from_certificate, is_local, peer_place
from fairlead.providers.envoy.health_board import HealthBoard, HealthStream
from fairlead.providers.envoy.resources import DeltaRequest, Schema
from fairlead.providers.envoy.session import Counters, Session
from fairlead.providers.envoy.store import ResourceStore
from fairlead.runtime.background import watched

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_HEALTH_SERVICE = "envoy.service.health.v3.HealthDiscoveryService"
_OPTIONS = [
    # By default gRPC cancels streams at random when more than 1,000 wait to be accepted at once.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.max_send_message_length", 256 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Two hubs on one port would each serve half of the proxies in silence.
    ("grpc.so_reuseport", 0),
]

#: Any client that reaches the port may begin a handshake, and each is a file: by default it lasts two minutes.
HANDSHAKE_MS = 10_000
#: The interval between checks for silent proxies.
_LOOK_S = 2.0

_log = structlog.get_logger(__name__)

#: Returns why a proxy with this node group and certificate (PEM) is not served; empty when it is.
Admission = Callable[[str, bytes], Awaitable[str]]


async def messages_of(read: Callable[[], Awaitable[object]]) -> AsyncIterator[bytes]:
    """Yield the messages of a gRPC stream until its end."""
    while isinstance(message := await read(), bytes):
        yield message


async def first_request(
    context: aio.ServicerContext[bytes, bytes], read: Callable[[bytes], DeltaRequest]
) -> tuple[bytes, DeltaRequest] | None:
    """Return the first request of a stream, raw and read; None when there is none. One that is not xDS ends it."""
    if (first := await anext(messages_of(context.read), None)) is None:
        return None
    try:
        return first, read(first)
    except ValueError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


class XdsServer:
    """The gRPC end of the control plane.

    ``address`` is ``unix:<path>`` or ``<host>:<port>`` (port 0: any free one, then in ``port``). ``certificate`` turns
    on mutual TLS.
    """

    def __init__(
        self,
        *,
        store: ResourceStore,
        schema: Schema,
        address: str,
        certificate: ServerCertificate | None = None,
        health: HealthBoard | None = None,
        counters: Counters | None = None,
        on_progress: Callable[[Session, Iterable[str]], None] | None = None,
        on_proxies: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.port = 0
        self.counters = counters or Counters()
        self.sessions: list[Session] = []
        self._store = store
        self._schema = schema
        self._address = address
        self._certificate = certificate
        self._health = health or HealthBoard(schema=schema)
        self._on_progress = on_progress
        self._on_proxies = on_proxies or (lambda _group: None)
        self._clock = clock
        self._server: aio.Server | None = None
        self._machines: aio.Server | None = None
        self._admission: Admission | None = None
        #: The task that reads each open stream; the stream ends with it.
        self._readers: dict[asyncio.Task[None], str] = {}

    async def start(self) -> None:
        """Listen; an unavailable address is ``BadConfiguration``."""
        if self._certificate is None and not is_local(self._address):
            raise BadConfiguration(
                f"xDS address {self._address!r} can be reached from other machines, so it needs mutual TLS. "
                "Give a certificate, or use a unix socket or a loopback address"
            )
        address = f"{self._address.rpartition(':')[0]}:{self.port}" if self.port > 1 else self._address
        self._server, self.port = await self._listen(address, self._certificate)

    async def open_to_machines(self, address: str, certificate: ServerCertificate, admission: Admission) -> int:
        """Listen at ``host:port`` for proxy machines, too; return the port.

        Raises:
            BadConfiguration: the address is unavailable.
        """
        self._admission = admission
        self._machines, port = await self._listen(address, certificate)
        return port

    async def close_to_machines(self) -> None:
        """Stop listening for proxy machines."""
        server, self._machines = self._machines, None
        if server is not None:
            await server.stop(grace=0)

    def end_streams(self, group: str) -> None:
        """End the streams of a node group; its proxies connect again, if they may."""
        for reader in [reader for reader, name in self._readers.items() if name == group]:
            reader.cancel()

    async def _listen(self, address: str, certificate: ServerCertificate | None) -> tuple[aio.Server, int]:
        server = aio.server(options=[*_OPTIONS, ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS)])
        handler = grpc.stream_stream_rpc_method_handler(cast("Any", self._stream))
        methods = {"DeltaAggregatedResources": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        handler = grpc.stream_stream_rpc_method_handler(cast("Any", self._health_stream))
        methods = {"StreamHealthCheck": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_HEALTH_SERVICE, methods),))
        try:
            if certificate is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, certificate.credentials())
        except RuntimeError as error:
            raise BadConfiguration(
                f"cannot listen for proxies on {address!r}: is another hub running here?", detail=str(error)
            ) from error
        await server.start()
        return server, port

    async def disconnect(self) -> None:
        """End all connections, and listen again at the same port: proxies come back, or find another hub."""
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """End all streams and stop listening; the proxies continue with what they have."""
        await self.close_to_machines()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=0)

    async def _stream(self, _requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        begun = await first_request(context, self._schema.read_request)
        if begun is None:
            return
        _, request = begun
        group_name = await self._group_of(request, context)
        wake = asyncio.Event()
        session = Session(
            group=self._store.group(group_name),
            node_id=request.node_id,
            counters=self.counters,
            on_progress=self._on_progress,
            wake=wake.set,
        )
        session.reports_health = request.reports_health
        if request.statistics_port:
            session.statistics = peer_place(context.peer(), request.statistics_port)
        self.sessions.append(session)
        self.counters.streams += 1
        _log.info("proxy connected", proxy=session.node_id, group=group_name)
        reader = self._reader(self._read(session, context, wake), group_name, session.node_id)
        try:
            session.on_request(request, now=self._clock())
            self._on_proxies(group_name)
            await self._write(session, context, wake, reader)
        finally:
            reader.cancel()
            session.close()
            self.sessions.remove(session)
            self.counters.streams -= 1
            _log.info("proxy disconnected", proxy=session.node_id, group=group_name)
            self._on_proxies(group_name)

    async def _group_of(self, request: DeltaRequest, context: aio.ServicerContext[bytes, bytes]) -> str:
        verified = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
        if b"ssl" not in verified.get("transport_security_type", ()):
            return request.node_cluster
        group_name = group_from_certificate(verified)
        if not group_name:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate names no node group")
        if self._admission is not None:
            certificate = next(iter(verified.get("x509_pem_cert", ())), b"")
            if refused := await self._admission(group_name, certificate):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, refused)
        return group_name

    async def _health_stream(self, _requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        begun = await first_request(context, self._schema.read_health_request)
        if begun is None:
            return
        _, request = begun
        group_name = await self._group_of(request, context)
        stream = self._health.open(group_name, request.node_id)
        wake = asyncio.Event()
        stream.wake = wake.set
        reading = self._read_health(group_name, stream, context, wake)
        reader = self._reader(reading, group_name, request.node_id)
        watcher = watched("reports of a proxy", self._watch_health(stream), proxy=request.node_id, group=group_name)
        try:
            while not reader.done():
                wake.clear()
                specifier = stream.pump(now=self._clock())
                if specifier is not None:
                    await context.write(specifier)
                await wake.wait()
        finally:
            watcher.cancel()
            reader.cancel()
            self._health.close(group_name, stream)

    async def _watch_health(self, stream: HealthStream) -> None:
        """Notice silent proxies; in a task of its own, since a write to a hanging stream does not end."""
        while True:
            began_s = self._clock()
            await asyncio.sleep(_LOOK_S)
            now_s = self._clock()
            if now_s - began_s > 2 * _LOOK_S:
                # This process was suspended: messages that the proxy sent in the meantime have not been read yet.
                stream.hear(now=now_s)
            # What it acknowledges it takes over in the thread that reports.
            acks_s = [session.last_ack_at or 0.0 for session in self.sessions if session.node_id == stream.node_id]
            if stream.is_overdue(now=now_s, acknowledged_s=max(acks_s, default=0.0)):
                self._health.fall_silent(stream)

    async def _read_health(
        self, group_name: str, stream: HealthStream, context: aio.ServicerContext[bytes, bytes], wake: asyncio.Event
    ) -> None:
        try:
            async for message in messages_of(context.read):
                try:
                    self._health.report(group_name, stream, message, now=self._clock())
                except ValueError as error:
                    _log.warning("proxy reports health in a way that cannot be read; closing", error=str(error))
                    return
        finally:
            wake.set()

    def _reader(self, reading: Coroutine[Any, Any, None], group: str, proxy: str) -> asyncio.Task[None]:
        """Return the task that reads a stream; a closed or broken stream is an ordinary end."""
        reader = watched("stream of a proxy", reading, expected=aio.BaseError, proxy=proxy, group=group)
        self._readers[reader] = group
        reader.add_done_callback(self._readers.pop)
        return reader

    async def _read(self, session: Session, context: aio.ServicerContext[bytes, bytes], wake: asyncio.Event) -> None:
        try:
            async for message in messages_of(context.read):
                try:
                    request = self._schema.read_request(message)
                except ValueError as error:
                    _log.warning("proxy does not speak xDS; closing its stream", error=str(error))
                    return
                if request.error is not None:
                    kind = request.type_url.rpartition(".")[2]
                    _log.warning("proxy refused", proxy=session.node_id, type=kind, error=request.error)
                session.on_request(request, now=self._clock())
        finally:
            wake.set()

    async def _write(
        self,
        session: Session,
        context: aio.ServicerContext[bytes, bytes],
        wake: asyncio.Event,
        reader: asyncio.Task[None],
    ) -> None:
        while not reader.done():
            wake.clear()
            for message in session.pump(now=self._clock()):
                await context.write(message)
            deadline = session.deadline()
            if deadline is None:
                await wake.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, deadline - self._clock())):
                    await wake.wait()
