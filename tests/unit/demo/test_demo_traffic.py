"""Every request is counted once: answered, failed, lost with a pod that was killed, or under way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.pod_server import PodServer
from fairlead_demo.worlds.processes import PATIENCE_S, Child, wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.worlds.listening import listening

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve) -> AsyncGenerator[int]:
    """Serve connections by ``serve`` inside the block; yields the port."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening(server) as port:
        yield port


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def answers_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Promise to keep the connection, and close it."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nweb-1")
    await writer.drain()
    writer.close()


async def after(traffic: Traffic, sent: int) -> None:
    async def enough() -> bool:
        return traffic.count.sent >= sent

    await wait_until(enough, f"{sent} requests are sent")
    await traffic.stop()
    assert traffic.count.under_way == 0
    assert not traffic.running


async def test_every_answer_is_counted_for_the_pod_that_gave_it(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    pod = PodServer("web-1")
    serving = asyncio.create_task(pod.serve("127.0.0.1", port))
    traffic = Traffic(host="127.0.0.1", port=port, new_per_s=50, kept=1, kept_per_s=50)
    await wait_until(lambda: listens(port), "the pod listens")
    traffic.start()
    assert traffic.running
    await after(traffic, 10)
    assert traffic.count.by_pod == {"web-1": traffic.count.sent}
    assert (traffic.count.failed, traffic.count.cut, traffic.count.lost) == (0, 0, 0)
    pod.draining.set()
    await serving
    assert capsys.readouterr().out == "ready\n"


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_no_answer_is_a_failure_with_its_cause() -> None:
    async with served(closes) as port:
        traffic = Traffic(host="127.0.0.1", port=port, new_per_s=50, kept=0)
        traffic.start()
        await after(traffic, 8)
    assert traffic.count.failed == traffic.count.sent
    assert len(traffic.count.failures) < 8, "only the first ones are kept"
    assert "closed after 0 bytes of the answer" in traffic.count.failures[0]


async def test_requests_on_a_killed_pod_are_lost_or_fail() -> None:
    kill = asyncio.Event()

    async def killed(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await kill.wait()
        writer.close()

    async with served(killed) as port:
        traffic = Traffic(host="127.0.0.1", port=port, new_per_s=50, kept=0)
        traffic.start()

        async def some() -> bool:
            return traffic.count.sent >= 3

        await wait_until(some, "requests are under way")
        with traffic.pod_dies():
            before = traffic.count.sent
            kill.set()
            await asyncio.sleep(0)
        await after(traffic, before + 3)
    assert 0 < traffic.count.lost <= before
    assert traffic.count.failed == traffic.count.sent - traffic.count.lost


@pytest.mark.parametrize("kept", [True, False])
async def test_the_end_of_kept_connections_excuses_no_request_on_a_connection_of_its_own(*, kept: bool) -> None:
    end = asyncio.Event()

    async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await end.wait()
        writer.transport.abort()

    async with served(ended) as port:
        new_per_s, connections = (0.001, 3) if kept else (50.0, 0)
        traffic = Traffic(host="127.0.0.1", port=port, kept_per_s=50, new_per_s=new_per_s, kept=connections)
        traffic.start()

        async def some() -> bool:
            return traffic.count.sent >= 3

        await wait_until(some, "requests are under way")
        with traffic.kept_connections_end():
            end.set()
            await asyncio.sleep(0)
            before = traffic.count.under_way

        async def over() -> bool:
            return traffic.count.lost + traffic.count.failed >= before

        await wait_until(over, "they have broken")
        await traffic.stop()
    assert bool(traffic.count.lost) == kept
    assert kept or traffic.count.failed == traffic.count.sent


@pytest.mark.req("X-7")
async def test_what_a_pod_accepts_between_the_signal_and_its_end_is_lost_with_it(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", "127.0.0.1", str(port), "web-1"]
    pod = Child("web-1", command, log=tmp_path / "log")
    await pod.start(first_line_s=PATIENCE_S)
    traffic = Traffic(host="127.0.0.1", port=port, new_per_s=50, kept=0)
    try:
        with traffic.pod_dies():
            # As on a busy machine: the process is stopped, and its kernel still accepts connections.
            os.kill(pod.pid, signal.SIGSTOP)
            traffic.start()

            async def some() -> bool:
                return traffic.count.sent >= 5

            await wait_until(some, "requests are under way")
            await pod.kill()
        await traffic.stop()
    finally:
        await pod.kill()
    assert (traffic.count.failed, traffic.count.lost) == (0, traffic.count.sent), traffic.count.failures


async def test_a_kept_connection_that_is_closed_without_being_asked_is_cut() -> None:
    async with served(answers_once) as port:
        traffic = Traffic(host="127.0.0.1", port=port, new_per_s=1, kept=1, kept_per_s=50)
        traffic.start()
        await after(traffic, 6)
    assert traffic.count.cut > 0
