"""Questions that share one connection to a DNS server: what one of them lacks does not hold up the others."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator, Callable

import pytest

from fairlead.errors import Retry
from fairlead.providers.zones.answers import query
from fairlead.providers.zones.connection import DNSConnection
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.telemetry import stop_listening

TIMEOUT_S = 2.0
Answers = Callable[[int, int], bool]


class Server:
    """Counts connections, and the questions on each."""

    def __init__(self) -> None:
        self.port = 0
        self.questions: list[int] = []
        self.more = asyncio.Event()

    async def asked(self, *questions: int) -> None:
        """Wait until there are so many questions on each connection."""
        async with asyncio.timeout(180):
            while self.questions != list(questions):
                self.more.clear()
                await self.more.wait()

    def connection(self) -> DNSConnection:
        return DNSConnection(ServerSettings("example.test", "127.0.0.1", self.port, timeout_s=TIMEOUT_S))


@contextlib.asynccontextmanager
async def serving(answers: Answers) -> AsyncGenerator[Server]:
    """Serve; ``answers`` says of a connection and a question on it, both from 1, whether there is an answer."""
    made = Server()
    tasks: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        made.questions.append(0)
        number = len(made.questions)
        try:
            while True:
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                raw = await reader.readexactly(length)
                made.questions[number - 1] += 1
                made.more.set()
                if answers(number, made.questions[number - 1]):
                    answer = raw[:2] + b"\x84\x00" + bytes(8)
                    writer.write(struct.pack("!H", len(answer)) + answer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        await stop_listening(server)
        await asyncio.gather(*filter(None, tasks))  # each ends as its client has closed


async def test_pending_questions_are_repeated_after_a_drop() -> None:
    async with serving(lambda number, _: number > 1) as server:
        connection = server.connection()
        first = asyncio.create_task(connection.ask(query("a.example.test", "A")))
        await server.asked(1)
        await asyncio.sleep(TIMEOUT_S / 2)
        later = asyncio.create_task(connection.ask(query("b.example.test", "A")))
        with pytest.raises(Retry, match="no answer within"):
            await first
        await later
        assert server.questions == [2, 1]
        await connection.close()


async def test_a_question_that_runs_out_of_time_leaves_a_newer_connection_alone() -> None:
    async with serving(lambda number, question: number > 1 and question != 1) as server:
        connection = server.connection()
        # The first drops its connection; the second is repeated on the next one, and runs out of time there.
        lost = [asyncio.create_task(connection.ask(query("a.example.test", "A")))]
        await server.asked(1)
        await asyncio.sleep(TIMEOUT_S / 3)
        lost.append(asyncio.create_task(connection.ask(query("b.example.test", "A"))))
        await server.asked(2, 1)
        await connection.ask(query("c.example.test", "A"))
        for each in lost:
            with pytest.raises(Retry, match="no answer within"):
                await each
        await connection.ask(query("d.example.test", "A"))
        assert server.questions == [2, 3]
        await connection.close()


async def test_pending_questions_end_when_all_is_closed() -> None:
    async with serving(lambda _, question: question == 1) as server:
        connection = server.connection()
        await connection.ask(query("a.example.test", "A"))
        asked = asyncio.create_task(connection.ask(query("b.example.test", "A")))
        await server.asked(2)
        await connection.close()
        with pytest.raises(Retry, match="closed the connection"):
            await asked
        assert server.questions == [2]
