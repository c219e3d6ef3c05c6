"""A read-back takes time: what we register or remove meanwhile is not drift, what others do is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.readback import Readback
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

pytestmark = pytest.mark.req("T-survivors")
KEY = lb_key()


class Slow(MemoryProvider):
    """Reads, and answers only after ``meanwhile`` has happened."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def observe(self, key):
        observed = await super().observe(key)
        if self.meanwhile is not None:
            await self.meanwhile()
        return observed


async def drifts_after(meanwhile, *, removed=None):
    """Return (missing, changed, unrecorded) of a read-back of targets 1 and 2 during which ``meanwhile`` happens.

    Another program has taken ``removed`` away before.
    """
    clock = VirtualClock()
    cloud = MemoryCloud(clock=clock)
    provider = Slow(cloud=cloud)

    async def set_epoch(_key, _epoch):
        pass

    async with SimulatedProcess(provider=provider, ledger=PersistentLedger(), clock=clock) as engine:
        readback = Readback(
            provider=provider,
            tracker=engine.tracker,
            clock=clock,
            trigger=engine.worker.trigger,
            epoch_of=lambda _key: "",
            set_epoch=set_epoch,
        )
        serve(engine, 1, 2)
        await engine.advance(5)
        if removed is not None:
            cloud.drift(KEY, HTTP, removed, None)
        provider.meanwhile = lambda: meanwhile(engine, cloud)
        await readback.look(KEY)
        drift = readback.drifts.get(KEY)
        return (drift.missing, drift.changed, drift.unrecorded) if drift is not None else ((), (), ())


def serve(engine, *numbers, weight=1):
    targets = [target(str(number), weight=weight) for number in numbers]
    engine.put(desired(targets, guard=GuardPolicy(100, 0)))


async def test_own_registrations_meanwhile_are_not_drift():
    async def meanwhile(engine, cloud):
        serve(engine, 2, 3)
        await engine.advance(5)
        assert set(cloud.members(KEY)) == {(HTTP, target("2").key), (HTTP, target("3").key)}

    assert await drifts_after(meanwhile) == ((), (), ())


async def test_own_changes_meanwhile_are_not_drift():
    async def meanwhile(engine, _cloud):
        serve(engine, 1, 2, weight=5)
        await engine.advance(5)

    assert await drifts_after(meanwhile) == ((), (), ())


async def test_what_others_removed_before_is_drift_whatever_we_do_meanwhile():
    async def meanwhile(engine, _cloud):
        serve(engine, 1, 2, 3)
        await engine.advance(5)

    missing, _, _ = await drifts_after(meanwhile, removed=target("1").key)
    assert missing == ((HTTP, target("1").key),)
