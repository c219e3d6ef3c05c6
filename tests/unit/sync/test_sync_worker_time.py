"""The worker in virtual time: drains, pauses, deletions, and operations next to each other."""

from __future__ import annotations

import pytest
from worker_bench import KEY, Bench

from fairlead.ledger.frontends import MemoryLedger
from fairlead.model.change import Reason
from fairlead.model.contract import Capabilities
from fairlead.providers.memory import MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.plan import PACE_S
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess


class TestTime:
    async def test_a_drained_target_goes_when_its_time_is_over(self, bench):
        bench.engine.put(desired([target("1"), target("2")], drain_s=30))
        await bench.engine.advance()
        bench.engine.put(desired([target("1")], drain_s=30))
        await bench.engine.advance(29.9)
        assert bench.target("2").draining
        await bench.engine.advance(0.2)
        assert bench.on() == {target("1").key}

    @pytest.mark.req("I-1")
    async def test_removals_that_are_paced_go_on_by_themselves(self, bench):
        bench.engine.put(desired([target(str(n)) for n in range(16)]))
        await bench.engine.advance()
        bench.engine.put(desired([target("0")]))
        sizes = []
        for _ in range(6):
            await bench.engine.advance(PACE_S)
            sizes.append(len(bench.on()))
        assert sizes == [4, 2, 1, 1, 1, 1]

    async def test_held_removals_are_reported_and_released_when_there_are_others(self, bench):
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance()
        bench.engine.put(desired([]))
        await bench.engine.advance(100)
        assert bench.on() == {target("1").key}
        assert bench.engine.last_report(KEY).sentence == "hold 1 (LastTargets)"
        bench.engine.put(desired([target("2")]))
        await bench.engine.advance()
        assert bench.on() == {target("2").key}
        assert bench.engine.last_report(KEY).held == ()


class TestDelete:
    async def test_the_teardown_is_ordered(self, bench):
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance()
        bench.provider.calls.clear()
        bench.engine.remove(KEY)
        await bench.engine.advance()
        assert bench.methods() == ["apply", "delete"]
        assert bench.provider.calls[0].changes[0].reason is Reason.OWNER_DELETED
        assert KEY not in bench.engine.tracker
        assert bench.ledger.entries == {}

    async def test_deleted_twice_out_of_band_is_deleted(self, bench):
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance()
        bench.cloud.delete(KEY)
        bench.engine.remove(KEY)
        await bench.engine.advance()
        assert KEY not in bench.engine.tracker

    async def test_type_flip_twice_quickly_ends_as_last_desired(self):
        bench = Bench(latency_s=1.0)
        async with bench.engine:
            bench.engine.put(desired([target("1")]))
            await bench.engine.advance(10)
            bench.engine.remove(KEY)
            await bench.engine.advance(1.5)
            bench.engine.put(desired([target("1")]))
            await bench.engine.advance(20)
            assert bench.on() == {target("1").key}
            assert bench.provider.overlaps == []

    async def test_recreated_after_a_lost_answer_it_is_made_again(self, bench):
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance()
        bench.provider.script = lambda call: Fault.FAIL_AFTER if call.method == "delete" else Fault.NONE
        bench.engine.remove(KEY)
        await bench.engine.advance()
        assert KEY not in bench.cloud.load_balancers
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance()
        assert bench.on() == {target("1").key}


async def test_never_two_operations_on_one_load_balancer_and_many_load_balancers_at_once():
    bench = Bench(latency_s=1.0, parallel=8)
    desired_states = [desired([target("1")], key=lb_key(f"lb-{n}")) for n in range(8)]
    async with bench.engine:
        bench.engine.put(*desired_states)
        await bench.engine.advance(4.1)
        assert len(bench.cloud.load_balancers) == 8
        assert all(bench.on(desired_state.key) for desired_state in desired_states)
        for round_ in range(5):
            bench.engine.put(
                *(desired([target(str(round_))], key=desired_state.key) for desired_state in desired_states)
            )
            await bench.engine.advance(0.7)
        assert bench.provider.overlaps == []


async def test_the_ledger_knows_before_the_provider_does():
    seen: list[str] = []

    class Watching(PersistentLedger):
        async def record(self, spec, changes):
            seen.append("record")
            return await super().record(spec, changes)

        async def settle(self, spec, changes, outcomes):
            seen.append("settle")
            return await super().settle(spec, changes, outcomes)

    class RecordingProvider(MemoryProvider):
        async def apply(self, changes):
            seen.append("apply")
            return await super().apply(changes)

    async with SimulatedProcess(provider=RecordingProvider(), ledger=Watching(), clock=VirtualClock()) as engine:
        engine.put(desired([target("1")]))
        await engine.advance()
    assert seen == ["record", "apply", "settle"]


async def test_a_provider_that_serves_its_whole_state_is_called_one_by_one():
    class Whole(MemoryProvider):
        @property
        def capabilities(self):
            return Capabilities(serves_whole_state=True)

    clock = VirtualClock()
    provider = FaultyProvider(Whole(), clock=clock, latency_s=1.0)
    async with SimulatedProcess(provider=provider, ledger=MemoryLedger(), clock=clock) as engine:
        engine.put(*(desired([target("1")], key=lb_key(f"lb-{n}")) for n in range(3)))
        await engine.advance(3.9)
        assert {call.load_balancer.name for call in provider.calls} == {"lb-0"}
        await engine.advance(9)
        assert len(provider.calls) == 6
