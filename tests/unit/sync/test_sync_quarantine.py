"""What a provider refuses for good is parked: not asked for again and again, reported, and tried again in its time."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import Forbidden, Terminal
from fairlead.model.desired import GuardPolicy
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.execute import PARK_S
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

KEY = lb_key()
HTTPS = ListenerKey(Protocol.TCP, 443)
QUOTA = "192.0.2.66 is reserved; ask for another address"


def desired_state(*numbers, **text):
    return desired([target(str(number)) for number in numbers], guard=GuardPolicy(100, 0), **text)


class Reserving(MemoryProvider):
    """Refuses load balancers at the addresses in ``reserved``."""

    reserved = frozenset({"192.0.2.66"})

    async def ensure(self, spec):
        if spec.address in self.reserved:
            self.calls["refused"] += 1
            raise Terminal(QUOTA, reason="QuotaExceeded")
        return await super().ensure(spec)


class Bench:
    def __init__(self, *, ledger: PersistentLedger | None = None):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = Reserving(cloud=self.cloud)
        self.provider = FaultyProvider(self.memory, clock=self.clock)
        self.ledger = ledger or PersistentLedger()
        self.engine = SimulatedProcess(provider=self.provider, ledger=self.ledger, clock=self.clock)

    def on(self, listener=HTTP, key=KEY):
        return {int(at.address.removeprefix("10.0.0.")) for each, at in self.cloud.members(key) if each == listener}

    @property
    def refused(self):
        return self.memory.calls["refused"]

    @property
    def report(self):
        return self.engine.last_report(KEY)

    async def do(self, *desired_states, after_s=1.0):
        self.engine.put(*desired_states)
        await self.engine.advance(after_s)

    async def live_and_refused(self):
        """Have a load balancer with two backends, whose newest spec is refused."""
        await self.do(desired_state(1, 2))
        await self.do(desired_state(1, 2, address="192.0.2.66"))
        assert self.refused == 1


@pytest.fixture
async def bench():
    bench = Bench()
    async with bench.engine:
        yield bench
    assert bench.provider.overlaps == []


@pytest.mark.req("A-35", "A-37")
async def test_a_new_one_that_is_refused_is_asked_for_once_and_reported_all_the_time(bench):
    await bench.do(desired_state(1, address="192.0.2.66"))
    for number in range(2, 20):
        await bench.do(desired_state(*range(1, number), address="192.0.2.66"), after_s=10)
        assert (bench.report.failure, bench.report.failure_reason) == (QUOTA, "QuotaExceeded")
    assert bench.refused == 1
    assert [call.method for call in bench.provider.calls] == ["ensure"], "and nothing is put on what is not there"
    assert bench.ledger.entries == {}
    assert (bench.engine.worker.parked, bench.engine.worker.pending, bench.engine.worker.failing) == (1, 0, 0)


@pytest.mark.req("A-37")
async def test_a_changed_object_is_retried_at_once(bench):
    await bench.do(desired_state(1, address="192.0.2.66"))
    await bench.do(desired_state(1, address="192.0.2.9"), after_s=0.1)
    assert bench.on() == {1}
    assert bench.report.failure == ""
    assert bench.engine.worker.parked == 0


@pytest.mark.req("A-38")
async def test_a_quota_that_has_grown_is_used_when_the_time_is_over(bench):
    await bench.do(desired_state(1, address="192.0.2.66"))
    bench.memory.reserved = frozenset()
    await bench.engine.advance(PARK_S - 5)
    assert bench.on() == set()
    await bench.engine.advance(5)
    assert bench.on() == {1}
    assert (bench.report.failure, bench.engine.worker.parked) == ("", 0)


@pytest.mark.req("A-38", "A-35")
async def test_a_rejected_backend_is_retried_once_per_period(bench):
    await bench.live_and_refused()
    await bench.engine.advance(4 * PARK_S)
    assert bench.refused == 5
    assert bench.report.failure == QUOTA


@pytest.mark.req("A-37", "I-7")
async def test_the_backends_of_one_that_is_live_go_on_and_the_refusal_stays_reported(bench):
    await bench.live_and_refused()
    for numbers in ((1, 2, 3), (2, 3), (2, 3, 4, 5), (5,)):
        await bench.do(desired_state(*numbers, address="192.0.2.66"))
        assert bench.on() == set(numbers)
        assert (bench.report.failure, bench.report.failure_reason) == (QUOTA, "QuotaExceeded")
    assert bench.refused == 1
    assert bench.cloud.load_balancers[KEY].spec.address != "192.0.2.66"


@pytest.mark.req("A-37", "I-7")
async def test_listeners_dropped_by_a_rejected_change_keep_serving(bench):
    await bench.do(desired_state(1, 2, ports=(80, 443)))
    await bench.do(desired_state(1, 2, 3, ports=(80,), address="192.0.2.66"))
    await bench.do(desired_state(1, 2, 3, 4, ports=(80,), address="192.0.2.66"), after_s=100)
    assert bench.on(HTTP) == {1, 2, 3, 4}
    assert bench.on(HTTPS) == {1, 2}
    await bench.do(desired_state(1, 2, 3, 4, ports=(80,)))
    assert bench.on(HTTPS) == set(), "they go with the change that goes through"


async def test_listeners_that_only_the_refused_one_would_have_get_no_backends(bench):
    await bench.do(desired_state(1))
    await bench.do(desired_state(1, 2, ports=(80, 443), address="192.0.2.66"))
    assert (bench.on(HTTP), bench.on(HTTPS)) == ({1, 2}, set())
    rows = [change.listener for call in bench.provider.calls for change in call.changes]
    assert HTTPS not in rows
    await bench.do(desired_state(1, 2, ports=(80, 443)))
    assert (bench.on(HTTP), bench.on(HTTPS)) == ({1, 2}, {1, 2})


@pytest.mark.req("L-8")
async def test_a_record_that_is_deleted_by_hand_is_deregistered_even_from_such_a_listener(bench):
    await bench.do(desired_state(1, 2, ports=(80, 443)))
    await bench.do(desired_state(1, 2, ports=(80,), address="192.0.2.66"))
    bench.engine.tracker.request_deregister(KEY, HTTPS, target("1").key)
    bench.engine.worker.trigger()
    await bench.engine.advance(1)
    assert (bench.on(HTTP), bench.on(HTTPS)) == ({1, 2}, {2})


async def test_going_back_to_what_was_there_is_fine_again(bench):
    await bench.live_and_refused()
    await bench.do(desired_state(1, 2))
    assert (bench.report.failure, bench.engine.worker.parked) == ("", 0)
    await bench.do(desired_state(1, 2, address="192.0.2.66"))
    assert bench.refused == 2, "asked for anew, it is asked for"


@pytest.mark.req("A-39")
async def test_a_rejected_load_balancer_can_be_deleted(bench):
    await bench.live_and_refused()
    bench.engine.remove(KEY)
    await bench.engine.advance(1)
    assert bench.cloud.load_balancers == {}
    assert (len(bench.engine.tracker), bench.engine.worker.parked, bench.ledger.entries) == (0, 0, {})


async def test_a_paused_load_balancer_keeps_its_rejection_reported(bench):
    await bench.live_and_refused()
    paused = msgspec.structs.replace(desired_state(1, 2, 3, address="192.0.2.66"), paused=True)
    await bench.do(paused, after_s=3 * PARK_S)
    assert bench.refused == 1
    assert (bench.report.failure, len(bench.report.held)) == (QUOTA, 1)
    await bench.do(desired_state(1, 2, 3, address="192.0.2.66"))
    assert (bench.refused, bench.on()) == (2, {1, 2, 3})


@pytest.mark.req("I-7")
async def test_others_do_not_notice(bench):
    other = lb_key("other")
    await bench.do(desired_state(1, address="192.0.2.66"), desired_state(1, key=other))
    await bench.do(desired_state(2, key=other))
    assert bench.on(key=other) == {2}
    assert bench.engine.last_report(other).failure == ""


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
async def test_backends_proceed_while_their_load_balancer_cannot_change(bench, fault):
    await bench.do(desired_state(1, 2, ports=(80, 443)))
    bench.provider.script = lambda call: fault if call.method == "ensure" else Fault.NONE
    await bench.do(desired_state(2, 3, ports=(80,), address="192.0.2.9"))
    assert (bench.on(HTTP), bench.on(HTTPS)) == ({2, 3}, {1, 2})
    assert "no answer" in bench.report.failure
    assert (bench.engine.worker.failing, bench.engine.worker.parked) == (1, 0)
    bench.provider.script = lambda _call: Fault.NONE
    await bench.engine.advance(61)
    assert (bench.on(HTTP), bench.on(HTTPS)) == ({2, 3}, set())
    assert bench.report.failure == ""


async def test_a_rejected_record_is_not_a_rejection_by_the_provider():
    class Strict(PersistentLedger):
        closed = False

        async def ensuring(self, spec):
            if self.closed:
                raise Forbidden("the hub may not patch loadbalancers/status", reason="Forbidden")
            await super().ensuring(spec)

    ledger = Strict()
    bench = Bench(ledger=ledger)
    async with bench.engine:
        await bench.do(desired_state(1))
        ledger.closed = True
        await bench.do(desired_state(1, 2, address="192.0.2.9"))
        assert bench.report.failure_reason == "Forbidden"
        assert (bench.on(), bench.engine.worker.parked, bench.engine.worker.failing) == ({1, 2}, 0, 1)
        ledger.closed = False
        await bench.engine.advance(61)
        assert bench.cloud.load_balancers[KEY].spec.address == "192.0.2.9"
        assert bench.report.failure == ""
