"""Requests at a steady rate over kept connections, and pods that answer them with their own names."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import cast

POD_PORT = 8098
RATE_PER_S = 2000
CONNECTIONS = 100
TIMEOUT_S = 5.0


class _Pod(asyncio.Protocol):
    """Answers every request with the address that it was sent to."""

    def __init__(self, connections: set[asyncio.Transport]) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        body = str(transport.get_extra_info("sockname")[0]).encode()
        self._answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        self._connections.add(self._transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer * data.count(b"\r\n\r\n"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._connections.discard(self._transport)


async def start_pod(address: str, port: int = POD_PORT) -> tuple[asyncio.Server, set[asyncio.Transport]]:
    connections: set[asyncio.Transport] = set()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Pod(connections), address, port), connections


class _Client(asyncio.Protocol):
    """One kept connection: a request at each tick, counted when its answer is there."""

    def __init__(self, counts: Counter[str], latencies_ms: list[float], host: str) -> None:
        self._request = f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        self._counts = counts
        self._latencies_ms = latencies_ms
        self._sent_s = 0.0
        self._buffer = b""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def ask(self) -> None:
        if self._sent_s and time.perf_counter() - self._sent_s < TIMEOUT_S:
            self._counts["late"] += 1
            return
        if self._sent_s:
            self._counts["failed"] += 1
        self._sent_s = time.perf_counter()
        self._counts["sent"] += 1
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0):
            return
        self._buffer = b""
        self._latencies_ms.append((time.perf_counter() - self._sent_s) * 1000)
        self._sent_s = 0.0
        self._counts["good" if head.startswith(b"HTTP/1.1 200") else "failed"] += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._counts["failed"] += bool(self._sent_s)
        self.lost = True


async def load(
    address: str, port: int, counts: Counter[str], latencies_ms: list[float], stop: asyncio.Event, host: str = "bench"
) -> None:
    """Send ``RATE_PER_S`` over kept connections; one that is lost is opened again. ``counts``: sent, good, failed."""
    loop = asyncio.get_running_loop()

    async def connect() -> _Client:
        _, client = await loop.create_connection(lambda: _Client(counts, latencies_ms, host), address, port)
        return client

    clients = [await connect() for _ in range(CONNECTIONS)]
    began_s, sent = time.perf_counter(), 0
    while not stop.is_set():
        due = int((time.perf_counter() - began_s) * RATE_PER_S)
        for number in range(sent, due):
            place = number % CONNECTIONS
            if clients[place].lost:
                clients[place] = await connect()
            clients[place].ask()
        sent = due
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.5)
    for client in clients:
        client.transport.close()
