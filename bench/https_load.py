"""Requests over TLS at a steady rate, from a process of its own: ``python -m bench.https_load ADDRESS PORT HOST CA``.

A request is sent when it is due, whatever the ones before do; every tenth on a new connection, the others on those that
are kept. On SIGTERM what is under way is waited for, and one line of JSON is printed: sent, answered, failed, cut
(kept connections that were closed without having said so) and the first failures.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from pathlib import Path

RATE_PER_S = int(os.environ.get("RATE", "500"))
NEW_EVERY = 10
TIMEOUT_S = 10.0
_TICK_S = 0.004
_BROKEN = (OSError, EOFError, ValueError, LookupError)  # TimeoutError is an OSError; LookupError: a header is missing

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Load:
    """The requests, and what became of them."""

    def __init__(self, address: str, port: int, host: str, authority: str) -> None:
        self.sent = self.answered = self.failed = self.cut = 0
        self.failures: list[str] = []
        self._where = (address, port)
        self._host = host
        self._context = ssl.create_default_context(cafile=authority)
        self._idle: list[Connection] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until ``stop`` is set, then wait for what is under way."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while not stop.is_set():
            due = int((loop.time() - began_s) * RATE_PER_S)
            while self.sent < due:
                self.sent += 1
                task = loop.create_task(self._request(keep=self.sent % NEW_EVERY != 0, at_s=loop.time() - began_s))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
            await asyncio.sleep(_TICK_S)
        while self._under_way:
            await asyncio.wait(set(self._under_way))

    async def _request(self, *, keep: bool, at_s: float) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = (self._kept() if keep else None) or await self._connect()
                if await self._ask(connection, keep=keep):
                    self._idle.append(connection)
                else:
                    connection[1].close()
            self.answered += 1
        except _BROKEN as error:
            self.failed += 1
            self.failures.append(f"after {at_s:.1f} s: {type(error).__name__} {error}")

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection[0].at_eof() and connection[0].exception() is None:
                return connection
            self.cut += 1
            connection[1].close()
        return None

    async def _connect(self) -> Connection:
        return await asyncio.open_connection(*self._where, ssl=self._context, server_hostname=self._host)

    async def _ask(self, connection: Connection, *, keep: bool) -> bool:
        """Return whether the connection stays open after the answer."""
        reader, writer = connection
        ending = "keep-alive" if keep else "close"
        writer.write(f"GET / HTTP/1.1\r\nHost: {self._host}\r\nConnection: {ending}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if " 200 " not in head.partition("\r\n")[0] + " ":
            raise ValueError(head.partition("\r\n")[0])
        await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))
        return keep and "connection: close" not in head


async def main(address: str, port: str, host: str, authority: str) -> None:
    """Run as a program."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    load = Load(address, int(port), host, authority)
    sys.stdout.write("sending\n")
    sys.stdout.flush()
    await load.run(stop)
    counts = {name: getattr(load, name) for name in ("sent", "answered", "failed", "cut")}
    sys.stdout.write(json.dumps({**counts, "failures": load.failures[:5]}) + "\n")


if __name__ == "__main__":
    assert Path(sys.argv[4]).exists(), "the file of the authority is missing"
    asyncio.run(main(*sys.argv[1:5]))
