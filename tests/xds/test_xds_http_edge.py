"""What any client may send to a port that the world can reach, and what a backend is shown of it."""

from __future__ import annotations

import asyncio
import struct

import msgspec
import pytest

from fairlead.errors import Terminal
from fairlead.hub.certificates.solvers import fetched, fetched_as_a_balancer
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import FixedAnswer
from fairlead.providers.envoy.http.settings import ACCEPT_PROXY_PROTOCOL, ACCESS_LOG, ESCAPED_SLASHES, TRUSTED_HOPS
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to
from tests.xds.world import TIMEOUT_S, close, local_envoy

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
    async with asyncio.timeout(60):
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
        await closed_port(doomed.address)
        for reader, writer in streams:
            writer.write(request)
            rest = await reader.read()  # up to its end: the proxy closes
            assert rest.count(b"HTTP/1.1 200 OK") == 1, rest
            assert b"connection: close" in rest.lower()
            await close(writer)
    assert (await get(other)).backend == "one"


async def closed_port(address: str) -> None:
    """Wait until nothing listens there."""
    while True:
        try:
            _, writer = await asyncio.open_connection(address, 80)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue  # it was queued at a listener that closed meanwhile
        await close(writer)
        await asyncio.sleep(0.02)
