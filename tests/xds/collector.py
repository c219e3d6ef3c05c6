"""A collector of OpenTelemetry, and many requests for it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable
from typing import Any

import grpc
from aiohttp import web

from fairlead.model.desired import FrontendSpec
from fairlead.model.http import Rule
from fairlead.providers.envoy.settings import ACCESS_LOG, ACCESS_LOG_SINK
from tests.xds.http_world import prefix
from tests.xds.world import TIMEOUT_S

_CONNECTIONS = 16
#: A rule without a backend answers 500.
BROKEN = Rule(matches=(prefix("/broken"),))
#: Filters of access logs that are valid.
FILTERS = (
    "response.code >= 400",
    "request.path.startsWith('/api/v1') && (response.code >= 500 || request.host == 'a.example')",
    " !( request.useragent.contains( 'bot' ) )&&request.method!='GET'",
    "request.headers['x-tenant'] == 'blue' || request.url_path.endsWith('.html') || request.protocol == 'HTTP/2'",
    "((request.total_size > 10)) && response.total_size<=20",
    "request.path != ''",
)


async def ask_many(spec: FrontendSpec, paths: list[str]) -> None:
    """Send requests over some connections that stay open, and read all answers."""

    async def over_one(part: list[str]) -> None:
        reader, writer = await asyncio.open_connection(spec.address, 80)
        for path in part:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-length: 0" in head.lower()
        writer.close()

    await asyncio.gather(*(over_one(paths[start::_CONNECTIONS]) for start in range(_CONNECTIONS)))


class _HttpServer:
    """A server of OTLP over HTTP, started and stopped as one of gRPC."""

    def __init__(self, export: Callable[[str, bytes], None], tls: ssl.SSLContext | None = None) -> None:
        self._export = export
        self._tls = tls
        # Until it is started, connections are refused.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        app = web.Application()
        app.router.add_post("/{path:.*}", self._post)
        self._runner = web.AppRunner(app)

    async def _post(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        self._export(request.path, await request.read())
        return web.Response(content_type="application/x-protobuf")

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, ssl_context=self._tls).start()

    async def stop(self, _grace: None) -> None:
        await self._runner.cleanup()


class Collector:
    """A collector of OTLP that keeps what it is sent."""

    def __init__(
        self,
        service: str = "logs.v1.LogsService",
        credentials: grpc.ServerCredentials | None = None,
        *,
        over_http: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.text = b""
        self.requests: list[bytes] = []
        #: The paths of requests over HTTP.
        self.paths: set[str] = set()
        self.server: Any
        if over_http:
            self.server = _HttpServer(self._keep, tls)
            self.port = self.server.port
            self.sink = f"http://127.0.0.1:{self.port}"
            return
        self.server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        service = f"opentelemetry.proto.collector.{service}"
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": handler})])
        self.port = (
            self.server.add_insecure_port("127.0.0.1:0")
            if credentials is None
            else self.server.add_secure_port("127.0.0.1:0", credentials)
        )
        self.sink = f"otlp://127.0.0.1:{self.port}"

    def _keep(self, path: str, request: bytes) -> None:
        self.paths.add(path)
        self.text += request
        self.requests.append(request)

    async def _export(self, request: bytes, _context: object) -> bytes:
        self._keep("", request)
        return b""

    def gets(self, **log: Any) -> dict[str, str]:
        return {ACCESS_LOG: json.dumps(log), ACCESS_LOG_SINK: self.sink}

    async def until(self, enough: Callable[[bytes], bool]) -> None:
        """Wait until it has enough; Envoy sends what it has every second."""
        async with asyncio.timeout(TIMEOUT_S):
            while not enough(self.text):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
