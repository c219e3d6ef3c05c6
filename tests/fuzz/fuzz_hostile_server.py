"""Whatever a server answers, over real HTTP: no task ends, and nothing counts as deleted, absent or free.

``fuzz_answers`` feeds the same without sockets, which is faster; here the client's HTTP is under test too.

An input is an answer: a line with the status, lines of headers, an empty line, and the body; the server adds
Content-Length. Where the status begins with ``!`` the rest is sent unchanged, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import zlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import structlog
from josepy.jwa import ES256
from requests import Response

from fairlead.api.kubernetes import LEASES, SERVICES, Service
from fairlead.api.meta import ObjectKey
from fairlead.errors import FairleadError, NotFound, Retry
from fairlead.hub.certificates import client as acme
from fairlead.hub.certificates.issuance import new_key
from fairlead.hub.certificates.order import AcmeRefused
from fairlead.kube.cache import CacheSettings, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer, request_token, user_name
from fairlead.kube.discovery import served_kinds, served_versions
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import Heartbeat, LeaderElector
from fairlead.kube.transport import RetryPolicy
from fairlead.providers.zones.powerdns.provider import PowerDNSApi
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.background import end
from fairlead.runtime.clock import SystemClock
from tests.fuzz.fuzz_harness import Read, Target

_POLICY = RetryPolicy(attempts=1, deadline_s=1.0, read_s=0.2)
_HELD = ObjectKey("a", "held")
#: A head after which the body ends where Content-Length says, so that the connection can be used again.
_FRAMED = re.compile(rb"(?!204|304)[2-5]\d\d\b(?:(?!length|encoding|connection|upgrade)[^\r\0])*", re.IGNORECASE)


class NoPause(SystemClock):
    """The clock of the machine, whose pauses pass at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class _Server:
    """Answers every request with ``answer``."""

    def __init__(self) -> None:
        self.answer = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while asked := await reader.readuntil(b"\r\n\r\n"):
                length = asked.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
                head, _, body = self.answer.partition(b"\n\n")
                if head.startswith(b"!"):
                    writer.write(self.answer[1:])
                    return
                lines = [b"HTTP/1.1 " + head.replace(b"\n", b"\r\n"), b"Content-Length: %d" % len(body), b"", b""]
                if not asked.startswith(b"HEAD"):
                    lines[-1] = body
                writer.write(b"\r\n".join(lines))
                await writer.drain()
                if not _FRAMED.fullmatch(head):
                    return  # the client may wait for more than was sent
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()


class World:
    """One client of each kind, and what must be so after each answer."""

    def __init__(
        self, cluster: Cluster, feed: Callable[[bytes], None], *, failed: Callable[[FairleadError], None] | None = None
    ) -> None:
        self.cluster = cluster
        self._feed = feed
        self._failed = failed
        self.calls: Sequence[Callable[[bytes], Awaitable[object]]] = (
            self._get,
            self._delete,
            self._write,
            self._list,
            self._watch,
            self._watch,
            self._lead,
            self._renew,
            self._beat,
            self._emit,
            self._discover,
            self._rights,
        )

    async def answer(self, raw: bytes) -> str:
        """Have one client read an answer; return what became of it."""
        self._feed(raw)
        call = self.calls[zlib.crc32(raw) % len(self.calls)]
        try:
            outcome = str(await call(raw))
        except FairleadError as error:
            if self._failed is not None:
                self._failed(error)
            if isinstance(error, NotFound):
                self._names(raw)
            outcome = type(error).__name__
        assert self.cluster.server_clock.now() + timedelta(days=36_500)
        return f"{call.__name__} {outcome}"

    @staticmethod
    def _names(raw: bytes) -> None:
        """Check that an object that counts as gone is one that a Status names."""
        body = raw.partition(b"\r\n\r\n" if raw.startswith(b"!") else b"\n\n")[2]
        assert b"NotFound" in body
        assert b"Status" in body
        assert b"held" in body

    async def _get(self, _raw: bytes) -> object:
        obj = await self.cluster.get(SERVICES, *_HELD)
        assert obj.key == _HELD
        return "object"

    async def _delete(self, raw: bytes) -> object:
        gone = not await self.cluster.delete(SERVICES, *_HELD)
        if gone:
            self._names(raw)
        else:
            assert b"held" in raw or b"Success" in raw
        return gone

    async def _write(self, _raw: bytes) -> object:
        return (await self.cluster.merge_patch(SERVICES, *_HELD, {})).metadata.name

    async def _list(self, _raw: bytes) -> object:
        listing = await self.cluster.listing(SERVICES, "a")
        assert listing.resource_version or listing.items or listing.broken
        assert all(obj.metadata.name for obj in listing.items)
        return len(listing.broken)

    async def _watch(self, raw: bytes) -> object:
        cache: WatchCache[Service] = WatchCache(
            self.cluster,
            SERVICES,
            settings=CacheSettings(confirm_after_s=0.0, idle_s=0.2, first_idle_s=0.2),
            clock=self.cluster.clock,
        )
        held = Service(metadata=Service().metadata.__class__(name=_HELD.name, namespace=_HELD.namespace))
        cache._store.put(held)
        cache.synced, cache._version, cache._resumes = True, "5", bool(len(raw) % 2)
        try:
            await cache._follow(doubted=False)
        finally:
            if cache.get(*_HELD) is None:
                # A server may say so: by an event, or by a whole list at some version.
                assert b"DELETED" in raw or b"resourceVersion" in raw
        return len(cache)

    def _elector(self) -> LeaderElector:
        return LeaderElector(self.cluster, namespace="a", name="held", identity="me")

    async def _lead(self, raw: bytes) -> object:
        elector = self._elector()
        leads = await elector._try_to_lead()
        if leads:
            assert b"held" in raw
            assert elector.epoch > 0
        return leads

    async def _renew(self, raw: bytes) -> object:
        elector = self._elector()
        elector._mine = LEASES.type(metadata=LEASES.type().metadata.__class__(name="held", namespace="a"))
        renewed = await elector._renew()
        assert renewed is None or b"held" in raw
        return renewed is not None

    async def _beat(self, _raw: bytes) -> object:
        return (await Heartbeat(self.cluster, namespace="a", name="held", identity="me").beat()).metadata.name

    async def _emit(self, _raw: bytes) -> object:
        events = EventRecorder(self.cluster, component="fuzz")
        named = {"api_version": "v1", "namespace": "a", "name": "held", "uid": "", "reason": "R", "message": "m"}
        events.emit(kind="Service", type="Normal", **named)
        task = asyncio.ensure_future(events._run())
        while len(events._queue) or events._queue.processing:
            await asyncio.sleep(0)
            if task.done():
                break
        ended = task.done()
        task.cancel()
        await asyncio.wait({task})
        if ended:
            task.result()
        assert not ended, "the writer of Events ended"
        return events.dropped

    async def _discover(self, raw: bytes) -> object:
        versions = await served_versions(self.cluster, "example.com")
        kinds = await served_kinds(self.cluster, "example.com", "v1")
        assert versions or b"groups" in raw or b"versions" in raw or raw.partition(b"\n\n")[2].strip()[:1] == b"{"
        return f"{len(versions)} {len(kinds)}"

    async def _rights(self, raw: bytes) -> object:
        allowed = await self.cluster.can_i("get", "", "services")
        if allowed:
            assert b"true" in raw
        await self.cluster.version()
        await user_name(self.cluster)
        token = await request_token(self.cluster, "a", "held", valid_s=600)
        return bool(token.token)


@contextmanager
def _listening() -> Generator[tuple[asyncio.AbstractEventLoop, _Server, str]]:
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    loop, server = asyncio.new_event_loop(), _Server()
    listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0))
    try:
        yield loop, server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        loop.run_until_complete(end(*asyncio.all_tasks(loop)))
        loop.close()
        structlog.configure(**config)


@contextmanager
def _hostile_api() -> Generator[Read]:
    with _listening() as (loop, server, url):
        config = ClusterConfig(server=url, sign_in=bearer("t"))
        cluster = Cluster(config, name="hostile", qps=0, clock=NoPause(), policy=_POLICY)
        world = World(cluster, lambda raw: setattr(server, "answer", raw))
        try:
            yield lambda raw: loop.run_until_complete(world.answer(raw))
        finally:
            loop.run_until_complete(cluster.aclose())


class Key:
    """Every key there is."""

    async def entry(self, name: str, entry: str) -> str:
        """Return a key."""
        return f"{name}/{entry}"


@contextmanager
def _hostile_dns() -> Generator[Read]:
    """PowerDNS's API: an answer that cannot be read is not an empty zone."""
    with _listening() as (loop, server, url):
        others = (("url", url),)
        settings = ServerSettings("example.test", "127.0.0.1", 53, credentials="k", others=others, timeout_s=0.2)
        api = PowerDNSApi(settings, secrets=Key())

        async def ask(raw: bytes) -> str:
            server.answer = raw
            sets = await api.sets()
            assert sets or b"rrsets" in raw, "an answer without rrsets is not an empty zone"
            await api.patch([])
            return str(len(sets))

        try:
            yield lambda raw: loop.run_until_complete(ask(raw))
        finally:
            loop.run_until_complete(api.close())


@contextmanager
def acme_asks(url: str, feed: Callable[[bytes], None]) -> Generator[Read]:
    """Give a way to have an ACME client read an answer."""
    key = new_key()
    network = acme._Network(acme._jwk(key), alg=ES256, user_agent="fuzz", timeout=0.2)
    network.session.trust_env = False  # the environment is the same for all answers, and slow to read
    directory = {name: f"{url}/{name}" for name in acme._NEEDED}
    client = acme.AcmeClient(url, key, network, directory)
    calls: Sequence[Callable[[], object]] = (
        lambda: acme.AcmeClient.open(url, key),
        lambda: client.register("", None),
        lambda: client.new_order(["a.example"]),
        lambda: client.order(url),
        lambda: client.authorizations([url]),
        lambda: client.certificate(url),
    )
    fresh = Response()
    fresh.headers["Replay-Nonce"] = "bm9uY2U"

    def ask(raw: bytes) -> str:
        feed(raw)
        network._nonces.clear()
        network._add_nonce(fresh)
        number = zlib.crc32(raw) % len(calls)
        result = calls[number]()
        if number == 3 and result is None:
            assert b"404" in raw
            assert b'"type"' in raw
        return f"{number} {type(result).__name__}"

    try:
        yield ask
    finally:
        network.session.close()


@contextmanager
def _hostile_authority() -> Generator[Read]:
    """An ACME authority, whose client blocks a thread: the server has one of its own."""
    with _listening() as (loop, server, url):
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            with acme_asks(url, lambda raw: setattr(server, "answer", raw)) as ask:
                yield ask
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def answer_bytes(status: str, body: object, *headers: str) -> bytes:
    """Return an answer as an input."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return "\n".join((status, *headers)).encode() + b"\n\n" + content


def _status(code: int, reason: str, **details: object) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": reason}
    return answer_bytes(f"{code} X", {**body, "details": details, "code": code}, "Content-Type: application/json")


_META = {"name": "held", "namespace": "a", "uid": "u", "resourceVersion": "7", "annotations": {"x": "y"}}
_OBJECT = {"metadata": _META, "spec": {"ports": [{"port": 80}]}}
_LEASE = {"holderIdentity": "me", "leaseTransitions": 3, "leaseDurationSeconds": 15}
_END = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
_DEEP = b'{"metadata":{"name":"held","namespace":"a","x":' + b'{"a":' * 1_500 + b"1" + b"}" * 1_500 + b"}}"


def _events(*events: tuple[str, object]) -> bytes:
    return b"".join(json.dumps({"type": type_, "object": obj}).encode() + b"\n" for type_, obj in events)


CORPUS = (
    answer_bytes("200 OK", _OBJECT, "Content-Type: application/json", "Date: Wed, 25 Nov 2026 10:00:00 GMT"),
    answer_bytes("200 OK", {"metadata": _META, "spec": _LEASE}),
    answer_bytes("200 OK", {"metadata": {"resourceVersion": "9"}, "items": [_OBJECT]}),
    answer_bytes("200 OK", {"metadata": {"resourceVersion": "9", "continue": "t"}, "items": None}),
    answer_bytes("200 OK", _events(("ADDED", _OBJECT), ("BOOKMARK", _END), ("MODIFIED", _OBJECT))),
    answer_bytes(
        "200 OK", _events(("DELETED", _OBJECT), ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
    ),
    answer_bytes("200 OK", {"kind": "Status", "status": "Success"}),
    answer_bytes("200 OK", {"groups": [{"name": "example.com", "versions": [{"version": "v1"}]}]}),
    answer_bytes("200 OK", {"name": "example.com", "versions": [{"version": "v1"}], "resources": [{"name": "x"}]}),
    answer_bytes("201 Created", {"status": {"allowed": True, "token": "t", "userInfo": {"username": "u"}}}),
    answer_bytes("200 OK", {"gitVersion": "v1.36.0"}),
    _status(404, "NotFound", name="held", kind="services"),
    _status(404, "NotFound", name="held", group="coordination.k8s.io", kind="leases"),
    _status(404, "NotFound", name="a", kind="namespaces"),
    _status(404, "NotFound"),
    _status(409, "AlreadyExists", name="held"),
    _status(429, "TooManyRequests", retryAfterSeconds=10**400),
    _status(403, "Forbidden"),
    _status(422, "Invalid"),
    answer_bytes("404 Not Found", b"404 page not found\n", "Content-Type: text/plain"),
    answer_bytes("503 X", "nicht verfügbar".encode("latin-1"), "Retry-After: 99999999999999999999"),
    answer_bytes("502 Bad Gateway", b"<html>", "Content-Type: text/html; charset=latin-1"),
    answer_bytes("302 Found", b"", "Location: https://login.example.com/"),
    answer_bytes("401 X", b"[" * 3_000, "Date: Fri, 31 Dec 9999 23:59:59 -2359"),
    answer_bytes("200 OK", _DEEP, "Date: Mon, 01 Jan 0001 00:00:00 +2359"),
    answer_bytes("200 OK", b'{"items":[' + _DEEP + b'],"metadata":{"resourceVersion":"9"}}'),
    answer_bytes("200 OK", b'{"type":"ADDED","object":' + _DEEP + b"}\n", "Content-Encoding: gzip"),
    b"!HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    b'!HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"met\r\nzz\r\n',
    b"!HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"!",
)

DNS = (
    answer_bytes(
        "200 OK", {"rrsets": [{"name": "web.", "type": "A", "ttl": 60, "records": [{"content": "192.0.2.1"}]}]}
    ),
    answer_bytes("204 No Content", b""),
    answer_bytes("422 X", {"error": "no"}, "Content-Type: application/json"),
    answer_bytes("404 X", b"404 page not found"),
    answer_bytes("200 OK", b'{"rrsets":' + b"[" * 3_000 + b"]" * 3_000 + b"}"),
    answer_bytes("422 X", "ungültig".encode("latin-1")),
    b"!HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
)
_PROBLEM = {"type": "urn:ietf:params:acme:error:malformed", "detail": "no such order", "status": 404}
AUTHORITY = (
    answer_bytes(
        "200 OK", {"newNonce": "http://x/", "newAccount": "http://x/", "newOrder": "http://x/"}, "Replay-Nonce: bm8"
    ),
    answer_bytes(
        "201 X", {"status": "valid", "authorizations": [], "finalize": "x"}, "Location: http://x/", "Replay-Nonce: bm8"
    ),
    answer_bytes(
        "200 OK", {"status": "ready", "authorizations": ["x"], "challenges": [{"type": "dns-01", "token": "t"}]}
    ),
    answer_bytes("404 X", _PROBLEM, "Content-Type: application/problem+json", "Replay-Nonce: bm8"),
    answer_bytes("404 X", b"404 page not found"),
    answer_bytes("429 X", {**_PROBLEM, "status": 429}, "Retry-After: Fri, 31 Dec 9999 23:59:59 -2359"),
    answer_bytes("200 OK", b"-----BEGIN CERTIFICATE-----", "Content-Type: application/pem-certificate-chain"),
    answer_bytes("200 OK", b"[" * 3_000, "Replay-Nonce: ***"),
    answer_bytes("503 X", "später".encode("latin-1"), "Retry-After: " + "9" * 5_000),
    b"!HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    answer_bytes("404 X", {"type": 5, "detail": 4}, "Content-Type: application/problem+json"),
    answer_bytes("301 X", b"moved", "Location: http://x/"),
)
TOKENS = (
    b"null",
    b"[]",
    b"{}",
    b"1e999",
    b"9" * 5_000,
    b"\xfc",
    b"[" * 1_200,
    b'{"a":' * 1_200,
    b'"type":',
    b"404",
    b"\n\n",
)

TARGETS = (
    Target(
        "hostile-api",
        CORPUS,
        _hostile_api,
        tokens=(
            b"null", b"[]", b"{}", b"1e999", b"-1", b"9" * 5_000, b'"\\ud800"', b"\xfc", b"\xff\xfe", b"[" * 1_200,
            b'{"a":' * 1_200, b'"NotFound"', b'"details":', b'"held"', b'"name":', b'"resourceVersion":', b"\n\n",
            b"Retry-After: ", b"Date: ", b"Content-Type: text/html", b"Content-Encoding: deflate", b"404", b"200",
            b'"DELETED"', b'"BOOKMARK"', b'"ERROR"', b"\x00", b"\r\n",
        ),
        max_bytes=65_536,
        quick=600,
    ),
    Target("hostile-dns", DNS, _hostile_dns, refusals=(Retry,), tokens=TOKENS, quick=200),
    Target("hostile-authority", AUTHORITY, _hostile_authority, refusals=(AcmeRefused,), tokens=TOKENS, quick=40),
)  # fmt: skip
