"""What waits, for how long and why, as it is counted for an operator."""

from __future__ import annotations

import pytest

from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

pytestmark = pytest.mark.req("A-51")


class Watched:
    """A worker, and what it says of itself."""

    def __init__(self, *, latency_s=0.0, parallel=8):
        self.clock = VirtualClock()
        self.memory = MemoryProvider(cloud=MemoryCloud(clock=self.clock))
        self.provider = FaultyProvider(self.memory, clock=self.clock, latency_s=latency_s)
        self.engine = SimulatedProcess(
            provider=self.provider, ledger=PersistentLedger(), clock=self.clock, parallel=parallel
        )

    @property
    def pending(self):
        return self.engine.worker.pending

    @property
    def oldest_s(self):
        return round(self.engine.worker.oldest_pending_s(self.clock.monotonic()), 3)


def many(count, number="1"):
    return [desired([target(number)], key=lb_key(f"lb-{n}")) for n in range(count)]


async def test_nothing_waits_when_all_is_done():
    watched = Watched()
    async with watched.engine:
        assert (watched.pending, watched.oldest_s) == (0, 0.0)
        watched.engine.put(*many(3))
        assert watched.pending == 3
        await watched.engine.advance(10)
        assert (watched.pending, watched.oldest_s, watched.engine.worker.draining, watched.engine.worker.parked) == (
            0,
            0.0,
            0,
            0,
        )


@pytest.mark.parametrize("parallel", [1, 8])
async def test_what_waits_for_a_call_has_waited_since_it_changed(parallel):
    watched = Watched(latency_s=1.0, parallel=parallel)
    async with watched.engine:
        watched.engine.put(*many(1))
        await watched.engine.advance(3)
        assert (watched.pending, watched.oldest_s) == (1, 3.0)
        await watched.engine.advance(10)
        assert watched.pending == 0


async def test_a_failure_keeps_its_age_through_its_retries():
    watched = Watched()
    watched.memory.faults.down = "no answer"
    async with watched.engine:
        watched.engine.put(*many(1))
        await watched.engine.advance(100)
        watched.engine.put(*many(1, number="2"))
        assert (watched.pending, watched.oldest_s) == (1, 100.0)
        await watched.engine.advance(20)
        watched.memory.faults.down = ""
        assert (watched.pending, watched.oldest_s) == (1, 120.0)
        await watched.engine.advance(61)
        assert (watched.pending, watched.oldest_s) == (0, 0.0)


async def test_what_changes_during_a_call_is_as_old_as_that_change():
    watched = Watched(latency_s=2.0)
    async with watched.engine:
        watched.engine.put(*many(1))
        await watched.engine.advance(5)
        watched.engine.put(*many(1, number="2"))
        await watched.engine.advance(4)
        assert (watched.pending, watched.oldest_s) == (1, 4.0), "the first change is done, the second is not"


async def test_what_no_worker_has_taken_yet_counts_too():
    """A worker that calls one after the other takes up nothing new before it is through with what it took."""
    watched = Watched(latency_s=2.0, parallel=1)
    async with watched.engine:
        watched.engine.put(*many(1))
        await watched.engine.advance(5)
        watched.engine.put(desired([target("1")], key=lb_key("other")))
        await watched.engine.advance(1)
        assert (watched.pending, watched.oldest_s) == (2, 6.0)
        await watched.engine.advance(2)
        assert (watched.pending, watched.oldest_s) == (1, 3.0)


async def test_what_drains_is_not_pending_but_draining():
    watched = Watched()
    async with watched.engine:
        watched.engine.put(desired([target("1"), target("2")], drain_s=30))
        await watched.engine.advance()
        watched.engine.put(desired([target("1")], drain_s=30))
        await watched.engine.advance(20)
        assert (watched.pending, watched.engine.worker.draining) == (0, 1)
        await watched.engine.advance(11)
        assert (watched.pending, watched.engine.worker.draining) == (0, 0)


async def test_targets_deleted_during_a_drain_are_forgotten():
    watched = Watched()
    async with watched.engine:
        watched.engine.put(desired([target("1"), target("2")], drain_s=30))
        await watched.engine.advance()
        watched.engine.put(desired([target("1")], drain_s=30))
        await watched.engine.advance(1)
        watched.engine.remove(lb_key())
        await watched.engine.advance(1)
        assert (watched.pending, watched.oldest_s, watched.engine.worker.draining) == (0, 0.0, 0)


async def test_refused_backends_are_parked_and_no_longer_pending():
    watched = Watched()
    watched.provider.rejected[target("2").key] = "reserved"
    async with watched.engine:
        watched.engine.put(desired([target("1"), target("2")]))
        await watched.engine.advance(5)
        assert (watched.pending, watched.engine.worker.parked) == (0, 1)
        watched.provider.rejected.clear()
        await watched.engine.advance(400)
        assert (watched.pending, watched.engine.worker.parked) == (0, 0)


async def test_a_lost_trigger_is_not_a_lost_change():
    watched = Watched()
    async with watched.engine:
        await watched.engine.advance()
        watched.engine.tracker.put(*many(1))
        assert watched.pending == 1
        await watched.engine.advance(61)
        assert watched.pending == 0
