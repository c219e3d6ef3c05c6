"""The page over HTTP: its files, its stream of changes, one load balancer in detail, and the rights of its viewers.

    /                                         the page
    /page/<file>                              its style and scripts, from the package
    /page/events                              server-sent events: everything once, then changes
    /page/load-balancers/<kind>/<ns>/<name>   one load balancer with its history
    /page/traffic                             the figures of busy load balancers, for ``fairlead top``
    /page/audit                               who changed load balancers, for ``fairlead audit``
    /page/trends?id=...                       the last hour of load balancers and routes; ``whole``: of all together
    /page/actions/<kind>/<ns>/<name>          GET: what the viewer may do; POST {"action": ...}: do it
    /debug/keys/<kind>/<ns>/<name>            the hub's memory of one load balancer, for ``fairlead explain``

    loopback, no token    everything: all who can connect are on this machine, as for /metrics and /debug
    a token               what that token may list at the hub's API, asked with the token itself

In: a board, a gate, functions that explain a load balancer. Out: routes of an aiohttp application. What changes
something is done with the token of the viewer alone, on loopback too: the API decides whether it may.
Never: answers a request that another site made a browser send, or one under a name that is not this machine's; keeps
or logs a token, asks with the hub's own rights, or shows more than RBAC allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import timedelta
from importlib.resources import files
from typing import Protocol

import msgspec
import structlog
from aiohttp import web

from fairlead.api.httploadbalancer import (
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    RouteKey,
    maintenance_now,
    maintenance_patch,
)
from fairlead.api.json_text import decode
from fairlead.api.kinds import INTENT_KINDS, LOAD_BALANCER_KINDS
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_PAUSED, GROUP, MANAGER_PAGE, name_problem
from fairlead.api.times import wire_time
from fairlead.errors import BadConfiguration, Conflict, FairleadError, Forbidden, Invalid, NotFound, Unauthorized
from fairlead.hub.inspect.preview import KeyState
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer, user_name
from fairlead.model.change import HistoryEntry
from fairlead.model.http import Maintenance
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import Board, Change
from fairlead.page.tables import RESOURCE_OF, Detail
from fairlead.page.traffic import LastHour, Traffic
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import TokenBucket
from fairlead.runtime.tls import is_this_machine

#: A browser that hears nothing for longer takes the connection for dead.
PING_S = 15.0
#: A browser that takes nothing for so long has gone, or keeps a seat from others.
_STALLED_S = 60.0
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_ROUTES = LOAD_BALANCER_ROUTES.plural
_DONE = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)
_NO_ANSWER = (
    "the hub cannot reach its API; try again, and if the problem persists ask the operator, who finds it in the log"
)

_ACTIONS = "/page/actions/{kind}/{namespace}/{name}"
#: Rows that a screen shows.
MOST_TRENDS_ASKED = 100
#: How long a maintenance lasts that is begun on the page, unless it is ended before.
_MAINTENANCE = timedelta(hours=1)

log = structlog.get_logger(__name__)

#: Returns one load balancer in detail, or of it what is for one object of a member; None for one that is not known.
Explain = Callable[[LoadBalancerKey, RouteKey | None], Awaitable[Detail | None]]
#: Returns what is in memory of one, to be sent as JSON, None for one that is not known.
Known = Callable[[LoadBalancerKey], KeyState | None]
#: Returns the changes of the objects of all load balancers.
Revisions = Callable[[], Iterable[tuple[LoadBalancerKey, Sequence[HistoryEntry]]]]
_AUDITED = {kind.kind: kind.plural for kind in INTENT_KINDS}


class AuditedLoadBalancer(msgspec.Struct, frozen=True, rename="camel"):
    """The changes of one load balancer or name, oldest first."""

    load_balancer: str
    changes: Sequence[HistoryEntry]


class WebPage:
    """The routes of the page. ``any_host``: a token is asked for, so the name in the address does not matter."""

    def __init__(
        self,
        board: Board,
        *,
        gate: ViewerGate,
        explain: Explain,
        known: Known = lambda _key: None,
        revisions: Revisions = tuple,
        traffic: Traffic | None = None,
        actors: TokenGate | None = None,
        any_host: bool = False,
    ) -> None:
        self._board = board
        self._traffic = traffic
        self._gate = gate
        self._explain = explain
        self._known = known
        self._revisions = revisions
        self._actors = actors
        self._streams = StreamLimit(_HEADERS)
        self._any_host = any_host
        self._files = _static()

    def add_to(self, app: web.Application) -> None:
        """Add the routes; open streams end when the application stops."""
        app.router.add_get("/", self._guarded(self._index))
        app.router.add_get("/page/events", self._guarded(self._events))
        app.router.add_get("/page/load-balancers/{kind}/{namespace}/{name}", self._guarded(self._load_balancer))
        app.router.add_get("/page/traffic", self._guarded(self._figures))
        app.router.add_get("/page/audit", self._guarded(self._audit))
        app.router.add_get("/page/trends", self._guarded(self._trends))
        app.router.add_get(_ACTIONS, self._guarded(self._offered))
        app.router.add_post(_ACTIONS, self._guarded(self._act))
        app.router.add_get("/debug/keys/{kind}/{namespace}/{name}", self._guarded(self._key))
        app.router.add_get("/page/{file}", self._guarded(self._file))

        async def stop(_app: web.Application) -> None:
            self._board.close()

        app.on_shutdown.append(stop)

    def _guarded(
        self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            if problem := refused(request.headers, any_host=self._any_host, changes=request.method == "POST"):
                return _said(403, problem)
            try:
                return await handler(request)
            except NotFound as error:
                return _said(404, error.sentence)
            except (Conflict, Invalid, BadConfiguration) as error:
                return _said(409, error.sentence)
            except Unauthorized as error:
                return _said(401, error.sentence)
            except Forbidden as error:
                return _said(403, error.sentence)
            except FairleadError as error:
                log.warning("the page cannot answer", path=request.path, sentence=error.sentence, detail=error.detail)
                # Who may not look yet is not to read where the API is.
                return _said(503, _NO_ANSWER if self._any_host else error.sentence)

        return answer

    async def _index(self, _request: web.Request) -> web.Response:
        return self._named("index.html")

    async def _file(self, request: web.Request) -> web.Response:
        return self._named(request.match_info["file"])

    def _named(self, name: str) -> web.Response:
        if name not in self._files:
            return _said(404, f"no such file: {name}")
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=self._files[name], content_type=kind, charset="utf-8", headers=_HEADERS)

    async def _load_balancer(self, request: web.Request) -> web.Response:
        key, allowed, with_routes = await self._asked(request)
        # What may not be seen and what is not there look alike.
        text = request.query.get("route", "")
        parts = text.split("/")
        only = RouteKey(*parts) if len(parts) == len(RouteKey._fields) else None
        detail = await self._explain(key, only) if allowed and (only is None or with_routes) else None
        if detail is not None and not with_routes:
            detail = msgspec.structs.replace(detail, routes=[], more_routes=0, chain=None)
        return _json(detail) if detail is not None else _said(404, f"{key} does not exist, or you may not see it")

    async def _key(self, request: web.Request) -> web.Response:
        key, allowed, _ = await self._asked(request)
        known = self._known(key) if allowed else None
        return _json(known) if known is not None else _said(404, f"{key} is unknown, or you may not see it")

    async def _asked(self, request: web.Request) -> tuple[LoadBalancerKey, bool, bool]:
        """Return which load balancer is asked for, whether it may be seen, and whether its routes may."""
        key = LoadBalancerKey(*(request.match_info[part] for part in ("kind", "namespace", "name")))
        async with aclosing(await self._gate.rights(request.headers)) as rights:
            right, of_routes = (RESOURCE_OF.get(key.kind, ""), key.namespace), (_ROUTES, key.namespace)
            allowed = await rights.of([right, of_routes])
        return key, bool(right[0]) and allowed[right], allowed[of_routes]

    async def _figures(self, request: web.Request) -> web.Response:
        async with aclosing(await self._gate.rights(request.headers)) as rights:
            if self._traffic is None:
                return _said(404, "this hub collects no traffic figures")
            answer = await self._traffic.answer()
            places = {
                figure.id: figure.id.split("/", 2) for figure in (*answer.figures, *answer.backends, *answer.routes)
            }
            wanted = {name: (RESOURCE_OF.get(kind, ""), namespace) for name, (kind, namespace, _) in places.items()}
            allowed = await rights.of(wanted.values())
            seen = {name for name, right in wanted.items() if right[0] and allowed[right]}
        series = (answer.figures, answer.backends, answer.routes)
        figures, backends, routes = ([figure for figure in figures if figure.id in seen] for figures in series)
        return _json(msgspec.structs.replace(answer, figures=figures, backends=backends, routes=routes))

    async def _audit(self, request: web.Request) -> web.StreamResponse:
        async with aclosing(await self._gate.rights(request.headers)) as rights:
            changes = {key: entries for key, entries in self._revisions() if key.kind in _AUDITED}
            wanted = {key: (_AUDITED[key.kind], key.namespace) for key in changes}
            allowed = await rights.of(wanted.values())
        return _json([AuditedLoadBalancer(str(key), changes[key]) for key in changes if allowed[wanted[key]]])

    async def _trends(self, request: web.Request) -> web.StreamResponse:
        async with aclosing(await self._gate.rights(request.headers)) as rights:
            hour = self._traffic.last_hour if self._traffic is not None else LastHour()
            ids, with_whole = set(request.query.getall("id", [])[:MOST_TRENDS_ASKED]), "whole" in request.query
            named = {
                name: counted
                for counted in hour.subjects()
                if (name := str(counted)) in ids or (with_whole and not counted.load_balancer.name)
            }
            wanted = {
                name: (RESOURCE_OF.get(counted.load_balancer.kind, ""), counted.load_balancer.namespace)
                for name, counted in named.items()
            }
            allowed = await rights.of(wanted.values())
        seen = {name: counted for name, counted in named.items() if wanted[name][0] and allowed[wanted[name]]}
        trends = {name: trend for name in ids & seen.keys() if (trend := hour.of([seen[name]])) is not None}
        whole = hour.of([counted for counted in seen.values() if not counted.load_balancer.name])
        return _json({"trends": trends, "whole": whole})

    async def _offered(self, request: web.Request) -> web.StreamResponse:
        actor, key = await self._actor(request)
        async with aclosing(actor):
            may = await actor.may_change(RESOURCE_OF[key.kind], key.namespace, key.name)
            return _json({"viewer": actor.viewer, "actions": actions_on(key.kind) if may else ()})

    async def _act(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":
            return _said(415, "an action is sent as application/json")
        try:
            wanted = decode(await request.read(), ActionRequest)
        except msgspec.DecodeError as error:
            return _said(400, f"the action cannot be read: {error}")
        actor, key = await self._actor(request)
        async with aclosing(actor):
            if wanted.action not in actions_on(key.kind):
                return _said(
                    400, f"{key.kind} has no action {wanted.action!r}; it has {', '.join(actions_on(key.kind))}"
                )
            await actor.act(wanted.action, key)
            log.info("a viewer changed an object", action=wanted.action, object=str(key), viewer=actor.viewer)
            return _json({"done": wanted.action})

    async def _actor(self, request: web.Request) -> tuple[TokenRights, LoadBalancerKey]:
        key = LoadBalancerKey(*(request.match_info[part] for part in ("kind", "namespace", "name")))
        if key.kind not in RESOURCE_OF or any(map(name_problem, key[1:])):
            raise NotFound(f"{key} is not a load balancer")
        if self._actors is None:
            raise Forbidden("this hub takes no changes from its page")
        return await self._actors.rights(request.headers), key

    async def _events(self, request: web.Request) -> web.StreamResponse:
        with self._streams.take():
            async with aclosing(await self._gate.rights(request.headers)) as rights:
                with self._streams.of(rights.viewer or request.remote or ""):
                    return await self._stream(request, rights)

    async def _stream(self, request: web.Request, rights: Rights) -> web.StreamResponse:
        viewer, first = await self._board.join()
        try:
            response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
            changes: Sequence[Change] = await _visible(first, rights)
            await response.prepare(request)
            with contextlib.suppress(*_DONE):
                await _send(response, event("all", changes))
                while not viewer.closed:
                    changes = await _visible(await viewer.changes(PING_S), rights)
                    await _send(response, event("change", changes) if changes else b": still here\n\n")
            return response
        finally:
            self._board.leave(viewer)


class ActionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that changes something."""

    action: str


def actions_on(kind: str) -> tuple[str, ...]:
    """Return what can be done to a load balancer of this kind."""
    more = ("maintenance", "end-maintenance") if kind == HTTP_LOAD_BALANCERS.kind else ()
    return ("pause", "resume", *more)


def event(name: str, changes: Iterable[Change]) -> bytes:
    """Return one server-sent event: items by table, and the ids of those that are gone."""
    changed: dict[str, list[msgspec.Struct]] = {}
    removed: dict[str, list[str]] = {}
    for change in changes:
        if change.gone:
            removed.setdefault(change.table, []).append(change.id)
        else:
            changed.setdefault(change.table, []).append(change.visible_item.item)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode({"set": changed, "gone": removed}))


def refused(headers: Mapping[str, str], *, any_host: bool, changes: bool = False) -> str:
    """Return why a request is not answered; empty when it is. ``changes``: it may change something.

    A name that is not this machine's may have been made to point here, so that the script of another site reads the
    page (DNS rebinding); an address in figures, and localhost, cannot.
    """
    if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") and (
        headers.get("Sec-Fetch-Mode") != "navigate"
    ):
        return "this page answers requests of its own origin only, not of other sites"
    host = headers.get("Host", "")
    if changes and (
        headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
        or headers.get("Origin", f"//{host}").partition("//")[2] != host
    ):
        return "this page takes changes from itself only, not from other sites"
    if any_host or is_this_machine(host):
        return ""
    return f"{host!r} is not a name of this machine; open the page as http://127.0.0.1:PORT or http://localhost:PORT"


async def _visible(changes: Sequence[Change], rights: Rights) -> list[Change]:
    allowed = await rights.of((change.visible_item.resource, change.visible_item.namespace) for change in changes)
    return [change for change in changes if allowed[change.visible_item.resource, change.visible_item.namespace]]


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_STALLED_S):
        await response.write(data)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=_HEADERS)


def _said(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=message + "\n", headers=_HEADERS)


def _static() -> dict[str, bytes]:
    """Return the files of the page by name."""
    folder = files("fairlead.page").joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}


#: Streams of all viewers, those that are still signing in among them.
MAX_STREAMS = 256
#: Of one user of the API, or of one address where no token is asked for: so many tabs of a browser.
MAX_OF_ONE = 32
_RETRY = {"Retry-After": "10"}


class StreamLimit:
    """The open streams of one page; ``headers`` go with a refusal."""

    def __init__(self, headers: Mapping[str, str] = {}) -> None:
        self._headers = {**headers, **_RETRY}
        self._all = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def take(self) -> Generator[None]:
        """Count a stream inside the block; raises 503 when too many are open."""
        if self._all >= MAX_STREAMS:
            text = f"{MAX_STREAMS} pages of this hub are open, the most that it serves: close some, or try later\n"
            raise web.HTTPServiceUnavailable(text=text, headers=self._headers)
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1

    @contextmanager
    def of(self, viewer: str) -> Generator[None]:
        """Count a stream of ``viewer`` inside the block; raises 429 when it has too many."""
        if self._of[viewer] >= MAX_OF_ONE:
            text = f"you have {MAX_OF_ONE} pages of this hub open, the most for one viewer: close some\n"
            raise web.HTTPTooManyRequests(text=text, headers=self._headers)
        self._of[viewer] += 1
        try:
            yield
        finally:
            self._of[viewer] -= 1
            if not self._of[viewer]:
                del self._of[viewer]


#: So long an answer of the API counts: a right that is taken away is taken away here that much later.
REMEMBERED_S = 60.0
#: From so many answers on, those that no longer count are dropped.
_MOST_ANSWERS = 1000
_AT_ONCE = 8
#: Tokens that are tried in a second, after a first burst: each is a handshake with the API, in the hub's own process.
_SIGN_INS_PER_S, _SIGN_INS_AT_FIRST = 50.0, 256
_SIGN_IN = "sign in with a token of this hub's API: kubectl create token NAME -n NAMESPACE prints one"

Right = tuple[str, str]


class Rights(Protocol):
    """The rights of one viewer."""

    @property
    def viewer(self) -> str:
        """Return the name of the user at the hub's API, empty where no token is asked for."""
        ...

    async def of(self, wanted: Iterable[Right]) -> Mapping[Right, bool]:
        """Return for each (resource, namespace) whether it may be listed; an empty namespace means all of them."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class ViewerGate(Protocol):
    """The check whether a request may see the page at all."""

    async def rights(self, headers: Mapping[str, str]) -> Rights:
        """Return what the sender of these headers may see; ``Unauthorized`` says how to get in."""
        ...


class AllRights:
    """Unrestricted rights, and the gate that grants them to every viewer."""

    viewer = ""

    async def rights(self, headers: Mapping[str, str]) -> Rights:  # noqa: ARG002 - everyone
        """Return itself."""
        return self

    async def of(self, wanted: Iterable[Right]) -> Mapping[Right, bool]:
        """Return True for all."""
        return dict.fromkeys(wanted, True)

    async def aclose(self) -> None:
        """Do nothing."""


class TokenGate:
    """Authenticates viewers by a token of the hub's API, to which ``config`` connects.

    Nothing of the hub's own credentials goes with it: the API would take a client certificate for the sender. Tokens
    are tried at a bounded rate: anyone may send some, and the hub has other work.
    """

    def __init__(self, config: ClusterConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sign_ins = TokenBucket(_SIGN_INS_PER_S, _SIGN_INS_AT_FIRST, clock)

    async def rights(self, headers: Mapping[str, str]) -> TokenRights:
        """Return what the token of these headers may list."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(_SIGN_IN)
        await self._sign_ins.acquire()
        trusted = self._config.trusted
        tls = await asyncio.to_thread(trusted) if trusted is not None else None
        cluster = Cluster(_as_viewer(self._config, token.strip(), tls), name="viewer", clock=self._clock)
        try:
            viewer = await user_name(cluster)
        except Unauthorized as error:
            await cluster.aclose()
            raise Unauthorized(f"this token is unknown, or has expired: {_SIGN_IN}", detail=error.detail) from error
        except BaseException:
            await cluster.aclose()
            raise
        return TokenRights(cluster, self._clock, viewer=viewer)


class TokenRights:
    """The rights of one token, from SelfSubjectAccessReviews that are cached for ``REMEMBERED_S``."""

    def __init__(self, cluster: Cluster, clock: Clock, *, viewer: str) -> None:
        self.viewer = viewer
        self._cluster = cluster
        self._clock = clock
        self._answers: dict[Right, tuple[float, bool]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def of(self, wanted: Iterable[Right]) -> Mapping[Right, bool]:
        """Return for each right whether it is granted; items without a resource are for every viewer."""
        rights = set(wanted)
        await asyncio.gather(*(self._ask(right) for right in {(resource, "") for resource, _ in rights if resource}))
        await asyncio.gather(*(self._ask(right) for right in rights if right[0] and not self._known((right[0], ""))))
        return {right: not right[0] or self._known((right[0], "")) or self._known(right) for right in rights}

    async def may_change(self, resource: str, namespace: str, name: str) -> bool:
        """Return whether the viewer may change annotations of this object."""
        return await self._cluster.can_i("patch", GROUP, resource, namespace, name)

    async def act(self, action: str, key: LoadBalancerKey) -> None:
        """Change an object as the viewer; the API decides whether the viewer may.

        Raises:
            Forbidden: the viewer may not.
            BadConfiguration: the object has an annotation that cannot be read.
        """
        resource = next(resource for resource in LOAD_BALANCER_KINDS if resource.kind == key.kind)
        if action in ("pause", "resume"):
            patch: JSONObject = {
                "metadata": {"annotations": {ANNOTATION_PAUSED: "true" if action == "pause" else None}}
            }
        else:
            obj = await self._cluster.get(resource, key.namespace, key.name)
            try:
                entries = maintenance_now(obj, self._clock.now())
            except ValueError as error:
                raise BadConfiguration(f"{key}: {error}. Correct or remove the annotation first") from error
            until = wire_time(self._clock.now() + _MAINTENANCE)
            patch = maintenance_patch(
                obj, [*entries.values(), Maintenance(until=until)] if action == "maintenance" else ()
            )
        await self._cluster.merge_patch(resource, key.namespace, key.name, patch, manager=MANAGER_PAGE)

    async def aclose(self) -> None:
        """Close the connections to the API."""
        await self._cluster.aclose()

    def _known(self, right: Right) -> bool:
        return self._answers.get(right, (0.0, False))[1]

    async def _ask(self, right: Right) -> None:
        now_s = self._clock.monotonic()
        if right in self._answers and now_s - self._answers[right][0] < REMEMBERED_S:
            return
        async with self._slots:
            allowed = await self._cluster.can_i("list", GROUP, right[0], right[1])
        if len(self._answers) >= _MOST_ANSWERS:
            # Those of namespaces that are gone are not asked for again.
            self._answers = {key: known for key, known in self._answers.items() if now_s - known[0] < REMEMBERED_S}
        self._answers[right] = now_s, allowed


def _as_viewer(config: ClusterConfig, token: str, tls: ssl.SSLContext | None) -> ClusterConfig:
    """Return how the API is reached with the viewer's token, and with nothing of the hub's own."""
    return ClusterConfig(
        server=config.server,
        sign_in=bearer(token, tls=tls),
        source="the token of a viewer",
        tls_server_name=config.tls_server_name,
        proxy=config.proxy,
    )
