"""A client over TLS takes the certificates that it trusts now, and no others, and counts which one it got."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic

HOST = "shop.example.com"


@asynccontextmanager
async def served(directory: Path, chain: bytes, key: bytes) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Serve answers over TLS inside the block; yields the port, and the requests as they come."""
    (directory / "both.pem").write_bytes(chain + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "both.pem")
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nweb-1")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        await stop_listening(server)


async def test_traffic_over_tls_names_the_host_and_counts_the_certificate(tmp_path: Path) -> None:
    old, (new, key) = self_signed(HOST)[0], self_signed(HOST)
    client = HttpsClient(HOST, old, new)
    async with served(tmp_path, new, key) as (port, requests):
        traffic = Traffic(host="127.0.0.1", port=port, authority=HOST, kept=0, connect=client.connect)
        traffic.start()

        async def answered() -> bool:
            return bool(traffic.count.answered)

        await wait_until(answered, "a request is answered")
        await traffic.stop()
    assert traffic.count.failed == 0
    assert traffic.count.by_pod["web-1"] == traffic.count.answered == client.connections_by_certificate[new]
    assert client.connections_by_certificate[old] == 0
    assert b"Host: shop.example.com\r\n" in requests[0]


@pytest.mark.parametrize("host", [HOST, "other.example.com"])
async def test_a_certificate_that_is_not_trusted_or_of_another_name_is_refused(host: str, tmp_path: Path) -> None:
    chain, key = self_signed(HOST)
    trusted = self_signed(HOST)[0] if host == HOST else chain
    client = HttpsClient(host, trusted)
    async with served(tmp_path, chain, key) as (port, _):
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.connect("127.0.0.1", port)
    assert not client.connections_by_certificate
