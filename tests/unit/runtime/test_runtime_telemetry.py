from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Iterator

import aiohttp
import pytest
import structlog
from prometheus_client import CollectorRegistry, Counter

from fairlead.errors import BadConfiguration
from fairlead.runtime import telemetry as connections
from fairlead.runtime.logs import configure_logging, redact
from fairlead.runtime.telemetry import StatusServer, Telemetry


@pytest.fixture
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("event", "secret"),
    [
        ({"token": "s3cr3t"}, "s3cr3t"),
        ({"Authorization": "whatever"}, "whatever"),
        ({"db_password": "hunter2"}, "hunter2"),
        ({"headers": {"authorization": "hunter2", "accept": "json"}}, "hunter2"),
        ({"list": [{"clientSecret": "hunter2"}]}, "hunter2"),
        ({"detail": "sent Bearer abcdefghijkl to host"}, "abcdefghijkl"),
        ({"detail": "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln back"}, "eyJhbGci"),
        ({"client-key": b"PEM"}, "PEM"),
    ],
)
def test_secrets_are_redacted(event: dict[str, object], secret: str) -> None:
    assert secret not in repr(redact(None, "info", dict(event)))


def test_values_that_are_not_secret_stay() -> None:
    event = {"event": "bearer of news", "token_count": 3, "key": "ns/name", "n": 1}
    assert redact(None, "info", dict(event)) == event


@pytest.mark.usefixtures("restore_logging")
def test_json_lines_from_both_kinds_of_loggers(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=True)
    structlog.get_logger("one").info("hello", token="s3cr3t", n=1)
    logging.getLogger("two").warning("plain %s", "words")
    structlog.get_logger("one").debug("quiet")
    try:
        raise ValueError("Bearer abcdefghijkl")
    except ValueError:
        structlog.get_logger("one").exception("failed")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["hello", "plain words", "failed"]
    assert lines[0]["token"] == "[redacted]"
    assert lines[0]["level"] == "info"
    assert lines[1]["logger"] == "two"
    assert "Traceback" in lines[2]["exception"]
    assert "abcdefghijkl" not in lines[2]["exception"]


@pytest.mark.usefixtures("restore_logging")
def test_people_get_a_console_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", json=False)
    structlog.get_logger("one").debug("hello", n=1)
    text = capsys.readouterr().err
    assert "hello" in text
    assert "n=1" in text


async def test_the_status_page() -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    reasons: list[str] = ["services of member a are not synced", "no leader"]
    async with StatusServer("127.0.0.1", 0, registry, lambda: reasons) as server, aiohttp.ClientSession() as http:
        async with http.get(f"{server.url}/readyz") as answer:
            assert answer.status == 503
            assert (await answer.text()).splitlines() == reasons
        reasons.clear()
        async with http.get(f"{server.url}/readyz") as answer:
            assert answer.status == 200
        async with http.get(f"{server.url}/livez") as answer:
            assert answer.status == 200
        async with http.get(f"{server.url}/metrics") as answer:
            assert "things_total 1.0" in await answer.text()


@pytest.mark.req("S-6")
async def test_the_script_of_another_site_reads_no_figures() -> None:
    async with StatusServer("127.0.0.1", 0, CollectorRegistry(), list) as server, aiohttp.ClientSession() as http:
        for host, status in (("evil.example", 403), ("127.0.0.1", 200), ("localhost:1", 200), ("[::1]:80", 200)):
            async with http.get(f"{server.url}/metrics", headers={"Host": host}) as answer:
                assert answer.status == status, host


async def test_a_taken_port_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadConfiguration, match=rf"127\.0\.0\.1:{port}: the port is in use"):
            await StatusServer("127.0.0.1", port, CollectorRegistry(), list).start()


async def test_a_foreign_address_is_a_sentence() -> None:
    with pytest.raises(BadConfiguration, match="address of this machine"):
        await StatusServer("192.0.2.1", 0, CollectorRegistry(), list).start()


def test_two_processes_parts_may_have_their_own_registries() -> None:
    Telemetry()
    Telemetry()
    with pytest.raises(ValueError, match="Duplicated"):
        Telemetry(Telemetry().registry)


HALF = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def _is_ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(180):
        with contextlib.suppress(ConnectionError):
            while await reader.read(1024):
                pass


@pytest.mark.req("S-8")
async def test_connections_that_ask_for_nothing_take_no_file_from_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incomplete requests stayed open forever, used up the hub's file limit, and cut it off from the API."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    registry, refreshing, go_on = CollectorRegistry(), asyncio.Event(), asyncio.Event()

    async def refresh() -> None:
        refreshing.set()
        await go_on.wait()

    async with (
        StatusServer("127.0.0.1", 0, registry, list, refresh=refresh) as server,
        aiohttp.ClientSession() as http,
        contextlib.AsyncExitStack() as stack,
    ):
        scrape = asyncio.create_task(http.get(f"{server.url}/metrics"))
        await refreshing.wait()
        readers: list[asyncio.StreamReader] = []
        for _ in range(50):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.callback(writer.close)
            writer.write(HALF)
            readers.append(reader)
        for reader in readers[:31]:
            await _is_ended(reader)
        async with http.get(f"{server.url}/livez") as answer:
            assert answer.status == 200
        go_on.set()
        assert (await scrape).status == 200  # what was under way is answered


@pytest.mark.req("S-8")
@pytest.mark.parametrize("said", [b"", HALF, HALF + b"\r\n", HALF + b"\r\n" + HALF])
async def test_a_connection_without_a_request_ends(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_S", 0.2)
    monkeypatch.setattr(connections, "KEPT_S", 0.2)
    async with StatusServer("127.0.0.1", 0, CollectorRegistry(), list) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(said)
        await _is_ended(reader)
        writer.close()


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_accepted_while_the_server_stops_ends(turns: int) -> None:
    server = StatusServer("127.0.0.1", 0, CollectorRegistry(), list)
    await server.start()
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.aclose()
        async with asyncio.timeout(180):
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(client, 1) == b""
