"""Small servers in the test process itself, and clients that open a new connection each time.

Ports of Services are written as users write them; where this user may not open 80, ``service_port`` replaces it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until


class Echo:
    """A TCP server that answers each HTTP request with its own name, and remembers how connections began."""

    def __init__(self, host: str, port: int, name: str, *, tls: ssl.SSLContext | None = None) -> None:
        self.host, self.port, self.name, self._tls = host, port, name, tls
        self.status = "200 OK"
        self.first_bytes: list[bytes] = []
        self.peers: list[str] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._connected, self.host, self.port, ssl=self._tls)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await stop_listening(self._server)
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            # A PROXY v2 header holds these four bytes itself: then the request is what comes after it.
            while b"HTTP/1.1" not in head:
                head += await reader.readuntil(b"\r\n\r\n")
            self.first_bytes.append(head)
            self.peers.append(writer.get_extra_info("peername")[0])
            body = self.name.encode()
            head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            writer.write(head + body)
            await writer.drain()
        except (ConnectionError, EOFError):
            pass  # a health check: it connects and goes away
        finally:
            writer.close()


class UdpEcho(asyncio.DatagramProtocol):
    """A UDP server that answers with its name and what it got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self.transport is not None
        self.transport.sendto(self.name.encode() + b":" + data, addr)


async def ask(host: str, port: int, *, source: str | None = None, timeout_s: float = 60.0) -> str:
    """Return the body of one GET over a new connection."""
    async with asyncio.timeout(timeout_s):
        local = (source, 0) if source else None
        reader, writer = await asyncio.open_connection(host, service_port(port), local_addr=local)
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head, answer
    return body.decode()


async def answers(address: str, port: int, body: str) -> None:
    """Wait until ``body`` is what a new connection is answered with."""

    async def answered() -> bool:
        with contextlib.suppress(OSError, AssertionError, EOFError, TimeoutError):
            return await ask(address, port) == body
        return False

    await wait_until(answered, f"{body!r} answers at {address} port {port}")


async def refused(host: str, port: int) -> bool:
    """Return whether nothing accepts connections there."""
    try:
        _, writer = await asyncio.open_connection(host, service_port(port))
    except OSError:
        return True
    writer.close()
    return False


async def ask_udp(host: str, port: int, data: bytes, *, timeout_s: float = 5.0) -> bytes:
    """Return the answer to one datagram; TimeoutError when there is none."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            if not answer.done():
                answer.set_result(data)

    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=(host, port))
    try:
        transport.sendto(data)
        return await asyncio.wait_for(answer, timeout_s)
    finally:
        transport.close()


@asynccontextmanager
async def echoes(*places: tuple[str, int, str]) -> AsyncGenerator[list[Echo]]:
    """Run servers (address, port, name) inside the block."""
    servers = [await Echo(*place).start() for place in places]
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()


def http(port: int = 80, target: int = 8080, **more: object) -> dict[str, object]:
    return {"port": service_port(port), "targetPort": target, **more}


async def ready(member: Member, name: str, port: int, *, namespace: str = "default") -> str:
    """Wait until a Service has an address and answers there."""
    address = await member.address(name, namespace)

    async def answers() -> bool:
        with contextlib.suppress(OSError, AssertionError, EOFError):
            return bool(await ask(address, port))
        return False

    await wait_until(answers, f"{name} answers at {address}:{port}")
    return address
