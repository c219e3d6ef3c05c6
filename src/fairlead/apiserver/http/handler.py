"""Route a request: gate, then discovery, reviews, reads, watches or writes.

Every failure becomes a ``Status``; a mistake of ours is logged and becomes a 500.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import structlog
from aiohttp import web

from fairlead.apiserver.auth.identity import User
from fairlead.apiserver.failure import ApiFailure, NoSuchPath, bad_request, no_such_path, not_allowed
from fairlead.apiserver.http.body import parse_object, read_bytes
from fairlead.apiserver.http.discovery import VERSION, discover
from fairlead.apiserver.http.gate import OPEN_PATHS, AccessGate
from fairlead.apiserver.http.info import RequestInfo, parse
from fairlead.apiserver.http.openapi import OpenApi
from fairlead.apiserver.http.openapi_v2 import ANSWER_TYPE, MEDIA_TYPE, v2_protobuf
from fairlead.apiserver.http.protobuf import ProtobufReader
from fairlead.apiserver.http.rare_log import RareLog
from fairlead.apiserver.http.reads import Reads
from fairlead.apiserver.http.responses import failure_response, json_response
from fairlead.apiserver.http.reviews import Reviews
from fairlead.apiserver.http.seats import Seats
from fairlead.apiserver.http.watches import Watches
from fairlead.apiserver.http.writes import Writes
from fairlead.apiserver.kinds.catalog import Catalog
from fairlead.apiserver.kinds.kind import Kind
from fairlead.apiserver.metrics import Metrics
from fairlead.apiserver.objects import encode

_log = structlog.get_logger(__name__)
_READS, _WRITES = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}
_SUBRESOURCES = {"status", "finalize", "token"}


def _nothing(_protocol: object, _user: User) -> AbstractContextManager[None]:
    return nullcontext()


def _check_encoding(request: web.BaseRequest) -> None:
    """Raise 400 for headers that are no text, which could be neither logged nor answered."""
    for name, value in request.raw_headers:
        if not (name.isascii() and value.isascii()):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                raise bad_request("a header of the request is not UTF-8") from error


class Handler:
    """The one request handler of a server."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        gate: AccessGate,
        reads: Reads,
        watches: Watches,
        writes: Writes,
        reviews: Reviews,
        openapi: OpenApi,
        protobuf: ProtobufReader,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._gate = gate
        self._reads = reads
        self._watches = watches
        self._writes = writes
        self._reviews = reviews
        self._openapi = openapi
        self._protobuf = protobuf
        self._metrics = metrics
        self._seats = Seats()
        self._rare = RareLog()
        #: Entered with the protocol and user of each authenticated request, and left when it has been answered.
        self.on_admission: Callable[[object, User], AbstractContextManager[None]] = _nothing

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        start = time.perf_counter()
        info = parse(request.method, request.path, request.query)
        try:
            _check_encoding(request)
            response = await self._answer(request, info)
        except NoSuchPath as failure:
            response = (
                failure_response(failure)
                if self._known(info)
                else web.Response(status=404, text="404 page not found\n")
            )
        except ApiFailure as failure:
            response = failure_response(failure)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:  # noqa: BLE001 - the outermost place: a mistake of ours is a 500, never a torn connection
            # As text, because a rich traceback shows local variables, and a token may be among them.
            if (others := self._rare.due()) is not None:
                trace = traceback.format_exc()
                _log.error("request failed", method=request.method, path=request.path, trace=trace, others=others)
            response = failure_response(
                ApiFailure(500, "InternalError", "Internal error occurred: see the server's log")
            )
        agent = request.headers.get("User-Agent", "")
        took_s = time.perf_counter() - start
        self._metrics.record(info.verb, self._counted(info, response.status), response.status, agent, took_s)
        return response

    def _counted(self, info: RequestInfo, status: int) -> str:
        """Return the name under which a request is counted; names that a client has made up share one."""
        if status >= 400 and self._catalog.find(info.group, info.version, info.resource) is None:
            return "unknown" if info.resource else ""
        if info.subresource and (status < 400 or info.subresource in _SUBRESOURCES):
            return f"{info.resource}/{info.subresource}"
        return info.resource

    async def _answer(self, request: web.BaseRequest, info: RequestInfo) -> web.StreamResponse:
        path = info.path.rstrip("/") or "/"
        if path in OPEN_PATHS or path.startswith(("/readyz/", "/livez/")):
            self._gate.identify(request)  # open to all, but a token that is sent must be known
            return json_response(encode(VERSION)) if path == "/version" else web.Response(text="ok")
        user = self._gate.enter(request, info)
        with self.on_admission(request.protocol, user):
            if info.verb == "watch":
                with self._seats.watch(user):
                    return await self._answer_user(request, info, path, user)
            await self._seats.take(user)
            try:
                return await self._answer_user(request, info, path, user)
            finally:
                self._seats.release(user)

    async def _answer_user(
        self, request: web.BaseRequest, info: RequestInfo, path: str, user: User
    ) -> web.StreamResponse:
        if not info.resource:
            return self._answer_path(request, path)
        if request.method == "HEAD":
            raise not_allowed()
        kind = self._catalog.find(info.group, info.version, info.resource)
        if kind is None or (info.verb == "create" and kind.subresources.get(info.subresource)):
            return await self._answer_review(request, info, user)
        self._check(kind, info)
        if info.verb == "list":
            return await self._reads.list(request, kind, info, user)
        if info.verb == "get":
            return self._reads.get(request, kind, info)
        if info.verb == "watch":
            return await self._watches.serve(request, kind, info, user)
        return await self._writes.serve(request, kind, info, user)

    def _known(self, info: RequestInfo) -> bool:
        """Return whether the path lies in a group of our own or in a custom kind; elsewhere a 404 is plain text."""
        parts = info.path.strip("/").split("/")
        if parts[0] == "api":
            return True
        if parts[0] != "apis" or len(parts) < 2:
            return False
        custom = self._catalog.find(info.group, info.version, info.resource) if info.resource else None
        return custom is not None or self._catalog.built_in(parts[1])

    @staticmethod
    def _check(kind: Kind, info: RequestInfo) -> None:
        """Raise 404 or 405 when the kind does not have what the URL asks for."""
        status = info.subresource == "status" and kind.has_status
        if info.subresource and not status and not (info.subresource == "finalize" and kind.bucket == "namespaces"):
            raise no_such_path()
        if not kind.namespaced and info.namespace:
            raise no_such_path()
        if info.verb in {"update", "patch"} and not info.name:
            raise not_allowed()
        needs_namespace = info.verb not in {"list", "watch"} or bool(info.name)
        if kind.namespaced and not info.namespace and needs_namespace:
            if info.verb in {"create", "deletecollection"}:
                raise not_allowed()
            raise no_such_path()
        if (
            info.verb not in _READS | _WRITES
            or (info.verb == "create" and info.name)
            or (status and info.verb == "delete")
        ):
            raise not_allowed()

    def _answer_path(self, request: web.BaseRequest, path: str) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            raise no_such_path()
        if path == "/metrics":
            return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})
        if path == "/openapi/v3":
            return json_response(encode(self._openapi.index()))
        if path.startswith("/openapi/v3/"):
            document = self._openapi.v3(path.removeprefix("/openapi/v3/"))
            if document is not None:
                return json_response(document)
        if path == "/openapi/v2":
            if MEDIA_TYPE in request.headers.get("Accept", ""):
                headers = {"Content-Type": ANSWER_TYPE}
                return web.Response(body=v2_protobuf(self._catalog.all()), headers=headers)
            return json_response(self._openapi.v2())
        if path == "/":
            groups = [f"/apis/{group}" for group in self._catalog.groups()]
            return json_response(encode({"paths": ["/api", "/api/v1", "/apis", *groups, "/readyz", "/version"]}))
        document = discover(self._catalog, path)
        if document is None:
            raise no_such_path()
        return json_response(encode(document))

    async def _answer_review(self, request: web.BaseRequest, info: RequestInfo, user: User) -> web.Response:
        if info.verb != "create" or info.version != "v1":
            raise no_such_path()
        body = parse_object(await read_bytes(request), request.content_type, self._protobuf)
        if info.resource == "serviceaccounts" and info.subresource == "token":
            return json_response(encode(self._reviews.token_request(info.namespace, info.name, body)), 201)
        review = self._reviews.answer(info.group, info.resource, info.namespace, body, user)
        if review is None:
            raise no_such_path()
        return json_response(encode(review), 201)
