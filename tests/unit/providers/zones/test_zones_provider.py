"""What the work of a hub that shares names leaves alone: records that are being removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from fairlead.model.change import DONE
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey
from fairlead.providers.zones.plan import EMPTY, Edit, RRKey, RRSet, RRSets
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
