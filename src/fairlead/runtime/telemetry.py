"""Metrics of the runtime, and the HTTP endpoints that serve them with readiness and liveness.

In: a prometheus registry, and a function that lists why we are not ready. Out: /readyz, /livez, /metrics.
Never: listens on anything but loopback unless configured to, or shows more than reasons and numbers.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from fairlead.errors import BadConfiguration
from fairlead.model.host_port import host_port
from fairlead.runtime.background import TASK_FAILURES
from fairlead.runtime.connections import BoundedConnections
from fairlead.runtime.hosts import is_loopback, is_this_machine

#: Streams end at once; what does not end by then is cut.
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
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Return the port listened on: the one asked for, or with 0 the one the system gave."""
        if self._listening and self._listening.sockets:
            return int(self._listening.sockets[0].getsockname()[1])
        return self._port

    @property
    def url(self) -> str:
        """Return the address for a browser."""
        return f"http://{host_port(self._host, self.port)}"

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            BadConfiguration: the port is taken, or the address is not ours.
        """
        connections = BoundedConnections()
        app = web.Application(middlewares=[connections.handling()])
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/metrics", self._metrics)
        self._extend(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        connections.protocols = runner.server
        try:
            loop = asyncio.get_running_loop()
            self._listening = await loop.create_server(connections, self._host, self._port)
        except OSError as error:
            await runner.cleanup()
            raise BadConfiguration(_why_not(self._host, self._port, error), detail=str(error)) from error
        self._runner = runner

    async def aclose(self) -> None:
        """Stop listening."""
        if self._listening:
            self._listening.close()
            self._listening = None
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

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
        self._check_host(request)
        if self._refresh is not None:
            await self._refresh()
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _check_host(self, request: web.Request) -> None:
        """Refuse a host name that is not this machine's where only this machine is answered (see ``hosts``)."""
        if is_loopback(self._host) and not is_this_machine(request.headers.get("Host", "")):
            raise web.HTTPForbidden(text=f"ask for http://127.0.0.1:{self.port} or http://localhost:{self.port}\n")


def _why_not(host: str, port: int, error: OSError) -> str:
    place = host_port(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"The status page cannot listen on {place}: the port is in use. Choose another, or stop what uses it."
    if error.errno == errno.EACCES:
        return f"The status page may not listen on {place}: ports below 1024 need privileges. Choose a higher one."
    return f"The status page cannot listen on {place}: is this an address of this machine?"
