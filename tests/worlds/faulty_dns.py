"""A DNS server with injected faults: forwards queries to a real BIND, and may drop or change requests and responses.

In: a BIND, a fault for queries and one for updates. Out: the address of the server. A fault is a function of the
request and a function that forwards it; it returns the response, or None to send none.
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

from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.name_servers import ADDRESS, Bind

Forward = Callable[[bytes], Awaitable[bytes]]
Fault = Callable[[bytes, Forward], Awaitable[bytes | None]]


async def no_fault(question: bytes, forward: Forward) -> bytes | None:
    """Return the response of BIND."""
    return await forward(question)


async def drop_request(question: bytes, forward: Forward) -> bytes | None:
    """Drop the request: it is not forwarded, and there is no response."""
    del question, forward
    return None


async def drop_response(question: bytes, forward: Forward) -> bytes | None:
    """Forward the request, and drop the response."""
    await forward(question)
    return None


async def truncate_response(question: bytes, forward: Forward) -> bytes | None:
    """Return the first half of the response."""
    answer = await forward(question)
    return answer[: len(answer) // 2]


def error_response(rcode: dns.rcode.Rcode) -> Fault:
    """Return the fault that responds with ``rcode`` and does not forward the request."""

    async def answer(question: bytes, forward: Forward) -> bytes | None:
        del forward
        flags = struct.unpack("!H", question[2:4])[0]
        opcode = flags & 0x7800
        return question[:2] + struct.pack("!HHHHH", dns.flags.QR | opcode | rcode, 0, 0, 0, 0)

    return answer


def false_success(bind: Bind) -> Fault:
    """Return the fault that responds to updates with a signed NOERROR and does not forward them."""

    async def answer(question: bytes, forward: Forward) -> bytes | None:
        del forward
        keyring = dns.tsigkeyring.from_text({"fairlead": bind.secrets["fairlead"]})
        return dns.message.make_response(dns.message.from_wire(question, keyring=keyring)).to_wire()

    return answer


class FaultyDNS:
    """A DNS proxy; ``queries`` and ``updates`` are its faults, which may be changed at any time."""

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
            await stop_listening(self._listener)
            await self._listener.wait_closed()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports are closed in the next iteration of the event loop

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
