"""Hostnames at a real BIND: published, changed, removed; what is not ours stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from zones_world import ZonesWorld, needs_bind, zones_world

from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.meta import WireCondition, condition_of
from fairlead.api.names import SYSTEM_NAMESPACE, short_hash
from fairlead.cli.names import ask_zones, name_rows
from fairlead.kube.config import ClusterConfig
from fairlead.providers.zones.plan import Holder, Mark, mark_text
from tests.scenario.any_api import until

pytestmark = needs_bind
THEIRS = ("theirs A 192.0.2.99", "mail MX 10 mail.example.", "www-old CNAME theirs", '@ TXT "v=spf1 -all"')


@pytest.fixture
async def world(api: ClusterConfig, tmp_path: Path) -> AsyncIterator[ZonesWorld]:
    async with zones_world(api, tmp_path, *THEIRS) as made:
        await made.start()
        yield made


@pytest.mark.req("C-54")
async def test_a_hostname_is_published_changed_and_removed_and_what_is_not_ours_stays(world: ZonesWorld):
    before = await world.bind.names()
    await world.zone()
    await world.name("www", addresses=["192.0.2.1", "2001:db8::1"])
    obj = await world.published("www")
    assert (obj.status.zone, obj.status.records) == ("test", "2/2")
    assert await world.bind.ask("www.example.test", "A") == {"192.0.2.1"}
    assert await world.bind.ask("www.example.test", "AAAA") == {"2001:db8::1"}
    assert await world.records() == ["192.0.2.1", "2001:db8::1"]
    await world.name("www", addresses=["192.0.2.2", "2001:db8::1"])
    await world.answers("www", "A", "192.0.2.2")
    # The guard does not hold the last address of one family while the other family resolves.
    await world.name("www", addresses=["192.0.2.2"])
    await world.answers("www", "AAAA")
    await world.answers("www", "A", "192.0.2.2")
    await world.delete("www")
    await world.gone("www")
    assert await world.bind.names() == before
    assert await world.records() == []


async def test_a_cname_takes_the_place_of_addresses_and_back(world: ZonesWorld):
    await world.zone()
    await world.name("www", addresses=["192.0.2.1"])
    await world.published("www")
    await world.name("www", cname="edge.example.net")
    await world.answers("www", "CNAME", "edge.example.net")
    await world.published("www")
    await world.name("www", addresses=["192.0.2.2"], cname="")
    await world.answers("www", "A", "192.0.2.2")
    assert (await world.published("www")).status.records == "1/1"


@pytest.mark.req("C-53")
async def test_a_record_that_is_not_ours_is_never_touched_and_the_name_says_so(world: ZonesWorld):
    await world.zone()
    await world.bind.write(
        ("add", "a-edns.example.test", "TXT", '"heritage=external-dns,external-dns/owner=prod"'),
        ("add", "edns.example.test", "TXT", '"heritage=external-dns,external-dns/owner=prod"'),
    )
    before = await world.bind.names()
    await world.name("theirs", addresses=["192.0.2.1"])
    await world.name("edns", addresses=["192.0.2.1"])
    await world.says("theirs", "ResolvedRefs", "False", "has a record of type A that Fairlead did not create")
    await world.says("edns", "ResolvedRefs", "False", "registry mark of external-dns")
    for name in ("theirs", "edns"):
        await world.delete(name)
        await world.gone(name)
    assert await world.bind.names() == before


async def test_two_hubs_have_values_of_one_name_and_each_removes_only_its_own(world: ZonesWorld):
    await world.zone()
    await world.bind.write(
        ("add", "www.example.test", "A", "192.0.2.77"),
        (
            "add",
            "fairlead-a.www.example.test",
            "TXT",
            '"heritage=fairlead,fairlead/owner=hub-2,fairlead/for=00,fairlead/value=192.0.2.77"',
        ),
    )
    await world.name("www", addresses=["192.0.2.1"])
    await world.answers("www", "A", "192.0.2.1", "192.0.2.77")
    await world.published("www")
    await world.delete("www")
    await world.gone("www")
    await world.answers("www", "A", "192.0.2.77")


@pytest.mark.parametrize("theirs", ["hub-1", "hub-2"])
async def test_another_hub_with_the_same_owner_id_is_named_in_a_sentence(world: ZonesWorld, theirs: str):
    await world.zone(ownerId="hub-1")
    holder = Holder(theirs, short_hash("Hostname", SYSTEM_NAMESPACE, "www", size_bytes=8))
    text = mark_text(Mark(holder, "192.0.2.9"))
    host = f"www.{world.bind.zone}"
    await world.bind.write(("add", host, "A", "192.0.2.9"), ("add", f"fairlead-a.{host}", "TXT", f'"{text}"'))
    await world.name("www", addresses=["192.0.2.1"])
    await world.published("www")
    await world.answers("www", "A", "192.0.2.1", "192.0.2.9")
    if theirs == "hub-1":
        there = await world.says("www", "Serving", "True", "A 192.0.2.9 is marked with ownerId hub-1", "another hub")
        assert "spec.ownerId" in there.message
    else:
        there = await world.says("www", "Serving", "True", "answers 1 of 1 records")
        assert "ownerId" not in there.message


async def test_the_server_is_killed_in_the_middle_and_nothing_is_lost(world: ZonesWorld):
    await world.zone(parameters={"timeout": "2s"})
    await world.name("one-name", addresses=["192.0.2.1"])
    await world.published("one-name")
    await world.bind.kill()
    await world.name("two", addresses=["192.0.2.2"])
    await world.delete("one-name")
    await world.says("two", "Programmed", "False", "cannot be reached over TCP")
    await world.bind.start()
    await world.published("two")
    await world.gone("one-name")
    await world.answers("one-name", "A")
    await world.answers("two", "A", "192.0.2.2")


async def test_a_hub_that_starts_again_changes_nothing(world: ZonesWorld):
    await world.zone()
    for number in range(1, 6):
        await world.name(f"n{number}", addresses=[f"192.0.2.{number}"])
    for number in range(1, 6):
        await world.published(f"n{number}")
    serial = await world.bind.serial()
    await world.stop()
    await world.start()
    await world.name("later", addresses=["192.0.2.9"])
    await world.published("later")
    # One update for the new name, and none for the others.
    assert await world.bind.serial() == serial + 1
    await world.delete("n1")
    await world.gone("n1")


async def test_a_name_without_addresses_keeps_its_last_record(world: ZonesWorld):
    """What asks for the name may have lost its address for a moment: the guard holds the removal."""
    await world.zone()
    await world.name("www", addresses=["192.0.2.1"])
    await world.published("www")
    await world.name("www", addresses=[])
    await world.says("www", "Guarded", "True", "fewer than guard.minBackends")
    assert await world.bind.ask("www.example.test", "A") == {"192.0.2.1"}


async def test_a_zone_that_another_client_emptied_is_filled_again_and_nothing_is_removed(world: ZonesWorld):
    await world.zone()
    await world.name("www", addresses=["192.0.2.1"])
    await world.name("api", addresses=["192.0.2.2"])
    await world.published("www")
    await world.published("api")
    await world.bind.empty(["www.example.test", "api.example.test"])
    # Noticed by the serial of the zone, and made again once that is certain.
    await world.answers("www", "A", "192.0.2.1")
    await world.answers("api", "A", "192.0.2.2")
    assert await world.records() == ["192.0.2.1", "192.0.2.2"]


async def test_a_wrong_key_is_corrected_without_a_restart(world: ZonesWorld):
    await world.zone(parameters={"credentials": "other"})
    await world.secret("other", world.bind.secrets["other"])
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "Programmed", "False", "TSIG is not accepted", "Secret other")
    await world.zone()
    await world.published("www")


@pytest.mark.parametrize(
    ("parameters", "text", "of_zone"),
    [
        ({"credentials": "missing"}, "Secret fairlead-system/missing is missing", ("True", "Accepted", "")),
        ({"server": "not an address"}, "must be host:port", ("False", "Invalid", "spec.parameters.server")),
        ({"keyname": "fairlead"}, "did you mean keyName?", ("False", "Invalid", "spec.parameters.keyname")),
        ({"algorithm": "md5"}, "parameters.algorithm", ("False", "Invalid", "spec.parameters.algorithm")),
        ({"timeout": "forever"}, "is not a duration", ("False", "Invalid", "spec.parameters.timeout")),
    ],
)
async def test_a_wrong_parameter_is_reported_on_name_and_zone(
    world: ZonesWorld, parameters: dict[str, str], text: str, of_zone: tuple[str, str, str]
):
    status, reason, field = of_zone

    async def judged() -> WireCondition | None:
        zone = await world.get_zone()
        accepted = condition_of(zone.status.conditions, "Accepted")
        fresh = accepted is not None and accepted.observed_generation == zone.metadata.generation
        return accepted if fresh else None

    await world.zone(parameters=parameters)
    accepted = await until(judged, what="the zone is judged")
    assert (accepted.status, accepted.reason) == (status, reason)
    assert accepted.message.startswith(field)
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "Programmed", "False", text)
    await world.zone()
    await world.published("www")
    assert (await until(judged, what="the zone is judged again")).status == "True"


async def test_a_name_of_an_invalid_zone_is_removed_after_a_restart(world: ZonesWorld):
    for parameters, text in (
        ({"server": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"credentials": "missing"}, "Secret fairlead-system/missing is missing"),
        ({"algorithm": "md5"}, "parameters.algorithm"),
    ):
        await world.zone(parameters=parameters)
        await world.name("gone", addresses=["192.0.2.1"])
        await world.says("gone", "Programmed", "False", text)
        await world.stop()
        await world.start()
        await world.says("gone", "Programmed", "False", text)
        await world.delete("gone")
        await world.gone("gone")
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "Programmed", "False", text)
    await world.stop()
    await world.start()
    await world.zone()
    await world.published("www")


async def test_a_dry_run_writes_nothing_until_it_ends(world: ZonesWorld):
    before = await world.bind.names()
    await world.zone(dryRun=True)
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "Paused", "True", "spec.dryRun of DNSZone test is set", "Register 192.0.2.1")
    assert (await world.bind.names(), await world.records()) == (before, [])
    await world.zone(dryRun=False)
    await world.published("www")


async def test_a_zone_in_use_stays_until_its_names_are_gone(world: ZonesWorld):
    await world.zone()
    await world.name("www", addresses=["192.0.2.1"])
    await world.published("www")

    async def counted() -> bool:
        zone = await world.get_zone()
        return zone.status.names == 1 and bool(zone.metadata.finalizers)

    await until(counted, what="the zone is held")
    await world.user.delete(DNS_ZONES, "", "test")
    assert (await world.get_zone()).deleting
    await world.delete("www")
    await world.gone("www")

    async def left() -> bool:
        return not await world.user.list(DNS_ZONES)

    await until(left, what="the zone goes with its last name")
    await world.answers("www", "A")


async def test_names_shows_what_resolves_and_what_does_not(world: ZonesWorld):
    await world.zone()
    await world.name("www", addresses=["192.0.2.1"])
    await world.name("theirs", addresses=["192.0.2.1"])
    await world.published("www")
    await world.says("theirs", "ResolvedRefs", "False", "Fairlead did not create")
    hostnames, zones = await world.user.list(HOSTNAMES), await world.user.list(DNS_ZONES)
    rows = {row.name: row for row in name_rows(hostnames, await ask_zones(hostnames, zones))}
    assert (rows["www"].resolves, rows["www"].state, rows["www"].good) == ("Yes", "Published", True)
    assert (rows["theirs"].resolves, rows["theirs"].answered, rows["theirs"].good) == ("No", ["192.0.2.99"], False)
    await world.bind.kill()
    rows = {row.name: row for row in name_rows(hostnames, await ask_zones(hostnames, zones))}
    assert rows["www"].resolves == "Unknown"
    assert "cannot be reached" in rows["www"].message
