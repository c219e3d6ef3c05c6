"""Twenty-two ways in which a tracker of differences has gone wrong elsewhere, each under its name."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.backendrecord import BackendRecord
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.errors import Conflict, Retry, Terminal
from fairlead.hub.providers.restore import registered_of
from fairlead.model.change import Outcome, OutcomeStatus
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import GuardPolicy
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.plan import plan_load_balancer
from fairlead.sync.quarantine import PARK_S
from fairlead.sync.readback import Readback
from fairlead.sync.tracker import Registered, Tracker
from fairlead.testing.builders import (
    ABLE,
    HTTP,
    PLAIN,
    decoded,
    desired,
    endpoint_slice,
    lb_class,
    lb_key,
    slice_body,
    target,
    tcp,
    tcp_view,
)
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import SurvivingLedger
from fairlead.testing.simulation import EngineProcess
from fairlead.translate.loadbalancer import translate_loadbalancer
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import GroupView, LoadBalancerView

KEY = lb_key()
LOOSE = GuardPolicy(100, 0)


def desired_state(*numbers, **text):
    return desired([target(str(number)) for number in numbers], guard=LOOSE, **text)


class Picky(MemoryProvider):
    """Refuses, for good, load balancers at one address; raises ``errors``, once each, for ``KEY``."""

    refused = "192.0.2.66"
    errors: tuple[Exception, ...] = ()

    async def ensure(self, spec):
        if spec.key == KEY and self.errors:
            error, *self.errors = self.errors
            raise error
        if spec.address == self.refused:
            self.calls["refused"] += 1
            raise Terminal(f"{spec.address} is reserved", reason="QuotaExceeded")
        return await super().ensure(spec)


class Bench:
    """A worker over a ledger that survives and a provider that takes its time."""

    def __init__(self, *, latency_s=0.0, ledger=None):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = Picky(cloud=self.cloud)
        self.provider = FaultyProvider(self.memory, clock=self.clock, latency_s=latency_s)
        self.ledger = ledger or SurvivingLedger()
        self.engine = EngineProcess(provider=self.provider, ledger=self.ledger, clock=self.clock)

    async def __aenter__(self):
        self.engine.start()
        return self

    async def __aexit__(self, *_):
        await self.engine.die()
        assert self.provider.overlaps == []

    @property
    def methods(self):
        return [call.method for call in self.provider.calls]

    @property
    def rows(self):
        return [
            (change.action.value, change.key.address.removeprefix("10.0.0."))
            for call in self.provider.calls
            for change in call.changes
        ]

    def on(self, key=KEY):
        return {int(at.address.removeprefix("10.0.0.")) for _, at in self.cloud.members(key)}

    async def served(self, *numbers):
        self.engine.put(desired_state(*numbers))
        await self.engine.advance(10)
        assert self.on() == set(numbers)
        self.provider.calls.clear()


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
async def test_stale_delete_pod_is_no_op():
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
        bench.provider.script = lambda call: Fault.REFUSE if len(bench.provider.calls) == 2 else Fault.NONE
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

    async def lives(_key, _epoch):
        pass

    readback = Readback(
        provider=provider, tracker=tracker, clock=clock, trigger=lambda: None, epoch_of=lambda _: "", lives=lives
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
    class Noting(SurvivingLedger):
        def __init__(self):
            super().__init__()
            self.noted = []

        async def record(self, spec, changes):
            self.noted += [change.key.address for change in changes]
            return await super().record(spec, changes)

    async with Bench(latency_s=1.0, ledger=Noting()) as bench:
        bench.engine.put(desired_state(1))
        await bench.engine.advance(0.5)
        bench.engine.put(desired_state(1, 2))
        await bench.engine.advance(0.5)
        bench.engine.put(desired_state(1))
        await bench.engine.advance(30)
        assert bench.ledger.noted == ["10.0.0.1"]


@pytest.mark.req("A-42")
async def test_locations_updater_reschedules_on_ready_finalizer_removal_failure():
    class Stuck(SurvivingLedger):
        failures = 0

        async def settle(self, spec, changes, outcomes):
            if self.failures < 3 and any(change.action.value == "Deregister" for change in changes):
                self.failures += 1
                return [Outcome(OutcomeStatus.RETRY, "the finalizer cannot be removed now")] * len(changes)
            return await super().settle(spec, changes, outcomes)

    async with Bench(ledger=Stuck()) as bench:
        await bench.served(1, 2)
        bench.engine.put(desired_state(1))
        await bench.engine.advance()
        assert (bench.on(), len(bench.ledger.entries)) == ({1}, 2), "gone, and not yet forgotten"
        assert bench.engine.last_report(KEY).failure == "the finalizer cannot be removed now"
        await bench.engine.advance(30)
        assert (bench.ledger.failures, len(bench.ledger.entries)) == (3, 1)


@pytest.mark.req("A-33")
async def test_orphan_cleanup_pip_only_service_scheduled_for_deletion():
    """A load balancer that was made, with nothing on it, and that nobody wants when the next process begins."""
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
        bench.provider.script = lambda _call: rng.choice((Fault.NONE, Fault.NONE, Fault.LOSE, Fault.REFUSE, Fault.HALF))
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
                case 7:
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


SHARED = LoadBalancerKey("LoadBalancer", "shop", "shared")


def owners_of(groups):
    """Return who owns the one address that each of ``groups`` names."""
    body = {"metadata": {"name": "shared", "namespace": "shop"}, "spec": {"className": "envoy", "listeners": []}}
    body["spec"]["listeners"] = [{"name": "http", "port": 80, "protocol": "TCP"}]
    views = [
        GroupView(
            decoded(
                {
                    "metadata": {"name": name, "namespace": "shop"},
                    "spec": {"loadBalancers": ["shared"], "static": ["10.0.0.1:8080"]},
                },
                BackendGroup,
            )
        )
        for name in groups
    ]
    load_balancer_view = LoadBalancerView(
        SHARED, decoded(body, LoadBalancer), lb_class(), {"memory": ABLE}, tuple(views)
    )
    target = translate_loadbalancer(load_balancer_view).desired.targets[HTTP]
    return {owner.rpartition("/")[2] for it in target.values() for owner in it.owners}, target


@pytest.mark.req("A-49", "A-28")
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=12))
def test_add_pod_delete_pod_ref_count_symmetry(steps):
    """Any history of joining and leaving, twice or never: wanted by exactly those that are in, gone with the last."""
    members: set[str] = set()
    for joins, name in steps:
        (members.add if joins else members.discard)(name)
        owners, result = owners_of(sorted(members))
        assert owners == members
        assert bool(result) == bool(members)


@pytest.mark.req("A-33", "A-47")
async def test_unknown_state_no_panic():
    spec = {
        "loadBalancer": {"kind": KEY.kind, "namespace": KEY.namespace, "name": KEY.name, "provider": "memory"},
        "listener": {"port": 80, "protocol": "TCP"},
        "target": {"address": "10.0.0.1", "port": 8080},
    }
    record = decoded({"metadata": {"name": "r", "namespace": KEY.namespace}, "spec": spec}, BackendRecord)
    odd = msgspec.structs.replace(record, status=msgspec.structs.replace(record.status, state="FromTheFuture"))
    async with Bench() as bench:
        result = registered_of(odd, bench.clock)
        assert result.unknown
        bench.engine.tracker.restore(desired_state().spec, {HTTP: {result.target.key: result}})
        bench.engine.put(desired_state(1))
        with capture_logs() as logs:
            await bench.engine.advance()
        assert [line for line in logs if line["event"] == "bug"] == []
        assert (bench.rows, bench.on()) == ([("Register", "1")], {1})


@pytest.mark.req("A-30", "A-39")
async def test_waits_for_pending_pod_deletions():
    """A new process finds a removal that was begun: that is finished before the address is used again."""
    async with Bench(latency_s=1.0) as bench:
        begun = Registered(target("1"), unknown=True, deregistering=True)
        await bench.memory.ensure(desired_state().spec)
        bench.engine.tracker.restore(desired_state().spec, {HTTP: {begun.target.key: begun}}, certain=True)
        bench.engine.put(desired_state(1, 2))
        await bench.engine.advance(30)
        assert [row for row in bench.rows if row[1] == "1"] == [("Deregister", "1"), ("Register", "1")]
        assert bench.on() == {1, 2}


def pods(*addresses, order=0):
    parts = [endpoint_slice(f"s{number}", [each], load_balancer="web") for number, each in enumerate(addresses)]
    random.Random(order).shuffle(parts)
    return translate_tcp(tcp_view(tcp(ports=[{"port": 80}], spec={"targets": "Pod"}), slices=parts)).desired


@pytest.mark.req("A-31", "A-45")
@pytest.mark.parametrize("order", range(4))
async def test_cold_start_dual_stack_node_restart_convergence(order):
    both = ("10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2")
    async with Bench() as bench:
        first = pods(*both)
        bench.engine.put(first)
        await bench.engine.advance()
        assert {at.address for _, at in bench.cloud.members(KEY)} == set(both)
        again = Tracker()
        again.restore(bench.ledger.specs[KEY], bench.engine.tracker.state(KEY).recorded, certain=True)
        again.put(pods(*both, order=order))
        assert plan_load_balancer(KEY, again.state(KEY), now_s=0.0).empty


@pytest.mark.req("A-45")
async def test_non_canonical_ipv6_canonicalizes_location_keys():
    async with Bench() as bench:
        bench.engine.put(pods("FD00:0:0:0::1"))
        await bench.engine.advance()
        bench.engine.put(pods("fd00::1"))
        bench.engine.put(pods("fd00::0001", "FD00::1"))
        await bench.engine.advance(10)
        assert bench.rows == [("Register", "fd00::1")]


@pytest.mark.req("A-43")
def test_fqdn_endpoint_slice_skipped():
    names = {**slice_body("names", ["db.example.com"], load_balancer="web"), "addressType": "FQDN"}
    parts = [decoded(names, type(endpoint_slice("x", []))), endpoint_slice("s", ["10.0.0.1"], load_balancer="web")]
    given = translate_tcp(
        tcp_view(tcp(ports=[{"port": 80}], spec={"targets": "Pod"}), slices=parts, capabilities=PLAIN)
    )
    assert {at.address for at in given.desired.targets[HTTP]} == {"10.0.0.1"}
    assert "db.example.com" in given.condition(ConditionReason.INVALID).message


@pytest.mark.req("A-34", "A-46")
@pytest.mark.parametrize("error", [Retry("busy"), Conflict("meanwhile"), Terminal("never"), KeyError("a slip")])
async def test_whatever_one_call_raises_is_a_failed_operation_of_one_load_balancer(error):
    async with Bench() as bench:
        bench.memory.errors = (error, error)
        with capture_logs():
            bench.engine.put(desired_state(1), desired_state(2, key=lb_key("other")))
            await bench.engine.advance()
            assert bench.on(lb_key("other")) == {2}
            assert bench.engine.last_report(KEY).failure
            # What is refused for good is parked; what may pass is tried again soon.
            await bench.engine.advance(2 * PARK_S + 1 if isinstance(error, Terminal) else 120)
        assert bench.on() == {1}


@pytest.mark.req("A-46")
async def test_no_more_than_so_many_at_once_and_never_two_for_one():
    bench = Bench()
    bench.provider.latency_s = 1.0
    engine = EngineProcess(provider=bench.provider, ledger=bench.ledger, clock=bench.clock, parallel=10)
    under_way = []
    bench.provider.script = lambda _call: under_way.append(bench.provider.concurrent) or Fault.NONE
    async with engine:
        keys = [lb_key(f"lb-{number}") for number in range(25)]
        engine.put(*(desired_state(1, key=key) for key in keys))
        await engine.advance(1.5)
        engine.put(*(desired_state(1, 2, key=key) for key in keys))
        await engine.advance(60)
        assert all(bench.on(key) == {1, 2} for key in keys)
    assert max(under_way) == 10
    assert bench.provider.overlaps == []
    await asyncio.sleep(0)
