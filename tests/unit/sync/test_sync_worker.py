"""The worker in virtual time: what it calls, in which order, and when it runs."""

from __future__ import annotations

import asyncio

import pytest
from worker_bench import KEY, Bench

from fairlead.model.change import Action
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import Fault


async def test_a_desired_state_becomes_calls_in_order(bench):
    bench.engine.put(desired([target("1"), target("2")]))
    await bench.engine.advance()
    assert bench.methods() == ["ensure", "apply"]
    assert bench.on() == {target("1").key, target("2").key}
    assert bench.engine.sentences() == ["Ensure load balancer (New), Register 2 (New)"]


async def test_of_a_member_with_thousands_the_others_do_not_wait_for_all():
    bench = Bench(parallel=1, latency_s=0.01)
    noisy, calm = (lb_key(f"n{number}", namespace="tenant-noisy") for number in range(100)), lb_key("calm")
    async with bench.engine as engine:
        engine.put(*(desired([target("1")], key=key) for key in noisy))
        await engine.advance(0.5)
        engine.put(desired([target("1")], key=calm))  # while the others are being worked on
        await engine.advance(60)
    order = [report.load_balancer for report in bench.engine.reports]
    assert len(order) == 101
    assert 0 < order.index(calm) <= 64


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
    bench.fail(Fault.FAIL_BEFORE, Fault.FAIL_BEFORE)
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


async def test_batches_respect_the_limit_of_the_provider():
    bench = Bench(max_batch=3)
    async with bench.engine:
        bench.engine.put(desired([target(str(n)) for n in range(8)]))
        await bench.engine.advance(0.1)
        assert [len(call.changes) for call in bench.provider.calls if call.method == "apply"] == [3, 3, 2]


async def test_an_earlier_batch_counts_when_a_later_one_fails():
    bench = Bench(max_batch=2)
    async with bench.engine:
        bench.fail(Fault.NONE, Fault.NONE, Fault.FAIL_BEFORE)
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
