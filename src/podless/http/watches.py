"""Serve watches: catch up from history or the current state, then stream until the time is up.

resourceVersion=N ─► events after N from history, or 410 when they are forgotten
none or 0         ─► every object as ADDED first
sendInitialEvents ─► the same, then the bookmark ``k8s.io/initial-events-end``
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakValueDictionary

from aiohttp import web

from podless.auth.identity import User
from podless.failure import expired, forbidden_field, invalid
from podless.http.info import RequestInfo, boolean_parameter
from podless.http.options import number, selection, version
from podless.http.representation import Representation, representation_of
from podless.http.responses import parts_of, write
from podless.http.watcher import Queued, Watcher
from podless.kinds.kind import Kind
from podless.objects import encode
from podless.store.bucket import Bucket
from podless.store.entry import BucketEntry, WatchEvent
from podless.store.store import ObjectStore

BOOKMARK_EVERY_S = 60.0
DEFAULT_TIMEOUT_S = (1800, 3600)
_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


class Watches:
    """The open watches of one server."""

    def __init__(self, store: ObjectStore, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._open: dict[Watcher, str] = {}
        #: Of each user but administrators, forgotten with it.
        self._queued: WeakValueDictionary[str, Queued] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, request: web.BaseRequest, kind: Kind, info: RequestInfo, user: User) -> web.StreamResponse:
        """Answer a watch request; returns when the watch ends."""
        chosen = selection(request, kind, info)
        shape = representation_of(request, kind, self._now)
        initial = self._wants_initial(request)
        rv, timeout_s = version(request), number(request, "timeoutSeconds")
        transport = request.transport
        queued = None if user.is_master else self._queued.setdefault(user.name, Queued())
        watcher = Watcher(chosen, transport.abort if transport is not None else _nothing, queued)
        bucket = self._store.bucket(kind.bucket)
        first = self._replay(bucket, watcher, rv, initial=initial)
        current = self._store.rv
        response = web.StreamResponse(headers=_HEADERS)
        response.enable_chunked_encoding()
        bucket.listeners.add(watcher)
        self._open[watcher] = kind.bucket
        try:
            await response.prepare(request)
            if isinstance(first, bytes):
                await response.write(first)
            else:
                await _send(response, _first_lines(first, current, watcher, shape, mark=bool(initial)))
                await self._stream(request, response, shape, watcher, timeout_s)
        except ConnectionError:
            pass  # the client went away, which is how most watches end
        finally:
            bucket.listeners.discard(watcher)
            del self._open[watcher]
            watcher.close()
        return response

    @staticmethod
    def _wants_initial(request: web.BaseRequest) -> bool | None:
        if "sendInitialEvents" not in request.query:
            if request.query.get("resourceVersionMatch"):
                why = "is forbidden for watch unless sendInitialEvents is provided"
                raise invalid("ListOptions", "meta.k8s.io", "", [forbidden_field("resourceVersionMatch", why)])
            return None
        if request.query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid("ListOptions", "meta.k8s.io", "", [forbidden_field("resourceVersionMatch", why)])
        return boolean_parameter(request.query, "sendInitialEvents")

    def _replay(self, bucket: Bucket, watcher: Watcher, rv: int, *, initial: bool | None) -> list[BucketEntry] | bytes:
        """Return the objects to start with, or the error; events since ``rv`` go through the watcher's own filter."""
        current = self._store.rv
        if initial or (initial is None and not rv):
            if rv > current:
                return _error(f"Too large resource version: {rv}, current: {current}")
            return bucket.sorted_entries(watcher.namespace)
        if not rv:
            return []
        missed = bucket.history.after(rv) if rv <= current else None
        if missed is None:
            oldest = max(bucket.history.oldest, 1)
            return _error(f"too old resource version: {rv} ({oldest})")
        for event in missed:
            watcher.offer(event)
        return []

    async def _stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        shape: Representation,
        watcher: Watcher,
        timeout_s: int | None,
    ) -> None:
        clock = asyncio.get_running_loop().time
        lasts_s = timeout_s or random.uniform(*DEFAULT_TIMEOUT_S)  # noqa: S311 - jitter
        ends, bookmarks = clock() + lasts_s, boolean_parameter(request.query, "allowWatchBookmarks")
        next_bookmark = clock() + BOOKMARK_EVERY_S
        while (watcher.pending or not watcher.closed) and (left := ends - clock()) > 0:
            events: list[tuple[str, WatchEvent]] = await watcher.next(max(0.0, min(left, next_bookmark - clock())))
            if events:
                await _send(response, (shape.line(type_, event) for type_, event in events))
            if clock() >= next_bookmark:
                next_bookmark = clock() + BOOKMARK_EVERY_S
                if bookmarks and not watcher.pending:
                    await response.write(shape.bookmark(self._store.rv, initial=False))
        # What is queued was not sent: a client that goes on from a later version would never hear of it.
        if bookmarks and not watcher.closed and not watcher.pending:
            await response.write(shape.bookmark(self._store.rv, initial=False))

    def close_kind(self, bucket: str) -> None:
        """End all watches of a kind that is no longer what it was; what is queued is sent first."""
        for watcher, name in list(self._open.items()):
            if name == bucket:
                watcher.finish()

    def close_all(self) -> None:
        """End all watches: the server stops."""
        for watcher in list(self._open):
            watcher.close()


def _first_lines(
    entries: list[BucketEntry], rv: int, watcher: Watcher, shape: Representation, *, mark: bool
) -> Iterator[bytes]:
    for entry in entries:
        yield shape.wrap("ADDED", entry) if watcher.selects(entry) else b""
    if mark:
        yield shape.bookmark(rv, initial=True)


async def _send(response: web.StreamResponse, lines: Iterable[bytes]) -> None:
    """Write lines as they are made, and no more of them than the client takes."""
    async for part in parts_of(lines, at_once=True):
        await write(response, part)


def _error(message: str) -> bytes:
    return encode({"type": "ERROR", "object": expired(message).status()}) + b"\n"


def _nothing() -> None:
    return
