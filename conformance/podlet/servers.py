"""The servers that a container runs, by its image and its environment, at the pod's address.

In: a container. Out: listening sockets; ``close`` ends them with all connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from conformance.podlet.connection import remember_name
from conformance.podlet.datagrams import DNSEcho, TCPEcho, UDPEcho
from conformance.podlet.grpc_echo import GRPCEcho
from conformance.podlet.http1 import HTTPServer
from conformance.podlet.http_echo import HTTPEcho
from conformance.podlet.objects import ContainerSpec
from conformance.podlet.requests import WriteLog
from conformance.podlet.volumes import path_outside

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_CONTEXT = {"namespace": "NAMESPACE", "ingress": "INGRESS_NAME", "service": "SERVICE_NAME", "pod": "POD_NAME"}
_READ_LIMIT = 1 << 20


class Servers:
    """The servers of one pod at ``ip``; ``directory`` has its volumes."""

    def __init__(self, ip: str, directory: Path) -> None:
        self._ip = ip
        self._directory = directory
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._transports: list[asyncio.DatagramTransport] = []

    async def start(self, container: ContainerSpec, env: dict[str, str], write_log: WriteLog) -> None:
        """Start what the container runs; an image that is not known runs nothing."""
        context = {key: env.get(variable, "") for key, variable in _CONTEXT.items()}
        if "coredns" in container.image:
            await self._udp(53, DNSEcho)
        elif "echo-basic" not in container.image and "echoserver" not in container.image:
            write_log(f"the image {container.image} is not known here: it runs nothing")
        elif env.get("GRPC_ECHO_SERVER"):
            grpc = HTTPServer(grpc=GRPCEcho(context, write_log))
            await self._tcp(env.get("HTTP_PORT") or "3000", grpc.serve)
            if tls := self._tls(container, env, "TLS_SERVER_PRIV_KEY"):
                await self._tcp(env.get("HTTPS_PORT") or "8443", grpc.serve, tls)
        elif env.get("TCP_ECHO_SERVER"):
            plain, secure = env.get("TCP_PORT") or "3000", env.get("TLS_PORT") or "8443"
            tcp = TCPEcho(context, plain, secure)
            await self._tcp(plain, tcp.serve)
            if tls := self._tls(container, env, "TLS_SERVER_PRIV_KEY", alpn=False):
                await self._tcp(secure, tcp.serve, tls)
        elif env.get("UDP_ECHO_SERVER"):
            await self._udp(int(env.get("UDP_PORT") or 8080), lambda: UDPEcho(context, write_log))
        else:
            port = env.get("HTTP_PORT") or "3000"
            echo = HTTPEcho(context, port, write_log)
            await self._tcp(port, HTTPServer(echo=echo).serve)
            await self._tcp(env.get("H2C_PORT") or "3001", HTTPServer(echo=echo, only_http2=True).serve)
            if tls := self._tls(container, env, "TLS_SERVER_PRIVKEY"):
                await self._tcp(env.get("HTTPS_PORT") or "8443", HTTPServer(echo=echo).serve, tls)

    def close(self) -> None:
        """End all of them."""
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.close()
        for transport in self._transports:
            transport.close()
        self._servers, self._transports = [], []

    def _tls(
        self, container: ContainerSpec, env: dict[str, str], key_variable: str, *, alpn: bool = True
    ) -> ssl.SSLContext | None:
        certificate, key = env.get("TLS_SERVER_CERT"), env.get(key_variable)
        if not certificate or not key:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            path_outside(self._directory, container, certificate), path_outside(self._directory, container, key)
        )
        if authorities := env.get("TLS_CLIENT_CACERTS"):
            # A client certificate is verified when there is one.
            context.load_verify_locations(path_outside(self._directory, container, authorities))
            context.verify_mode = ssl.CERT_OPTIONAL
        if alpn:
            context.set_alpn_protocols(["h2", "http/1.1"])
        context.sni_callback = remember_name
        return context

    async def _tcp(self, port: str, serve: Serve, tls: ssl.SSLContext | None = None) -> None:
        async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            try:
                # The pod stops: asyncio of Python 3.11 would print a traceback.
                with contextlib.suppress(asyncio.CancelledError):
                    await serve(reader, writer)
            finally:
                self._writers.discard(writer)

        self._servers.append(
            await asyncio.start_server(kept, self._ip, int(port), ssl=tls, limit=_READ_LIMIT, backlog=1024)
        )

    async def _udp(self, port: int, protocol: Callable[[], asyncio.DatagramProtocol]) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(protocol, (self._ip, port))
        self._transports.append(transport)
