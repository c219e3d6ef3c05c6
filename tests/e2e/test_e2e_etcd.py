"""A member of etcd dies under a real API server while traffic flows."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import ask, echoes, http, ready
from tests.e2e.e2e_real_apis import RealApis, assets_directory, own_network, why_not_real

pytestmark = [pytest.mark.real_api, pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@asynccontextmanager
async def real_fleet(etcd_members: int) -> AsyncGenerator[tuple[Fleet, RealApis]]:
    """Run a hub and a member on real API servers with so many members of etcd."""
    if why := why_not_real():
        pytest.skip(why)
    assets = assets_directory()
    assert assets is not None
    with own_network(), tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        apis = RealApis(directory / "api", ("hub", "east"), assets=assets, etcd_members=etcd_members)
        fleet = Fleet(apis=apis, directory=directory, members={"east": "Pod"}, drain="1s")
        try:
            await fleet.start()
            yield fleet, apis
        finally:
            await fleet.close()


async def follows(address: str, name: str) -> None:
    async def there() -> bool:
        return await ask(address, 80) == name

    await wait_until(there, f"requests get to {name}")


@pytest.mark.req("I-1", "I-8")
async def test_a_member_of_etcd_dies_and_changes_go_on() -> None:
    async with real_fleet(3) as (fleet, apis):
        east = fleet.members["east"]
        old, new = east.new_address(), east.new_address()
        async with echoes((old, 8080, "old"), (new, 8080, "new")):
            await east.endpoints("web", 8080, old)
            await east.service("web", http())
            address = await ready(east, "web", 80)
            traffic = Traffic(host=address, kept=0)
            traffic.start()
            await apis.etcds[0].kill()
            await east.endpoints("web", 8080, new)
            await follows(address, "new")
            await apis.etcds[0].start()
            await apis.etcds[1].kill()
            await east.endpoints("web", 8080, old)
            await follows(address, "old")
            await traffic.stop()
            assert (traffic.count.failed, traffic.count.failures) == (0, [])
            assert await east.address("web") == address
