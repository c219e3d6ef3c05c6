"""When the worker runs, what one run carries, and what failures do to it: given, when, then, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from fairlead.model.change import Reason
from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import Faults, MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.worker import Worker
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

KEY = lb_key()


def intended(*numbers, **text):
    return desired([target(str(number)) for number in numbers], guard=GuardPolicy(100, 0), **text)


class Process:
    """One engine, its provider and its cloud."""

    def __init__(self, *, latency_s=0.0):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = MemoryProvider(cloud=self.cloud, faults=Faults())
        self.provider = FaultyProvider(self.memory, clock=self.clock, latency_s=latency_s)
        self.ledger = PersistentLedger()
        self.engine = SimulatedProcess(provider=self.provider, ledger=self.ledger, clock=self.clock)
        self.engine.start()

    @property
    def calls(self):
        return [(call.method, len(call.changes)) for call in self.provider.calls]

    def on(self, key=KEY):
        return {int(at.address.removeprefix("10.0.0.")) for _, at in self.cloud.members(key)}

    async def served(self, *numbers):
        self.engine.put(intended(*numbers))
        await self.engine.advance(20)
        assert self.on() == set(numbers)
        self.provider.calls.clear()


@pytest.fixture
async def process():
    process = Process()
    yield process
    await process.engine.crash()


@pytest.fixture
async def slow():
    process = Process(latency_s=1.0)
    yield process
    await process.engine.crash()
    assert process.provider.overlaps == []


@pytest.mark.req("A-9", "A-11")
async def test_at18_one_update_of_an_idle_worker_is_one_run(process):
    await process.engine.advance(100)
    runs = process.engine.worker.runs
    process.engine.put(intended(1))
    await process.engine.advance(100)
    assert process.engine.worker.runs == runs + 1
    assert process.calls == [("ensure", 0), ("apply", 1)]


@pytest.mark.req("A-9", "A-11", "A-12", "A-47")
async def test_at19_a_thousand_updates_during_a_call_are_one_further_run(slow):
    await slow.served(1)
    slow.engine.put(intended(1, 2))
    await slow.engine.advance(0.5)
    assert slow.calls == [("apply", 1)]
    for number in range(1000):
        # Nothing here awaits: neither the update nor the trigger can wait for the call that is under way.
        slow.engine.put(intended(1, 2, *range(3, 4 + number % 200)))
        slow.engine.worker.trigger()
    await slow.engine.advance(60)
    assert slow.calls == [("apply", 1), ("apply", 200)]
    assert slow.on() == set(range(1, 203))


@pytest.mark.req("A-10")
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5])
async def test_the_last_update_is_seen_whenever_it_comes(slow, after_s):
    slow.engine.put(intended(1))
    await slow.engine.advance(after_s)
    slow.engine.put(intended(2, 3))
    await slow.engine.advance(60)
    assert slow.on() == {2, 3}


@pytest.mark.req("A-12", "A-18")
async def test_a_run_has_one_batch_of_each_kind_in_the_order_of_the_document(process):
    """Frontend, additions, removals: one path for what users write of a load balancer and for its endpoints."""
    await process.served(*range(1, 11))
    for number in range(20):
        process.engine.put(intended(*range(1 + number, 11 + number)))
    process.engine.put(intended(*range(6, 21), address="192.0.2.9"))
    await process.engine.advance(30)
    assert process.calls == [("ensure", 0), ("apply", 10), ("apply", 5)]
    actions = [{change.action.value for change in call.changes} for call in process.provider.calls[1:]]
    assert actions == [{"Register"}, {"Deregister"}]


@pytest.mark.req("A-8", "A-16")
async def test_an_update_is_stored_before_a_worker_takes_it():
    """What watches do is store and trigger; only the worker calls a provider."""
    clock = VirtualClock()
    provider = FaultyProvider(MemoryProvider(cloud=MemoryCloud(clock=clock)), clock=clock)
    engine = SimulatedProcess(provider=provider, ledger=PersistentLedger(), clock=clock)
    engine.put(intended(1), intended(2, key=lb_key("other")))
    engine.remove(lb_key("other"))
    await engine.advance(100)
    assert provider.calls == []
    assert engine.tracker.pop_dirty() == [KEY, lb_key("other")]
    engine.tracker.touch([KEY])
    async with engine:
        await engine.advance()
        assert [call.method for call in provider.calls] == ["ensure", "apply"]


@pytest.mark.req("A-14", "A-34")
async def test_at21_the_wait_grows_has_a_limit_and_ends_with_a_fresh_trigger(process):
    await process.served(1)
    at_s: list[float] = []

    def refuse(_call):
        at_s.append(process.clock.monotonic())
        return Fault.FAIL_BEFORE

    process.provider.script = refuse
    process.engine.put(intended(1, 2))
    await process.engine.advance(1800)
    done = process.engine.tracker.state(KEY).recorded[HTTP]
    assert not done[target("1").key].unknown
    assert done[target("2").key].unacknowledged, "nothing is believed that was not answered"
    pauses = [after - before for before, after in itertools.pairwise(at_s)]
    assert pauses[0] < 0.2
    assert 30.0 <= max(pauses) <= 60.0
    assert len({round(pause, 3) for pause in pauses[-10:]}) == 10, "jittered"
    tries = len(at_s)
    process.provider.script = lambda _call: Fault.NONE
    process.engine.put(intended(1, 2, 3))
    await process.engine.advance()
    assert process.on() == {1, 2, 3}, "news does not wait for a retry"
    assert len(at_s) == tries


@pytest.mark.req("A-38")
async def test_after_any_number_of_failures_it_works_again_by_itself(process):
    process.memory.faults.down = "no answer"
    process.engine.put(intended(1))
    await process.engine.advance(4 * 3600)
    assert process.on() == set()
    calls = len(process.provider.calls)
    assert calls < 4 * 3600 / 30 + 20, "and a provider that is down is not hammered"
    process.memory.faults.down = ""
    await process.engine.advance(61)
    assert process.on() == {1}
    assert process.engine.last_report(KEY).failure == ""


@pytest.mark.req("A-34", "A-46")
async def test_at22_others_go_on_while_a_call_hangs(process):
    hangs = [True]

    def stall(call):
        return Fault.HANG_BEFORE if hangs[0] and call.load_balancer == KEY else Fault.NONE

    process.provider.script = stall
    other = lb_key("other")
    engine = Limited(process)
    async with engine:
        engine.put(intended(1), intended(2, key=other))
        await engine.advance(1)
        assert process.on(other) == {2}
        engine.put(intended(2, 3, key=other))
        await engine.advance(1)
        assert process.on(other) == {2, 3}
        assert process.on() == set()
        hangs[0] = False
        await engine.advance(29)
        assert process.on() == {1}, "given up after 20 s, and tried again"


class Limited(SimulatedProcess):
    """A process in which no call may take longer than 20 s."""

    def __init__(self, process):
        super().__init__(provider=process.provider, ledger=process.ledger, clock=process.clock)
        self.worker = Worker(
            tracker=self.tracker,
            provider=process.provider,
            ledger=process.ledger,
            clock=process.clock,
            report=self.reports.append,
            limit_s=20.0,
        )


@pytest.mark.req("A-14")
async def test_at23_what_succeeded_is_not_repeated(process):
    process.provider.script = lambda call: Fault.FAIL_BEFORE if call.number == 2 else Fault.NONE
    process.engine.put(intended(1, 2))
    await process.engine.advance(10)
    assert process.calls == [("ensure", 0), ("apply", 2), ("apply", 2)]
    assert process.on() == {1, 2}


@pytest.mark.req("A-47")
async def test_at24_updates_are_accepted_while_a_call_is_under_way(slow):
    slow.engine.put(intended(1))
    await slow.engine.advance(0.5)
    assert slow.calls == [("ensure", 0)]
    assert slow.engine.tracker.put(intended(7))
    assert slow.engine.tracker.put(intended(3, key=lb_key("other")))
    assert slow.engine.tracker.remove(lb_key("other"))
    assert slow.engine.tracker.state(KEY).desired == intended(7)
    slow.engine.worker.trigger()
    await slow.engine.advance(30)
    assert slow.on() == {7}


@pytest.mark.req("A-17")
async def test_at26_what_no_event_triggered_is_done_at_the_next_tick(process):
    await process.served(1)
    await process.engine.advance(500)
    process.engine.tracker.put(intended(1, 2))
    await process.engine.advance(120)
    assert process.on() == {1, 2}


@pytest.mark.req("A-40")
async def test_at35_rapid_edits_converge_to_the_last_and_none_is_a_call(slow):
    await slow.served(1)
    slow.engine.put(intended(1))
    await slow.engine.advance(30)
    assert slow.calls == []
    for number in range(2, 8):
        slow.engine.put(intended(1, address=f"192.0.2.{number}"))
        await slow.engine.advance(0.3)
    await slow.engine.advance(30)
    assert slow.cloud.load_balancers[KEY].spec.address == "192.0.2.7"
    assert [method for method, _ in slow.calls] == ["ensure", "ensure"], "the first edit, and the last"


@pytest.mark.req("A-26")
async def test_at36_a_port_that_goes_takes_only_its_own_rows(process):
    process.engine.put(intended(1, 2, ports=(80, 443)))
    await process.engine.advance()
    process.provider.calls.clear()
    process.engine.put(intended(1, 2, ports=(80,)))
    await process.engine.advance()
    rows = [change for call in process.provider.calls for change in call.changes]
    assert {(row.listener.port, row.reason) for row in rows} == {(443, Reason.LISTENER_REMOVED)}
    assert {listener.port for listener, _ in process.cloud.members(KEY)} == {80}


@pytest.mark.req("A-41", "A-23")
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
@pytest.mark.parametrize("step", [1, 2])
async def test_at40_and_at41_a_failed_step_of_a_deletion_is_repeated(process, fault, step):
    await process.served(1, 2)
    process.cloud.add_foreign(KEY, "by-hand", target("200"))
    first = process.provider.script = Once(fault, step)
    process.engine.remove(KEY)
    await process.engine.advance()
    assert KEY in process.engine.tracker, "a failed step is not reported as done"
    assert process.engine.last_report(KEY).failure
    await process.engine.advance(30)
    assert first.failed
    assert process.calls[0][0] == "apply"
    assert process.calls[-1][0] == "delete"
    assert KEY not in process.engine.tracker
    assert (process.cloud.load_balancers, process.ledger.entries) == ({}, {})
    assert process.cloud.foreign(KEY) == {"by-hand": target("200")}


class Once:
    """Fails the ``step``-th call from now on."""

    def __init__(self, fault, step):
        self.fault = fault
        self.left = step
        self.failed = False

    def __call__(self, _call):
        self.left -= 1
        self.failed = self.failed or self.left == 0
        return self.fault if self.left == 0 else Fault.NONE


@pytest.mark.req("A-41")
async def test_at44_unknown_or_finished_changes_cause_no_call(process):
    process.engine.remove(lb_key("nobody"))
    await process.served(1)
    process.engine.remove(KEY)
    process.engine.remove(KEY)
    await process.engine.advance(10)
    process.engine.remove(KEY)
    await process.engine.advance(10)
    assert process.calls == [("apply", 1), ("delete", 0)]


@pytest.mark.req("A-3", "A-20")
async def test_at46_any_number_of_load_balancers_may_have_the_same_backends(process):
    keys = [lb_key(f"lb-{number}") for number in range(50)]
    process.engine.put(*(intended(1, 2, key=key) for key in keys))
    await process.engine.advance(10)
    assert all(process.on(key) == {1, 2} for key in keys)
    process.engine.put(intended(2, key=keys[7]))
    await process.engine.advance(10)
    assert [key.name for key in keys if process.on(key) != {1, 2}] == ["lb-7"]


@pytest.mark.req("A-12", "A-32")
@pytest.mark.parametrize("sizes", [(10, 100, 10), (10, 50, 100, 20, 80)], ids=["10-100-10", "10-50-100-20-80"])
async def test_scaling_up_and_down_makes_one_call_for_each_direction(process, sizes):
    for before, size in itertools.pairwise((0, *sizes)):
        process.provider.calls.clear()
        process.engine.put(intended(*range(size)))
        await process.engine.advance(10)
        assert process.on() == set(range(size))
        assert sum(count for _, count in process.calls) == abs(size - before)
        assert len([method for method, _ in process.calls if method == "apply"]) == 1


async def test_twenty_load_balancers_churn_together(slow):
    keys = [lb_key(f"lb-{number}") for number in range(20)]
    for round_ in range(6):
        slow.engine.put(*(intended(round_, round_ + 1, round_ + 2, key=key) for key in keys))
        await slow.engine.advance(0.7)
    await slow.engine.advance(120)
    assert all(slow.on(key) == {5, 6, 7} for key in keys)
    assert len(slow.ledger.entries) == 60
    await asyncio.sleep(0)
