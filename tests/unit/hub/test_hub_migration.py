"""A load balancer moves between providers: what the next one still lacks, and when the old one releases it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.intent import Allocation, ProxyPort
from fairlead.hub.providers.registry import Phase, Placement
from fairlead.ledger.frontends import held_wire
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.contract import AllocationKind
from fairlead.model.observed import Observed
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import settle
from fairlead.sync.history import Report
from fairlead.sync.plan import Registered
from fairlead.testing.builders import ABLE, HTTP, desired, lb_key, target, tcp
from fairlead.testing.faults import FaultyProvider
from fairlead.translate.view import Decision

KEY = lb_key()
ADDRESS = msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS)
PORTS = msgspec.structs.replace(ABLE, allocation=AllocationKind.PROXY_PORT)


class Bench:
    """Two providers that the hub serves, ``old`` and ``new``, and a durable one."""

    def __init__(self):
        self.cloud = MemoryCloud()
        self.providers = {name: MemoryProvider(cloud=MemoryCloud()) for name in ("old", "new")}
        context = intent_context(served=self.providers, factories={"durable": lambda: MemoryProvider(cloud=self.cloud)})
        self.clock, self.migration, self.registry = context.clock, context.migration, context.providers

    def with_capabilities(self, name, capabilities):
        runner = self.registry[name]
        runner.provider = FaultyProvider(runner.provider, clock=self.clock, capabilities=capabilities)

    def targets(self, name):
        """Return the last parts of the addresses that are desired of a provider; None when nothing is."""
        state = self.registry[name].tracker.state(KEY)
        if state is None or state.desired is None:
            return None
        return sorted(at.address.rpartition(".")[2] for at in state.desired.targets[HTTP])

    def place(self, serving, *, next_=None, phase=Phase.SETTLED, obj=None):
        return self.migration.place(KEY, obj or served_by("old"), Placement(serving, next_, phase))

    async def work(self, *names):
        """Have the workers of providers do what there is to do."""
        tasks = [asyncio.create_task(self.registry[name].worker.run()) for name in names]
        await settle()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def bench():
    return Bench()


def served_by(*providers, addresses=("192.0.2.1",), programmed=True, observed_generation=1):
    """Return an object on whose record ``providers`` are; the first of them serves it."""
    provisioned = [{"provider": name, "state": "Ensured", "serving": name == providers[0]} for name in providers]
    condition = {
        "type": "Programmed",
        "status": "True" if programmed else "False",
        "reason": "Programmed",
        "message": "",
        "observedGeneration": observed_generation,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    status = {
        "provisioned": provisioned,
        "loadBalancer": {"ingress": [{"ip": address} for address in addresses]},
        "conditions": [condition],
    }
    return tcp(status=status)


def translation(provider, *targets, **more):
    return Decision(desired([target(each) for each in targets], **more), (), provider=provider)


@pytest.mark.parametrize(
    ("obj", "moves"),
    [
        (served_by("old"), True),
        (served_by("new"), False),
        (served_by("old", addresses=()), False),
        (served_by("gone"), False),
        (tcp(), False),
    ],
    ids=["another provider", "the same provider", "no address yet", "a provider that does not run", "new"],
)
def test_a_load_balancer_moves_when_another_provider_serves_it_with_an_address(bench, obj, moves):
    assert bench.migration.is_moving(obj, translation("new", "1")) is moves
    assert not bench.migration.is_moving(obj, Decision(None, (), provider="new"))


async def test_the_next_provider_lacks_everything_until_it_was_asked(bench):
    next_ = translation("new", "1", "2")
    assert await bench.migration.missing(KEY, next_) == "the load balancer is not set up there yet"
    bench.place(translation("old", "1"), next_=next_, phase=Phase.PREPARING)
    assert await bench.migration.missing(KEY, next_) == "the load balancer is not set up there yet"
    await bench.work("new")
    assert await bench.migration.missing(KEY, next_) == ""


async def test_a_paused_load_balancer_is_never_ready(bench):
    assert await bench.migration.missing(KEY, translation("new", "1", paused=True)) == "the load balancer is paused"
    assert await bench.migration.missing(KEY, Decision(None, (), provider="new")) == "the load balancer is paused"


async def test_every_target_that_takes_connections_has_to_be_registered(bench):
    bench.place(translation("old", "1"), next_=translation("new", "1"), phase=Phase.PREPARING)
    await bench.work("new")
    more = Decision(desired([target("1"), target("2"), target("3", draining=True)]), (), provider="new")
    assert await bench.migration.missing(KEY, more) == "1 of 2 targets are not registered yet"


@pytest.mark.parametrize(
    "state", [{"unknown": True}, {"deregistering": True}], ids=["answer lost", "being deregistered"]
)
async def test_a_target_about_which_nothing_is_certain_is_missing(bench, state):
    next_ = translation("new", "1")
    bench.place(translation("old", "1"), next_=next_, phase=Phase.PREPARING)
    await bench.work("new")
    recorded = bench.registry["new"].tracker.state(KEY).recorded[HTTP]
    recorded[target("1").key] = Registered(target("1"), **state)
    assert await bench.migration.missing(KEY, next_) == "1 of 1 targets are not registered yet"


async def test_an_incomplete_view_causes_no_move(bench):
    next_ = translation("new", "1", stale="slices cannot be read")
    bench.place(translation("old", "1"), next_=next_, phase=Phase.PREPARING)
    await bench.work("new")
    assert await bench.migration.missing(KEY, next_) == "slices cannot be read"


@pytest.mark.parametrize(
    ("observed", "missing"),
    [
        (None, "the load balancer is not set up there yet"),
        (Observed(programmed=False), "not every proxy has it yet"),
        (Observed(programmed=False, message="1 of 2 proxies has it"), "1 of 2 proxies has it"),
        (Observed(programmed=True), "no address yet"),
        (Observed(programmed=True, addresses=("192.0.2.1",)), ""),
    ],
)
async def test_the_next_provider_must_have_it_programmed_with_an_address(bench, observed, missing):
    next_ = translation("new", "1")
    bench.place(translation("old", "1"), next_=next_, phase=Phase.PREPARING)
    await bench.work("new")

    async def observe(_key):
        return observed

    bench.registry["new"].provider.observe = observe
    assert await bench.migration.missing(KEY, next_) == missing


async def test_a_durable_provider_is_not_called_but_read_back_soon(bench):
    bench.registry.open("durable")
    runner = bench.registry.durable["durable"]
    next_ = translation("durable", "1")
    runner.begin((), {})
    runner.tracker.restore(next_.desired.spec, {HTTP: {target("1").key: Registered(target("1"))}}, certain=True)
    runner.tracker.put(next_.desired)
    noticed = []
    runner.readback.notice = noticed.append
    assert await bench.migration.missing(KEY, next_) == "the load balancer has not been read back yet"
    assert noticed == [KEY]
    assert runner.provider.calls == {}
    runner.end()
    assert await bench.migration.missing(KEY, next_) == "the load balancer is not set up there yet"


@pytest.mark.parametrize(
    ("capabilities", "allocation", "may"),
    [
        (ABLE, Allocation(), True),
        (ADDRESS, Allocation(), False),
        (ADDRESS, Allocation(address="192.0.2.1"), True),
        (PORTS, Allocation(ports=[ProxyPort(81, "TCP", 10081)]), False),
        (PORTS, Allocation(ports=[ProxyPort(80, "UDP", 10080)]), False),
        (PORTS, Allocation(ports=[ProxyPort(80, "TCP", 10080), ProxyPort(81, "TCP", 10081)]), True),
    ],
)
def test_a_replica_that_does_not_lead_prepares_only_with_what_is_on_record(bench, capabilities, allocation, may):
    bench.with_capabilities("new", capabilities)
    assert bench.migration.may_prepare(allocation, translation("new", "1")) is may


def test_a_replica_that_does_not_lead_prepares_no_durable_provider(bench):
    bench.registry.open("durable")
    for next_ in (translation("durable", "1"), translation("gone", "1"), Decision(None, (), provider="new")):
        assert not bench.migration.may_prepare(Allocation(address="192.0.2.1"), next_)


def test_an_allocation_is_in_use_while_a_provider_that_needs_it_serves(bench):
    bench.place(translation("old", "1"))
    assert not bench.migration.uses_allocation(KEY)
    bench.with_capabilities("old", ADDRESS)
    assert bench.migration.uses_allocation(KEY)
    assert not bench.migration.uses_allocation(lb_key("other"))


def test_released_are_those_on_record_that_have_nothing_left(bench):
    obj = served_by("new", "old", "gone")
    assert bench.migration.released(KEY, obj, "new") == ["old"]
    bench.registry["old"].tracker.put(desired([target("1")]))
    assert bench.migration.released(KEY, obj, "new") == []


def test_before_its_term_has_begun_a_provider_has_released_nothing(bench):
    bench.registry.open("durable")
    obj = served_by("new", "durable")
    assert bench.migration.released(KEY, obj, "new") == []
    bench.registry.durable["durable"].begin((), {})
    assert bench.migration.released(KEY, obj, "new") == ["durable"]


def test_while_the_next_one_prepares_both_serve(bench):
    assert not bench.place(translation("old", "1"), next_=translation("new", "2"), phase=Phase.PREPARING)
    assert (bench.targets("old"), bench.targets("new")) == (["1"], ["2"])


@pytest.mark.parametrize(
    ("serving", "phase"),
    [(translation("new", "2"), Phase.KEPT), (Decision(None, (), provider="new"), Phase.SETTLED)],
    ids=["kept", "nothing to serve"],
)
def test_no_provider_releases_before_another_one_serves(bench, serving, phase):
    bench.place(translation("old", "1"))
    assert not bench.place(serving, phase=phase)
    assert bench.targets("old") == ["1"]


def test_the_old_provider_releases_after_the_new_address_is_announced_and_drained(bench):
    bench.place(translation("old", "1", drain_s=30))
    unannounced = served_by("new", "old", programmed=False)
    assert bench.place(translation("new", "2"), obj=unannounced)
    assert bench.targets("old") == ["2"], "clients of the old address reach the targets of now"
    bench.clock.jump(100)
    assert bench.place(translation("new", "2"), obj=served_by("new", "old"))
    assert bench.targets("old") == ["2"], "the drain begins with the announcement"
    bench.clock.jump(29)
    bench.place(translation("new", "2"), obj=served_by("new", "old"))
    assert bench.targets("old") == ["2"]
    bench.clock.jump(1)
    assert bench.place(translation("new", "2"), obj=served_by("new", "old"))
    assert bench.targets("old") is None


@pytest.mark.parametrize(
    ("obj", "removed"),
    [
        (served_by("new", "old", addresses=()), True),
        (served_by("new", "old", programmed=False, addresses=()), True),
        (served_by("new", "old", observed_generation=0), False),
    ],
    ids=["no address was known", "nor programmed", "programmed of an older generation"],
)
def test_without_an_address_there_is_nothing_to_drain(bench, obj, removed):
    bench.place(translation("old", "1", drain_s=30))
    assert bench.place(translation("new", "2"), obj=obj)
    assert (bench.targets("old") is None) is removed


def test_an_incomplete_view_holds_the_removals_at_the_old_provider_too(bench):
    bench.place(translation("old", "1", drain_s=30))
    bench.place(translation("new", "2", stale="slices cannot be read"), obj=served_by("new", "old", programmed=False))
    assert bench.registry["old"].tracker.state(KEY).desired.stale == "slices cannot be read"


async def test_once_released_nothing_is_left_to_do(bench):
    bench.place(translation("old", "1"))
    await bench.work("old")
    assert bench.place(translation("new", "2"), obj=served_by("new", "old"))
    await bench.work("old", "new")
    assert bench.providers["old"].cloud.load_balancers == {}
    assert not bench.place(translation("new", "2"), obj=served_by("new"))


def test_forgotten_targets_drain_again(bench):
    bench.place(translation("old", "1", drain_s=30))
    bench.place(translation("new", "2"), obj=served_by("new", "old"))
    bench.clock.jump(29)
    bench.migration.forget(KEY)
    bench.place(translation("new", "2"), obj=served_by("new", "old"))
    bench.clock.jump(29)
    bench.place(translation("new", "2"), obj=served_by("new", "old"))
    assert bench.targets("old") == ["2"]


def test_a_provider_that_does_not_run_is_asked_for_nothing(bench):
    assert not bench.place(translation("gone", "1"), obj=served_by("gone"))


@pytest.mark.req("I-10")
async def test_held_targets_are_restored_first_after_a_start(bench):
    rows = [TargetChange(KEY, HTTP, target("9"), Action.DRAIN, Reason.ABSENT)]
    held = held_wire([Held(row, "LastTargets", "the last ones stay") for row in rows])
    obj = tcp(status={"held": msgspec.to_builtins(held), "heldTotal": 1})
    wanted = Decision(desired([target("1")]), (), targets="1", provider="old")
    bench.place(wanted, obj=obj)
    assert bench.targets("old") == ["1", "9"]
    reports = []
    assert bench.migration.reported(Report(KEY), reports.append), "it is reconciled at once"
    bench.place(wanted, obj=obj)
    assert bench.targets("old") == ["1"]
    assert not bench.migration.reported(Report(KEY), reports.append)
    assert reports == [Report(KEY)]
