"""A DNS server with faults: what is sent to it goes to a real BIND, and what comes back may be delayed, wrong or half.

In: a BIND, a fault for queries and one for updates. Out: an address to name as the server. A fault is a function of the
question and of what forwards it; it returns the answer, or nothing for an answer that never comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.tsigkeyring

from fairlead.testing.worlds.name_servers import ADDRESS, Bind

Forward = Callable[[bytes], Awaitable[bytes]]
Fault = Callable[[bytes, Forward], Awaitable[bytes | None]]


async def no_fault(question: bytes, forward: Forward) -> bytes | None:
    """Answer as BIND does."""
    return await forward(question)


async def silence(question: bytes, forward: Forward) -> bytes | None:
    """Neither do anything nor answer."""
    del question, forward
    return None


async def done_in_silence(question: bytes, forward: Forward) -> bytes | None:
    """Do it, and never answer."""
    await forward(question)
    return None


async def half(question: bytes, forward: Forward) -> bytes | None:
    """Answer with half a message."""
    answer = await forward(question)
    return answer[: len(answer) // 2]


def refusal(rcode: dns.rcode.Rcode) -> Fault:
    """Return the fault that answers with ``rcode``, and does nothing."""

    async def answer(question: bytes, forward: Forward) -> bytes | None:
        del forward
        flags = struct.unpack("!H", question[2:4])[0]
        opcode = flags & 0x7800
        return question[:2] + struct.pack("!HHHHH", dns.flags.QR | opcode | rcode, 0, 0, 0, 0)

    return answer


def lie(bind: Bind, key: str = "fairlead") -> Fault:
    """Return the fault that answers updates with a signed NOERROR, and does nothing."""

    async def answer(question: bytes, forward: Forward) -> bytes | None:
        del forward
        keyring = dns.tsigkeyring.from_text({key: bind.secrets[key]})
        return dns.message.make_response(dns.message.from_wire(question, keyring=keyring)).to_wire()

    return answer


class FaultyDNS:
    """The server; ``queries`` and ``updates`` are its faults, which may be changed at any time."""

    def __init__(self, bind: Bind) -> None:
        self.queries: Fault = no_fault
        self.updates: Fault = no_fault
        self.server = ""
        self.update_count = 0
        self._bind = bind
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen on loopback."""
        self._listener = await asyncio.start_server(self._accept, ADDRESS, 0)
        self.server = "{}:{}".format(*self._listener.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """End all connections."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the next turn of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                question = await _message(reader)
                update = dns.opcode.from_flags(struct.unpack("!H", question[2:4])[0]) == dns.opcode.UPDATE
                self.update_count += update
                answer = await (self.updates if update else self.queries)(question, self._forward)
                if answer is not None:
                    writer.write(struct.pack("!H", len(answer)) + answer)

    async def _forward(self, question: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(ADDRESS, self._bind.port)
        try:
            writer.write(struct.pack("!H", len(question)) + question)
            return await _message(reader)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _message(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("!H", await reader.readexactly(2))
    return await reader.readexactly(length)
