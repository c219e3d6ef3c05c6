"""The worker in virtual time: what it calls, in which order, and what it does when calls fail."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from fairlead.errors import Bug, Retry, Terminal
from fairlead.ledger.memory import MemoryLedger
from fairlead.model.change import Action, Reason
from fairlead.model.contract import Capabilities
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.guard import PACE_S
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import SurvivingLedger
from fairlead.testing.simulation import EngineProcess

KEY = lb_key()


class Bench:
    """A worker over a provider whose faults the test scripts."""

    def __init__(self, *, latency_s=0.0, max_batch=0, parallel=8):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        memory = MemoryProvider(cloud=self.cloud, max_batch=max_batch)
        self.provider = FaultyProvider(memory, clock=self.clock, latency_s=latency_s)
        self.ledger = SurvivingLedger()
        self.engine = EngineProcess(provider=self.provider, ledger=self.ledger, clock=self.clock, parallel=parallel)

    def fail(self, *faults):
        """Let the next calls end so; the ones after them work."""
        left = list(faults)
        self.provider.script = lambda _call: left.pop(0) if left else Fault.NONE

    def methods(self):
        return [call.method for call in self.provider.calls]

    def on(self, key=KEY, listener=HTTP):
        return {at for each, at in self.cloud.members(key) if each == listener}

    def target(self, number, key=KEY):
        return self.cloud.members(key)[HTTP, target(number).key]


@pytest.fixture
async def bench():
    bench = Bench()
    async with bench.engine:
        yield bench
    assert bench.provider.overlaps == []


async def test_a_desired_state_becomes_calls_in_order(bench):
    bench.engine.put(desired([target("1"), target("2")]))
    await bench.engine.advance()
    assert bench.methods() == ["ensure", "apply"]
    assert bench.on() == {target("1").key, target("2").key}
    assert bench.engine.sentences() == ["Ensure load balancer (New), Register 2 (New)"]


@pytest.mark.req("I-9")
async def test_additions_are_called_before_removals(bench):
    bench.engine.put(desired([target("1"), target("2")]))
    await bench.engine.advance()
    bench.provider.calls.clear()
    bench.engine.put(desired([target("2"), target("9")]))
    await bench.engine.advance()
    assert [[change.action for change in call.changes] for call in bench.provider.calls] == [
        [Action.REGISTER],
        [Action.DEREGISTER],
    ]


@pytest.mark.req("I-9")
async def test_removals_wait_until_every_addition_has_succeeded(bench):
    bench.engine.put(desired([target("1"), target("2")]))
    await bench.engine.advance()
    bench.fail(Fault.REFUSE, Fault.REFUSE)
    bench.engine.put(desired([target("9")]))
    await bench.engine.advance()
    assert bench.on() == {target("1").key, target("2").key}
    await bench.engine.advance(60)
    assert bench.on() == {target("9").key}


@pytest.mark.req("I-9")
async def test_what_a_refused_addition_was_to_replace_stays_until_something_else_does(bench):
    other = lb_key("other")
    bench.provider.rejected[target("9").key] = "address is reserved"
    bench.engine.put(desired([target("1")]), desired([target("1")], key=other))
    await bench.engine.advance()
    bench.engine.put(desired([target("9")]), desired([target("2")], key=other))
    await bench.engine.advance()
    assert bench.on() == {target("1").key}
    assert bench.on(other) == {target("2").key}
    report = bench.engine.last_report(KEY)
    assert (report.failure, report.failure_reason) == ("address is reserved", "Rejected")
    bench.engine.put(desired([target("8"), target("9")]))
    await bench.engine.advance()
    assert bench.on() == {target("8").key}, "with 8 there, nobody needs 1 any more"


@pytest.mark.req("I-7")
async def test_one_refused_item_among_many_does_not_stop_the_others(bench):
    bench.provider.rejected[target("3").key] = "no"
    bench.engine.put(desired([target(str(n)) for n in range(1, 7)]))
    await bench.engine.advance()
    assert bench.on() == {target(str(n)).key for n in (1, 2, 4, 5, 6)}
    assert len(bench.engine.last_report(KEY).done) == 5


async def test_batches_are_no_larger_than_the_provider_takes():
    bench = Bench(max_batch=3)
    async with bench.engine:
        bench.engine.put(desired([target(str(n)) for n in range(8)]))
        await bench.engine.advance(0.1)
        assert [len(call.changes) for call in bench.provider.calls if call.method == "apply"] == [3, 3, 2]


async def test_what_an_earlier_batch_did_stands_when_a_later_one_fails():
    bench = Bench(max_batch=2)
    async with bench.engine:
        bench.fail(Fault.NONE, Fault.NONE, Fault.REFUSE)
        bench.engine.put(desired([target(str(n)) for n in range(4)]))
        await bench.engine.advance()
        assert len(bench.on()) == 2
        assert len(bench.engine.last_report(KEY).done) == 2
        await bench.engine.advance(1)
        assert len(bench.on()) == 4
        assert [len(call.changes) for call in bench.provider.calls if call.method == "apply"] == [2, 2, 2]


class TestTrigger:
    async def test_many_triggers_are_one_run(self, bench):
        for weight in range(1, 50):
            bench.engine.put(desired([target("1", weight=weight)]))
        await bench.engine.advance()
        assert bench.engine.worker.runs == 1
        assert bench.target("1").weight == 49

    async def test_what_comes_during_a_run_makes_one_more(self):
        bench = Bench(latency_s=1.0)
        async with bench.engine:
            bench.engine.put(desired([target("1")]))
            await bench.engine.advance(1)
            for weight in range(2, 20):
                bench.engine.put(desired([target("1", weight=weight)]))
            await bench.engine.advance(20)
            assert len(bench.engine.reports) == 2
            assert bench.target("1").weight == 19
            assert bench.provider.overlaps == []

    async def test_without_a_desired_state_nothing_is_called(self, bench):
        bench.engine.worker.trigger()
        await bench.engine.advance(100)
        assert bench.methods() == []

    async def test_settled_waits_for_the_run(self):
        bench = Bench(latency_s=5.0)
        async with bench.engine:
            bench.engine.put(desired([target("1")]))
            waiting = asyncio.create_task(bench.engine.worker.settled())
            await bench.engine.advance(10)
            assert not waiting.done()
            await bench.engine.advance(15)
            assert waiting.done()


class TestRetry:
    async def test_a_failure_is_tried_again_with_growing_pauses(self, bench):
        at_s: list[float] = []

        def refuse(_call):
            at_s.append(bench.clock.monotonic())
            return Fault.REFUSE

        bench.provider.script = refuse
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance(200)
        pauses = [after - before for before, after in itertools.pairwise(at_s)]
        assert pauses[0] <= 0.1
        assert max(pauses) > 20
        assert all(pause <= 60 for pause in pauses)
        assert 8 <= len(at_s) <= 20
        bench.provider.script = lambda _call: Fault.NONE
        await bench.engine.advance(61)
        assert bench.on() == {target("1").key}

    async def test_a_success_forgets_the_failures(self, bench):
        bench.fail(*[Fault.REFUSE] * 5)
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance(30)
        assert bench.on() == {target("1").key}
        bench.fail(Fault.REFUSE)
        bench.engine.put(desired([target("1"), target("2")]))
        await bench.engine.advance(0.11)
        assert len(bench.on()) == 2

    async def test_a_pause_that_the_provider_asks_for_is_kept(self):
        class Busy(MemoryProvider):
            asked = 0

            async def ensure(self, spec):
                self.asked += 1
                if self.asked == 1:
                    raise Retry("too many requests", after_s=30)
                return await super().ensure(spec)

        provider, clock = Busy(), VirtualClock()
        async with EngineProcess(provider=provider, ledger=MemoryLedger(), clock=clock) as engine:
            engine.put(desired([target("1")]))
            await engine.advance(29.9)
            assert provider.asked == 1
            await engine.advance(0.2)
            assert provider.asked == 2

    async def test_a_terminal_error_is_told_in_its_own_words(self):
        class Full(MemoryProvider):
            async def ensure(self, spec):
                raise Terminal("quota of 100 load balancers is used up", reason="QuotaExceeded")

        async with EngineProcess(provider=Full(), ledger=MemoryLedger(), clock=VirtualClock()) as engine:
            engine.put(desired([target("1")]))
            await engine.advance()
            report = engine.last_report(KEY)
            assert report.failure == "quota of 100 load balancers is used up"
            assert report.failure_reason == "QuotaExceeded"
            assert report.sentence.endswith("failed: quota of 100 load balancers is used up")

    async def test_b22_what_could_not_be_made_can_be_deleted(self):
        class Full(MemoryProvider):
            async def ensure(self, spec):
                raise Terminal("quota", reason="QuotaExceeded")

        async with EngineProcess(provider=Full(), ledger=MemoryLedger(), clock=VirtualClock()) as engine:
            engine.put(desired([target("1")]))
            await engine.advance()
            engine.remove(KEY)
            await engine.advance()
            assert KEY not in engine.tracker

    @pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.LOSE, Fault.HALF])
    @pytest.mark.parametrize("call", [1, 2])
    async def test_any_lost_answer_converges(self, bench, fault, call):
        bench.provider.script = lambda item: fault if item.number == call else Fault.NONE
        bench.engine.put(desired([target("1"), target("2"), target("3")]))
        await bench.engine.advance(1)
        assert len(bench.on()) == 3
        assert bench.engine.last_report(KEY).failure == ""


@pytest.mark.req("I-7")
class TestMistakes:
    @pytest.mark.parametrize("error", [Bug("impossible"), ZeroDivisionError("x"), KeyError("y")])
    async def test_an_exception_about_one_load_balancer_does_not_stop_the_others(self, error):
        bad = lb_key("bad")

        class Broken(MemoryProvider):
            async def ensure(self, spec):
                if spec.key == bad:
                    raise error
                return await super().ensure(spec)

        provider, clock = Broken(), VirtualClock()
        async with EngineProcess(provider=provider, ledger=MemoryLedger(), clock=clock) as engine:
            with capture_logs():
                engine.put(desired([target("1")], key=bad), desired([target("1")]))
                await engine.advance()
            assert set(provider.cloud.load_balancers) == {KEY}
            assert engine.last_report(bad).failure
            engine.put(desired([target("2")]))
            await engine.advance()
            assert set(provider.cloud.members(KEY)) == {(HTTP, target("2").key)}

    async def test_it_is_loud_in_the_log_and_tried_again_slowly(self, bench):
        bench.fail(Fault.BUG)
        with capture_logs() as logs:
            bench.engine.put(desired([target("1")]))
            await bench.engine.advance()
        assert [line["log_level"] for line in logs if line["event"] == "bug"] == ["error"]
        assert KEY not in bench.cloud.load_balancers
        await bench.engine.advance(29)
        assert KEY not in bench.cloud.load_balancers
        await bench.engine.advance(2)
        assert bench.on() == {target("1").key}

    async def test_a_provider_that_answers_too_few_is_not_believed(self):
        class Short(MemoryProvider):
            async def apply(self, changes):
                return (await super().apply(changes))[:-1]

        async with EngineProcess(provider=Short(), ledger=MemoryLedger(), clock=VirtualClock()) as engine:
            with capture_logs():
                engine.put(desired([target("1"), target("2")]))
                await engine.advance()
            assert engine.last_report(KEY).done == ()
            assert engine.last_report(KEY).failure


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

    async def test_held_removals_are_reported_and_let_go_when_there_are_others(self, bench):
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
        bench.provider.script = lambda call: Fault.LOSE if call.method == "delete" else Fault.NONE
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

    class Watching(SurvivingLedger):
        async def record(self, spec, changes):
            seen.append("record")
            return await super().record(spec, changes)

        async def settle(self, spec, changes, outcomes):
            seen.append("settle")
            await super().settle(spec, changes, outcomes)

    class Told(MemoryProvider):
        async def apply(self, changes):
            seen.append("apply")
            return await super().apply(changes)

    async with EngineProcess(provider=Told(), ledger=Watching(), clock=VirtualClock()) as engine:
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
    async with EngineProcess(provider=provider, ledger=MemoryLedger(), clock=clock) as engine:
        engine.put(*(desired([target("1")], key=lb_key(f"lb-{n}")) for n in range(3)))
        await engine.advance(3.9)
        assert {call.load_balancer.name for call in provider.calls} == {"lb-0"}
        await engine.advance(9)
        assert len(provider.calls) == 6
