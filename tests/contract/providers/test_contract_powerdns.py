"""The provider powerdns keeps the contract, on a real PowerDNS with records of others in every set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.marks import Holder, Mark, mark_from_text, mark_key, mark_text
from fairlead.providers.zones.powerdns.provider import create
from fairlead.providers.zones.powerdns.server import PARAMETERS, PowerDNSServer
from fairlead.providers.zones.rrsets import Edit, RRKey
from fairlead.providers.zones.settings import settings_from_spec
from fairlead.testing.contract import Place, ProviderContract, Subject
from fairlead.testing.worlds.powerdns import PowerDNS, installed

needs_powerdns = pytest.mark.skipif(
    not installed(), reason="PowerDNS is not installed: apt-get install pdns-server pdns-backend-sqlite3, as root"
)


class Key:
    """The key of a PowerDNS, as the hub's Secrets would have it."""

    def __init__(self, server: PowerDNS) -> None:
        self._server = server

    async def entry(self, name: str, entry: str) -> str:
        del name, entry
        return self._server.api_key


class PowerDNSSubject(Subject):
    def __init__(self, server: PowerDNS) -> None:
        self.server = server
        self.provider = self.tested = create(secrets=Key(server))

    def spec(self, name: str) -> FrontendSpec:
        key = LoadBalancerKey("Hostname", "fairlead-system", name)
        parameters = {
            "zone": self.server.zone,
            "host": f"{name}.{self.server.zone}",
            "ownerId": "tests",
            "server": self.server.server,
            "url": self.server.url,
            "credentials": "powerdns",
        }
        return FrontendSpec(key, "", (), health_check=None, parameters=parameters)

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"192.0.2.{number}", RECORD_PORT) for number in range(1, count + 1)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        host = spec.parameters["host"]
        marks = filter(None, map(mark_from_text, await self.server.ask(*mark_key(host, "A"))))
        ours = {mark.value for mark in marks if mark.holder.owner == "tests"}
        there = await self.server.ask(host, "A")
        return {(backend_key("A"), TargetKey(value, RECORD_PORT)): True for value in there & ours}

    async def add_foreign(self, spec: FrontendSpec) -> None:
        """Add an address of another hub, the very address that is registered here too, and a record of another type."""
        host, value = spec.parameters["host"], self.targets(1)[0].address
        mark = mark_text(Mark(Holder("another-hub", "0123"), value))
        await self.server.write(host, "A", value)
        await self.server.write(mark_key(host, "A").name, "TXT", f'"{mark}"')
        await self.server.write(host, "MX", "10 mail.example.")

    async def foreign(self, spec: FrontendSpec) -> object:
        host, value = spec.parameters["host"], self.targets(1)[0].address
        marks = await self.server.ask(*mark_key(host, "A"))
        return (
            value in await self.server.ask(host, "A"),
            {text for text in marks if "another-hub" in text},
            await self.server.ask(host, "MX"),
        )

    async def make_unreachable(self) -> None:
        await self.server.kill()

    async def make_reachable(self) -> None:
        await self.server.start()

    async def restart(self) -> None:
        await self.tested.close()
        self.provider = self.tested = create(secrets=Key(self.server))


@needs_powerdns
@pytest.mark.req("C-52")
class TestPowerDNS(ProviderContract):
    @pytest.fixture
    async def subject(self, tmp_path: Path) -> AsyncIterator[PowerDNSSubject]:
        server = PowerDNS(tmp_path / "pdns")
        await server.start()
        subject = PowerDNSSubject(server)
        yield subject
        await subject.tested.close()
        await server.kill()


@needs_powerdns
async def test_what_another_client_writes_between_reading_and_writing_is_not_lost(tmp_path: Path):
    """The API replaces whole sets without a condition; one that changed is planned again, with the other's value."""
    server = PowerDNS(tmp_path / "pdns")
    await server.start()
    settings = settings_from_spec(PowerDNSSubject(server).spec("www"), own=PARAMETERS).server
    client = PowerDNSServer(settings, secrets=Key(server))
    key = RRKey("www.example.test", "TXT")
    ours = [Edit(key, "ours", 60, True)]
    try:
        there = await client.read({key})
        await server.write("www.example.test", "TXT", '"theirs"')
        assert not await client.update(ours, there)
        assert await server.ask(*key) == {"theirs"}
        assert await client.update(ours, await client.read({key}))
        assert await server.ask(*key) == {"theirs", "ours"}
    finally:
        await client.close()
        await server.kill()
