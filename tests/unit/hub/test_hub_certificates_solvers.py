"""Whether an address answers a challenge, as a browser would ask it and as a load balancer before it would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from fairlead.api.managedcertificate import OrderChallenge
from fairlead.hub.certificates import issuance as solvers
from fairlead.hub.certificates.issuance import challenge_host, fetched, fetched_as_a_balancer
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.loopback import free_port

PATH = "/.well-known/acme-challenge/token"


@asynccontextmanager
async def answering(answer: bytes, *, proxied: bool, address: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[int]:
    """Serve one answer; ``proxied``: only to connections that begin with a PROXY header, as Envoy does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readline()
            if first.startswith(b"PROXY ") == proxied:
                head = await reader.readuntil(b"\r\n\r\n")
                asked = f"GET {PATH} ".encode() in first + head and b"Host: a.example.com" in head
                writer.write(answer if asked else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, address, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)


GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngood"
FAILED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngood"


@pytest.mark.req("K-53", "EDGE-11")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("proxied", [False, True])
async def test_an_answer_is_read_with_or_without_a_load_balancer_before_the_proxies(
    proxied: bool, address: str
) -> None:
    async with answering(GOOD, proxied=proxied, address=address) as port:
        place = (address, port, "a.example.com", PATH)
        got = (await fetched(*place), await fetched_as_a_balancer(*place))
    assert got == (("", "good") if proxied else ("good", ""))


@pytest.mark.parametrize("answer", [FAILED, b"HTTP/1.1 200", b"", b"x" * 10_000])
async def test_an_invalid_answer_counts_as_none(answer: bytes) -> None:
    async with answering(answer, proxied=True) as port:
        assert await fetched_as_a_balancer("127.0.0.1", port, "a.example.com", PATH) == ""


async def test_where_nothing_listens_there_is_no_answer() -> None:
    async with answering(GOOD, proxied=True) as port:
        pass
    place = ("127.0.0.1", port, "a.example.com", PATH)
    assert (await fetched(*place), await fetched_as_a_balancer(*place)) == ("", "")


def test_a_wildcard_is_proven_by_the_name_behind_its_star() -> None:
    assert challenge_host("*.a.example.com") == challenge_host("a.example.com") == "_acme-challenge.a.example.com"


async def test_an_answer_that_comes_in_parts_is_read_whole_and_an_endless_one_is_not() -> None:
    served: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        with suppress(OSError):
            long = b"long" in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for part in [b"x" * 3000] * 3 if long else [b"go", b"od"]:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        assert await fetched("127.0.0.1", port, "a.example.com", PATH) == "good"
        assert await fetched("127.0.0.1", port, "a.example.com", "/long") == "x" * 4096
    finally:
        await stop_listening(server)
        await asyncio.gather(*filter(None, served))


@pytest.mark.req("EDGE-11")
async def test_every_address_of_a_dual_stack_load_balancer_must_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    challenge = OrderChallenge("a.example.com", "http-01", token="token", content="good")
    both = ("127.0.0.1", "::1")
    port = free_port("::1")
    monkeypatch.setattr(solvers, "CHALLENGE_PORT", port)
    async with answering(GOOD, proxied=False, port=port):
        assert await solvers.silent_address(both, challenge) == "::1"
        async with answering(FAILED, proxied=False, address="::1", port=port):
            assert await solvers.silent_address(both, challenge) == "::1"
        async with answering(GOOD, proxied=False, address="::1", port=port):
            assert await solvers.silent_address(both, challenge) == ""


@pytest.mark.req("EDGE-11")
async def test_an_address_that_the_hub_has_no_route_to_is_not_held_against_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    challenge = OrderChallenge("a.example.com", "http-01", token="token", content="good")
    no_route = "fe80::1"  # a link-local address without an interface
    assert not solvers.has_route(no_route)
    async with answering(GOOD, proxied=False) as port:
        monkeypatch.setattr(solvers, "CHALLENGE_PORT", port)
        assert await solvers.silent_address((no_route, "127.0.0.1"), challenge) == ""
        assert await solvers.silent_address((no_route,), challenge) == no_route
