"""Requests to an API server in the same process, without sockets: it replaces aiohttp below the kube client.

In: the requests of ``fairlead.kube.transport``. Out: what the handler of the server answers: its routing, access rules,
validation, storage and encoding are those of every request, and bodies are bytes on both sides. Only the parser of
HTTP and the sockets are left out. A server that does not run here, or has stopped, is asked over the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import yarl
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from fairlead.kube import transport
from podless import ApiServer
from podless.credentials import load_tls

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
#: The handlers of the servers that run in this process, and their loops, by host and port.
_handlers: dict[str, tuple[asyncio.AbstractEventLoop, Handler]] = {}
#: What a watch holds for a client that does not read; then its server waits, as for a full socket.
_WINDOW_BYTES = 2**18


def install(patch: Any) -> None:
    """Answer requests to the API servers of this process in this process, as long as ``patch`` lasts."""
    listen, stop = ApiServer._listen, ApiServer.stop

    async def listen_here(server: ApiServer, parts: Any, identity: Any) -> Any:
        connections = await listen(server, parts, identity)
        answer(server.url, parts.handler)
        return connections

    async def stop_here(server: ApiServer) -> None:
        if server.url:
            answer(server.url, None)
        await stop(server)

    patch.setattr(ApiServer, "_listen", listen_here)
    patch.setattr(ApiServer, "stop", stop_here)
    patch.setattr("podless.server.load_tls", _tls_of_process)
    patch.setattr(transport, "aiohttp", _Aiohttp())


def installed() -> bool:
    """Return whether requests are answered in this process."""
    return transport.aiohttp is not aiohttp


def answer(url: str, handler: Handler | None) -> None:
    """Have requests to the server at ``url`` answered by its ``handler``, or over the network again if that is None."""
    _handlers.pop(yarl.URL(url).authority, None)
    if handler is not None:
        _handlers[yarl.URL(url).authority] = asyncio.get_running_loop(), handler


_tls_of_hosts: dict[tuple[str, ...], Any] = {}


def _tls_of_process(data_dir: Path | None, hosts: list[str], now: float) -> Any:
    """Return one certificate for all servers of these hosts that keep nothing: few tests connect to it."""
    if data_dir is not None:
        return load_tls(data_dir, hosts, now)
    if tuple(hosts) not in _tls_of_hosts:
        _tls_of_hosts[tuple(hosts)] = load_tls(None, hosts, now)
    return _tls_of_hosts[tuple(hosts)]


class _Aiohttp:
    """What the kube client sees as the module ``aiohttp``."""

    def __init__(self) -> None:
        self.ClientSession = _Session
        self.TCPConnector = dict  # of a session that may need none

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(aiohttp, name)
        return value


class _Session:
    """A client session; its connections are made at the first request to a server that does not run here."""

    def __init__(self, *, connector: Mapping[str, Any], **options: Any) -> None:
        self._connector, self._options = connector, options
        self._network: aiohttp.ClientSession | None = None
        self._open = set[_Answer]()

    def request(self, method: str, url: yarl.URL, **options: Any) -> Any:
        loop, handler = _handlers.get(url.authority, (None, None))
        if handler is not None and url.scheme == "http" and loop is asyncio.get_running_loop():
            return _Sending(self._send(handler, method, url, **options))
        if self._network is None:
            self._network = aiohttp.ClientSession(connector=aiohttp.TCPConnector(**self._connector), **self._options)
        return self._network.request(method, url, **options)

    async def close(self) -> None:
        for answer in list(self._open):
            answer.break_off(aiohttp.ClientConnectionError("Connection closed"))
        if self._network is not None:
            await self._network.close()

    async def _send(
        self,
        handler: Handler,
        method: str,
        url: yarl.URL,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        data: bytes | None = None,
        **_: Any,
    ) -> _Answer:
        loop = asyncio.get_running_loop()
        sent = CIMultiDict({"Host": url.authority, **headers})
        protocol = BaseProtocol(loop)
        body = aiohttp.StreamReader(protocol, _WINDOW_BYTES, loop=loop)
        if data is not None:
            sent["Content-Length"] = str(len(data))
            body.feed_data(data)
        body.feed_eof()
        query = urlencode(params) if params else url.raw_query_string
        path = f"{url.raw_path}?{query}" if query else url.raw_path
        raw = tuple((name.encode(), value.encode()) for name, value in sent.items())
        message = RawRequestMessage(
            method,
            path,
            HttpVersion11,
            CIMultiDictProxy(sent),
            raw,
            False,
            None,
            False,
            False,
            yarl.URL.build(path=url.raw_path, query_string=query, encoded=True),
        )
        answer = _Answer(self._open, timeout.sock_read)
        server_end: Any = SimpleNamespace(transport=answer, ssl_context=None, peername=None, sockname=None)
        request = web.BaseRequest(message, body, server_end, answer, asyncio.current_task(), loop)  # type: ignore[arg-type]
        answer.start(handler, request)
        try:
            async with asyncio.timeout(timeout.total):
                await answer.begun
        except BaseException:
            answer.close()
            raise
        return answer


class _Sending:
    """A request that is awaited, or entered as a context."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Any:
        return self._answer.__await__()

    async def __aenter__(self) -> _Answer:
        self._answer = await self._answer
        return self._answer

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()


class _Answer(AbstractStreamWriter):
    """One answer: its server writes to it, and its client reads from it as ``content``.

    It is also the transport of the connection as far as servers and clients use that: to abort it.
    """

    connection = None

    def __init__(self, open_answers: set[_Answer], idle_s: float | None) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.content = self
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_s = idle_s
        self._chunks: list[bytes] = []
        self._size = 0
        self._error: BaseException | None = None
        self._ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._all = open_answers
        self._all.add(self)
        self._task: asyncio.Task[None] | None = None

    def start(self, handler: Handler, request: web.BaseRequest) -> None:
        """Have the request answered, in a task of the server."""
        self._task = asyncio.create_task(self._serve(handler, request))

    async def _serve(self, handler: Handler, request: web.BaseRequest) -> None:
        try:
            response = await handler(request)
            if isinstance(response, web.Response):
                response.headers.setdefault("Date", rfc822_formatted_time())
                body = response.body
                self._begin(response.status, response.headers)
                if isinstance(body, bytes | bytearray) and request.method != "HEAD":
                    self._chunks.append(bytes(body))
            self._ended = True
            self._changed.set()
        except asyncio.CancelledError:
            self.break_off(aiohttp.ServerDisconnectedError())
            raise
        except Exception as error:  # noqa: BLE001 - as a server that closes the connection
            self.break_off(aiohttp.ServerDisconnectedError(str(error)))
        finally:
            self._all.discard(self)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        if not self.begun.done():
            self.begun.set_result(None)

    # --- what the server does ---

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        self._begin(int(status_line.split(" ")[1]), headers)

    async def write(self, chunk: Any) -> None:
        self._chunks.append(bytes(chunk))
        self._size += len(chunk)
        self._changed.set()
        while self._size > _WINDOW_BYTES:
            self._room.clear()
            await self._room.wait()

    async def write_eof(self, chunk: bytes = b"") -> None:
        if chunk:
            await self.write(chunk)

    async def drain(self) -> None:
        pass

    def enable_compression(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def enable_chunking(self) -> None:
        pass

    def abort(self) -> None:
        """Cut the connection, as a server does with a client that is too slow."""
        self.break_off(aiohttp.ClientPayloadError("Response payload is not completed"))

    # --- what the client does ---

    async def readany(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._changed.clear()
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._changed.wait()
            except TimeoutError as error:
                raise aiohttp.SocketTimeoutError("Timeout on reading data from socket") from error
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._room.set()
        return chunk

    def close(self) -> None:
        self.break_off(aiohttp.ClientConnectionError("Connection closed"))

    def break_off(self, error: BaseException) -> None:
        """End both sides of the connection."""
        self._all.discard(self)
        if not self._ended and self._error is None:
            self._error = error
        if not self.begun.done():
            self.begun.set_exception(error)
            self.begun.exception()  # the client may be gone
        self._changed.set()
        if self._task is not None and not self._task.done() and asyncio.current_task() is not self._task:
            self._task.cancel()


__all__ = ["answer", "install", "installed"]
