"""The servers of the suite that do not speak HTTP: a line protocol over TCP, an echo over UDP, and a bit of DNS."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
import struct
from typing import Any

from conformance.podlet.connection import tls_of
from conformance.podlet.requests import WriteLog

_WELCOME = b"Gateway API Test TCP Server\n"
_A, _AAAA = 1, 28


class TCPEcho:
    """A line protocol: a welcome, then PING, IS_TLS and TEST."""

    def __init__(self, context: dict[str, str], tcp_port: str, tls_port: str) -> None:
        self._context = {**context, "tcpport": tcp_port, "tlsport": tls_port}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        facts: dict[str, Any] = dict(self._context)
        tls = tls_of(writer)
        facts["isTLS"] = tls is not None
        if tls:
            facts["tls"] = {**tls, "version": str(tls["version"]).replace("TLSv", "TLS ")}
            facts["tls"].pop("peerCertificates", None)
        answers = {
            b"TEST": json.dumps(facts, separators=(",", ":")).encode(),
            b"IS_TLS": str(tls is not None).lower().encode(),
            b"PING": b"PONG",
        }
        try:
            writer.write(_WELCOME)
            while line := await reader.readline():
                if answer := answers.get(line.rstrip(b"\r\n")):
                    writer.write(answer + b"\n")
                    await writer.drain()
        except (ConnectionError, ssl.SSLError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    _transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep the transport for answers."""
        self._transport = transport

    def _send(self, data: bytes, address: tuple[str, int]) -> None:
        if self._transport is not None:
            self._transport.sendto(data, address)


class UDPEcho(_Datagrams):
    """Answers each datagram with its text and the pod's name."""

    def __init__(self, context: dict[str, str], write_log: WriteLog) -> None:
        self._context = context
        self._write_log = write_log

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one."""
        text = data[:1024].decode("utf-8", "replace")
        self._write_log(f"Received UDP {text} from {addr[0]}:{addr[1]}")
        self._send(json.dumps({"request": text, **self._context}).encode(), addr)


class DNSEcho(_Datagrams):
    """NOERROR, the question, and the client's address as additional record: what CoreDNS's ``whoami`` answers."""

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one query; what is none is dropped. Source: RFC 1035."""
        if len(data) < 12:
            return
        at = 12
        while at < len(data) and data[at]:
            at += data[at] + 1
        question = data[12 : at + 5]
        head = data[:2] + struct.pack(">HHHHH", 0x8580, 1, 0, 0, 1)
        try:
            client = ipaddress.ip_address(addr[0])
        except ValueError:
            return
        kind = _A if client.version == 4 else _AAAA
        record = b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(client.packed)) + client.packed
        self._send(head + question + record, addr)
