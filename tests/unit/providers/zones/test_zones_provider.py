"""What the work of a hub that shares names leaves alone: records that are being removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from fairlead.model.change import DONE
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import RECORD_PORT, RECORD_UNHEALTHY, LoadBalancerKey, TargetKey
from fairlead.providers.zones.plan import EMPTY, Edit, RRKey, RRSet, RRSets, mark_key
from fairlead.providers.zones.provider import DNSProvider
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.testing.contract import additions, removals

NAME = RRKey("www.example.test", "A")
PARAMETERS = {"zone": "example.test", "host": NAME.name, "ownerId": "east", "server": "192.0.2.53"}
KEY = LoadBalancerKey("Hostname", "fairlead-system", "www")
SPEC = FrontendSpec(KEY, "", (), health_check=None, parameters={**PARAMETERS, "peerLeaseSeconds": "30"})
TARGETS = [TargetKey("192.0.2.1", RECORD_PORT)]


class SlowZone:
    """A zone in memory whose updates wait for ``go``."""

    immediate = True

    def __init__(self) -> None:
        self.records: dict[RRKey, RRSet] = {}
        self.go = asyncio.Event()
        self.answers_given: list[frozenset[str]] = []

    async def check(self) -> int:
        return 1

    serial = check

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        return {key: self.records[key] for key in keys if key in self.records}

    answers = kept = read

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        del there
        await self.go.wait()
        for edit in edits:
            values = self.records.get(edit.key, EMPTY).values
            self.records[edit.key] = RRSet(values | {edit.value} if edit.add else values - {edit.value}, 30)
        self.answers_given.append(self.records.get(NAME, EMPTY).values)
        return True

    async def close(self) -> None:
        """Keep what there is."""


@pytest.mark.req("MC-22")
async def test_a_record_that_is_being_removed_is_not_added_again():
    clock, zone = VirtualClock(), SlowZone()
    provider = DNSProvider(make=lambda _settings: zone, own=frozenset(), clock=clock, leases=True)
    zone.go.set()
    await provider.ensure(SPEC)
    assert await provider.apply(additions(SPEC, TARGETS)) == [DONE]
    work = asyncio.create_task(provider.work())
    await clock.advance(3)
    # Another hub has withdrawn the address, which this one will add again.
    clock.jump(2)
    zone.records[NAME] = EMPTY
    await provider.observe(SPEC.key)
    zone.go.clear()
    removal = asyncio.create_task(provider.apply(removals(SPEC, TARGETS)))
    await settle()
    await clock.advance(6)
    zone.go.set()
    assert await removal == [DONE]
    await clock.advance(6)
    assert zone.records[NAME].values == frozenset()
    work.cancel()
    await asyncio.wait((work,))
    await provider.close()


def of_hub(owner: str) -> FrontendSpec:
    return replace(SPEC, parameters={**SPEC.parameters, "ownerId": owner})


@pytest.fixture
def shared() -> tuple[VirtualClock, SlowZone, list[DNSProvider]]:
    """Return a zone in which every update is made at once, and the providers of two hubs."""
    clock, zone = VirtualClock(), SlowZone()
    zone.go.set()
    hubs = [DNSProvider(make=lambda _settings: zone, own=frozenset(), clock=clock, leases=True) for _ in range(2)]
    return clock, zone, hubs


@pytest.mark.req("MC-22")
async def test_the_last_address_that_serves_is_not_removed_before_another_returns(shared):
    _, zone, (hub, _) = shared
    await hub.ensure(SPEC)
    sick = [TargetKey("192.0.2.2", RECORD_PORT)]
    unhealthy = [
        replace(row, target=replace(row.target, parameters=(RECORD_UNHEALTHY,))) for row in additions(SPEC, sick)
    ]
    assert await hub.apply([*additions(SPEC, TARGETS), *unhealthy]) == [DONE, DONE]
    assert zone.records[NAME].values == {"192.0.2.1"}
    zone.answers_given.clear()
    assert await hub.apply(removals(SPEC, TARGETS)) == [DONE]
    assert zone.answers_given == [{"192.0.2.2"}]
    # The same in one batch.
    assert await hub.apply([*additions(SPEC, TARGETS), *unhealthy]) == [DONE, DONE]
    assert await hub.apply([*unhealthy, *removals(SPEC, TARGETS)]) == [DONE, DONE]
    assert all(zone.answers_given)


@pytest.mark.req("MC-21")
async def test_a_hub_marks_an_address_again_that_another_hub_has_too(shared):
    clock, zone, hubs = shared
    for hub, owner in zip(hubs, ("east", "west"), strict=True):
        await hub.ensure(of_hub(owner))
        assert await hub.apply(additions(of_hub(owner), TARGETS)) == [DONE]
    marks = mark_key(*NAME)
    east = {text for text in zone.records[marks].values if "owner=east" in text}
    # The lease of east had expired, so west has dropped its mark.
    zone.records[marks] = replace(zone.records[marks], values=zone.records[marks].values - east)
    clock.jump(2)
    await hubs[0].observe(KEY)
    work = asyncio.create_task(hubs[0].work())
    await clock.advance(3)
    assert east < zone.records[marks].values
    work.cancel()
    await asyncio.wait((work,))
