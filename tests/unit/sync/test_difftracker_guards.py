"""What happens when creations, deletions and failures of one load balancer cross each other."""

from __future__ import annotations

import random

import pytest
from difftracker_bench import KEY, Bench, Picky, desired_state

from fairlead.model.change import Outcome, OutcomeStatus
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.execute import PARK_S
from fairlead.sync.plan import Registered, Tracker
from fairlead.sync.readback import Readback
from fairlead.testing.builders import HTTP, lb_key, target
from fairlead.testing.faults import Fault
from fairlead.testing.ledger import PersistentLedger


@pytest.mark.req("A-39")
async def test_delete_during_create_routes_to_deletion():
    async with Bench(latency_s=1.0) as bench:
        bench.engine.put(desired_state(1))
        await bench.engine.advance(0.5)
        assert bench.methods == ["ensure"]
        bench.engine.remove(KEY)
        await bench.engine.advance(30)
        assert bench.methods[-1] == "delete"
        assert (bench.cloud.load_balancers, bench.ledger.entries) == ({}, {})
        assert KEY not in bench.engine.tracker


@pytest.mark.req("A-41", "A-27")
async def test_a_stale_delete_of_a_pod_is_ignored():
    async with Bench() as bench:
        await bench.served(1, 2)
        for late in (bench.engine.tracker.forget, bench.engine.tracker.request_deregister):
            late(KEY, HTTP, target("9").key)
            late(lb_key("unknown"), HTTP, target("1").key)
        bench.engine.worker.trigger()
        await bench.engine.advance(10)
        assert (bench.methods, bench.on()) == ([], {1, 2})


@pytest.mark.req("A-35", "A-38")
async def test_terminal_create_failure_parks_service():
    async with Bench() as bench:
        bench.engine.put(desired_state(1, address=Picky.refused), desired_state(1, key=lb_key("other")))
        await bench.engine.advance(600)
        assert bench.on(lb_key("other")) == {1}
        tries = bench.memory.calls["refused"]
        assert tries == 1 + 600 // PARK_S, "at once, and then after each five minutes"
        report = bench.engine.last_report(KEY)
        assert (report.failure_reason, "is reserved" in report.failure) == ("QuotaExceeded", True)
        bench.engine.put(desired_state(1))
        await bench.engine.advance()
        assert bench.on() == {1}, "another desired state is tried at once"


@pytest.mark.req("A-22")
async def test_buffered_endpoint_add_remove_no_leak():
    async with Bench(latency_s=1.0) as bench:
        bench.engine.put(desired_state(1))
        await bench.engine.advance(0.5)
        bench.engine.put(desired_state(1, 2, 3))
        bench.engine.put(desired_state(1, 3))
        await bench.engine.advance(30)
        assert bench.methods[0] == "ensure"
        assert bench.on() == {1, 3}
        assert ("Register", "2") not in bench.rows


@pytest.mark.req("A-23")
async def test_additions_during_deletion_pending_no_leak():
    """What turns up in the ledger of a load balancer that is on its way out goes before it does."""
    async with Bench(latency_s=1.0) as bench:
        await bench.served(1)
        bench.engine.remove(KEY)
        await bench.engine.advance(0.5)
        bench.engine.tracker.observe(KEY, HTTP, Registered(target("9"), unknown=True))
        bench.provider.script = lambda call: Fault.FAIL_BEFORE if len(bench.provider.calls) == 2 else Fault.NONE
        await bench.engine.advance(30)
        assert bench.rows == [("Deregister", "1"), ("Deregister", "9")]
        assert bench.methods == ["apply", "delete", "apply", "delete"]
        assert KEY not in bench.engine.tracker


@pytest.mark.req("A-40")
async def test_double_create_does_not_reset_state():
    async with Bench() as bench:
        await bench.served(1, 2)
        bench.engine.put(desired_state(1, 2))
        bench.engine.worker.trigger()
        await bench.engine.advance(10)
        assert bench.methods == []
        assert len(bench.engine.tracker.state(KEY).recorded[HTTP]) == 2


@pytest.mark.req("A-39")
async def test_create_after_delete_buffers_recreate():
    async with Bench(latency_s=1.0) as bench:
        await bench.served(1)
        bench.engine.remove(KEY)
        await bench.engine.advance(0.5)
        assert bench.methods == ["apply"]
        bench.engine.put(desired_state(1, 2))
        await bench.engine.advance(30)
        assert bench.methods == ["apply", "delete", "ensure", "apply"]
        assert bench.on() == {1, 2}


@pytest.mark.req("A-39")
async def test_a_later_delete_cancels_the_recreate():
    async with Bench(latency_s=1.0) as bench:
        await bench.served(1)
        bench.engine.remove(KEY)
        await bench.engine.advance(0.5)
        bench.engine.put(desired_state(1, 2))
        bench.engine.remove(KEY)
        await bench.engine.advance(30)
        assert bench.methods == ["apply", "delete"]
        assert KEY not in bench.engine.tracker


@pytest.mark.req("A-39")
async def test_add_pod_during_deletion_pending_revives_service():
    async with Bench() as bench:
        await bench.served(1)
        bench.engine.remove(KEY)
        bench.engine.put(desired_state(1, 2))
        await bench.engine.advance(10)
        assert bench.rows == [("Register", "2")], "the deletion had not begun"
        assert bench.on() == {1, 2}


@pytest.mark.req("A-39", "A-22")
async def test_add_pod_during_deletion_in_progress_buffers():
    async with Bench(latency_s=1.0) as bench:
        await bench.served(1)
        bench.engine.remove(KEY)
        await bench.engine.advance(2.5)
        assert bench.methods == ["apply", "delete"]
        bench.engine.put(desired_state(2))
        bench.engine.put(desired_state(2, 3))
        await bench.engine.advance(1.0)
        assert bench.methods == ["apply", "delete"], "nothing is made while the old one is on its way out"
        await bench.engine.advance(30)
        assert bench.on() == {2, 3}


@pytest.mark.req("A-37", "A-35")
async def test_terminal_update_keeps_applying_to_live_lb():
    async with Bench() as bench:
        await bench.served(1, 2)
        bench.engine.put(desired_state(1, 3, address=Picky.refused))
        await bench.engine.advance(10)
        assert bench.cloud.load_balancers[KEY].spec.address == "192.0.2.1"
        assert bench.on() == {1, 3}
        report = next(report for report in bench.engine.reports if report.failure)
        assert "is reserved" in report.failure


@pytest.mark.req("A-52")
async def test_transient_get_error_keeps_entry_for_retry():
    clock = VirtualClock()
    cloud = MemoryCloud(clock=clock)
    provider = MemoryProvider(cloud=cloud)
    tracker = Tracker()

    async def set_epoch(_key, _epoch):
        pass

    readback = Readback(
        provider=provider,
        tracker=tracker,
        clock=clock,
        trigger=lambda: None,
        epoch_of=lambda _: "",
        set_epoch=set_epoch,
    )
    given = desired_state(1, 2)
    await provider.ensure(given.spec)
    tracker.restore(given.spec, {HTTP: {at: Registered(it) for at, it in given.targets[HTTP].items()}}, certain=True)
    tracker.put(given)
    await readback.look(KEY)
    seen = readback.drifts[KEY]
    assert len(seen.missing) == 2
    provider.faults.down = "no answer"
    await readback.look(KEY)
    assert readback.drifts == {KEY: seen}
    assert len(tracker.state(KEY).recorded[HTTP]) == 2
    provider.faults.down = ""
    cloud.load_balancers[KEY].members[HTTP] = dict(given.targets[HTTP])
    await readback.look(KEY)
    assert readback.drifts[KEY].ours == 0


@pytest.mark.req("A-22", "A-13")
async def test_pod_deleted_while_buffered_enqueues_no_record():
    class Noting(PersistentLedger):
        def __init__(self):
            super().__init__()
            self.noted = []

        async def record(self, spec, changes):
            self.noted += [change.key.address for change in changes]
            return await super().record(spec, changes)

    async with Bench(latency_s=1.0, ledger=(ledger := Noting())) as bench:
        bench.engine.put(desired_state(1))
        await bench.engine.advance(0.5)
        bench.engine.put(desired_state(1, 2))
        await bench.engine.advance(0.5)
        bench.engine.put(desired_state(1))
        await bench.engine.advance(30)
        assert ledger.noted == ["10.0.0.1"]


@pytest.mark.req("A-42")
async def test_locations_updater_reschedules_on_ready_finalizer_removal_failure():
    class Stuck(PersistentLedger):
        failures = 0

        async def settle(self, spec, changes, outcomes):
            if self.failures < 3 and any(change.action.value == "Deregister" for change in changes):
                self.failures += 1
                return [Outcome(OutcomeStatus.RETRY, "the finalizer cannot be removed now")] * len(changes)
            return await super().settle(spec, changes, outcomes)

    async with Bench(ledger=(ledger := Stuck())) as bench:
        await bench.served(1, 2)
        bench.engine.put(desired_state(1))
        await bench.engine.advance()
        assert (bench.on(), len(bench.ledger.entries)) == ({1}, 2), "gone, and not yet forgotten"
        assert bench.engine.last_report(KEY).failure == "the finalizer cannot be removed now"
        await bench.engine.advance(30)
        assert (ledger.failures, len(ledger.entries)) == (3, 1)


@pytest.mark.req("A-33")
async def test_orphan_cleanup_pip_only_service_scheduled_for_deletion():
    """A load balancer that was made, with nothing on it, and that no object wants when the next process begins."""
    async with Bench() as bench:
        given = desired_state()
        await bench.memory.ensure(given.spec)
        bench.cloud.add_foreign(lb_key("theirs"), "by-hand", target("200"))
        await bench.memory.ensure(desired_state(key=lb_key("theirs")).spec)
        bench.engine.tracker.restore(given.spec, {}, certain=True)
        bench.engine.remove(KEY)
        await bench.engine.advance()
        assert [(call.method, call.load_balancer) for call in bench.provider.calls] == [("delete", KEY)]
        assert set(bench.cloud.load_balancers) == {lb_key("theirs")}


@pytest.mark.req("A-8", "A-10", "A-46", "A-47")
@pytest.mark.parametrize("seed", range(12))
async def test_public_method_storm(seed):
    rng = random.Random(seed)
    keys = [lb_key(f"lb-{number}") for number in range(4)]
    last: dict[LoadBalancerKey, set[int] | None] = dict.fromkeys(keys)
    async with Bench(latency_s=0.2) as bench:
        bench.provider.script = lambda _call: rng.choice(
            (Fault.NONE, Fault.NONE, Fault.FAIL_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_HALFWAY)
        )
        tracker = bench.engine.tracker
        for _ in range(120):
            key = rng.choice(keys)
            number = rng.randint(1, 6)
            match rng.randrange(8):
                case 0 | 1 | 2 | 3:
                    last[key] = set(rng.sample(range(1, 7), rng.randint(1, 4)))
                    bench.engine.put(desired_state(*last[key], key=key))
                case 4:
                    last[key] = None
                    bench.engine.remove(key)
                case 5:
                    tracker.request_deregister(key, HTTP, target(str(number)).key)
                case 6:
                    tracker.mark_unknown(key)
                case _:
                    tracker.touch(keys)
                    tracker.ensure_again([key])
            bench.engine.worker.trigger()
            if rng.random() < 0.5:
                await bench.engine.advance(rng.choice((0.0, 0.1, 0.3)))
        bench.provider.script = lambda _call: Fault.NONE
        await bench.engine.advance(300)
        assert {key: bench.on(key) or None for key in keys} == last
        assert len(bench.ledger.entries) == sum(len(each or ()) for each in last.values())
        assert {bench.engine.last_report(key).failure for key in keys} == {""}
