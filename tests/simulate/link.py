"""The link between processes and APIs, in the place of aiohttp below ``fairlead.kube.transport``: bytes in, bytes out.

In: requests of processes. Out: answers of the API that the URL names, late, lost, spoilt or refused as the weather of
the moment says. A request that was sent takes effect whatever becomes of the process that has sent it.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import format_datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Self

import aiohttp

from tests.simulate.api import Answer, Api, Watch, parse, status_body
from tests.simulate.loop import OUTSIDE, PROCESS, START, Process, SimLoop

_PAGE = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"
_DEEP = b'{"kind":"x","metadata":{"name":"x"},"a":' + b"[" * 3000 + b"]" * 3000 + b"}"
_LATIN = b'{"kind":"Status","message":"caf\xe9","metadata":{"name":"caf\xe9"},"items":[],"code":500}'

#: What may happen to a request, and whether it still takes effect.
TROUBLES: Mapping[str, bool] = {
    "refused": False,
    "lost": False,
    "answer-lost": True,
    "hangs": False,
    "hangs-after": True,
    "plain-404": False,
    "status-404": False,
    "html-404": False,
    "html-502": False,
    "html-200": False,
    "redirect": False,
    "500": False,
    "503": False,
    "503-later": False,
    "429": False,
    "401": False,
    "410": False,
    "latin-1": True,
    "latin-1-500": False,
    "deep": True,
    "truncated": True,
    "cut": True,
    "slow": True,
    "slow-answer": True,
    "webhook-400": False,
    "webhook-403": False,
    "webhook-422": False,
    "conflict": False,
}
_OF_WRITES = {"webhook-400", "webhook-403", "webhook-422", "conflict"}


class Weather:
    """What the link between one process and one API does to messages; nothing bad at first."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.troubles: tuple[str, ...] = ()
        #: Seconds by which watches lag, by plural.
        self.lag_s: dict[str, float] = {}
        self.cut = False

    def clear(self) -> None:
        """Stop all trouble."""
        self.__init__()


class Line:
    """The link of one process to one API: its weather, its randomness, its connections."""

    def __init__(self, network: Network, process: Process, api: Api) -> None:
        self.network = network
        self.process = process
        self.api = api
        self.weather = Weather()
        self.random = random.Random(f"{network.seed}/{process.name}/{api.name}")
        self.streams: list[Stream] = []


class Network:
    """All links, and what is refused by webhooks."""

    current: Network | None = None

    def __init__(self, loop: SimLoop, seed: str) -> None:
        self.loop = loop
        self.seed = seed
        self.apis: dict[str, Api] = {}
        self.lines: dict[tuple[str, str], Line] = {}
        #: Writes of these are refused by a webhook: (api, plural, name; "" for any) to code.
        self.webhooks: dict[tuple[str, str, str], int] = {}
        #: Objects whose stored form cannot be read: (api, plural, namespace, name) to what is put in.
        self.requests = 0
        self.note: Callable[[str], None] = lambda _text: None
        self.skew_s: dict[str, float] = {}

    def line(self, process: Process, host: str) -> Line:
        """Return the link of a process to an API."""
        line = self.lines.get((process.name, host))
        if line is None or line.process is not process:
            weather = line.weather if line else Weather()
            line = self.lines[process.name, host] = Line(self, process, self.apis[host])
            line.weather = weather
        return line

    def date(self, api: Api) -> str:
        """Return the time of an API for its Date header."""
        return _date(int(self.loop.now_s + self.skew_s.get(api.name, 0.0)))


@lru_cache(maxsize=10_000)
def _date(seconds: int) -> str:
    return format_datetime(START + timedelta(seconds=seconds), usegmt=True)


class _Response:
    """An answer as aiohttp gives it."""

    connection = None

    def __init__(self, network: Network, api: Api, answer: Answer, stream: Stream | None = None) -> None:
        self.status = answer.status
        self.headers = {"Date": network.date(api), "Content-Type": answer.content_type}
        if answer.retry_after is not None:
            self.headers["Retry-After"] = answer.retry_after
        if answer.status in (301, 302):
            self.headers["Location"] = "https://login.example.com/"
        self.content = stream or _Body(answer.body)

    def close(self) -> None:
        self.content.close()

    def release(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _Body:
    """The body of an answer that came as a whole."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def readany(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def close(self) -> None:
        """Drop the rest."""
        self._body = b""


class Stream:
    """The client's end of a watch."""

    def __init__(self, line: Line, idle_s: float) -> None:
        self.line = line
        self.watch: Watch | None = None
        self.plural = ""
        self._idle_s = idle_s
        self._chunks: deque[bytes] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._scheduled = False
        self._read_s = 0.0
        self._timed = False
        self.closed = False

    def woken(self) -> None:
        """Deliver what the server has queued, after the lag of this moment."""
        if self._scheduled or self.closed:
            return
        self._scheduled = True
        line = self.line
        lag_s = line.weather.lag_s.get(self.plural) or line.weather.lag_s.get("*") or 0.0
        delay_s = lag_s * (0.5 + line.random.random()) + 0.002 + 0.02 * line.random.random()
        line.network.loop.call_later(delay_s, self._deliver, context=OUTSIDE)

    def remind(self) -> None:
        """Send a bookmark, as servers do about once a minute."""
        if not self.closed and self.watch is not None and not self.watch.ended:
            self.watch.bookmark(self.line.api.rv)
            self.line.network.loop.call_later(60.0, self.remind, context=OUTSIDE)

    def _deliver(self) -> None:
        self._scheduled = False
        if self.closed or self.watch is None:
            return
        if self.line.weather.cut:
            return
        weather = self.line.weather
        lines, self.watch.pending = self.watch.pending, []
        if lines:
            chunk = b"".join(lines)
            if weather.rate and self.line.random.random() < weather.rate / 4:
                chunk = self._spoilt(chunk)
            self._chunks.append(chunk)
        if self.watch.ended:
            self._ended = True
        self._wake()

    def _spoilt(self, chunk: bytes) -> bytes:
        """Break the stream in the middle of what it delivers."""
        choice = self.line.random.choice(("break", "half", "latin-1", "html", "deep", "end"))
        if choice not in self.line.weather.troubles and choice in ("latin-1", "deep"):
            choice = "half"
        self.line.network.note(f"stream {self.plural} of {self.line.process.name}: {choice}")
        assert self.watch is not None
        self.watch.end()
        self._ended = True
        if choice == "break":
            self._error = aiohttp.ClientPayloadError("Response payload is not completed")
            return b""
        if choice == "half":
            return chunk[: len(chunk) // 2] + b"\n"
        if choice == "latin-1":
            return b"caf\xe9: upstream reset\n"
        if choice == "html":
            return _PAGE + b"\n"
        if choice == "deep":
            return b"[" * 3000 + b"\n"
        return chunk

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def readany(self) -> bytes:
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                if chunk:
                    return chunk
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._reader = reader = self.line.network.loop.create_future()
            self._read_s = self._awake_s()
            if not self._timed:
                self._timed = True
                self.line.network.loop.call_later(self._idle_s, self._check_idle)
            try:
                await reader
            finally:
                self._reader = None

    def _awake_s(self) -> float:
        """Return the seconds that the machine of the client has been awake: its timers count no others."""
        return self.line.network.loop.now_s - self.line.process.slept_s

    def _check_idle(self) -> None:
        """End a read that has waited for too long; one timer for all reads of a stream."""
        if self.closed:
            return
        reader, left_s = self._reader, self._read_s + self._idle_s - self._awake_s()
        if reader is not None and left_s <= 1e-6:
            self._timed = False
            if not reader.done():
                reader.set_exception(aiohttp.SocketTimeoutError("Timeout on reading data from socket"))
            return
        self.line.network.loop.call_later(max(left_s, 1e-6) if reader is not None else self._idle_s, self._check_idle)

    def close(self) -> None:
        self.closed = True
        if self.watch is not None:
            self.watch.end()
        if self in self.line.streams:
            self.line.streams.remove(self)


class _Sending:
    """A request that is awaited, or entered as a context."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Any:
        return self._answer.__await__()

    async def __aenter__(self) -> _Response:
        return await self._answer

    async def __aexit__(self, *_: object) -> None:
        return None


class _Timeout:
    """The limits of one request, in the place of ``aiohttp.ClientTimeout``."""

    __slots__ = ("sock_read", "total")

    def __init__(self, total: float | None = None, sock_read: float | None = None, **_: Any) -> None:
        self.total, self.sock_read = total, sock_read


class _Connector:
    def __init__(self, *, limit: int = 100, **_: Any) -> None:
        self.limit = limit


class _Session:
    """A session of this link, in the place of ``aiohttp.ClientSession``."""

    def __init__(self, *, connector: _Connector | None = None, **_: Any) -> None:
        self._limit = connector.limit if connector is not None else 100
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def request(self, method: str, url: Any, **options: Any) -> _Sending:
        return _Sending(self._request(method, url, **options))

    async def _request(
        self,
        method: str,
        url: Any,
        *,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Any = None,
        **_: Any,
    ) -> _Response:
        network, process = Network.current, PROCESS.get()
        if network is None or process is None or not process.alive:
            raise aiohttp.ServerDisconnectedError
        line = network.line(process, url.host)
        total_s = timeout.total if timeout is not None and timeout.total else 86_400.0
        read_s = timeout.sock_read if timeout is not None and timeout.sock_read else total_s
        loop = network.loop
        deadline_s = loop.now_s + total_s
        watching = bool(params) and params.get("watch") == "true"
        if self._limit and not watching:
            if self._open >= self._limit:
                await self._connection(loop, deadline_s)
            self._open += 1
        try:
            done: asyncio.Future[_Response] = loop.create_future()
            content_type = headers.get("Content-Type", "") if headers else ""
            wire = _Wire(line, method, url.raw_path, dict(params or {}), data, content_type, done)
            limit_s = min(deadline_s - loop.now_s, read_s)
            # Most answers are sure to come in time, and a timer costs as much as a message.
            if wire.send(read_s if watching else None) < limit_s:
                return await done
            timer = loop.call_later(limit_s, _time_out, done)
            try:
                return await done
            finally:
                timer.cancel()
        finally:
            if self._limit and not watching:
                self._release()

    async def _connection(self, loop: SimLoop, deadline_s: float) -> None:
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_at(deadline_s, _time_out, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def _release(self) -> None:
        self._open -= 1
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


def _time_out(done: asyncio.Future[Any]) -> None:
    if not done.done():
        done.set_exception(TimeoutError())


class _Wire:
    """One request on the wire."""

    __slots__ = ("_back_s", "_content_type", "_data", "_done", "_line", "_method", "_params", "_path")

    def __init__(
        self,
        line: Line,
        method: str,
        path: str,
        params: dict[str, str],
        data: bytes | None,
        content_type: str,
        done: asyncio.Future[_Response],
    ) -> None:
        self._line = line
        self._method = method
        self._path = path
        self._params = params
        self._data = data
        self._content_type = content_type
        self._done = done

    def send(self, idle_s: float | None) -> float:
        """Put the request on the wire; return the seconds to its answer, infinity when that may not come.

        ``idle_s`` is the longest silence of a watch, None for all else.
        """
        line = self._line
        network, weather, draw = line.network, line.weather, line.random.random
        network.requests += 1
        there_s, self._back_s = 0.001 + 0.01 * draw(), 0.001 + 0.01 * draw()
        trouble = ""
        if weather.cut:
            trouble = "hangs" if draw() < 0.7 else "refused"
        elif weather.rate and draw() < weather.rate:
            trouble = line.random.choice(weather.troubles)
            if trouble in _OF_WRITES and self._method not in ("POST", "PUT", "PATCH"):
                trouble = "503"
        if trouble:
            network.note(f"{line.process.name} {self._method} {self._path}: {trouble}")
            if trouble == "slow":
                there_s += 8.0 * draw()
            if trouble == "slow-answer":
                self._back_s += 8.0 * draw()
        network.loop.call_later(there_s, self._arrive, trouble, idle_s, context=OUTSIDE)
        return math.inf if trouble else there_s + self._back_s

    def _arrive(self, trouble: str, idle_s: float | None) -> None:
        line = self._line
        if trouble:
            if trouble == "hangs":
                return
            if trouble in ("refused", "lost"):
                self._fail(_refused() if trouble == "refused" else aiohttp.ServerDisconnectedError())
                return
            if trouble in _ANSWERS:
                self._answer(_ANSWERS[trouble](self._method, self._path, line.random))
                return
        if idle_s is not None:
            self._watch(idle_s)
            return
        answer = _webhook(line.network, line, self._method, self._path) or line.api.request(
            self._method, self._path, self._params, self._data, self._content_type, line.process.name
        )
        match trouble:
            case "answer-lost":
                self._fail(aiohttp.ServerDisconnectedError())
            case "cut":
                self._fail(aiohttp.ClientPayloadError("Response payload is not completed"))
            case "hangs-after":
                pass
            case "latin-1":
                self._answer(answer._replace(body=_LATIN))
            case "deep":
                self._answer(answer._replace(body=_DEEP))
            case "truncated":
                self._answer(answer._replace(body=answer.body[: len(answer.body) * 2 // 3]))
            case _:
                self._answer(answer)

    def _watch(self, idle_s: float) -> None:
        line, loop = self._line, self._line.network.loop
        stream = Stream(line, idle_s)
        place = parse(self._path)
        stream.plural = place.plural if place else ""
        opened = line.api.watch(self._path, self._params, line.process.name, stream.woken)
        if isinstance(opened, Answer):
            self._answer(opened)
            return
        stream.watch = opened
        line.streams.append(stream)
        loop.call_later(60.0, stream.remind, context=OUTSIDE)
        loop.call_later(float(self._params.get("timeoutSeconds", "300")), opened.end, context=OUTSIDE)
        self._answer(Answer(200, b""), stream)
        stream.woken()

    def _answer(self, answer: Answer, stream: Stream | None = None) -> None:
        network = self._line.network
        response = _Response(network, self._line.api, answer, stream)
        network.loop.call_later(self._back_s, _deliver, self._done, response, context=OUTSIDE)

    def _fail(self, error: BaseException) -> None:
        self._line.network.loop.call_later(self._back_s, _fail, self._done, error, context=OUTSIDE)


def _webhook(network: Network, line: Line, method: str, path: str) -> Answer | None:
    if not network.webhooks or method not in ("POST", "PUT", "PATCH"):
        return None
    place = parse(path)
    if place is None:
        return None
    for name in (place.name, ""):
        code = network.webhooks.get((line.api.name, place.plural, name))
        if code is not None:
            return _refuse(code, place.name)
    return None


def _refuse(code: int, name: str) -> Answer:
    reason = {400: "BadRequest", 403: "Forbidden", 422: "Invalid"}[code]
    text = f'admission webhook "policy.example.com" denied the request: {name} is not allowed now'
    return Answer(code, status_body(code, reason, text, {"name": name}))


def _deliver(done: asyncio.Future[_Response], response: _Response) -> None:
    if not done.done():
        done.set_result(response)
    else:
        response.content.close()


def _fail(done: asyncio.Future[_Response], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _refused() -> aiohttp.ClientConnectorError:
    key: Any = SimpleNamespace(host="api", port=443, ssl=True, is_ssl=True)
    return aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "Connect call failed"))


_Draw = random.Random
_ANSWERS: Mapping[str, Callable[[str, str, _Draw], Answer]] = {
    "plain-404": lambda _m, _p, _d: Answer(404, b"404 page not found\n", "text/plain"),
    "status-404": lambda _m, _p, _d: Answer(
        404, status_body(404, "NotFound", "the server could not find the requested resource")
    ),
    "html-404": lambda _m, _p, _d: Answer(404, _PAGE.replace(b"502 Bad Gateway", b"404 Not Found"), "text/html"),
    "html-502": lambda _m, _p, _d: Answer(502, _PAGE, "text/html"),
    "html-200": lambda _m, _p, _d: Answer(200, _PAGE, "text/html"),
    "redirect": lambda _m, _p, _d: Answer(302, b"", "text/html"),
    "500": lambda _m, _p, _d: Answer(500, status_body(500, "InternalError", "etcdserver: leader changed")),
    "503": lambda _m, _p, _d: Answer(503, b"upstream connect error", "text/plain"),
    "503-later": lambda _m, _p, d: Answer(
        503, status_body(503, "ServiceUnavailable", "later"), retry_after=d.choice(("1", "5", "120"))
    ),
    "429": lambda _m, _p, d: Answer(
        429, status_body(429, "TooManyRequests", "slow down"), retry_after=d.choice(("1", "3", "3600"))
    ),
    "401": lambda _m, _p, _d: Answer(401, status_body(401, "Unauthorized", "Unauthorized")),
    "410": lambda m, _p, _d: (
        Answer(410, status_body(410, "Expired", "too old resource version"))
        if m == "GET"
        else Answer(503, b"", "text/plain")
    ),
    "latin-1-500": lambda _m, _p, _d: Answer(500, _LATIN),
    "webhook-400": lambda _m, _p, _d: _refuse(400, ""),
    "webhook-403": lambda _m, _p, _d: _refuse(403, ""),
    "webhook-422": lambda _m, _p, _d: _refuse(422, ""),
    "conflict": lambda _m, _p, _d: Answer(409, status_body(409, "Conflict", "the object has been modified")),
}


class AiohttpHere:
    """What ``fairlead.kube.transport`` sees as the module ``aiohttp``: the real errors, and sessions of this link."""

    ClientSession = _Session
    TCPConnector = _Connector
    ClientTimeout = _Timeout

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(aiohttp, name)
        return value


__all__ = ["TROUBLES", "AiohttpHere", "Line", "Network", "Stream", "Weather"]
