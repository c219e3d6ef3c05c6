"""How does a watch run? Catch up from history or the current state, then stream until its time is up.

resourceVersion=N ─► events after N from history, or 410 when they are forgotten
none or 0         ─► every object as ADDED first
sendInitialEvents ─► the same, then the bookmark ``k8s.io/initial-events-end``
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from aiohttp import web

from fairlead.apiserver.failure import bad_request, denied, expired, invalid
from fairlead.apiserver.http.info import RequestInfo, truth
from fairlead.apiserver.http.options import number, selection
from fairlead.apiserver.http.shape import Shape, shape_of
from fairlead.apiserver.http.watcher import Watcher
from fairlead.apiserver.kinds.kind import Kind
from fairlead.apiserver.objects import encode
from fairlead.apiserver.store.bucket import Bucket
from fairlead.apiserver.store.entry import Event
from fairlead.apiserver.store.store import Store

BOOKMARK_EVERY_S = 60.0
DEFAULT_TIMEOUT_S = (1800, 3600)
_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


class Watches:
    """The open watches of one server."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._open: dict[Watcher, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, request: web.BaseRequest, kind: Kind, info: RequestInfo) -> web.StreamResponse:
        """Answer a watch request; returns when the watch ends."""
        chosen = selection(request, kind, info)
        shape = shape_of(request, kind, self._now)
        initial = self._wants_initial(request)
        rv = request.query.get("resourceVersion", "")
        if rv and not rv.isdigit():
            raise bad_request(f"Invalid value: {rv!r}: the resourceVersion must be a whole number")
        transport = request.transport
        watcher = Watcher(chosen, transport.abort if transport is not None else _nothing)
        bucket = self._store.bucket(kind.bucket)
        first = self._catch_up(bucket, watcher, shape, rv, initial=initial)
        response = web.StreamResponse(headers=_HEADERS)
        response.enable_chunked_encoding()
        bucket.listeners.add(watcher)
        self._open[watcher] = kind.bucket
        try:
            await response.prepare(request)
            await self._stream(request, response, shape, watcher, first)
        except ConnectionError:
            pass  # the client went away, which is how most watches end
        finally:
            bucket.listeners.discard(watcher)
            del self._open[watcher]
        return response

    @staticmethod
    def _wants_initial(request: web.BaseRequest) -> bool | None:
        if "sendInitialEvents" not in request.query:
            return None
        if request.query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid("ListOptions", "meta.k8s.io", "", [denied("resourceVersionMatch", why)])
        return truth(request.query, "sendInitialEvents")

    def _catch_up(
        self, bucket: Bucket, watcher: Watcher, shape: Shape, rv: str, *, initial: bool | None
    ) -> list[bytes]:
        """Return the lines to start with; events since ``rv`` go through the watcher's own filter."""
        current = self._store.rv
        if initial or (initial is None and rv in {"", "0"}):
            if rv and int(rv) > current:
                return [_error(f"Too large resource version: {rv}, current: {current}")]
            entries = [entry for entry in bucket.in_order() if watcher.selects(entry)]
            lines = [shape.wrap("ADDED", entry) for entry in entries]
            return [*lines, shape.bookmark(current, initial=True)] if initial else lines
        if rv in {"", "0"}:
            return []
        missed = bucket.history.after(int(rv)) if int(rv) <= current else None
        if missed is None:
            oldest = max(bucket.history.oldest, 1)
            return [_error(f"too old resource version: {rv} ({oldest})")]
        for event in missed:
            watcher.offer(event)
        return []

    async def _stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        shape: Shape,
        watcher: Watcher,
        first: list[bytes],
    ) -> None:
        clock = asyncio.get_running_loop().time
        timeout_s = number(request, "timeoutSeconds") or random.uniform(*DEFAULT_TIMEOUT_S)  # noqa: S311 - jitter
        ends, bookmarks = clock() + timeout_s, truth(request.query, "allowWatchBookmarks")
        if first:
            await response.write(b"".join(first))
            if first[0].startswith(b'{"type":"ERROR"'):
                return
        next_bookmark = clock() + BOOKMARK_EVERY_S
        while not watcher.closed and (left := ends - clock()) > 0:
            events: list[tuple[str, Event]] = await watcher.next(max(0.0, min(left, next_bookmark - clock())))
            if events:
                await response.write(b"".join([shape.line(type_, event) for type_, event in events]))
            if clock() >= next_bookmark:
                next_bookmark = clock() + BOOKMARK_EVERY_S
                if bookmarks and not watcher.pending:
                    await response.write(shape.bookmark(self._store.rv, initial=False))
        if bookmarks and not watcher.closed:
            await response.write(shape.bookmark(self._store.rv, initial=False))

    def close_kind(self, bucket: str) -> None:
        """End all watches of a kind that is no longer what it was."""
        for watcher, name in list(self._open.items()):
            if name == bucket:
                watcher.close()

    def close_all(self) -> None:
        """End all watches: the server stops."""
        for watcher in list(self._open):
            watcher.close()


def _error(message: str) -> bytes:
    return encode({"type": "ERROR", "object": expired(message).status()}) + b"\n"


def _nothing() -> None:
    return
