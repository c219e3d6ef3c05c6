"""Hostnames at a real BIND: published, changed, removed; what is not ours stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from zones_world import ZonesWorld, needs_bind, zones_world

from fairlead.kube.config import ClusterConfig

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
    await world.delete("www")
    await world.gone("www")
    assert await world.bind.names() == before
    assert await world.records() == []
