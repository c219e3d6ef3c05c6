"""Hostnames at a real PowerDNS: published, changed and removed over its HTTP API; it is killed in the middle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from zones_world import ZonesWorld

from fairlead.api.hostname import DNS_ZONES
from fairlead.kube.config import ClusterConfig
from fairlead_demo.worlds.name_servers import Bind
from tests.scenario.any_api import until
from tests.worlds.powerdns import PowerDNS, installed

pytestmark = [
    pytest.mark.skipif(
        not installed(), reason="PowerDNS is not installed: apt-get install pdns-server pdns-backend-sqlite3, as root"
    ),
    pytest.mark.req("C-52", "C-54"),
]


class PowerDNSWorld(ZonesWorld):
    """A hub whose zone is at a PowerDNS."""

    def __init__(self, config: ClusterConfig, server: PowerDNS, unused: Bind) -> None:
        super().__init__(config, unused)
        self.server = server

    async def at_powerdns(self) -> None:
        """Create the zone, and the Secret with the key."""
        await self.secret("powerdns", self.server.api_key, entry="api-key")
        parameters = {"server": self.server.server, "url": self.server.url, "credentials": "powerdns", "timeout": "2s"}
        spec = {"zone": self.server.zone, "provider": "powerdns", "parameters": parameters}
        await self.user.apply(DNS_ZONES, {"metadata": {"name": "test"}, "spec": spec}, manager="kubectl")

    async def answer(self, name: str, type_: str, *values: str) -> None:
        """Wait until PowerDNS answers exactly ``values``."""

        async def so() -> bool:
            return await self.server.ask(f"{name}.{self.server.zone}", type_) == set(values)

        await until(so, what=f"{name} {type_} {values}")


@pytest.fixture
async def world(api: ClusterConfig, tmp_path: Path) -> AsyncIterator[PowerDNSWorld]:
    server = PowerDNS(tmp_path / "pdns")
    await server.start()
    made = PowerDNSWorld(api, server, Bind(tmp_path / "unused"))
    try:
        await made.start()
        yield made
    finally:
        await made.aclose()
        await server.kill()


async def test_a_hostname_is_published_changed_and_removed_and_what_is_not_ours_stays(world: PowerDNSWorld):
    await world.server.write("www.example.test", "TXT", '"theirs"')
    await world.at_powerdns()
    await world.name("www", addresses=["192.0.2.1", "2001:db8::1"])
    assert (await world.published("www")).status.records == "2/2"
    await world.name("www", addresses=["192.0.2.2", "2001:db8::1"])
    await world.answer("www", "A", "192.0.2.2")
    await world.delete("www")
    await world.gone("www")
    await world.answer("www", "A")
    await world.answer("fairlead-a.www", "TXT")
    assert await world.server.ask("www.example.test", "TXT") == {"theirs"}
    assert await world.records() == []


async def test_powerdns_is_killed_in_the_middle_and_nothing_is_lost(world: PowerDNSWorld):
    await world.at_powerdns()
    await world.name("first", addresses=["192.0.2.1"])
    await world.published("first")
    await world.server.kill()
    await world.name("second", addresses=["192.0.2.2"])
    await world.delete("first")
    await world.says("second", "Programmed", "False", "cannot be reached")
    await world.server.start()
    await world.published("second")
    await world.gone("first")
    await world.answer("first", "A")
    await world.answer("second", "A", "192.0.2.2")
