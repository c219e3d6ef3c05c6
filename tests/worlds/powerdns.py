"""A real PowerDNS Authoritative Server on loopback, with its HTTP API and zones in SQLite.

In: a directory, a zone. Out: a process, and ways to ask and to write as others do. Never: the machine's own
configuration of the server.
"""

from __future__ import annotations

import base64
import secrets
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp

from fairlead.errors import Terminal
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.name_servers import ADDRESS, ask, binary, serves
from fairlead_demo.worlds.processes import Child, ExpectationFailed, wait_until

_KEY = "fairlead"
_SCHEMA = Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql")


def installed() -> bool:
    """Return whether PowerDNS and its SQLite backend are there."""
    return binary("pdns_server") is not None and _SCHEMA.exists()


class PowerDNS:
    """A PowerDNS that is the primary server of one zone."""

    def __init__(self, directory: Path, zone: str = "example.test") -> None:
        self.zone = zone
        self._choose_ports()
        self.api_key = secrets.token_hex(16)
        #: The key of dynamic updates (RFC 2136).
        self.secrets = {_KEY: base64.b64encode(secrets.token_bytes(32)).decode()}
        self._directory = directory
        self._process: Child | None = None
        self._has_answered = False

    def _choose_ports(self) -> None:
        self.port, self.api_port = free_port(ADDRESS), free_port(ADDRESS)
        self.server = f"{ADDRESS}:{self.port}"
        self.url = f"http://{ADDRESS}:{self.api_port}"

    async def start(self) -> None:
        """Start it with what its zone had when it ended, and wait until it answers.

        Until it has answered once, it takes other ports when another process was faster.
        """
        while True:
            try:
                await self._start()
            except ExpectationFailed:
                if self._has_answered or self._process is None or not self._process.lost_its_port:
                    raise
                self._choose_ports()
            else:
                self._has_answered = True
                return

    async def _start(self) -> None:
        program = binary("pdns_server")
        if program is None:
            raise Terminal("PowerDNS is not installed: apt-get install pdns-server pdns-backend-sqlite3, as root")
        fresh = self._prepare()
        command = [program, f"--config-dir={self._directory}"]
        self._process = Child("pdns_server", command, log=self._directory / "pdns.log")
        await self._process.start()
        try:
            await wait_until(self._ready, "PowerDNS's API answers")
            if fresh:
                body = {"name": f"{self.zone}.", "kind": "Native", "nameservers": [f"ns.{self.zone}."]}
                await self.call("POST", "zones", body)
                key = {"name": _KEY, "algorithm": "hmac-sha256", "key": self.secrets[_KEY]}
                await self.call("POST", "tsigkeys", key)
                allowed = {"kind": "TSIG-ALLOW-DNSUPDATE", "metadata": [_KEY]}
                await self.call("POST", f"zones/{self.zone}./metadata", allowed)
            await wait_until(self._serves, "PowerDNS answers for its zone")
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            await self._process.kill()

    async def ask(self, name: str, type_: str) -> set[str]:
        """Return the values that it answers, as a resolver would ask."""
        return await ask(self.port, name, type_)

    async def write(self, name: str, type_: str, *contents: str) -> None:
        """Replace a whole set, as another client; without contents it is deleted."""
        records = [{"content": content, "disabled": False} for content in contents]
        change = {"changetype": "REPLACE", "ttl": 300, "records": records} if records else {"changetype": "DELETE"}
        await self.call("PATCH", f"zones/{self.zone}.", {"rrsets": [{"name": f"{name}.", "type": type_, **change}]})

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Call its API; returns the decoded answer, None when it is empty."""
        headers = {"X-API-Key": self.api_key}
        url = f"{self.url}/api/v1/servers/localhost/{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, json=body, headers=headers) as answer,
        ):
            if answer.status >= 300:
                raise ExpectationFailed(f"PowerDNS answers {answer.status}: {await answer.text()}")
            return await answer.json(content_type=None) if answer.status == 200 else None

    def _prepare(self) -> bool:
        """Write its configuration, and its database when it has none yet; returns whether it had none."""
        self._directory.mkdir(parents=True, exist_ok=True)
        database = self._directory / "pdns.sqlite3"
        fresh = not database.exists()
        if fresh:
            connection = sqlite3.connect(database)
            connection.executescript(_SCHEMA.read_text(encoding="utf-8"))
            connection.close()
        (self._directory / "pdns.conf").write_text(
            f"launch=gsqlite3\ngsqlite3-database={database}\nlocal-address={ADDRESS}\nlocal-port={self.port}\n"
            f"api=yes\napi-key={self.api_key}\nwebserver=yes\nwebserver-address={ADDRESS}\n"
            f"webserver-port={self.api_port}\nsocket-dir={self._directory}\nguardian=no\ndaemon=no\nsetuid=\nsetgid=\n"
            f"dnsupdate=yes\nallow-dnsupdate-from={ADDRESS}\nenable-lua-records=yes\n"
        )
        return fresh

    async def _ready(self) -> bool:
        if self._process is not None:
            self._process.check_running()
            if self._process.lost_its_port:
                raise ExpectationFailed(f"PowerDNS cannot listen on {self.server} or {self.url}")
        try:
            await self.call("GET", "zones")
        except (aiohttp.ClientError, OSError):
            return False
        return True

    async def _serves(self) -> bool:
        return await serves(self.port, self.zone)
