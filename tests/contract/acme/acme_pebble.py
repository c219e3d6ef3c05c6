"""Pebble, a real ACME server, as a child process: it refuses nonces at random and validates slowly.

In: a directory, and the port at which it looks for answers over HTTP. Out: its directory, the certificate to trust it
by, the root that its certificates end at, and the DNS server that it asks, whose records a test writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp

from conformance.pebble import directory
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import wait_until

_TIMEOUT = aiohttp.ClientTimeout(total=30)
ENVIRONMENT = {"PEBBLE_WFE_NONCEREJECT": "30", "PEBBLE_VA_SLEEPTIME": "1", "PEBBLE_WFE_ORDERS_PER_PAGE": "3"}


class Pebble:
    """Pebble and the DNS server that it asks, which is its own without ``dns_server`` (host:port)."""

    def __init__(self, tmp_path: Path, *, http_port: int, dns_server: str = "") -> None:
        self._path = tmp_path
        self._dns_server = dns_server
        self._http = http_port
        self._dns, self._records, self._management = free_port(), free_port(), free_port()
        self.port = free_port()
        self._children: list[asyncio.subprocess.Process] = []
        chain, key = self_signed("localhost")
        self.bundle = chain.decode()
        (tmp_path / "cert.pem").write_bytes(chain)
        (tmp_path / "key.pem").write_bytes(key)

    @property
    def dns_server(self) -> str:
        """Return where it looks names up."""
        return self._dns_server or f"127.0.0.1:{self._dns}"

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/dir"

    async def start(self) -> None:
        """Start both, and wait until they answer."""
        config = {
            "pebble": {
                "listenAddress": f"127.0.0.1:{self.port}",
                "managementListenAddress": f"127.0.0.1:{self._management}",
                "certificate": str(self._path / "cert.pem"),
                "privateKey": str(self._path / "key.pem"),
                "httpPort": self._http,
                "tlsPort": free_port(),
                "externalAccountBindingRequired": False,
                "retryAfter": {"authz": 1, "order": 1},
                "keyAlgorithm": "ecdsa",
                "profiles": {"default": {"description": "default", "validityPeriod": 7776000}},
            }
        }
        (self._path / "config.json").write_text(json.dumps(config))
        off = ("-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", "")
        dns = ("-dnsserver", f"127.0.0.1:{self._dns}", "-management", f"127.0.0.1:{self._records}")
        await self._child("pebble-challtestsrv", *off, *dns)
        await self._child("pebble", "-config", str(self._path / "config.json"), "-dnsserver", self.dns_server)
        await wait_until(self._answers, "Pebble and its DNS server answer")

    async def close(self) -> None:
        for child in self._children:
            child.terminate()
            await child.wait()

    async def record(self, kind: str, **body: Any) -> None:
        """Write a record into the DNS server: its management API, such as ``set-txt`` or ``add-a``."""
        url = f"http://127.0.0.1:{self._records}/{kind}"
        async with aiohttp.ClientSession(timeout=_TIMEOUT, raise_for_status=True) as session:
            await session.post(url, json=body)

    async def root(self) -> bytes:
        """Return the certificate that everything it issues ends at, PEM."""
        context = ssl.create_default_context(cadata=self.bundle)
        url = f"https://localhost:{self._management}/roots/0"
        # Not in a thread: one that is older than the network of this test would be in another one.
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, session.get(url, ssl=context) as answer:
            return await answer.read()

    async def _answers(self) -> bool:
        try:
            await self.record("set-txt", host="is.ready.", value="yes")
            return bool(await self.root())
        except (aiohttp.ClientError, OSError):
            return False

    async def _child(self, name: str, *arguments: str) -> None:
        with (self._path / f"{name}.log").open("wb") as log:
            self._children.append(
                await asyncio.create_subprocess_exec(
                    str(directory() / name), *arguments, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log
                )
            )
