"""Route a request: gate, then discovery, reviews, reads, watches or writes.

Every failure becomes a ``Status``; a mistake of ours is logged and becomes a 500.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import structlog
from aiohttp import web
from google.protobuf.message import Message

from podless.auth.identity import User
from podless.failure import ApiFailure, NoSuchPath, bad_request, no_such_path, not_allowed
from podless.http.gate import OPEN_PATHS, AccessGate
from podless.http.info import RequestInfo, parse
from podless.http.listener import RareLog
from podless.http.openapi import OpenApi
from podless.http.parse import parse_object, read_bytes
from podless.http.protobuf import ProtobufReader, ProtoField, message_classes
from podless.http.reads import Reads
from podless.http.responses import failure_response, json_response
from podless.http.reviews import Reviews
from podless.http.watches import Watches
from podless.http.writes import Writes
from podless.kinds.catalog import Catalog
from podless.kinds.kind import Kind
from podless.metrics import Metrics
from podless.objects import Obj, encode

_log = structlog.get_logger(__name__)
_READS, _WRITES = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}
_SUBRESOURCES = {"status", "finalize", "token"}


def _nothing(_protocol: object, _user: User) -> AbstractContextManager[None]:
    return nullcontext()


def _check_encoding(request: web.BaseRequest) -> None:
    """Raise 400 for headers that are not text, which could be neither logged nor answered."""
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
        name: str,
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
        self._version = encode({**VERSION, "gitVersion": f"{VERSION['gitVersion']}+{name}"})
        self._streams = StreamLimit()
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
            return json_response(self._version) if path == "/version" else web.Response(text="ok")
        user = self._gate.enter(request, info)
        with self.on_admission(request.protocol, user):
            if info.verb == "watch":
                with self._streams.watch(user):
                    return await self._answer_user(request, info, path, user)
            await self._streams.take(user)
            try:
                return await self._answer_user(request, info, path, user)
            finally:
                self._streams.release(user)

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


MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# Go cannot parse an "@" in the media type of an answer, so it is written with a dot there, as real servers do.
ANSWER_TYPE = MEDIA_TYPE.replace("@", ".")
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_MESSAGES = {
    "Document": (
        ProtoField(1, "swagger"),
        ProtoField(2, "info", "Info"),
        ProtoField(8, "paths", "Paths"),
        ProtoField(9, "definitions", "Definitions"),
    ),
    "Info": (ProtoField(1, "title"), ProtoField(2, "version")),
    "Paths": (ProtoField(2, "path", "NamedPathItem", repeated=True),),
    "NamedPathItem": (ProtoField(1, "name"), ProtoField(2, "value", "PathItem")),
    "PathItem": (ProtoField(8, "patch", "Operation"),),
    "Operation": (
        ProtoField(8, "parameters", "ParametersItem", repeated=True),
        ProtoField(13, "vendor_extension", "NamedAny", repeated=True),
    ),
    "ParametersItem": (ProtoField(1, "parameter", "Parameter"),),
    "Parameter": (ProtoField(2, "non_body_parameter", "NonBodyParameter"),),
    "NonBodyParameter": (ProtoField(3, "query", "QueryParameter"),),
    "QueryParameter": (ProtoField(2, "in"), ProtoField(4, "name"), ProtoField(6, "type")),
    "NamedAny": (ProtoField(1, "name"), ProtoField(2, "value", "Any")),
    "Any": (ProtoField(2, "yaml"),),
    "Definitions": (),
}


@cache
def _document_class() -> type[Message]:
    return message_classes(_MESSAGES)["Document"]


def _parameter(name: str) -> Obj:
    query = {"in": "query", "name": name, "type": "string"}
    return {"parameter": {"non_body_parameter": {"query": query}}}


def _path(kind: Kind) -> Obj:
    gvk = f"group: {kind.group!r}\nkind: {kind.kind}\nversion: {kind.version}\n"
    extension = {"name": "x-kubernetes-group-version-kind", "value": {"yaml": gvk}}
    operation = {"parameters": [_parameter(name) for name in _PARAMETERS], "vendor_extension": [extension]}
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return {"name": f"{kind.prefix}{scope}/{kind.plural}/{{name}}", "value": {"patch": operation}}


def v2_protobuf(kinds: Iterable[Kind]) -> bytes:
    """Return the document for ``kinds``."""
    info, paths = {"title": "Fairlead", "version": "v1"}, {"path": [_path(kind) for kind in kinds]}
    document = _document_class()(swagger="2.0", info=info, paths=paths, definitions={})
    return document.SerializeToString(deterministic=True)


#: Concurrent requests of one user, and queued ones; the bodies of queued requests have not been read yet.
MAX_RUNNING, MAX_WAITING = 4, 200
#: An agent has fewer than twenty watches; each may have events queued for a slow client.
MAX_WATCHES = 100


class StreamLimit:
    """The limits of concurrent requests and watches of each user; a user without requests takes no memory."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._watches: dict[str, int] = {}

    async def take(self, user: User) -> None:
        """Wait for a seat; raises 429 when the queue of the user is full."""
        name, running = user.name, self._running.get(user.name, 0)
        if user.is_master:
            return
        if running < MAX_RUNNING:
            self._running[name] = running + 1
            return
        queue = self._waiting.setdefault(name, deque())
        if len(queue) >= MAX_WAITING:
            raise _too_many(f"{MAX_RUNNING} requests of {name} are under way and {MAX_WAITING} wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(user)  # the seat was handed over just before the cancellation
            elif turn in queue:
                queue.remove(turn)
            raise

    def release(self, user: User) -> None:
        """Hand the seat to the next queued request of the same user, or free it."""
        if user.is_master:
            return
        queue = self._waiting.get(user.name)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(user.name, None)
        running = self._running.get(user.name, 1) - 1
        if running:
            self._running[user.name] = running
        else:
            self._running.pop(user.name, None)

    @contextmanager
    def watch(self, user: User) -> Generator[None]:
        """Count an open watch inside the block; raises 429 when the user has too many."""
        held = self._watches.get(user.name, 0)
        if held >= MAX_WATCHES and not user.is_master:
            raise _too_many(f"{user.name} has {held} open watches")
        self._watches[user.name] = held + 1
        try:
            yield
        finally:
            self._watches[user.name] -= 1
            if not self._watches[user.name]:
                del self._watches[user.name]


def _too_many(why: str) -> ApiFailure:
    message = f"too many requests: {why}; try again later"
    return ApiFailure(429, "TooManyRequests", message, retry_after_s=1)


VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "python",
    "compiler": "cpython",
    "platform": "linux",
}
_REVIEWS: dict[str, list[tuple[str, str, bool]]] = {
    "authentication.k8s.io": [
        ("selfsubjectreviews", "SelfSubjectReview", False),
        ("tokenreviews", "TokenReview", False),
    ],
    "authorization.k8s.io": [
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
        ("subjectaccessreviews", "SubjectAccessReview", False),
    ],
}


def group_versions(group: str, versions: list[str]) -> Obj:
    """Return an ``APIGroup``; ``versions`` have the preferred one first."""
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": entries, "preferredVersion": entries[0]}


def _resource(kind: Kind) -> Obj:
    entry: Obj = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    entry["verbs"] = list(kind.verbs)
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return entry


def _subresources(kind: Kind) -> list[Obj]:
    shared: Obj = {"singularName": "", "namespaced": kind.namespaced}
    entries: list[Obj] = []
    if kind.has_status:
        name = f"{kind.plural}/status"
        entries.append({"name": name} | shared | {"kind": kind.kind, "verbs": ["get", "patch", "update"]})
    for sub, (group, version, body) in kind.subresources.items():
        entry: Obj = {"name": f"{kind.plural}/{sub}"} | shared
        entries.append(entry | {"group": group, "version": version, "kind": body, "verbs": ["create"]})
    return entries


def resources(catalog: Catalog, group: str, version: str) -> Obj | None:
    """Return an ``APIResourceList``, or None when there is no such group version."""
    entries: list[Obj] = []
    for kind in catalog.all():
        if (kind.group, kind.version) == (group, version):
            entries += [_resource(kind), *_subresources(kind)]
    for name, kind_name, namespaced in _REVIEWS.get(group, ()) if version == "v1" else ():
        review: Obj = {"name": name, "singularName": kind_name.lower(), "namespaced": namespaced}
        entries.append(review | {"kind": kind_name, "verbs": ["create"]})
    if not entries:
        return None
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def discover(catalog: Catalog, path: str) -> Obj | None:
    """Return the document at a discovery path, or None when there is none."""
    parts = path.strip("/").split("/")
    groups = catalog.groups()
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            entries = [group_versions(group, versions) for group, versions in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries}
        case ["apis", group] if group in groups:
            return group_versions(group, groups[group])
        case ["api", "v1"]:
            return resources(catalog, "", "v1")
        case ["apis", group, version]:
            return resources(catalog, group, version)
        case ["version"]:
            return VERSION
        case _:
            return None
