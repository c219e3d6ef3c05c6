"""Answer get and list: whole lists, or pages of one consistent snapshot.

A page with more to come leaves a snapshot of the rest behind; it costs only references. Snapshots are few and forgotten
after a while, then the client gets 410 and lists again, as on a real server after compaction.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from podless.auth.identity import User
from podless.cooperative_yield import TimeSlice
from podless.failure import ApiFailure, bad_request, expired
from podless.http.info import RequestInfo
from podless.http.options import number, selection, signed_number, version, version_match
from podless.http.representation import representation_of
from podless.http.responses import json_response, json_response_in_chunks
from podless.kinds.kind import Kind
from podless.objects import Obj
from podless.registry.registry import Registry
from podless.selectors import Selection
from podless.store.entry import BucketEntry
from podless.store.store import ObjectStore

#: Of one user, whose lists never expire those of another one; of all users together.
MAX_SNAPSHOTS_OF_USER, MAX_SNAPSHOTS, SNAPSHOT_TTL_S = 32, 2048, 300.0
#: Of one user who is not an administrator: objects that have changed since are in memory for the snapshots alone.
MAX_BYTES_OF_USER = 512 * 1024 * 1024
_TOKEN = re.compile(r"^[A-Za-z0-9_-]{16}\Z")  # as token_urlsafe(12) makes them


@dataclass(frozen=True, slots=True)
class _Snapshot:
    of: tuple[str, str, str, str, str]
    rv: int
    rest: list[BucketEntry]
    born: float
    size: int


def check_rv(rv: int, store: ObjectStore) -> None:
    """Raise 504 when a list asks for a resourceVersion that is not there yet."""
    if rv > store.rv:
        message = f"Timeout: Too large resource version: {rv}, current: {store.rv}"
        failure = ApiFailure(504, "Timeout", message, retry_after_s=1)
        failure.details["causes"] = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        raise failure


async def select_entries(entries: list[BucketEntry], chosen: Selection) -> list[BucketEntry]:
    """Return the selected ``entries``."""
    time_slice, selected = TimeSlice(), list[BucketEntry]()
    for entry in entries:
        if chosen.matches(entry):
            selected.append(entry)
        await time_slice.yield_if_used_up()
    return selected


class Reads:
    """Gets and lists of one server."""

    def __init__(self, registry: Registry, now: Callable[[], float]) -> None:
        self._registry = registry
        self._now = now
        self._snapshots: OrderedDict[str, _Snapshot] = OrderedDict()
        self._tokens: dict[str, deque[str]] = {}

    def get(self, request: web.BaseRequest, kind: Kind, info: RequestInfo) -> web.Response:
        """Answer a get."""
        check_rv(version(request), self._registry.store)
        entry = self._registry.entry(kind, info.namespace, info.name)
        return json_response(representation_of(request, kind, self._now).object(entry))

    async def list(self, request: web.BaseRequest, kind: Kind, info: RequestInfo, user: User) -> web.StreamResponse:
        """Answer a list, or one page of it."""
        store, query = self._registry.store, request.query
        selectors = query.get("labelSelector", ""), query.get("fieldSelector", "")
        of = (user.name, kind.bucket, info.namespace, *selectors)
        match, token, limit = version_match(request), query.get("continue", ""), number(request, "limit")
        signed_number(request, "timeoutSeconds")
        if token:
            snapshot = self._resume(token, of)
            rv, entries = snapshot.rv, snapshot.rest
        else:
            check_rv(version(request), store)
            chosen = selection(request, kind, info)
            bucket, rv = store.bucket(kind.bucket), store.rv
            if match == "Exact":
                rv = version(request)
                if bucket.history.after(rv) != []:
                    # Past states are not kept, and the present one is another.
                    raise expired(f"The provided resource version {rv} is too old: list again without it.")
            entries = bucket.sorted_entries(info.namespace)
            if not chosen.everything:
                entries = await select_entries(entries, chosen)
        listmeta: Obj = {"resourceVersion": str(rv)}
        if limit and len(entries) > limit:
            listmeta["continue"] = self._keep(of, rv, entries[limit:], user)
            if not any(selectors):  # with selectors, a real server does not know how many are left
                listmeta["remainingItemCount"] = len(entries) - limit
            entries = entries[:limit]
        return await json_response_in_chunks(
            request, representation_of(request, kind, self._now).list(entries, listmeta)
        )

    def _keep(self, of: tuple[str, str, str, str, str], rv: int, rest: list[BucketEntry], user: User) -> str:
        token = secrets.token_urlsafe(12)
        size = 0 if user.is_master else sum(len(entry.raw) for entry in rest)
        self._snapshots[token] = _Snapshot(of, rv, rest, self._now(), size)
        own = self._tokens.setdefault(of[0], deque())
        own.append(token)
        held = sum(self._snapshots[held_token].size for held_token in own)
        while len(own) > MAX_SNAPSHOTS_OF_USER or (held > MAX_BYTES_OF_USER and len(own) > 1):
            held -= self._snapshots.pop(own.popleft()).size
        while len(self._snapshots) > MAX_SNAPSHOTS or self._expired(next(iter(self._snapshots.values()))):
            oldest, snapshot = self._snapshots.popitem(last=False)
            self._drop(oldest, snapshot.of[0])
        return token

    def _drop(self, token: str, user: str) -> None:
        own = self._tokens.get(user)
        if own is not None and token in own:
            own.remove(token)
            if not own:
                del self._tokens[user]

    def _expired(self, snapshot: _Snapshot) -> bool:
        return self._now() - snapshot.born > SNAPSHOT_TTL_S

    def _resume(self, token: str, of: tuple[str, str, str, str, str]) -> _Snapshot:
        if not _TOKEN.match(token):
            raise bad_request("invalid continue token: continue key is not valid")
        snapshot = self._snapshots.get(token)
        if snapshot is None or snapshot.of != of or self._expired(snapshot):
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return snapshot

    def forget(self) -> None:
        """Forget all snapshots: every continue token is expired from now on."""
        self._snapshots.clear()
        self._tokens.clear()
