"""Whatever servers, drivers, authorities and plugins answer, at the seam of the network: a million answers in minutes.

An input is an answer as in ``fuzz_hostile_server``, which sends a sample over real HTTP. Here status, headers and body
are handed to the code above the HTTP library: decoding, limits and classes of errors are the real ones. With a header
``X-Endless`` a body repeats without an end; with ``!`` before the status it breaks off at its end.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import aiohttp
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import requests
import structlog
import urllib3
from multidict import CIMultiDict, CIMultiDictProxy
from requests.adapters import HTTPAdapter
from urllib3._collections import HTTPHeaderDict

from fairlead.errors import BadConfiguration, FairleadError, Retry, Terminal, Unreachable
from fairlead.hub.certificates.order import AcmeRefused
from fairlead.kube import config as kube_config
from fairlead.kube import transport
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, KubeconfigSignIn, Material, bearer
from fairlead.kube.transport import LONGEST_PAUSE_S
from fairlead.model.change import Action, BackendFacts, OutcomeStatus
from fairlead.providers.webhook import client as webhook_client
from fairlead.providers.webhook.client import RetryAfter
from fairlead.providers.webhook.protocol import LONGEST_RETRY_S
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.providers.webhook.settings import settings_from_parameters
from fairlead.providers.zones.connection import _Connection
from fairlead.providers.zones.plan import Edit, RRKey
from fairlead.providers.zones.powerdns import provider as powerdns
from fairlead.providers.zones.rfc2136.provider import UpdateServer
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.background import end
from tests.fuzz.fuzz_harness import Read, Target
from tests.fuzz.fuzz_hostile_server import AUTHORITY, CORPUS, DNS, TOKENS, Key, NoPause, World, acme_asks, answer_bytes
from tests.unit.providers.webhook.scripted_driver import KEY, POD, row, spec

#: What represents the limits of bodies here: to reach those of the product takes seconds.
_LIMIT = 1 << 17
_CHUNK = 1 << 14
#: That of aiohttp.
_LONGEST_HEADER = 8190
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")


class _Fed:
    """The answer to the next requests, and how much of a body may be taken."""

    def __init__(self) -> None:
        self.raw = b""
        self.limit = _LIMIT

    def response(self) -> _Response:
        """Return the answer as aiohttp would.

        Raises:
            aiohttp.ClientError: it is not HTTP.
        """
        head, _, body = self.raw.partition(b"\n\n")
        broken = head.startswith(b"!")
        lines = head.lstrip(b"!").removeprefix(b"HTTP/1.1 ").splitlines() or [b""]
        status = lines[0][:3]
        if not (status.isdigit() and len(status) == 3 and status >= b"200"):
            raise aiohttp.ServerDisconnectedError
        headers: CIMultiDict[str] = CIMultiDict()
        for line in lines[1:]:
            if len(line) > _LONGEST_HEADER or (field := _HEADER.fullmatch(line)) is None:
                raise aiohttp.ClientPayloadError("400, message: invalid header")
            headers.add(field[1].decode(), field[2].decode("utf-8", "surrogateescape").strip())
        return _Response(int(status), headers, _Content(body, broken=broken, endless="X-Endless" in headers, fed=self))


class _Content:
    """A body in chunks."""

    def __init__(self, body: bytes, *, broken: bool, endless: bool, fed: _Fed) -> None:
        self._body = body
        self._broken = broken
        self._endless = endless and body
        self._fed = fed
        self._place = 0
        self.taken = 0

    async def readany(self) -> bytes:
        if self._place >= len(self._body):
            if not self._endless:
                if self._broken:
                    raise aiohttp.ClientPayloadError("Response payload is not completed")
                return b""
            self._place = 0
            if len(self._body) < _CHUNK:
                self._body *= _CHUNK // len(self._body) + 1
        chunk = self._body[self._place : self._place + _CHUNK]
        self._place += len(chunk)
        self.taken += len(chunk)
        assert self.taken <= self._fed.limit + 2 * _CHUNK, "a body is read without a limit"
        return chunk

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        while chunk := await self.readany():
            yield chunk


class _Response:
    connection = None

    def __init__(self, status: int, headers: CIMultiDict[str], content: _Content) -> None:
        self.status = status
        self.headers = CIMultiDictProxy(headers)
        self.content = content

    def close(self) -> None:
        pass

    release = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class _Request:
    """A request that is awaited, or entered as a context."""

    def __init__(self, fed: _Fed, *, raise_for_status: bool) -> None:
        self._fed = fed
        self._raise_for_status = raise_for_status

    async def _answer(self) -> _Response:
        response = self._fed.response()
        if self._raise_for_status and not 200 <= response.status < 300:
            raise aiohttp.ClientConnectionError(f"{response.status}")
        return response

    def __await__(self) -> Generator[Any, None, _Response]:
        return self._answer().__await__()

    async def __aenter__(self) -> _Response:
        return await self._answer()

    async def __aexit__(self, *_: object) -> None:
        pass


class _Aiohttp:
    """The module ``aiohttp`` with its real errors, and sessions whose answers are fed."""

    def __init__(self, fed: _Fed) -> None:
        self._fed = fed

    def TCPConnector(self, **_: object) -> None:  # noqa: N802 - the name of aiohttp
        """Return nothing: nothing connects."""

    def ClientSession(self, *, raise_for_status: bool = False, **_: object) -> _Session:  # noqa: N802 - of aiohttp
        return _Session(self._fed, raise_for_status=raise_for_status)

    def __getattr__(self, name: str) -> Any:
        return getattr(aiohttp, name)


class _Session:
    def __init__(self, fed: _Fed, *, raise_for_status: bool) -> None:
        self._fed = fed
        self._raise_for_status = raise_for_status

    def request(self, _method: str, _url: object, **_: object) -> _Request:
        return _Request(self._fed, raise_for_status=self._raise_for_status)

    def get(self, url: str, **options: object) -> _Request:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: object) -> _Request:
        return self.request("POST", url, **options)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        pass


@contextmanager
def _quiet_loop() -> Generator[asyncio.AbstractEventLoop]:
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.run_until_complete(end(*asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        structlog.configure(**config)


def _no_long_pause(error: FairleadError, limit_s: float = LONGEST_PAUSE_S) -> None:
    assert (getattr(error, "after_s", None) or 0.0) <= limit_s, "an answer asks for a pause without a limit"


# --- the API server ---------------------------------------------------------------------------------------------------


@contextmanager
def _api() -> Generator[Read]:
    fed = _Fed()
    with (
        _quiet_loop() as loop,
        patch.object(transport, "aiohttp", _Aiohttp(fed)),
        patch.object(transport, "LINE_LIMIT_BYTES", _LIMIT),
        patch.object(transport, "ANSWER_LIMIT_BYTES", _LIMIT),
        patch.object(transport, "ERROR_LIMIT_BYTES", _LIMIT),
        patch("fairlead.kube.transport.LINE_LIMIT_BYTES", _LIMIT // 4),
        patch("fairlead.kube.transport.NO_LINE_BYTES", _LIMIT // 2),
    ):
        config = ClusterConfig(server="http://hostile.example", sign_in=bearer("t"))
        policy = transport.RetryPolicy(attempts=1, deadline_s=1.0, read_s=0.2)
        cluster = Cluster(config, name="hostile", qps=0, clock=NoPause(), policy=policy)
        world = World(cluster, lambda raw: setattr(fed, "raw", raw), failed=_no_long_pause)
        try:
            yield lambda raw: loop.run_until_complete(world.answer(raw))
        finally:
            loop.run_until_complete(cluster.aclose())


# --- DNS --------------------------------------------------------------------------------------------------------------


@contextmanager
def _powerdns() -> Generator[Read]:
    fed = _Fed()
    with (
        _quiet_loop() as loop,
        patch.object(powerdns, "aiohttp", _Aiohttp(fed)),
        patch.object(powerdns, "_LONGEST_ANSWER", _LIMIT),
    ):
        settings = ServerSettings("example.test", "127.0.0.1", 53, credentials="k", others=(("url", "http://dns"),))
        api = powerdns.PowerDNSApi(settings, secrets=Key())

        async def ask(raw: bytes) -> str:
            fed.raw = raw
            sets = await api.sets()
            assert sets or b"rrsets" in raw, "an answer without rrsets is not an empty zone"
            await api.patch([])
            return str(len(sets))

        yield lambda raw: loop.run_until_complete(ask(raw))


class _DNSWriter:
    """Answers each message that is written with the fed bytes, under the message's own id."""

    def __init__(self, reader: asyncio.StreamReader, raw: bytes) -> None:
        self._reader = reader
        self._raw = raw

    def write(self, data: bytes) -> None:
        answer = data[2:4] + self._raw[2:]
        self._reader.feed_data(struct.pack("!H", len(answer)) + answer)
        if len(answer) < _DNS_HEADER or self._raw[:1] == b"!":  # too short to be an answer
            self._reader.feed_eof()

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


_DNS_HEADER = 12
_WEB = RRKey("web.example.test", "A")


@contextmanager
def _dns_wire() -> Generator[Read]:
    with _quiet_loop() as loop:
        settings = ServerSettings("example.test", "127.0.0.1", 9, timeout_s=0.05)
        server = UpdateServer(settings, secrets=Key())

        async def ask(raw: bytes) -> str:
            reader = asyncio.StreamReader()
            writer: Any = _DNSWriter(reader, raw)
            connection = server._connection._connection = _Connection(reader, writer)
            try:
                return await called()
            finally:
                connection.close()
                await asyncio.wait({connection._task})

        async def called() -> str:
            answers = await server.answers([_WEB])
            header = struct.unpack("!HHHHHH", asked[-1][:_DNS_HEADER])
            if not answers:
                assert header[1] & 0x8000, "a message that is not an answer counts as: no records"
                assert header[1] & 0x0400, "an answer without authority counts as: no records"
                assert header[1] & 0xF in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)
                assert not header[1] & 0x0200, "an answer that was cut off counts as: no records"
            serial = await server.serial()
            done = await server.update([Edit(_WEB, "192.0.2.1", 60, True)], answers)
            return f"{len(answers)} {serial > 0} {done}"

        asked: list[bytes] = []

        def read(raw: bytes) -> str:
            raw = raw[:60_000]
            asked[:] = [raw.ljust(_DNS_HEADER, b"\0")]
            return loop.run_until_complete(ask(raw))

        try:
            yield read
        finally:
            loop.run_until_complete(server.close())


def _message(name: str, *records: str, flags: int = 0x8400, rcode: int = 0) -> bytes:
    message = dns.message.Message(0x2121)
    message.flags = flags | rcode
    message.question.append(dns.rrset.RRset(dns.name.from_text(name), dns.rdataclass.IN, dns.rdatatype.A))
    for record in records:
        owner, ttl, type_, value = record.split(" ", 3)
        message.answer.append(dns.rrset.from_text(owner, int(ttl), "IN", type_, value))
    return message.to_wire()


_SOA = "example.test. 60 SOA ns.example.test. admin.example.test. 7 60 60 60 60"
_WIRE = (
    _message("web.example.test.", "web.example.test. 60 A 192.0.2.1", _SOA),
    _message("web.example.test.", 'web.example.test. 60 TXT "a" "b"', "web.example.test. 60 CNAME a.example.test."),
    _message("web.example.test.", "web.example.test. 60 AAAA 2001:db8::1", _SOA),
    _message("web.example.test.", "example.test. 60 DNAME other.test."),
    _message("web.example.test."),
    _message("web.example.test.", rcode=dns.rcode.NXDOMAIN),
    _message("web.example.test.", rcode=dns.rcode.SERVFAIL),
    _message("web.example.test.", flags=0x8000),
    _message("web.example.test.", flags=0x8600),
    _message("web.example.test.", flags=0x0400),
    _message("web.example.test.", "web.example.test. 60 SVCB 1 a.example.test. alpn=h2", _SOA),
    b"!!\x84\x00" + bytes(8),
    b"",
)


# --- the authority ----------------------------------------------------------------------------------------------------


class _FedAdapter(HTTPAdapter):
    def __init__(self, fed: _Fed) -> None:
        super().__init__()
        self._fed = fed

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        try:
            answer = self._fed.response()
        except aiohttp.ClientError as error:
            raise requests.ConnectionError(str(error)) from error
        body = self._fed.raw.partition(b"\n\n")[2]
        raw: Any = _EndlessBody(body, self._fed) if "X-Endless" in answer.headers else io.BytesIO(body)
        return self.build_response(
            request,
            urllib3.HTTPResponse(raw, HTTPHeaderDict(answer.headers.items()), answer.status, preload_content=False),
        )


class _EndlessBody(io.RawIOBase):
    def __init__(self, body: bytes, fed: _Fed) -> None:
        self._body = (body or b"x") * (_CHUNK // max(1, len(body)) + 1)
        self._left = fed.limit + 5 * _CHUNK

    def read(self, size: int = -1) -> bytes:
        chunk = self._body[: size if size >= 0 else None]
        self._left -= len(chunk)
        assert self._left > 0, "a body is read without a limit"
        return chunk

    read1 = read

    def readable(self) -> bool:
        return True


@contextmanager
def _authority() -> Generator[Read]:
    fed = _Fed()
    with (
        patch("fairlead.hub.certificates.client.LONGEST_ANSWER", _LIMIT),
        patch("fairlead.hub.certificates.client._CHUNK", _CHUNK),
        patch("requests.sessions.HTTPAdapter", lambda: _FedAdapter(fed)),
        acme_asks("http://authority.example", lambda raw: setattr(fed, "raw", raw)) as ask,
    ):
        yield ask


# --- signing in -------------------------------------------------------------------------------------------------------


@contextmanager
def _signing_in(user: Mapping[str, Any]) -> Generator[tuple[asyncio.AbstractEventLoop, Callable[[], str]]]:
    """Give a way to sign in again and again; what was refused or has expired is never used again."""
    with _quiet_loop() as loop:
        read = Material.read(
            source="kubeconfig /k", cluster={"insecure-skip-tls-verify": True}, cluster_dir=Path("/"), user=user,
            user_dir=Path("/"), user_name="u", files=[],
        )  # fmt: skip

        async def sign_in() -> str:
            clock = NoPause()
            signed_in = KubeconfigSignIn(lambda: read, clock=clock)
            access = await signed_in(None)
            assert all(text.isprintable() for text in access.headers.values())
            refused = access
            try:
                access = await signed_in(refused)
            except FairleadError as error:
                _no_long_pause(error)
                return type(error).__name__
            assert access is not refused
            return " ".join(sorted(access.headers))

        yield loop, lambda: loop.run_until_complete(sign_in())


@contextmanager
def _plugin() -> Generator[Read]:
    """A sign-in plugin: the first line is its exit code, the rest what it writes."""
    output: list[int | bytes] = [0, b"", b""]

    async def run(_command: str, _plugin: Mapping[str, Any]) -> tuple[int, bytes, bytes]:
        code, text, errors = output
        assert isinstance(code, int)
        assert isinstance(text, bytes)
        assert isinstance(errors, bytes)
        return code, text, errors

    plugin = {"command": "plugin", "apiVersion": _EXEC}
    context = kube_config.tls_context(insecure=True)
    real = kube_config.tls_context

    def tls_context(**options: Any) -> Any:
        # Without a certificate every context is the same one, and costs milliseconds.
        return real(**options) if options.get("certificate") else context

    with (
        patch.object(kube_config, "_run", run),
        patch.object(kube_config, "tls_context", tls_context),
        _signing_in({"exec": plugin}) as (_, sign_in),
    ):

        def read(raw: bytes) -> str:
            code, _, text = raw.partition(b"\n")
            output[:] = [int(code) if code in (b"0", b"1", b"255") else 0, text, raw]
            return sign_in()

        yield read


_EXEC = "client.authentication.k8s.io/v1"


def _credential(**status: object) -> bytes:
    return b"0\n" + json.dumps({"apiVersion": _EXEC, "kind": "ExecCredential", "status": status}).encode()


_PLUGINS = (
    _credential(token="t"),
    _credential(token="t", expirationTimestamp="2026-11-25T10:00:00Z"),
    _credential(token="t", expirationTimestamp="9999-12-31T23:59:59-23:59"),
    _credential(token="a\nb", expirationTimestamp="0001-01-01T00:00:00+23:59"),
    _credential(clientCertificateData="-----BEGIN CERTIFICATE-----", clientKeyData="x"),
    _credential(),
    b"1\n",
    b"0\n" + b"[" * 3_000,
)


def _jwt(expiry: object) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


@contextmanager
def _issuer() -> Generator[Read]:
    fed = _Fed()
    config = {"refresh-token": "r", "client-id": "c", "idp-issuer-url": "https://id.example", "id-token": _jwt(1)}
    context = kube_config.tls_context(insecure=True)
    with (
        patch.object(kube_config, "aiohttp", _Aiohttp(fed)),
        patch.object(kube_config, "_LONGEST_ANSWER", _LIMIT),
        patch.object(kube_config, "tls_context", lambda **_: context),
        _signing_in({"auth-provider": {"name": "oidc", "config": config}}) as (_, sign_in),
    ):

        def read(raw: bytes) -> str:
            fed.raw = raw
            return sign_in()

        yield read


def _tokens(expiry: object) -> bytes:
    body = {"token_endpoint": "https://id.example/token", "id_token": _jwt(expiry), "refresh_token": "r"}
    return answer_bytes("200 OK", body, "Content-Type: application/json")


_LATER = datetime(2099, 1, 1, tzinfo=UTC).timestamp()
_ISSUERS = (
    *map(_tokens, (_LATER, 1, None, 10**400, "soon")),
    answer_bytes("200 OK", {"token_endpoint": 5, "id_token": "..", "refresh_token": None}),
    answer_bytes("400 X", {"error": "invalid_grant"}),
    answer_bytes("502 X", "später".encode("latin-1")),
    answer_bytes("200 OK", b"[" * 3_000),
    answer_bytes("200 OK", b" ", "X-Endless: 1"),
    b"!200 OK\n\n{",
)


# --- a driver ---------------------------------------------------------------------------------------------------------


@contextmanager
def _driver() -> Generator[Read]:
    fed = _Fed()
    asked = spec("http://driver.example", verify="true", backendHealth="true")
    notready = [{"metadata": {"name": "web-1", "namespace": "shop"}}]
    with (
        _quiet_loop() as loop,
        patch.object(webhook_client, "aiohttp", _Aiohttp(fed)),
        patch.object(webhook_client, "LONGEST_ANSWER", _LIMIT),
    ):
        webhook = WebhookProvider(clock=NoPause())

        async def answered(raw: bytes) -> str:
            fed.raw = raw
            webhook.release(KEY)
            webhook.restore(asked, {"id": "lb-1"})
            webhook._drivers.get(settings_from_parameters(asked.parameters)).retry_after = RetryAfter(NoPause())
            call = zlib.crc32(raw) % 6
            try:
                match call:
                    case 0:
                        await webhook.ensure(asked)
                        assert b"ucc" in raw
                    case 1:
                        (outcome,) = await webhook.apply([row(facts=BackendFacts(origin=POD))])
                        assert outcome.status is not OutcomeStatus.DONE or b"ucc" in raw
                    case 2:
                        (outcome,) = await webhook.apply([row(Action.DEREGISTER)])
                        assert outcome.status is not OutcomeStatus.DONE or b"ucc" in raw
                        assert outcome.retry_after_s <= LONGEST_RETRY_S
                    case 3:
                        observed = await webhook.observe(KEY)
                        assert observed is not None, "a load balancer that exists counts as gone"
                    case 4:
                        await webhook.judge_pods(asked.parameters, notready)
                        assert b"ucc" in raw.lower()
                    case _:
                        await webhook.delete(KEY)
                        assert b"ucc" in raw
            except (Retry, Terminal) as error:
                _no_long_pause(error, LONGEST_RETRY_S)
                return f"{call} {type(error).__name__}"
            return str(call)

        try:
            yield lambda raw: loop.run_until_complete(answered(raw))
        finally:
            loop.run_until_complete(webhook.close())


_DRIVERS = (
    answer_bytes("200 OK", {"status": "Succ", "lbInfo": {"id": "lb-1"}, "backendAddr": "ins-7"}),
    answer_bytes("200 OK", {"status": "Fail", "msg": "no", "minRetryDelayInSeconds": "10"}),
    answer_bytes("200 OK", {"status": "Running", "minRetryDelayInSeconds": 10**400}),
    answer_bytes("200 OK", {"succ": True, "doNotDeregister": [{"metadata": {"name": "web-1", "namespace": "shop"}}]}),
    answer_bytes("200 OK", {"succ": False, "msg": "\u001b[31m"}),
    answer_bytes("200 OK", {"status": "Succ", "backendAddrs": ["a"], "backends": [{"backendAddr": "a"}]}),
    answer_bytes("429 X", b"", "Retry-After: " + "9" * 5_000),
    answer_bytes("302 X", b"", "Location: http://x/"),
    answer_bytes("200 OK", b"[" * 3_000),
    answer_bytes("200 OK", {"status": "Succ"}, "X-Endless: 1"),
    answer_bytes("502 X", b"<html>", "Content-Type: text/html"),
    b"!200 OK\n\n{",
)  # fmt: skip

_WORDS: Sequence[bytes] = (*TOKENS, b"X-Endless: 1\n", b"!", b"200", b"503", b"429", b"Retry-After: 1e9\n")

TARGETS = (
    Target(
        "api-answers",
        (*CORPUS, answer_bytes("200 OK", b'{"type":"ADDED","object":', "X-Endless: 1"),
         answer_bytes("500 X", b"x", "X-Endless: 1")),
        _api,
        tokens=(*_WORDS, b'"NotFound"', b'"details":', b'"held"', b'"name":', b'"resourceVersion":', b'"DELETED"',
                b'"BOOKMARK"', b'"ERROR"', b'"\\ud800"', b"Date: ", b"Content-Type: text/html\n"),
        max_bytes=8_192,
        quick=2_000,
    ),
    Target("powerdns-answers", (*DNS, answer_bytes("200 OK", b"[", "X-Endless: 1")), _powerdns, refusals=(Retry,),
           tokens=_WORDS, quick=1_000),
    Target("dns-wire-answers", _WIRE, _dns_wire, refusals=(Retry,), quick=1_000,
           tokens=(b"\x00\x01", b"\xc0\x0c", b"\xc0\x00", b"\x00\x10", b"\x00\x06", b"\x00\xff", b"\xff\xff",
                   b"\x84\x00")),
    Target("authority-answers", (*AUTHORITY, answer_bytes("200 OK", b"[", "X-Endless: 1"),
         answer_bytes("301 X", b"[", "X-Endless: 1", "Location: http://x/")), _authority,
           refusals=(AcmeRefused,), tokens=_WORDS, quick=300),
    Target("plugin-answers", _PLUGINS, _plugin, refusals=(Unreachable, BadConfiguration), quick=500,
           tokens=(b'"token":', b'"expirationTimestamp":', b"9999-12-31T23:59:59Z", b'"clientKeyData":', *TOKENS)),
    Target("issuer-answers", _ISSUERS, _issuer, refusals=(Unreachable, BadConfiguration), tokens=_WORDS, quick=500),
    Target("driver-answers", _DRIVERS, _driver, tokens=(*_WORDS, b'"Succ"', b'"status":', b'"succ":', b"true"),
           quick=1_000),
)  # fmt: skip
