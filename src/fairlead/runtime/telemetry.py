"""Metrics of the runtime, and the HTTP endpoints that serve them with readiness and liveness.

In: a prometheus registry, and a function that lists why we are not ready. Out: /readyz, /livez, /metrics.
Never: listens on anything but loopback unless configured to, or shows more than reasons and numbers.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import ssl
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from fairlead.errors import BadConfiguration, Bug
from fairlead.model.in_words import host_port
from fairlead.runtime.background import TASK_FAILURES
from fairlead.runtime.tls import is_loopback, is_this_machine

#: Streams end at once; connections that do not end in time are closed.
_SHUTDOWN_S = 1.0
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """The metrics of queues and reconcile loops, on one registry; make one per registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.registry.register(TASK_FAILURES)
        self.reconcile_total = Counter(
            "fairlead_reconcile",
            "Finished reconciles; result is ok, later, retry, wait, terminal or bug.",
            ["controller", "result"],
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "fairlead_reconcile_seconds",
            "How long one reconcile took.",
            ["controller"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "fairlead_queue_depth", "Keys that are ready to be worked on.", ["controller"], registry=self.registry
        )


class StatusServer:
    """Serve /readyz (503 and one reason per line while not ready), /livez and /metrics.

    ``extend`` adds more routes. ``refresh`` is awaited before metrics are counted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        readiness: Callable[[], list[str]],
        extend: Callable[[web.Application], None] = lambda _app: None,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._host = host or "127.0.0.1"
        self._port = port
        self._registry = registry
        self._readiness = readiness
        self._extend = extend
        self._refresh = refresh
        self._server: BoundedServer | None = None

    @property
    def port(self) -> int:
        """Return the port listened on: the one asked for, or with 0 the one the system gave."""
        return self._server.port if self._server is not None else self._port

    @property
    def url(self) -> str:
        """Return the address for a browser."""
        return f"http://{host_port(self._host, self.port)}"

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            BadConfiguration: the port is taken, or the address is not ours.
        """
        server = BoundedServer(self._host, self._port)
        server.app.router.add_get("/readyz", self._readyz)
        server.app.router.add_get("/livez", self._livez)
        server.app.router.add_get("/metrics", self._metrics)
        self._extend(server.app)
        try:
            await server.start()
        except OSError as error:
            raise BadConfiguration(_why_not(self._host, self._port, error), detail=str(error)) from error
        self._server = server

    async def aclose(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.aclose()
            self._server = None

    async def run(self) -> None:
        """Listen until cancelled."""
        async with self:
            await asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _readyz(self, _request: web.Request) -> web.Response:
        reasons = self._readiness()
        if reasons:
            return web.Response(status=503, text="\n".join(reasons) + "\n")
        return web.Response(text="ok\n")

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        # Refuse a host name that is not this machine's where only this machine is answered (see ``hosts``).
        if is_loopback(self._host) and not is_this_machine(request.headers.get("Host", "")):
            raise web.HTTPForbidden(text=f"ask for http://127.0.0.1:{self.port} or http://localhost:{self.port}\n")
        if self._refresh is not None:
            await self._refresh()
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _why_not(host: str, port: int, error: OSError) -> str:
    place = host_port(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"The status page cannot listen on {place}: the port is in use. Choose another, or stop what uses it."
    if error.errno == errno.EACCES:
        return f"The status page may not listen on {place}: ports below 1024 need privileges. Choose a higher one."
    return f"The status page cannot listen on {place}: is this an address of this machine?"


#: Open at once, or a quarter of the files that this process may have, if that is less.
MAX_CONNECTIONS = 1024
#: Until the first request is there, and between two: as long as a scraper keeps a connection.
FIRST_S, KEPT_S = 15.0, 120.0


#: Turns of the event loop from the acceptance of a connection to its protocol.
_ACCEPT_TURNS = 3


async def stop_listening(server: asyncio.Server) -> None:
    """Accept nothing more, and close ``server`` when what it has accepted has its protocol.

    Python 3.11 loses a connection, open, whose server is closed between the two.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(_ACCEPT_TURNS):
        await asyncio.sleep(0)
    server.close()


class BoundedConnections:
    """The connections of one server; ``protocols``, set before the first, makes the protocol of each."""

    def __init__(self) -> None:
        self.protocols: Callable[[], asyncio.Protocol] | None = None
        self._open: set[asyncio.Transport] = set()
        #: Those without a request under way, with what ends each; the one that has none for longest comes first.
        self._idle: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        if self.protocols is None:
            raise Bug("the protocol of connections is not set")
        return _Bounded(self.protocols(), self)

    def opened(self, transport: asyncio.Transport) -> None:
        """Count a connection; if there are too many, close the one that has been idle for longest."""
        if len(self._open) >= _most():
            oldest = next(iter(self._idle), transport)
            self.closed(oldest)
            oldest.abort()
            if oldest is transport:
                return
        self._open.add(transport)
        self._wait(transport, FIRST_S)

    def closed(self, transport: asyncio.Transport) -> None:
        """Stop counting a connection."""
        self._open.discard(transport)
        if (ends := self._idle.pop(transport, None)) is not None:
            ends.cancel()

    def handling(self) -> Middleware:
        """Return the middleware that tracks which connections have a request in progress."""

        @web.middleware
        async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
            transport = request.transport
            if transport is None or transport not in self._open:
                return await handler(request)
            if (ends := self._idle.pop(transport, None)) is not None:
                ends.cancel()
            try:
                return await handler(request)
            finally:
                if transport in self._open:
                    self._wait(transport, KEPT_S)

        return handle

    def _wait(self, transport: asyncio.Transport, seconds: float) -> None:
        self._idle[transport] = asyncio.get_running_loop().call_later(seconds, transport.abort)


class _Bounded(asyncio.Protocol):
    """Passes a connection on to its protocol, and counts it."""

    def __init__(self, inner: asyncio.Protocol, connections: BoundedConnections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.opened(transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._connections.closed(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 4)


class BoundedServer:
    """An HTTP server at one address with a bounded number of connections; routes are added to ``app`` before it starts.

    ``middlewares`` come after the one that bounds connections, ``most_bytes`` is the size of a body.
    """

    def __init__(
        self, host: str, port: int, *, middlewares: Sequence[Middleware] = (), most_bytes: int = 1024 * 1024
    ) -> None:
        self._host = host
        self._port = port
        self._connections = BoundedConnections()
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self.app = web.Application(middlewares=[self._connections.handling(), *middlewares], client_max_size=most_bytes)

    @property
    def port(self) -> int:
        """Return the port listened on: the one asked for, or with 0 the one the system gave."""
        if self._listening and self._listening.sockets:
            return int(self._listening.sockets[0].getsockname()[1])
        return self._port

    async def start(self, tls: ssl.SSLContext | None = None, *, handshake_s: float = 60.0) -> None:
        """Begin to listen.

        Raises:
            OSError: the port is taken, or the address is not of this machine.
        """
        runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        self._connections.protocols = runner.server
        timeout_s = handshake_s if tls is not None else None
        try:
            loop = asyncio.get_running_loop()
            self._listening = await loop.create_server(
                self._connections, self._host, self._port, ssl=tls, ssl_handshake_timeout=timeout_s
            )
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner

    async def aclose(self) -> None:
        """Stop listening."""
        if self._listening:
            await stop_listening(self._listening)
            self._listening = None
        if self._runner:
            await self._runner.cleanup()
            self._runner = None
