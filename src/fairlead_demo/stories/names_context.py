"""The context of the demo of names: a fleet, a real DNS server, an ACME server, and clients that resolve names.

In: a fleet, not started yet. Out: ``NamesContext``. The ACME server is that of ``fairlead.testing``; it issues a
certificate only for names that are validated by the records of the DNS server.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections.abc import Iterator

import dns.exception
from rich.console import Console

from fairlead.api.kubernetes import INGRESSES
from fairlead_demo.stories.fleet_context import HTTPSContext
from fairlead_demo.worlds.acme_server import AcmeServer
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.name_servers import Bind
from fairlead_demo.worlds.traffic import Connection

ZONE = "example.test"
DOMAIN = f"lb.{ZONE}"
#: The host name that the user of each member requests.
HOSTS = {"east": f"shop.{ZONE}", "west": f"api.{ZONE}"}
#: The name that moves from one address to another.
MOVING = f"moving.{ZONE}"
#: What is in the zone before there is a hub.
_RECORDS = ("mail A 192.0.2.25", "@ MX 10 mail", '@ TXT "v=spf1 -all"')
#: Certificates are valid from one minute before their issuance to two minutes after it, and renewed after one minute:
#: two thirds of the life are over then, and a third of it since issuance.
_BACKDATED, _LIFE = dt.timedelta(seconds=60), dt.timedelta(seconds=120)


class NamedClient:
    """Clients of one name: each connection resolves it at the zone's server, and verifies the certificate."""

    def __init__(self, host: str, bind: Bind, root: bytes) -> None:
        self.host = host
        self.https = HttpsClient(host, root)
        self._bind = bind

    async def addresses(self) -> set[str]:
        """Return the A records of the name at the zone's server; ``OSError`` when it does not answer."""
        try:
            return await self._bind.ask(self.host, "A")
        except dns.exception.DNSException as error:
            raise OSError(f"{self.host}: {type(error).__name__}") from error

    async def connect(self, host: str, port: int) -> Connection:
        """Return a new TLS connection to the resolved address; ``OSError`` when the name does not resolve."""
        return await self.https.connect(await self._address(host), port)

    async def connect_plainly(self, host: str, port: int) -> Connection:
        """Return a new connection without TLS to the resolved address."""
        return await asyncio.open_connection(await self._address(host), port)

    async def _address(self, host: str) -> str:
        addresses = sorted(await self.addresses())
        if not addresses:
            raise OSError(f"{host} does not resolve")
        return random.choice(addresses)  # noqa: S311 (as a resolver turns the answers)


class NamesContext(HTTPSContext):
    """``others``: the records of other owners in the zone."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        self.bind = Bind(fleet.directory / "bind", ZONE, records=_RECORDS)
        self.authority = AcmeServer(where=lambda _: ("127.0.0.1", 80), texts=self._texts, life=_LIFE)
        self.authority.backdated = _BACKDATED
        self.clients: dict[str, NamedClient] = {}
        self.others: dict[str, set[str]] = {}
        #: The Services between which the name moves.
        self.services: list[tuple[str, str]] = []

    def generated(self, member: str) -> str:
        """Return the host name that the hub generates for the Ingress or Gateway of a member."""
        kind = "" if self.entry[member] is INGRESSES else "-gw"
        return f"web-default{kind}.{member}.{DOMAIN}"

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod that should answer."""
        return ((self.title(name), pod.name) for name, workload in self.workloads.items() for pod in workload.pods)

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: what was checked beside failed requests."""
        return f", {self.cut()} connections cut, every record of others still there" if passed else ""

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        dig = f"  dig +short @127.0.0.1 -p {self.bind.port}"
        return [
            *self.kubectl("hostnames,dnszones,managedcertificates", "ingresses,gateways"),
            f"  fairlead names --kubeconfig {self.fleet.kubeconfig}",
            *(f"{dig} {client.host}     # {name}" for name, client in self.clients.items()),
        ]

    async def close(self) -> None:
        """End traffic, pods and all processes."""
        await super().close()
        await self.authority.close()
        await self.bind.kill()

    async def _texts(self, name: str) -> list[str]:
        """Return the TXT records of a name at the zone's server, unquoted."""
        return [text.strip('"') for text in await self.bind.ask(name, "TXT")]
