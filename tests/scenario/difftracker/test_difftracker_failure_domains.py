"""Many load balancers at one provider: few calls, and none pays for what is wrong with another."""

from __future__ import annotations

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.errors import Retry, Terminal, Throttled
from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.worker import Worker
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess


def intended(name, *numbers, failure_domain=""):
    wanted = desired([target(str(at)) for at in numbers], key=lb_key(name), guard=GuardPolicy(100, 0))
    return with_parameters(wanted, {**wanted.spec.parameters, "failure_domain": failure_domain})


def with_parameters(wanted, parameters):
    return msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, parameters=parameters))


class Choosy(MemoryProvider):
    """Refuses a whole batch that holds one of the ``poison`` addresses, as an API that checks the body first does."""

    poison: frozenset[str] = frozenset()

    async def apply(self, changes):
        if any(change.key.address in self.poison for change in changes):
            self.calls["apply"] += 1
            raise Terminal("the body is malformed", reason="BadRequest")
        return await super().apply(changes)


class Hub:
    """One worker over load balancers at several failure domains, 50 ms for each half of a call."""

    def __init__(self, *, latency_s=0.05, max_batch=0, limit_s=None):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = Choosy(cloud=self.cloud, max_batch=max_batch)
        self.provider = FaultyProvider(
            self.memory,
            clock=self.clock,
            latency_s=latency_s,
            failure_domain=lambda spec: spec.parameters["failure_domain"],
        )
        self.ledger = PersistentLedger()
        self.engine = SimulatedProcess(provider=self.provider, ledger=self.ledger, clock=self.clock, parallel=10)
        self.leads = True
        self.engine.worker = Worker(
            tracker=self.engine.tracker,
            provider=self.provider,
            ledger=self.ledger,
            clock=self.clock,
            report=self.engine.reports.append,
            parallel=10,
            limit_s=limit_s,
            may_call=lambda: self.leads,
        )

    async def __aenter__(self):
        self.engine.start()
        return self

    async def __aexit__(self, *_):
        await self.engine.crash()
        assert self.provider.overlaps == []
        assert self.provider.concurrent == 0

    def on(self, name):
        return {int(at.address.removeprefix("10.0.0.")) for _, at in self.cloud.members(lb_key(name))}

    async def served(self, *names, failure_domain=""):
        self.engine.put(*(intended(name, 1, failure_domain=failure_domain) for name in names))
        await self.engine.advance(30)
        assert all(self.on(name) == {1} for name in names)
        self.provider.calls.clear()
        self.engine.reports.clear()

    @property
    def applies(self):
        return [call for call in self.provider.calls if call.method == "apply"]


def names(count, letter="lb"):
    return [f"{letter}-{number}" for number in range(count)]


@pytest.mark.req("A-12")
async def test_a_thousand_changes_in_a_second_are_a_dozen_calls():
    async with Hub(max_batch=500) as hub:
        await hub.served(*names(100))
        for step in range(1, 101):
            # Ten load balancers get a backend each time, and every one has eleven in the end.
            for number in range(10):
                name = f"lb-{(step * 10 + number) % 100}"
                hub.engine.put(intended(name, *range(1, 2 + (step + 9) // 10)))
            await hub.engine.advance(0.01)
        await hub.engine.advance(2.0)
        assert all(hub.on(name) == set(range(1, 12)) for name in names(100))
        assert len(hub.applies) <= 15
        assert max(len(call.changes) for call in hub.applies) <= 500
        assert sum(len(call.changes) for call in hub.applies) == 1000


@pytest.mark.req("A-11")
async def test_as_long_as_calls_are_answered_there_is_one_at_a_time():
    async with Hub() as hub:
        await hub.served(*names(50))
        seen = []
        hub.provider.script = lambda _call: seen.append(hub.provider.concurrent) or Fault.NONE
        for step in range(2, 40):
            hub.engine.put(*(intended(name, *range(1, step)) for name in names(50)))
            await hub.engine.advance(0.02)
        await hub.engine.advance(5)
        assert all(hub.on(name) == set(range(1, 39)) for name in names(50))
        assert set(seen) == {1}


@pytest.mark.req("A-35", "A-36", "I-7")
async def test_a_batch_that_is_refused_is_refused_for_the_invalid_entry_alone():
    async with Hub() as hub:
        await hub.served(*names(20))
        hub.memory.poison = frozenset({"10.0.0.66"})
        hub.engine.put(*(intended(name, 1, 2, 3, *((66,) if name == "lb-7" else ())) for name in names(20)))
        await hub.engine.advance(10)
        assert all(hub.on(name) == {1, 2, 3} for name in names(20))
        assert [each.change.key.address for each in hub.engine.last_report(lb_key("lb-7")).quarantined] == ["10.0.0.66"]
        others = [report for report in hub.engine.reports if report.load_balancer != lb_key("lb-7")]
        assert {other.failure for other in others} == {""}, "nobody else hears of it"


async def test_an_answer_that_is_lost_is_lost_for_all_and_all_get_there():
    async with Hub() as hub:
        await hub.served(*names(20))
        hub.provider.script = lambda call: Fault.FAIL_AFTER if call is hub.applies[0] else Fault.NONE
        hub.engine.put(*(intended(name, 1, 2) for name in names(20)))
        await hub.engine.advance(0.15)
        done = {name: hub.engine.tracker.state(lb_key(name)).recorded for name in names(20)}
        assert all(each[next(iter(each))][target("2").key].unknown for each in done.values())
        await hub.engine.advance(5)
        assert all(hub.on(name) == {1, 2} for name in names(20))
        sides = [hub.engine.tracker.state(lb_key(name)) for name in names(20)]
        assert not any(item.unknown for side in sides for each in side.recorded.values() for item in each.values())


@pytest.mark.req("I-7")
async def test_an_unanswered_change_delays_its_batch_once():
    hub = Hub(limit_s=20.0)
    async with hub:
        await hub.served(*names(20))

        def stall(call):
            return (
                Fault.HANG_BEFORE if any(change.load_balancer.name == "lb-7" for change in call.changes) else Fault.NONE
            )

        hub.provider.script = stall
        hub.engine.put(*(intended(name, 1, 2) for name in names(20)))
        await hub.engine.advance(21)
        assert all(hub.on(name) == {1, 2} for name in names(20) if name != "lb-7")
        hub.engine.put(*(intended(name, 1, 2, 3) for name in names(20)))
        await hub.engine.advance(1)
        assert all(hub.on(name) == {1, 2, 3} for name in names(20) if name != "lb-7"), "and never again"


@pytest.mark.req("A-46", "I-7")
async def test_an_failure_domain_that_hangs_takes_no_place_from_another():
    async with Hub() as hub:
        await hub.served(*names(40, "a"), failure_domain="a")
        await hub.served(*names(3, "b"), failure_domain="b")

        def stall(call):
            return Fault.HANG_BEFORE if call.load_balancer.name.startswith("a") else Fault.NONE

        hub.provider.script = stall
        hub.engine.put(*(intended(name, 1, 2, failure_domain="a") for name in names(40, "a")))
        hub.engine.put(*(intended(f"a-new-{n}", 1, failure_domain="a") for n in range(40)))
        await hub.engine.advance(1)
        assert hub.provider.concurrent == 10, "all places of the failure domain hang"
        hub.engine.put(
            *(intended(name, 1, 2, failure_domain="b") for name in names(3, "b")),
            intended("b-new", 5, failure_domain="b"),
        )
        await hub.engine.advance(0.5)
        assert [hub.on(name) for name in (*names(3, "b"), "b-new")] == [{1, 2}, {1, 2}, {1, 2}, {5}]
        hub.engine.remove(lb_key("b-0"))
        await hub.engine.advance(0.5)
        assert lb_key("b-0") not in hub.cloud.load_balancers


async def test_no_call_is_about_two_failure_domains():
    async with Hub() as hub:
        failure_domain = {name: f"failure domain-{number % 3}" for number, name in enumerate(names(30))}
        hub.engine.put(*(intended(name, 1, failure_domain=failure_domain[name]) for name in names(30)))
        await hub.engine.advance(5)
        hub.engine.put(*(intended(name, 1, 2, failure_domain=failure_domain[name]) for name in names(30)))
        await hub.engine.advance(5)
        assert all(hub.on(name) == {1, 2} for name in names(30))
        for call in hub.applies:
            assert len({failure_domain[change.load_balancer.name] for change in call.changes}) == 1
        assert len(hub.applies) < 30


async def test_an_failure_domain_that_says_not_now_slows_no_other():
    class Throttling(Choosy):
        async def apply(self, changes):
            if any(change.load_balancer.name.startswith("a") for change in changes):
                raise Retry("too many requests", reason="Throttled", after_s=30.0)
            return await super().apply(changes)

    hub = Hub()
    theirs, ours = names(30, "a"), names(30, "b")
    async with hub:
        await hub.served(*theirs, failure_domain="a")
        await hub.served(*ours, failure_domain="b")
        hub.provider.inner = Throttling(cloud=hub.cloud)
        hub.engine.put(*(intended(name, 1, 2, failure_domain="a") for name in theirs))
        for step in range(2, 12):
            hub.engine.put(*(intended(name, *range(1, step + 1), failure_domain="b") for name in ours))
            await hub.engine.advance(0.5)
            assert all(hub.on(name) == set(range(1, step + 1)) for name in ours)
        tries = [call for call in hub.applies if call.load_balancer.name.startswith("a")]
        assert len(tries) <= 2, "it is left alone for as long as it asked"


async def test_a_former_leader_makes_no_pending_call():
    async with Hub() as hub:
        await hub.served(*names(20))
        hub.engine.put(intended("lb-0", 1, 2))
        await hub.engine.advance(0.01)
        hub.engine.put(*(intended(name, 1, 2) for name in names(20)))
        await hub.engine.advance(0.01)
        hub.leads = False
        await hub.engine.advance(30)
        assert [{change.load_balancer.name for change in call.changes} for call in hub.applies] == [{"lb-0"}]
        assert hub.engine.last_report(lb_key("lb-5")).failure_reason == "NotLeading"
        hub.leads = True
        await hub.engine.advance(61)
        assert all(hub.on(name) == {1, 2} for name in names(20))


@pytest.mark.req("A-46")
async def test_many_deletions_keep_to_the_places_of_their_failure_domain():
    async with Hub() as hub:
        await hub.served(*names(60))
        seen = []
        hub.provider.script = lambda _call: seen.append(hub.provider.concurrent) or Fault.NONE
        hub.engine.remove(*(lb_key(name) for name in names(60)))
        await hub.engine.advance(10)
        assert hub.cloud.load_balancers == {}
        assert (hub.ledger.entries, len(hub.engine.tracker)) == ({}, 0)
        assert max(seen) <= 10


async def test_a_crash_in_the_middle_of_a_gathered_call_leaves_no_call_behind():
    hub = Hub()
    async with hub:
        await hub.served(*names(20))
        hub.provider.script = lambda call: Fault.HANG_AFTER if call.method == "apply" else Fault.NONE
        hub.engine.put(*(intended(name, 1, 2) for name in names(20)))
        await hub.engine.advance(5)
        assert hub.provider.concurrent > 0
    assert all(hub.on(name) == {1, 2} for name in names(20)), "all was done, and nobody was told"
    hub.provider.script = lambda _call: Fault.NONE
    async with SimulatedProcess(provider=hub.provider, ledger=hub.ledger, clock=hub.clock) as after:
        for name in names(20):
            after.tracker.restore(hub.ledger.specs[lb_key(name)], hub.ledger.recorded(lb_key(name)))
        after.put(*(intended(name, 1) for name in names(20)))
        await after.advance(10)
        assert all(hub.on(name) == {1} for name in names(20))


@pytest.mark.req("I-7")
async def test_a_provider_that_cannot_name_a_failure_domain_is_one_failure_domain():
    async with Hub() as hub:
        unnamed = with_parameters(intended("unnamed", 1), {})
        with capture_logs() as logs:
            hub.engine.put(unnamed, intended("named", 2, failure_domain="a"))
            await hub.engine.advance(5)
        assert (hub.on("unnamed"), hub.on("named")) == ({1}, {2})
        assert {line["load_balancer"] for line in logs if line["event"] == "bug"} == {str(unnamed.key)}


async def test_a_busy_provider_gets_no_other_call_for_the_load_balancer():
    class Busy(MemoryProvider):
        async def ensure(self, spec):
            raise Throttled("too many requests", after_s=20.0)

    async with Hub() as hub:
        await hub.served("web")
        hub.provider.inner = Busy(cloud=hub.cloud)
        changed = intended("web", 1, 2)
        spec = msgspec.structs.replace(changed.spec, address="192.0.2.9")
        hub.engine.put(msgspec.structs.replace(changed, spec=spec))
        await hub.engine.advance(19)
        assert [call.method for call in hub.provider.calls] == ["ensure"]
        hub.provider.inner = hub.memory
        await hub.engine.advance(2)
        assert hub.on("web") == {1, 2}
