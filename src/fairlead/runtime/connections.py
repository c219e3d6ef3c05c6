"""A bound on the connections of a small web server, so that clients that say nothing take no file from the process.

    opened ─► no request under way ─► a request is handled ─► no request under way ─► ...
                    └── ended after FIRST_S or KEPT_S, or as the oldest where MAX_CONNECTIONS are open

In: a factory of protocols, and the requests of an aiohttp application. Out: a factory for ``loop.create_server`` and a
middleware. Never: ends a connection whose request is under way.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fairlead.errors import Bug

#: Open at once, or a quarter of the files that this process may have, if that is less.
MAX_CONNECTIONS = 1024
#: Until the first request is there, and between two: as long as a scraper keeps a connection.
FIRST_S, KEPT_S = 15.0, 120.0


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
        """Count a connection; where there are too many, end the one that has had no request for longest."""
        if len(self._open) >= _most():
            oldest = next(iter(self._idle), transport)
            self.closed(oldest)
            oldest.abort()
            if oldest is transport:
                return
        self._open.add(transport)
        self._wait(transport, FIRST_S)

    def closed(self, transport: asyncio.Transport) -> None:
        """Count a connection no more."""
        self._open.discard(transport)
        if (ends := self._idle.pop(transport, None)) is not None:
            ends.cancel()

    def handling(self) -> Middleware:
        """Return the middleware that says which connections have a request under way."""

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
