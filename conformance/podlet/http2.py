"""One HTTP/2 connection, for HTTP and for gRPC.

In: a stream. Out: answers of an HTTPEcho, or of a GRPCEcho with trailers. Source: RFC 9113, gRPC over HTTP/2.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from conformance.podlet.connection import peer_name, reset
from conformance.podlet.grpc_echo import GRPCEcho
from conformance.podlet.http_echo import HTTPEcho
from conformance.podlet.requests import Headers, Request

log = logging.getLogger("podlet")


class HTTP2:
    """The connection; ``run`` it. Requests are answered when their body is complete, side by side."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        echo: HTTPEcho | None,
        grpc: GRPCEcho | None,
        tls: dict[str, Any] | None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._echo = echo
        self._grpc = grpc
        self._tls = tls
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self._connection = h2.connection.H2Connection(config)
        self._open: dict[int, Headers] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, first: bytes) -> None:
        """Serve to the end; ``first`` is what was read already."""
        self._connection.initiate_connection()
        self._flush()
        try:
            data = first or await self._reader.read(65_536)
            while data:
                for event in self._connection.receive_data(data):
                    self._event(event)
                self._flush()
                await self._writer.drain()
                data = await self._reader.read(65_536)
        except h2.exceptions.ProtocolError as error:
            log.debug("HTTP/2: %s", error)
        finally:
            for task in self._tasks:
                task.cancel()

    def _flush(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(self._connection.data_to_send())

    def _event(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived(stream_id=int(stream)):
                self._open[stream] = [(_text(key), _text(value)) for key, value in event.headers or ()]
            case h2.events.DataReceived(stream_id=int(stream)):
                self._connection.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            case h2.events.StreamReset(stream_id=int(stream)):
                self._open.pop(stream, None)
            case h2.events.StreamEnded(stream_id=int(stream)) if stream in self._open:
                task = asyncio.create_task(self._answer(stream, self._open.pop(stream)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _:
                pass

    async def _answer(self, stream: int, headers: Headers) -> None:
        pseudo = {key: value for key, value in headers if key.startswith(":")}
        plain = [(key, value) for key, value in headers if not key.startswith(":")]
        host = pseudo.get(":authority") or dict(plain).get("host", "")
        peer = peer_name(self._writer)
        request = Request(pseudo[":method"], pseudo[":path"], host, "HTTP/2.0", plain, peer, self._tls)
        try:
            if self._grpc is not None:
                self._send_grpc(stream, *self._grpc.handle(request))
            elif self._echo is not None and not await self._send_http(stream, request, self._echo):
                reset(self._writer)
                return
            self._flush()
            await self._writer.drain()
        except (h2.exceptions.ProtocolError, ConnectionError) as error:
            log.debug("HTTP/2 answer: %s", error)

    def _send_grpc(self, stream: int, message: bytes | None, status: int, text: str) -> None:
        trailers = [("grpc-status", str(status)), ("grpc-message", text)]
        head = [(":status", "200"), ("content-type", "application/grpc")]
        if message is None:
            self._connection.send_headers(stream, head + trailers, end_stream=True)
            return
        self._connection.send_headers(stream, head)
        self._connection.send_data(stream, struct.pack(">BI", 0, len(message)) + message)
        self._connection.send_headers(stream, trailers, end_stream=True)

    async def _send_http(self, stream: int, request: Request, echo: HTTPEcho) -> bool:
        """Send the answer; return False when the connection is to be reset instead."""
        answer = await echo.handle(request)
        if answer.reset:
            return False
        head = [(":status", str(answer.status)), *((key.lower(), value) for key, value in answer.headers)]
        empty = not answer.body or request.method == "HEAD"
        self._connection.send_headers(stream, head, end_stream=empty)
        if not empty:
            self._connection.send_data(stream, answer.body, end_stream=True)
        return True


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
