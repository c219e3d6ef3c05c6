"""What any client may send to a port that the world can reach, and what a backend is shown of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import struct
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from fairlead.errors import Terminal
from fairlead.hub.certificates.issuance import fetched, fetched_as_a_balancer
from fairlead.model.change import Action
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.http import Backend, FixedAnswer, L7Listener, RetryRule
from fairlead.model.keys import TargetKey, backend_key
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup
from fairlead.providers.envoy.settings import (
    ACCEPT_PROXY_PROTOCOL,
    ACCESS_LOG,
    CONNECTIONS_ACCEPT,
    ESCAPED_SLASHES,
    TRUSTED_HOPS,
)
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.processes import PATIENCE_S, Child
from fairlead_demo.worlds.traffic import Traffic
from tests.xds.http_world import Authority, HttpWorld, config, get, prefix, route, to, web_socket
from tests.xds.world import TIMEOUT_S, close, local_envoy, until_closed

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

FORGED = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Host": "evil.org",
    "X-Forwarded-Proto": "https",
    "X-Real-IP": "203.0.113.7",
    "Forwarded": "for=203.0.113.7",
    "x-envoy-upstream-rq-timeout-ms": "1",
    "x-envoy-original-path": "/admin",
    "x_under_score": "1",
}


async def raw(spec: FrontendSpec, request: bytes, *, head: bytes = b"") -> bytes:
    """Send bytes as they are, and read the beginning of what comes."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(spec.address, 80)
        try:
            writer.write(head + request)
            return await reader.read(4096)
        finally:
            await close(writer)


@pytest.mark.req("K-41", "E-18")
async def test_no_client_can_forge_where_a_request_came_from(http: HttpWorld) -> None:
    backend, client = await http.echo("one"), http.world.addresses.take()
    spec = await http.start(config(route("r", to("one"))), backend)
    headers = (await get(spec, "/?delay=0.1", headers=FORGED, source=client)).echo["headers"]
    assert headers["x-forwarded-for"] == client
    assert headers["x-forwarded-proto"] == "http"
    from_here = (await get(spec, headers=FORGED)).echo["headers"]
    assert "x-envoy-internal" not in from_here, "no address is trusted, not even this machine's"
    assert not headers.keys() & {"x-forwarded-host", "x-real-ip", "forwarded", "x_under_score"}
    of_envoy = {name: value for name, value in headers.items() if name.startswith("x-envoy-")}
    assert of_envoy == {"x-envoy-external-address": client}


@pytest.mark.req("K-41")
async def test_trusted_proxies_in_front_are_believed(http: HttpWorld) -> None:
    backend, client = await http.echo("one"), http.world.addresses.take()
    spec = await http.start(config(route("r", to("one"))), backend, parameters={TRUSTED_HOPS: "1"})
    headers = (await get(spec, headers={"X-Forwarded-For": "198.51.100.7"}, source=client)).echo["headers"]
    assert headers["x-forwarded-for"] == f"198.51.100.7,{client}"


@pytest.mark.req("K-41")
async def test_the_client_behind_the_proxy_protocol_is_the_one_it_names(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend, parameters={ACCEPT_PROXY_PROTOCOL: "true"})
    addresses = bytes((198, 51, 100, 9)) + bytes((192, 0, 2, 1)) + struct.pack(">HH", 5000, 80)
    head = b"\r\n\r\n\x00\r\nQUIT\n" + b"\x21\x11" + struct.pack(">H", len(addresses)) + addresses
    request = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nConnection: close\r\n\r\n"
    assert b'"x-forwarded-for": "198.51.100.9"' in await raw(spec, request, head=head)


@pytest.mark.req("K-53")
async def test_a_challenge_is_answered_behind_the_proxy_protocol(http: HttpWorld) -> None:
    backend = await http.echo("one")
    answer = FixedAnswer("a.example.com", "/.well-known/acme-challenge/token", "proof")
    wanted = msgspec.structs.replace(config(route("r", to("one"))), answers=(answer,))
    spec = await http.start(wanted, backend, parameters={ACCEPT_PROXY_PROTOCOL: "true"})
    place = (spec.address, 80, answer.hostname, answer.path)
    assert (await fetched(*place), await fetched_as_a_balancer(*place)) == ("", "proof")


@pytest.mark.req("K-41", "G-30")
async def test_paths_are_normal_before_they_are_matched(http: HttpWorld) -> None:
    public, admin = await http.echo("public"), await http.echo("admin")
    spec = await http.start(
        config(route("r", to("public", matches=(prefix("/public"),)), to("admin", matches=(prefix("/public/admin"),)))),
        public,
        admin,
    )
    expected = {
        "/public/../secret": "404",
        "/public/%2e%2e/secret": "404",
        "/public/./admin": "admin",
        "/public//admin": "admin",
        "/public/x/..//admin": "admin",
        "/public%2Fadmin": "307",
        "/public/..%2fsecret": "307",
        "/public%5Cadmin": "307",
        "/public/adm%69n": "admin",
    }
    assert {path: (await get(spec, path)).backend for path in expected} == expected
    answer = await get(spec, "/public/..%2fsecret")
    assert answer.headers["location"] == "/secret"


@pytest.mark.req("K-41")
async def test_escaped_slashes_may_be_kept(http: HttpWorld) -> None:
    backend = await http.echo("one")
    l7 = config(route("r", to("one", matches=(prefix("/api"),))))
    spec = await http.start(l7, backend, parameters={ESCAPED_SLASHES: "keep"})
    assert (await get(spec, "/api/group%2Fproject")).echo["path"] == "/api/group%2Fproject"


SMUGGLED = {
    "length and chunks": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "space before colon": b"GET / HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n",
    "nonsense": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "100 KiB of headers": b"GET / HTTP/1.1\r\nHost: a\r\nX-Big: " + b"a" * 100 * 1024 + b"\r\n\r\n",
}


@pytest.mark.req("K-41")
async def test_no_request_is_smuggled_and_nothing_else_is_hurt(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend)
    for name, request in SMUGGLED.items():
        answer = await raw(spec, request)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431")), (name, answer)
        assert (await get(spec)).status == 200
    assert {each["method"] for each in backend.seen} == {"GET"}
    assert len(backend.seen) == len(SMUGGLED)


@pytest.mark.req("E-26")
async def test_large_headers_pass(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend)
    assert (await get(spec, headers={"X-Big": "a" * 70 * 1024})).status == 200


@pytest.mark.req("K-41")
async def test_the_access_log_is_written_when_it_is_asked_for(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("my-route", to("one"))), backend, parameters={ACCESS_LOG: "json"})
    assert (await get(spec, "/logged?secret=no")).status == 200
    log = local_envoy(http.provider).directory / "envoy.log"
    async with asyncio.timeout(TIMEOUT_S):
        while "/logged" not in log.read_text():  # noqa: ASYNC110 (Envoy writes it every second)
            await asyncio.sleep(0.2)
    (line,) = [line for line in log.read_text().splitlines() if "/logged" in line]
    assert '"route":"my-route/0/0"' in line


async def test_bad_settings_are_refused_with_a_sentence(http: HttpWorld) -> None:
    bad = {ACCESS_LOG: "xml", TRUSTED_HOPS: "-1", ESCAPED_SLASHES: "maybe", ACCEPT_PROXY_PROTOCOL: "yes"}
    with pytest.raises(Terminal) as caught:
        await http.provider.ensure(http.spec(config(route("r", to("one"))), parameters=bad))
    assert all(name in str(caught.value) for name in bad)


@pytest.mark.req("K-41")
async def test_connections_of_a_deleted_load_balancer_are_answered_and_closed(http: HttpWorld) -> None:
    backend = await http.echo("one")
    doomed, other = [await http.start(config(route("r", to("one"))), backend) for _ in range(2)]
    request = b"GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n"
    async with asyncio.timeout(TIMEOUT_S):
        streams = [await asyncio.open_connection(doomed.address, 80) for _ in range(4)]
        for reader, writer in streams:
            writer.write(request)
            assert b" 200 " in await reader.readline()
        await http.provider.delete(doomed.key)
        await until_closed(doomed.address, 80)
        for reader, writer in streams:
            writer.write(request)
            rest = await reader.read()  # up to its end: the proxy closes
            assert rest.count(b"HTTP/1.1 200 OK") == 1, rest
            assert b"connection: close" in rest.lower()
            await close(writer)
    assert (await get(other)).backend == "one"


@pytest.mark.req("EDGE-16")
@pytest.mark.parametrize(
    ("request_line", "fields", "expected"),
    [
        ("GET / HTTP/1.0", "Host: a.example.com", b"HTTP/1.0 200"),
        ("GET / HTTP/1.0", "X: no host", b"HTTP/1.0 400"),
        ("GET / HTTP/1.1", "\r\n".join(["Host: a.example.com", *(f"X-{n}: v" for n in range(450))]), b"HTTP/1.1 200"),
        ("GET / HTTP/1.1", "\r\n".join(["Host: a.example.com", *(f"X-{n}: v" for n in range(600))]), b"HTTP/1.1 431"),
        ("GET / HTTP/1.1", "Host: a.example.com\r\nConnection: Upgrade\r\nUpgrade: other", b"HTTP/1.1 403"),
    ],
    ids=["http/1.0", "http/1.0-without-host", "many-headers", "too-many-headers", "unknown-upgrade"],
)
async def test_what_clients_of_other_servers_send(
    http: HttpWorld, request_line: str, fields: str, expected: bytes
) -> None:
    backend = Answers()
    spec = http.spec(config(route("r", to("web"), hosts=("a.example.com",))))
    await http.serve(spec, {"web": [await backend.start(http.world.addresses.take())]})
    answer = await raw(spec, f"{request_line}\r\n{fields}\r\n\r\n".encode())
    assert answer.startswith(expected), answer
    await backend.stop()


class Answers:
    """An HTTP/1.1 server without manners: what it answers depends on the path."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> Target:
        self._server = await asyncio.start_server(self._serve, address, 0)
        return Target(TargetKey(*self._server.sockets[0].getsockname()[:2]))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fresh = True
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if b" /closes" in head and not fresh:
                    break
                fresh = False
                await self._answer(head, reader, writer)
        writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        extra = b""
        if b" /upgrade" in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
            writer.write(await reader.readexactly(4))
            return
        if b" /many" in head:
            extra = b"".join(b"X-H%d: v\r\n" % number for number in range(450))
        if b" /large" in head:
            extra = b"X-Large: " + b"v" * 80_000 + b"\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + extra + b"\r\nok")
        await writer.drain()

    async def stop(self) -> None:
        if self._server is not None:
            await stop_listening(self._server)


@pytest.mark.req("EDGE-16")
async def test_what_other_servers_answer(http: HttpWorld) -> None:
    backend = Answers()
    spec = http.spec(config(route("r", to("web"))))
    await http.serve(spec, {"web": [await backend.start(http.world.addresses.take())]})
    for path in ("/", "/many", "/large"):
        answer = await raw(spec, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200"), path
    # Offered, and left aside: HTTP/2 in a tunnel would meet no rule.
    h2c = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    assert (await raw(spec, b"GET / HTTP/1.1\r\nHost: a\r\n" + h2c + b"\r\n")).startswith(b"HTTP/1.1 200")
    assert b"upgrade" not in backend.heads[-1].lower()
    assert b"http2-settings" not in backend.heads[-1].lower()
    for kind in (b"tcp", b"SPDY/3.1"):
        reader, writer = await asyncio.open_connection(spec.address, 80)
        writer.write(b"POST /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " + kind + b"\r\n\r\nping")
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            assert await reader.readexactly(4) == b"ping"
        await close(writer)
    await backend.stop()


@pytest.mark.req("EDGE-16", "L7-15")
async def test_a_request_on_a_connection_that_the_server_closes_is_safe_to_repeat_or_not(http: HttpWorld) -> None:
    backend = Answers()
    spec = http.spec(config(route("r", to("web"))))
    await http.serve(spec, {"web": [await backend.start(http.world.addresses.take())]})
    assert {(await get(spec, "/closes")).status for _ in range(20)} == {200}
    closed = len(backend.heads) - 20
    assert closed >= 19, "each but the first was sent on a connection that was closed then, and once more"
    assert all(b"x-envoy-retry" not in head.lower() for head in backend.heads)
    backend.heads.clear()
    statuses = [(await get(spec, "/closes", method="POST", data=b"x")).status for _ in range(10)]
    assert len(backend.heads) == 10, "no request that may change something is sent twice"
    assert set(statuses) == {200, 503}
    await backend.stop()


@pytest.mark.req("EDGE-16")
async def test_a_try_that_takes_too_long_is_not_repeated_without_a_retry(http: HttpWorld) -> None:
    backend = await http.echo("one")
    # The answer without a delay has to come within the limit, also from a busy machine.
    spec = await http.start(config(route("r", to("one", backend_timeout_ms=2000))), backend)
    assert (await get(spec, "/?delay=4")).status == 504
    assert len(backend.seen) == 1
    assert "x-envoy-retry-on" not in (await get(spec)).echo["headers"]


@pytest.mark.req("EDGE-16")
async def test_a_pod_that_refuses_connections_costs_no_request_of_any_method(http: HttpWorld) -> None:
    backend = await http.echo("one")
    dead = Target(TargetKey(http.world.addresses.take(), 9))
    spec = http.spec(config(route("r", to("web"))))
    await http.serve(spec, {"web": [backend.target, dead]})
    assert {(await get(spec, method=method)).status for method in ("GET", "POST", "DELETE") * 6} == {200}


@pytest.mark.req("L7-15")
async def test_a_retry_of_a_rule_is_for_every_method_and_a_match_limits_it(http: HttpWorld) -> None:
    backend = await http.echo("one")
    retry = RetryRule(codes=(503,), attempts=2)
    rules = (
        to("one", matches=(prefix("/get", method="GET"),), retry=retry),
        to("one", matches=(prefix("/get"),)),
        to("one", matches=(prefix("/any"),), retry=retry),
    )
    spec = await http.start(config(route("r", *rules)), backend)
    sent: dict[str, int] = {}
    for path, method in (("/get", "GET"), ("/get", "POST"), ("/any", "POST")):
        backend.seen.clear()
        answer = await get(spec, f"{path}?fail=9&code=503&id={path}{method}", method=method)
        assert answer.status == 503
        sent[f"{method} {path}"] = len(backend.seen)
    assert sent == {"GET /get": 3, "POST /get": 1, "POST /any": 3}


@pytest.mark.req("L7-9")
async def test_a_host_with_the_dot_of_the_root_is_the_same_host(http: HttpWorld) -> None:
    authority = Authority()
    https = L7Listener("https", 443, "HTTPS", "rx.example.com", certificates=("cert",))
    wild = L7Listener("wild", 443, "HTTPS", "*.wild.example.com", certificates=("cert",))
    certificate = authority.issue("cert", "rx.example.com", "*.wild.example.com")
    l7 = config(
        route("r", to("one"), hosts=("rx.example.com",), listeners=("http", "https")),
        route("w", to("one"), hosts=("*.wild.example.com",), listeners=("http", "wild"), one_label=True),
        listeners=(L7Listener("http", 80), https, wild),
        certificates=[certificate],
    )
    spec = await http.start(l7, await http.echo("one"))
    context = authority.client_context()
    for name in ("rx.example.com", "a.wild.example.com"):
        for host in (f"{name}.", f"{name}.:80", f"{name.upper()}."):
            assert (await get(spec, host=host)).echo["host"].rstrip(":80") == host.split(":")[0].removesuffix(".")
            assert lookup(l7, ClientRequest(host)).rule is not None
        assert (await get(spec, port=443, host=f"{name}.", sni=name, tls=context)).status == 200
        assert lookup(l7, ClientRequest(f"{name}.", port=443, server_name=f"{name}.")).rule is not None
        # Few clients send the dot as a server name: it chooses the same certificate.
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
        assert (await get(spec, port=443, host=name, sni=f"{name}.", tls=bare)).status == 200


@pytest.mark.req("F-5")
async def test_pods_that_stop_without_a_delay_cost_no_request(http: HttpWorld, tmp_path: Path) -> None:
    """Each pod ends its listener at SIGTERM, before any endpoint has changed, as a pod without a preStop hook."""

    async def pod(number: int) -> tuple[Child, Target]:
        address = http.world.addresses.take()
        command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", address, "8080", f"pod-{number}"]
        child = Child(f"pod-{number}", command, log=tmp_path / "pods.log", environment={"STILL_ACCEPTING_S": "0.001"})
        await child.start(first_line_s=PATIENCE_S)
        return child, Target(TargetKey(address, 8080))

    pods = [await pod(number) for number in range(3)]
    spec = http.spec(config(route("r", to("web"))))
    await http.serve(spec, {"web": [target for _, target in pods]})
    traffic = Traffic(host=spec.address, port=80, authority="shop.example.com", new_per_s=100, kept=20, kept_per_s=20)
    traffic.start()
    try:
        for number in range(3, 6):
            new = await pod(number)
            await http.world.change(spec, Action.REGISTER, new[1], listener=backend_key("web"))
            child, target = pods.pop(0)
            await child.terminate()
            await http.world.change(spec, Action.DEREGISTER, target, listener=backend_key("web"))
            pods.append(new)
    finally:
        await traffic.stop()
        for child, _ in pods:
            await child.kill()
    assert traffic.count.answered > 100
    assert (traffic.count.failed, traffic.count.failures) == (0, [])


@pytest.mark.req("F-4")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
async def test_web_sockets_of_a_draining_backend_are_cut_at_the_deadline(http: HttpWorld) -> None:
    """New requests go elsewhere at once, and the figures say that a connection is left."""
    leaving, other = await http.echo("leaving"), await http.echo("other")
    l7 = config(route("r", to("web")), backends=[Backend("web", drain="4s")])
    spec = await http.serve(http.spec(l7), {"web": [leaving.target]})
    async with web_socket(spec) as socket:
        await socket.send_str("before")
        assert (await socket.receive_str(timeout=TIMEOUT_S)) == "leaving: before"
        key = backend_key("web")
        await http.world.change(spec, Action.REGISTER, other.target, listener=key)
        leaves = msgspec.structs.replace(leaving.target, draining=True)
        await http.world.change(spec, Action.REGISTER, leaves, listener=key)
        observed = await http.provider.observe(spec.key)
        assert observed is not None
        assert observed.draining is not None
        assert observed.draining.targets == 1
        assert {(await get(spec)).backend for _ in range(4)} == {"other"}
        message = await socket.receive(timeout=TIMEOUT_S)
        assert message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
    assert {(await get(spec)).backend for _ in range(4)} == {"other"}


@pytest.mark.req("F-6")
async def test_a_header_of_the_proxy_protocol_is_required_or_optional(http: HttpWorld) -> None:
    """Optional headers come from trusted sources alone; their health checks have none."""
    backend = await http.echo("one")
    trusted, other = http.world.addresses.take(), http.world.addresses.take()
    request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    head = b"PROXY TCP4 203.0.113.7 192.0.2.1 40000 80\r\n"

    async def answer(spec: FrontendSpec, source: str, sent: bytes) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(spec.address, 80, local_addr=(source, 0))
            writer.write(sent + request)
            received = b""
            with contextlib.suppress(ConnectionError):
                received = await reader.read(-1)
            await close(writer)
            return received

    optional = json.dumps({"mode": "optional", "trustedSources": [trusted]})
    spec = await http.start(config(route("r", to("one"))), backend, parameters={ACCEPT_PROXY_PROTOCOL: optional})
    assert b'"x-forwarded-for": "203.0.113.7"' in await answer(spec, trusted, head)
    assert f'"x-forwarded-for": "{trusted}"'.encode() in await answer(spec, trusted, b"")
    assert await answer(spec, other, head) == b"", "others cannot claim an address"
    assert await answer(spec, other, b"") == b""
    required = await http.start(config(route("r", to("one"))), backend, parameters={ACCEPT_PROXY_PROTOCOL: "required"})
    assert b'"x-forwarded-for": "203.0.113.7"' in await answer(required, other, head)
    assert await answer(required, trusted, b"") == b""


@pytest.mark.req("F-6")
async def test_a_load_balancer_of_connections_checks_the_address_in_the_header(http: HttpWorld) -> None:
    world = http.world
    backend, trusted = await world.backend("one"), world.addresses.take()
    accepted = json.dumps({"mode": "required", "trustedSources": [trusted]})
    spec = world.spec(parameters={CONNECTIONS_ACCEPT: accepted}, source_ranges=("203.0.113.0/24",))
    await world.serve(spec, backend.target)

    async def reached(source: str, client: str) -> bool:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(spec.address, 8080, local_addr=(source, 0))
            writer.write(f"PROXY TCP4 {client} 192.0.2.1 40000 80\r\n".encode())
            received = b""
            with contextlib.suppress(ConnectionError):
                received = await reader.read(-1)
            await close(writer)
            return received.strip() == b"one"

    assert await reached(trusted, "203.0.113.7")
    assert not await reached(trusted, "198.51.100.7")
    assert not await reached(world.addresses.take(), "203.0.113.7")
