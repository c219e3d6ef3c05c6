"""A proxy between a hub and its API, which can answer requests of some kinds like a broken API.

In: HTTP, or requests in the process. Out: the same, or 403, 500, 429, silence. It notes every request that changes
something.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
import yarl
from aiohttp import web

from fairlead.kube import transport
from tests.worlds import in_process

HANGS = 0
_NO_LIMIT = aiohttp.ClientTimeout(total=None)
_DROPPED = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class Wire:
    """One reverse proxy for one API server. ``faults``: the plural of a kind, and the status that reads of it get."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.faults: dict[str, int] = {}
        #: (method, plural) of every write that was answered with success, but for leases and Events.
        self.writes: list[tuple[str, str]] = []
        self.refused: Counter[str] = Counter()
        #: Every request, whatever became of it.
        self.asked: Counter[tuple[str, str]] = Counter()
        #: What is read of a kind has its first bytes replaced by the second ones: objects that cannot be read.
        self.garbled: dict[str, tuple[bytes, bytes]] = {}
        #: Is at both sides of each write: before anything has happened, and after all of it has.
        self.at_point: Callable[[], Awaitable[None]] = nothing
        #: Writes of this kind are answered with 429 so many times more.
        self.throttled: dict[str, int] = {}
        self._open: list[tuple[asyncio.Transport, str]] = []
        self._healed = asyncio.Event()

    async def start(self) -> None:
        connector = transport.aiohttp.TCPConnector()
        self._session = transport.aiohttp.ClientSession(connector=connector, auto_decompress=False)
        server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        if in_process.installed():
            in_process.answer(self.url, self._handle)

    async def stop(self) -> None:
        self._healed.set()
        self.cut()
        in_process.answer(self.url, None)
        await self._runner.cleanup()
        await self._session.close()

    def cut(self, plural: str = "") -> None:
        """Break off what is being streamed of one kind, or of all."""
        for stream, kind in self._open:
            if plural in ("", kind):
                stream.abort()

    def breaks(self, plural: str, status: int) -> None:
        """Have reads of one kind answered with ``status``, now and until ``heal``."""
        self.faults[plural] = status
        self._healed.clear()
        self.cut(plural)

    def heal(self) -> None:
        self.faults.clear()
        self.garbled.clear()
        self._healed.set()
        self.cut()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        kind = _plural(request.path)
        self.asked[request.method, kind] += 1
        if request.method == "GET" and kind in self.faults:
            self.refused[kind] += 1
            if self.faults[kind] == HANGS:
                await self._healed.wait()
            return _status(self.faults[kind] or 500)
        if request.method != "GET" and self.throttled.get(kind, 0) > 0:
            self.throttled[kind] -= 1
            self.refused[kind] += 1
            return _status(429)
        return await self._forward(request, kind)

    async def _forward(self, request: web.BaseRequest, kind: str) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        body = await request.read()
        counts = request.method != "GET" and kind not in ("leases", "events")
        if counts:
            await self.at_point()
        url = yarl.URL(f"{self._target}{request.path_qs}", encoded=True)
        async with self._session.request(
            request.method, url, params=None, headers=headers, data=body or None, timeout=_NO_LIMIT
        ) as answer:
            if counts and answer.status < 300:
                self.writes.append((request.method, kind))
            if counts:
                await self.at_point()
            more = {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED}
            response = web.StreamResponse(status=answer.status, headers=more)
            assert request.transport is not None
            streamed = (request.transport, kind)
            if "watch=true" in request.query_string:
                self._open.append(streamed)
            try:
                await response.prepare(request)
                while chunk := await answer.content.readany():
                    await response.write(chunk.replace(*self.garbled[kind]) if kind in self.garbled else chunk)
                await response.write_eof()
            except (ConnectionError, aiohttp.ClientError):
                pass  # the client has hung up
            finally:
                if streamed in self._open:
                    self._open.remove(streamed)
            return response


async def nothing() -> None:
    """Be at a point at which no process dies."""


def _plural(path: str) -> str:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
    return parts[2] if parts[:1] == ["namespaces"] and len(parts) > 2 else (parts or [""])[0]


def _status(code: int) -> web.Response:
    reason = {403: "Forbidden", 429: "TooManyRequests"}.get(code, "InternalError")
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(body | {"message": f"a test answers {code}"}, status=code, headers=headers)
