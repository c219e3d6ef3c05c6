"""HTTP/1.1 on one connection, which may turn out to be HTTP/2 (prior knowledge or ALPN) or become a WebSocket.

In: a stream. Out: answers of an HTTPEcho or a GRPCEcho. Source: RFC 9112, RFC 9113.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from http import HTTPStatus
from typing import Any

from conformance.podlet.connection import peer_name, reset, tls_of
from conformance.podlet.grpc_echo import GRPCEcho
from conformance.podlet.http2 import HTTP2
from conformance.podlet.http_echo import HTTPEcho
from conformance.podlet.requests import TEXT, Answer, Request
from conformance.podlet.websocket import websocket

_CLOSED = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ssl.SSLError, TimeoutError)


class HTTPServer:
    """Both versions of HTTP on one socket."""

    def __init__(self, *, echo: HTTPEcho | None = None, grpc: GRPCEcho | None = None, only_http2: bool = False) -> None:
        self._echo = echo
        self._grpc = grpc
        self._only_http2 = only_http2

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        try:
            tls = tls_of(writer)
            http2 = HTTP2(reader, writer, echo=self._echo, grpc=self._grpc, tls=tls)
            if tls and tls.get("negotiatedProtocol") == "h2":
                await http2.run(b"")
                return
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"PRI * HTTP/2.0"):
                    await http2.run(head)
                    return
                if not await self._answer(head, reader, writer, tls):
                    return
        except _CLOSED:
            pass
        finally:
            writer.close()

    async def _answer(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: dict[str, Any] | None
    ) -> bool:
        """Answer one request; return False when the connection is done."""
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, protocol = first.split(" ", 2)
        headers = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
        fields = {key.lower(): value for key, value in headers}
        if fields.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await _skip_body(fields, reader)
        request = Request(method, target, fields.get("host", ""), protocol, headers, peer_name(writer), tls)
        if self._echo is None or self._only_http2:
            answer = Answer(400, TEXT, b"Expected h2c request")
        elif request.path == "/ws" and fields.get("upgrade", "").lower() == "websocket":
            await websocket(fields.get("sec-websocket-key", ""), reader, writer)
            return False
        else:
            answer = await self._echo.handle(request)
        if answer.reset:
            reset(writer)
            return False
        close = fields.get("connection", "").lower() == "close" or protocol == "HTTP/1.0"
        writer.write(_encoded(answer, with_body=method != "HEAD", close=close))
        await writer.drain()
        return not close


async def _skip_body(fields: dict[str, str], reader: asyncio.StreamReader) -> None:
    if "chunked" not in fields.get("transfer-encoding", "").lower():
        await reader.readexactly(int(fields.get("content-length", 0) or 0))
        return
    while size := int((await reader.readline()).split(b";")[0], 16):
        await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass


def _encoded(answer: Answer, *, with_body: bool, close: bool) -> bytes:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "status code"
    lines = [f"HTTP/1.1 {answer.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    lines.append("Date: " + dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"))
    if answer.status not in (204, 304):
        lines.append(f"Content-Length: {len(answer.body)}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (answer.body if with_body else b"")
