"""The worker in virtual time: what it does when calls fail, and when a part of it is wrong."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs
from worker_bench import KEY

from fairlead.errors import Bug, Retry, Terminal
from fairlead.ledger.frontends import MemoryLedger
from fairlead.providers.memory import MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.faults import Fault
from fairlead.testing.simulation import SimulatedProcess


@pytest.mark.parametrize("parallel", [1, 8])
async def test_a_call_that_the_provider_itself_cancels_is_made_again(parallel):
    """The change used to be lost, because a TaskGroup does not report a cancelled task as failed."""

    class GivesUp(MemoryProvider):
        asked = 0

        async def ensure(self, spec):
            self.asked += 1
            if self.asked == 1:
                inner = asyncio.create_task(asyncio.sleep(3600))
                inner.cancel()
                await inner
            return await super().ensure(spec)

    provider, clock = GivesUp(), VirtualClock()
    async with SimulatedProcess(provider=provider, ledger=MemoryLedger(), clock=clock, parallel=parallel) as engine:
        engine.put(desired([target("1")]))
        await engine.advance()
        assert engine.last_report(KEY).failure_reason == "Cancelled"
        await engine.advance(1)
        assert provider.asked == 2
        assert engine.last_report(KEY).frontend_done


class TestRetry:
    async def test_a_failure_is_tried_again_with_growing_pauses(self, bench):
        at_s: list[float] = []

        def refuse(_call):
            at_s.append(bench.clock.monotonic())
            return Fault.FAIL_BEFORE

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
        bench.fail(*[Fault.FAIL_BEFORE] * 5)
        bench.engine.put(desired([target("1")]))
        await bench.engine.advance(30)
        assert bench.on() == {target("1").key}
        bench.fail(Fault.FAIL_BEFORE)
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
        async with SimulatedProcess(provider=provider, ledger=MemoryLedger(), clock=clock) as engine:
            engine.put(desired([target("1")]))
            await engine.advance(29.9)
            assert provider.asked == 1
            await engine.advance(0.2)
            assert provider.asked == 2

    async def test_a_terminal_error_is_reported_with_its_own_message(self):
        class Full(MemoryProvider):
            async def ensure(self, spec):
                raise Terminal("quota of 100 load balancers is used up", reason="QuotaExceeded")

        async with SimulatedProcess(provider=Full(), ledger=MemoryLedger(), clock=VirtualClock()) as engine:
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

        async with SimulatedProcess(provider=Full(), ledger=MemoryLedger(), clock=VirtualClock()) as engine:
            engine.put(desired([target("1")]))
            await engine.advance()
            engine.remove(KEY)
            await engine.advance()
            assert KEY not in engine.tracker

    @pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.FAIL_HALFWAY])
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
        async with SimulatedProcess(provider=provider, ledger=MemoryLedger(), clock=clock) as engine:
            with capture_logs():
                engine.put(desired([target("1")], key=bad), desired([target("1")]))
                await engine.advance()
            assert set(provider.cloud.load_balancers) == {KEY}
            assert engine.last_report(bad).failure
            engine.put(desired([target("2")]))
            await engine.advance()
            assert set(provider.cloud.members(KEY)) == {(HTTP, target("2").key)}

    async def test_an_unexpected_error_is_logged_and_retried_slowly(self, bench):
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

        async with SimulatedProcess(provider=Short(), ledger=MemoryLedger(), clock=VirtualClock()) as engine:
            with capture_logs():
                engine.put(desired([target("1"), target("2")]))
                await engine.advance()
            assert engine.last_report(KEY).done == ()
            assert engine.last_report(KEY).failure
