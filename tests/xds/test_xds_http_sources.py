"""Lists of client addresses at a real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

import msgspec
import pytest

from fairlead.model.desired import FrontendSpec
from fairlead.model.http import FixedAnswer, L7Listener
from fairlead.providers.envoy.settings import ACCEPT_PROXY_PROTOCOL, TRUSTED_HOPS
from tests.xds.http_world import HTTP, HttpWorld, config, get, prefix, route, to, with_config
from tests.xds.world import TIMEOUT_S

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

OFFICE = ("192.0.2.0/24", "2001:db8::/32")


class Client(NamedTuple):
    """An address behind a trusted proxy, and whether the office may send requests from there."""

    address: str
    admitted: bool


CLIENTS = (
    Client("192.0.2.7", True),
    Client("192.0.3.7", False),
    Client("2001:db8::7", True),
    Client("2001:db9::7", False),
    # As a proxy writes an IPv4 client that reached it at a socket for both families.
    Client("::ffff:192.0.2.7", True),
    Client("::ffff:192.0.3.7", False),
)


async def raw(spec: FrontendSpec, head: str = "", path: str = "/", *, forwarded: str = "") -> int:
    """Return the status of a request over a connection that begins with ``head``."""
    reader, writer = await asyncio.open_connection(spec.address, 80)
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: a",
        "Connection: close",
        *([f"X-Forwarded-For: {forwarded}"] * bool(forwarded)),
    ]
    writer.write((head + "\r\n".join([*lines, "", ""])).encode())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


@pytest.mark.req("F-8")
async def test_lists_of_a_rule_admit_the_address_behind_trusted_hops(http: HttpWorld) -> None:
    backend = await http.echo("one")
    rules = (to("one", matches=(prefix("/office"),), allowed_sources=OFFICE), to("one", matches=(prefix("/"),)))
    spec = await http.start(config(route("r", *rules)), backend, parameters={TRUSTED_HOPS: "1"})
    for client in CLIENTS:
        assert await raw(spec, path="/office", forwarded=client.address) == (200 if client.admitted else 403), client
        assert await raw(spec, path="/free", forwarded=client.address) == 200
    # What the client wrote in front of the trusted hop's own entry does not count.
    assert await raw(spec, path="/office", forwarded="192.0.2.7, 192.0.3.7") == 403


@pytest.mark.req("F-8")
async def test_lists_of_a_listener_hold_for_the_address_of_the_proxy_protocol(http: HttpWorld) -> None:
    backend = await http.echo("one")
    listener = msgspec.structs.replace(HTTP, allowed_sources=OFFICE, denied_sources=("192.0.2.9/32",))
    rule = to("one", denied_sources=("192.0.2.8/32",))
    spec = await http.start(
        config(route("r", rule), listeners=(listener,)), backend, parameters={ACCEPT_PROXY_PROTOCOL: "true"}
    )
    for client in (*CLIENTS, Client("192.0.2.8", False), Client("::ffff:192.0.2.9", False)):
        family = "TCP6 {0} 2001:db8::1" if ":" in client.address else "TCP4 {0} 192.0.2.1"
        head = f"PROXY {family.format(client.address)} 4000 80\r\n"
        assert await raw(spec, head) == (200 if client.admitted else 403), client
    # The header names no address, so the address of the connection counts.
    assert await raw(spec, "PROXY UNKNOWN\r\n") == 403


@pytest.mark.req("F-8")
async def test_a_client_cannot_write_its_address_without_trusted_hops(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one", allowed_sources=OFFICE))), backend)
    assert await raw(spec, forwarded="192.0.2.7") == 403
    assert await raw(spec, forwarded="127.0.0.1") == 403


@pytest.mark.req("F-8")
async def test_a_list_that_is_added_holds_before_the_route_is_served(http: HttpWorld) -> None:
    """A connection of the listener without the filter never gets the new route."""
    backend = await http.echo("one")
    plain = to("one", matches=(prefix("/plain"),))
    spec = await http.start(config(route("r", plain)), backend)
    reader, writer = await asyncio.open_connection(spec.address, 80)

    async def ask(path: str) -> int:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.split()[1]))
        return int(head.split()[1])

    assert await ask("/plain") == 200
    closed = to("one", matches=(prefix("/closed"),), allowed_sources=OFFICE)
    assert spec.l7 is not None
    after = with_config(spec, config(route("r", plain), route("s", closed), backends=spec.l7.backends))
    await http.provider.ensure(after)
    await http.programmed(after)
    assert (await get(after, "/closed")).status == 403
    assert (await get(after, "/plain")).status == 200
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, StopIteration):
        assert await ask("/closed") in {403, 404}
    writer.close()
    # Without the list the route is free again.
    free = with_config(after, config(route("r", plain), route("s", to("one")), backends=spec.l7.backends))
    await http.provider.ensure(free)
    await http.programmed(free)
    assert (await get(free, "/closed")).status == 200


@pytest.mark.req("F-8")
async def test_challenges_are_answered_to_authorities_that_no_list_has(http: HttpWorld) -> None:
    backend = await http.echo("one")
    listener = msgspec.structs.replace(HTTP, allowed_sources=OFFICE)
    answer = FixedAnswer("shop.example.com", "/.well-known/acme-challenge/x", "proof")
    shop = config(route("r", to("one"), hosts=["shop.example.com"]), listeners=(listener,))
    spec = await http.start(msgspec.structs.replace(shop, answers=(answer,)), backend)
    assert (await get(spec, answer.path, host="shop.example.com")).body == "proof"
    assert (await get(spec, f"{answer.path}y", host="shop.example.com")).status == 403


@pytest.mark.req("F-8")
async def test_connections_of_excluded_clients_are_closed(http: HttpWorld) -> None:
    backend = await http.echo("one")
    listener = L7Listener("tcp", 80, "TCP", denied_sources=("127.0.0.0/8",))
    streams = route("t", to("one"), listeners=("tcp",), kind="TCP")
    spec = await http.start(config(streams, listeners=(listener,)), backend)
    reader, writer = await asyncio.open_connection(spec.address, 80)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    writer.close()
    assert spec.l7 is not None
    admits = msgspec.structs.replace(listener, denied_sources=(), allowed_sources=("127.0.0.0/8",))
    after = with_config(spec, config(streams, listeners=(admits,), backends=spec.l7.backends))
    await http.provider.ensure(after)
    await http.programmed(after)
    assert (await get(after)).status == 200
