"""HTTP clients and Services of tests with a real Envoy in front of a member's backends."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from fairlead.api.kubernetes import SERVICES
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until


class HttpClient:
    """One address of a load balancer, asked with any Host; a new connection for each request."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def get(self, host: str, path: str = "/", *, port: int = 80) -> tuple[int, str]:
        """Return status and body over HTTP; status 0 when there is no answer."""
        return await self._get(port, None, host, path)

    async def get_tls(self, host: str, certificate: bytes, path: str = "/") -> tuple[int, str]:
        """Return status and body over HTTPS, trusting ``certificate`` alone; status 0 when another one is shown."""
        context = ssl.create_default_context(cadata=certificate.decode())
        return await self._get(443, context, host, path)

    async def certificate(self, host: str | None) -> bytes:
        """Return the certificate (DER) that is shown for a server name, None for a client that sends none."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with asyncio.timeout(180):
            _, writer = await asyncio.open_connection(
                self.address, 443, ssl=context, server_hostname=host if host is not None else ""
            )
        try:
            return writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        finally:
            writer.close()

    async def _get(self, port: int, context: ssl.SSLContext | None, host: str, path: str) -> tuple[int, str]:
        try:
            async with asyncio.timeout(180):
                reader, writer = await asyncio.open_connection(
                    self.address, port, ssl=context, server_hostname=host if context else None
                )
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return 0, ""
        # A connection may be closed without an answer, as while a listener is being replaced.
        return (int(head.split(b" ")[1]), body.decode()) if head else (0, "")


async def service(member: Member, name: str, *addresses: str) -> None:
    """Write a Service of type ClusterIP with its endpoints at port 8080."""
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80, "targetPort": 8080}]},
    }
    await member.cluster.apply(SERVICES, body, manager="user")
    await member.endpoints(name, 8080, *addresses)


async def answers(ask: Any, *expected: tuple[int, str]) -> None:
    async def as_expected() -> bool:
        return await ask() in expected

    await wait_until(as_expected, f"{expected} answers")
