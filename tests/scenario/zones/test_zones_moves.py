"""A zone for a longer suffix is added: names move into it, answered at every moment, at a real BIND and PowerDNS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from zones_world import ZonesWorld, needs_bind, zones_world

from fairlead.api.hostname import DNS_ZONES
from fairlead.kube.config import ClusterConfig
from fairlead_demo.worlds.name_servers import Bind
from tests.scenario.any_api import until
from tests.worlds.powerdns import PowerDNS, installed

pytestmark = [needs_bind, pytest.mark.req("C-54")]
CHILD = "dev.example.test"
NAME = f"www.{CHILD}"


@pytest.fixture
async def world(api: ClusterConfig, tmp_path: Path) -> AsyncIterator[ZonesWorld]:
    async with zones_world(api, tmp_path, "theirs.dev A 192.0.2.99") as made:
        await made.start()
        yield made


@pytest.fixture
async def child(tmp_path: Path) -> AsyncIterator[Bind]:
    bind = Bind(tmp_path / "child", CHILD, records=["theirs A 192.0.2.98"])
    await bind.start()
    try:
        yield bind
    finally:
        await bind.kill()


async def add_child(world: ZonesWorld, child: Bind, name: str = "dev") -> None:
    await world.secret(name, child.secrets["fairlead"])
    parameters = {"server": child.server, "keyName": "fairlead", "credentials": name}
    spec = {"zone": child.zone, "provider": "rfc2136", "parameters": parameters, "ownerId": "hub-1"}
    await world.user.apply(DNS_ZONES, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")


async def moved_to(world: ZonesWorld, zone: str) -> None:
    async def so() -> bool:
        return (await world.published("www.dev")).status.zone == zone

    await until(so, what=f"the name is in zone {zone}")


async def publish(world: ZonesWorld) -> None:
    await world.zone(ownerId="hub-1")
    await world.name("www.dev", addresses=["192.0.2.1", "2001:db8::1"], texts=["hello, world"])
    assert (await world.published("www.dev")).status.zone == "test"


async def test_records_are_in_the_new_zone_before_they_leave_the_former(world: ZonesWorld, child: Bind):
    before = await world.bind.names()
    await publish(world)
    gaps: list[str] = []

    async def watch() -> None:
        while True:
            if not (await child.ask(NAME, "A") or await world.bind.ask(NAME, "A")):
                gaps.append("neither zone answers")
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    await add_child(world, child)
    await moved_to(world, "dev")
    watching.cancel()
    assert gaps == []
    assert await child.ask(NAME, "A") == {"192.0.2.1"}
    assert await child.ask(NAME, "TXT") == {"hello, world"}
    (mark,) = await child.ask(f"fairlead-a.{NAME}", "TXT")
    assert mark.startswith("heritage=fairlead,fairlead/owner=hub-1,")
    assert await world.bind.names() == before
    # And there it lives on: a change, a restart of the hub, the end.
    await world.stop()
    await world.start()
    await world.name("www.dev", addresses=["192.0.2.2"])
    await until(lambda: answered(child, "192.0.2.2"), what="the change is answered")
    await world.delete("www.dev")
    await world.gone("www.dev")
    assert set(await child.names()) == {f"theirs.{CHILD} A", f"ns.{CHILD} A"}
    assert await world.bind.names() == before


async def answered(bind: Bind, *values: str) -> bool:
    return await bind.ask(NAME, "A") == set(values)


async def test_a_delegated_former_zone_is_cleaned_without_an_answer(world: ZonesWorld, child: Bind):
    await publish(world)
    await world.bind.write(("add", CHILD, "NS", f"ns.{CHILD}."))
    assert await world.bind.ask(NAME, "A") == set()
    await add_child(world, child)
    await moved_to(world, "dev")
    assert await child.ask(NAME, "A") == {"192.0.2.1"}
    left = {key for key in await world.bind.names() if NAME in key}
    assert left == set()


async def test_a_new_zone_that_has_a_record_of_others_is_not_taken_and_the_name_stays(world: ZonesWorld, child: Bind):
    await publish(world)
    await child.write(("add", NAME, "A", "192.0.2.50"))
    await add_child(world, child)
    await world.says("www.dev", "Programmed", "False", "stays in zone example.test", "did not create")
    assert (await world.hostname("www.dev")).status.zone == "test"
    assert await world.bind.ask(NAME, "A") == {"192.0.2.1"}
    assert await child.ask(NAME, "A") == {"192.0.2.50"}
    await child.empty([NAME])
    await moved_to(world, "dev")
    assert await child.ask(NAME, "A") == {"192.0.2.1"}


async def test_a_hub_that_ends_while_a_name_moves_goes_on_where_it_was(world: ZonesWorld, child: Bind):
    await publish(world)
    await child.kill()
    await add_child(world, child)
    await world.says("www.dev", "Programmed", "False", "cannot be reached")
    await world.stop()
    await world.start()
    await world.says("www.dev", "Programmed", "False", "cannot be reached")
    assert await world.bind.ask(NAME, "A") == {"192.0.2.1"}
    await child.start()
    await moved_to(world, "dev")
    assert {key for key in await world.bind.names() if NAME in key} == set()
    assert await child.ask(NAME, "AAAA") == {"2001:db8::1"}


async def test_names_stay_when_a_new_zone_is_deleted_again(world: ZonesWorld, child: Bind):
    await publish(world)
    await child.kill()
    await add_child(world, child)
    await world.says("www.dev", "Programmed", "False", "cannot be reached")
    await world.user.delete(DNS_ZONES, "", "dev")
    await moved_to(world, "test")
    assert await world.bind.ask(NAME, "A") == {"192.0.2.1"}

    async def gone() -> bool:
        return [each.metadata.name for each in await world.user.list(DNS_ZONES)] == ["test"]

    await until(gone, what="the zone is let go")


async def test_a_name_that_is_deleted_while_it_moves_leaves_nothing_in_either_zone(world: ZonesWorld, child: Bind):
    before, in_child = await world.bind.names(), await child.names()
    await publish(world)
    await child.kill()
    await add_child(world, child)
    await world.says("www.dev", "Programmed", "False", "cannot be reached")
    await world.delete("www.dev")
    await child.start()
    await world.gone("www.dev")
    assert await world.bind.names() == before
    assert await child.names() == in_child


@pytest.mark.skipif(
    not installed(), reason="PowerDNS is not installed: apt-get install pdns-server pdns-backend-sqlite3"
)
@pytest.mark.req("C-52")
async def test_a_name_moves_from_bind_to_a_zone_at_powerdns(world: ZonesWorld, tmp_path: Path):
    before = await world.bind.names()
    await publish(world)
    server = PowerDNS(tmp_path / "pdns", CHILD)
    await server.start()
    try:
        await world.secret("powerdns", server.api_key, entry="api-key")
        parameters = {"server": server.server, "url": server.url, "credentials": "powerdns"}
        spec = {"zone": CHILD, "provider": "powerdns", "parameters": parameters}
        await world.user.apply(DNS_ZONES, {"metadata": {"name": "dev"}, "spec": spec}, manager="kubectl")
        await until(lambda: answered(world.bind), what="BIND answers it no more")
        assert await server.ask(NAME, "A") == {"192.0.2.1"}  # it was there before it went
        await moved_to(world, "dev")
        await until(lambda: same(world.bind, before), what="BIND has only what others have")
        await world.delete("www.dev")
        await world.gone("www.dev")
        assert await server.ask(NAME, "A") == set()
    finally:
        await server.kill()


async def same(bind: Bind, before: dict[str, set[str]]) -> bool:
    return await bind.names() == before
