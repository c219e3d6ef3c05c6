"""Connections that never say who they are, and users who ask for too much at once."""

from __future__ import annotations

import asyncio
import resource
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from podless_client import Api, account

from fairlead_demo.worlds.processes import wait_until
from podless import ApiServer
from podless.auth.identity import ADMIN, service_account
from podless.failure import ApiFailure
from podless.http import handler as seats
from podless.http import listener, responses
from podless.http.handler import StreamLimit
from podless.http.listener import RareLog

HALF = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def open_streams() -> AsyncIterator[list[asyncio.StreamWriter]]:
    writers: list[asyncio.StreamWriter] = []
    yield writers
    for writer in writers:
        writer.close()


async def connect(url: str, writers: list[asyncio.StreamWriter], said: bytes) -> asyncio.StreamReader:
    host, port = url.partition("://")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    writers.append(writer)
    return reader


async def is_ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(180):
        try:
            while await reader.read(1024):
                pass
        except ConnectionError:
            pass


@pytest.mark.req("S-8")
@pytest.mark.parametrize("tls", [True, False])
async def test_half_handshakes_and_half_requests_end_each_other_and_nothing_else(
    own: tuple[ApiServer, Api], open_streams: list[Any], monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """Of 1,200 of them the API was blocked for a minute, and wrote 105,000 tracebacks."""
    monkeypatch.setattr(listener, "MAX_WAITING", 20)
    monkeypatch.setattr(listener, "FAIR_S", 0.1)
    server, api = own
    watch = asyncio.create_task(api.watch(api.cms, until=1))
    said = b"\x16\x03\x01" if tls else HALF
    readers = [await connect(server.tls_url if tls else server.url, open_streams, said) for _ in range(100)]
    await is_ended(readers[0])
    connections = server._connections
    assert connections is not None
    assert connections.waiting <= 20
    trust = ssl.create_default_context(cadata=server._certificate)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        fresh = Api(session, server.tls_url, server.admin_token)
        (await fresh.get("/api/v1/namespaces")).ok()
    (await api.post(api.cms, {"metadata": {"name": "seen"}})).ok(201)
    assert [event["object"]["metadata"]["name"] for event in await watch] == ["seen"]


async def test_many_that_come_at_once_and_mean_it_are_all_let_in(
    own: tuple[ApiServer, Api], open_streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of agents that all came back after an outage each ended the connection of another one."""
    monkeypatch.setattr(listener, "MAX_WAITING", 4)
    monkeypatch.setattr(listener, "FAIR_S", 20.0)
    server, _ = own
    host, port = server.url.partition("://")[2].split(":")

    async def slow_client() -> bytes:
        """Say half of a request, and the rest when the others have come."""
        reader, writer = await asyncio.open_connection(host, int(port))
        open_streams.append(writer)
        writer.write(HALF)
        await asyncio.sleep(0.05)
        writer.write(f"Authorization: Bearer {server.admin_token}\r\n\r\n".encode())
        return await reader.readline()

    async with asyncio.timeout(180):
        answers = await asyncio.gather(*(slow_client() for _ in range(40)))
    assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}


@pytest.mark.req("S-8")
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", HALF, HALF + b"Authorization: Bearer wrong\r\n\r\n"])
async def test_a_connection_has_to_say_who_it_is_in_time(
    open_streams: list[Any], monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(listener, "WAIT_S", 0.3)
    server = ApiServer()
    await server.start()
    readers = [await connect(url, open_streams, said) for url in (server.url, server.tls_url)]
    for reader in readers:
        await is_ended(reader)
    assert server._connections is not None
    await server.stop()
    assert len(server._connections or ()) == 0


@pytest.mark.req("S-8")
async def test_who_was_let_in_stays_connected(own: tuple[ApiServer, Api], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "WAIT_S", 2.0)
    server = ApiServer()
    url = await server.start()
    async with aiohttp.ClientSession() as session:
        api = Api(session, url, server.admin_token)
        for _ in range(2):
            (await api.get("/api/v1/namespaces")).ok()
            await asyncio.sleep(1.1)
        assert server._connections is not None
        assert (len(server._connections), server._connections.waiting) == (1, 0)
    await server.stop()


@pytest.mark.req("S-4")
async def test_a_user_has_so_many_requests_at_once_and_the_others_wait_or_are_refused() -> None:
    shared, blue, green = StreamLimit(), service_account("a", "blue", "1"), service_account("a", "green", "2")
    for _ in range(seats.MAX_RUNNING):
        await shared.take(blue)
    waiting = [asyncio.create_task(shared.take(blue)) for _ in range(seats.MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(ApiFailure) as refused:
        await shared.take(blue)
    assert (refused.value.code, refused.value.retry_after_s) == (429, 1)
    await shared.take(green)  # another user has seats of its own
    for _ in range(1000):
        await shared.take(ADMIN)
    waiting[0].cancel()
    shared.release(blue)
    async with asyncio.timeout(180):
        await waiting[1]
    assert not waiting[2].done()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(seats.MAX_RUNNING):
        shared.release(blue)
    shared.release(green)
    assert (shared._running, shared._waiting) == ({}, {})


@pytest.mark.req("S-4")
async def test_open_watches_of_a_user_are_counted(own: tuple[ApiServer, Api], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "MAX_WATCHES", 2)
    _, api = own
    token = await account(api, "watcher", ["watch"])
    heads = {"Authorization": f"Bearer {token}"}
    open_: list[aiohttp.ClientResponse] = []
    for _ in range(2):
        response = await api.session.get(api.url + api.cms, params={"watch": "1"}, headers=heads)
        assert response.status == 200
        open_.append(response)
    (await api.get(api.cms, token=token, watch="1")).refused(429, "TooManyRequests", "open watches")
    for response in open_:
        response.close()


async def hold(url: str, path: str, token: str, writers: list[asyncio.StreamWriter]) -> asyncio.StreamReader:
    """Make one request over a connection of its own, which stays open."""
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    reader = await connect(url, writers, head.encode())
    async with asyncio.timeout(180):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    return reader


@pytest.mark.req("S-8")
async def test_connections_that_a_user_keeps_open_take_none_from_others(
    own: tuple[ApiServer, Api], open_streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request over each of them, and the token of one member kept all others out for an hour."""
    server, api = own
    green = await account(api, "green", ["list", "watch"])
    blue = await account(api, "blue", ["list"])
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = server._connections
    assert connections is not None
    monkeypatch.setattr(listener, "_OTHER_FILES", soft - len(connections) - 30)
    watch = await hold(server.url, f"{api.cms}?watch=1", green, open_streams)
    kept = [await hold(server.url, api.cms, blue, open_streams) for _ in range(60)]
    fresh = await hold(server.url, api.cms, green, open_streams)
    await is_ended(kept[0])
    await hold(server.url, "/api/v1/namespaces", server.admin_token, open_streams)
    assert not watch.at_eof()
    assert not fresh.at_eof()
    assert not kept[-1].at_eof()


@pytest.mark.req("S-8")
async def test_a_user_keeps_so_many_connections(
    own: tuple[ApiServer, Api], open_streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_OF_USER", 5)
    server, api = own
    blue = await account(api, "blue", ["list"])
    kept = [await hold(server.url, api.cms, blue, open_streams) for _ in range(6)]
    await is_ended(kept[0])
    assert not any(reader.at_eof() for reader in kept[1:])
    for writer in open_streams:
        writer.close()
    connections = server._connections
    assert connections is not None

    async def all_gone() -> bool:
        return not connections._of_user

    await wait_until(all_gone, "all are closed")
    assert (connections._user_of, connections._idle) == ({}, {})


@pytest.mark.req("S-4")
async def test_clients_that_read_nothing_hold_little_of_what_they_asked_for(
    own: tuple[ApiServer, Api], open_streams: list[Any]
) -> None:
    """Each watch that began with the whole state had a copy of all of it: 60 of them took 4 GB, with 100 MB stored."""
    server, api = own
    blue = await account(api, "blue", ["list", "watch"])
    for number in range(20):
        (await api.post(api.cms, {"metadata": {"name": f"n{number}"}, "data": {"k": "x" * 1_000_000}})).ok(201)
    first = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for query in [first] * 20 + ["limit=500"] * 4:
            await hold(server.url, f"{api.cms}?{query}", blue, open_streams)
        await asyncio.sleep(1.0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 150_000_000


@pytest.mark.req("S-8")
async def test_a_client_that_takes_nothing_is_cut_off(
    own: tuple[ApiServer, Api], open_streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "STALLED_S", 0.2)
    server, api = own
    for number in range(20):
        (await api.post(api.cms, {"metadata": {"name": f"n{number}"}, "data": {"k": "x" * 1_000_000}})).ok(201)
    reader = await hold(server.url, api.cms, server.admin_token, open_streams)
    reader._transport.pause_reading()  # type: ignore[attr-defined] - no byte more
    connections = server._connections
    assert connections is not None

    async def is_gone() -> bool:
        return len(connections) <= 1

    await wait_until(is_gone, "the connection has ended")


@pytest.mark.req("S-8")
def test_a_line_is_logged_now_and_then_with_the_number_of_those_left_out() -> None:
    now = [0.0]
    rare = RareLog(10.0, lambda: now[0])
    assert [rare.due() for _ in range(5)] == [0, None, None, None, None]
    now[0] = 11.0
    assert [rare.due(), rare.due()] == [4, None]
