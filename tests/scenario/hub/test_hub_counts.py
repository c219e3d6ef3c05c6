"""What the benchmark counts (writes, calls) at a small size: exact on any machine, however busy it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hub_world import EVENT, HubWorld

from bench import __main__ as bench_main
from bench.cluster_world import Settings
from bench.figures import Figure
from bench.records_restart import restart
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.errors import Terminal
from fairlead.ledger.frontends import MemoryLedger
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import FaultyProvider
from fairlead.testing.simulation import SimulatedProcess

NAMES = [f"web-{number}" for number in range(5)]

_SETTINGS = Settings(routes=1, seconds=1.0)


async def serve(world: HubWorld, *, address: str) -> None:
    """Have some load balancers on record, of a provider that does or does not give them an address."""
    parameters = {"address": address} if address else {}
    spec = {"provider": "memory", "drain": "0s", "parameters": parameters}
    await world.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": spec}, manager="kubectl")
    for name in NAMES:
        await world.lb(name, spec={"className": "edge"})
        await world.slice(name, "10.1.0.1", "10.1.0.2")
    await world.until(lambda: all(len(world.outside.members(lb_key(name))) == 2 for name in NAMES))
    for name in NAMES:
        await world.said("Programmed", "True" if address else "False", name=name)
    await world.quiet(70)


async def test_a_changed_node_is_one_decision_and_no_allocation_for_each_load_balancer(world: HubWorld):
    running = await world.start()
    await world.tenant()
    await world.nodes("10.1.0.1", "10.1.0.2")
    for number, name in enumerate(NAMES):
        await world.lb(name, ports=[{"port": 80, "nodePort": 30_080 + number}], spec={"targets": "Node"})
        await world.programmed(name)
    await world.quiet(30)
    intent, calls = running.hub.intents["TCPLoadBalancer"], Counter[str]()
    running.cluster.written.clear()
    for owner, name in ((intent, "decide"), (intent.status, "write"), (running.hub.allocator, "allocate")):
        counted(owner, name, calls)
    await world.nodes("10.1.0.1", "10.1.0.3")
    await world.quiet(30)
    assert all(
        "10.1.0.3" in str(world.at_cloud(name)) and "10.1.0.2" not in str(world.at_cloud(name)) for name in NAMES
    )
    # This provider reports its state after each call: the new target, and the removal of the other.
    assert calls == {"decide": len(NAMES), "write": 2 * len(NAMES)}
    assert [text for text in running.written if "TCPLoadBalancer" in text] == []


def counted(owner: object, name: str, calls: Counter[str]) -> None:
    """Count the calls of a method of one object."""
    method = getattr(owner, name)

    def counting(*arguments: Any, **fields: Any) -> Any:
        calls[name] += 1
        return method(*arguments, **fields)

    setattr(owner, name, counting)


async def events(world: HubWorld) -> set[tuple[str, str]]:
    """Return the Events with their versions: one that is counted again has another."""
    return {(event.metadata.name, event.metadata.resource_version) for event in await world.user.list(EVENT)}


@pytest.mark.req("W-6")
@pytest.mark.req("T-11", "I-10")
@pytest.mark.parametrize("address", ["198.51.100.1", ""], ids=["with an address", "without an address"])
async def test_a_restarted_hub_with_nothing_to_do_writes_nothing_and_calls_nothing(world: HubWorld, address: str):
    first = await world.start()
    await world.tenant()
    await serve(world, address=address)
    await world.stop(first)
    before = await events(world)
    again = await world.start()
    await world.quiet(30)
    assert [text for text in again.written if "LoadBalancerClass" not in text] == []
    assert await events(world) == before
    assert set(again.durable.calls) <= {"observe"}


@pytest.mark.req("T-11")
async def test_an_idle_hub_makes_no_write_and_no_change(world: HubWorld):
    hub = await world.start()
    await world.tenant()
    await serve(world, address="198.51.100.1")
    written, calls, served = len(hub.written), dict(hub.durable.calls), len(hub.provider.calls)
    await world.quiet(60)
    changed = {name for name, count in hub.durable.calls.items() if count != calls.get(name)}
    assert (len(hub.written), changed - {"observe"}, len(hub.provider.calls)) == (written, set(), served)


@pytest.mark.req("T-11")
@pytest.mark.parametrize("load_balancers", [1, 20])
async def test_a_thousand_changes_in_a_second_are_few_calls(load_balancers: int):
    """100 ms for each call, batches of 500: at most 15 calls, for one load balancer as for many."""
    clock = VirtualClock()
    cloud = MemoryCloud(clock=clock)
    provider = FaultyProvider(MemoryProvider(cloud=cloud, max_batch=500), clock=clock, latency_s=0.05)
    keys = [lb_key(f"lb-{number}") for number in range(load_balancers)]
    engine = SimulatedProcess(provider=provider, ledger=MemoryLedger(), clock=clock, parallel=10)
    async with engine:
        engine.put(*(desired([], key=key) for key in keys))
        await engine.advance(5)
        provider.calls.clear()
        each = 1000 // load_balancers
        for step in range(1, 11):
            count = each * step // 10
            engine.put(*(desired([target(str(at)) for at in range(count)], key=key) for key in keys))
            await engine.advance(0.1)
        await engine.advance(5)
    assert {len(cloud.members(key)) for key in keys} == {each}
    assert len(provider.calls) <= 15


@pytest.mark.slow
@pytest.mark.req("T-11", "I-10")
async def test_the_counts_of_the_benchmark_of_a_restart_are_within_their_limits():
    figures = [figure async for figure in restart(records=100, load_balancers=10)]
    counted = [figure for figure in figures if figure.unit in ("calls", "writes", "objects")]
    assert len(counted) == 3
    assert [figure.row() for figure in counted if figure.verdict != "ok"] == []


@pytest.mark.req("T-11")
@pytest.mark.parametrize(("value", "code"), [(0.0, 0), (1.0, 1)])
async def test_the_benchmark_fails_when_a_limit_is_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: float, code: int
):
    async def case():
        yield Figure(name="writes", value=value, unit="writes", limit=0)
        yield Figure(name="for information", value=7, unit="s")

    monkeypatch.setattr(bench_main, "CASES", {"case": case})
    assert await bench_main.main(["case"], _SETTINGS) == code
    assert ("OVER" in capsys.readouterr().out) is bool(code)


async def test_a_case_that_cannot_run_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def impossible():
        raise Terminal("BIND 9 is not installed")
        yield

    async def case():
        yield Figure(name="writes", value=0, unit="writes", limit=0)

    monkeypatch.setattr(bench_main, "CASES", {"names": impossible, "case": case})
    assert await bench_main.main(["names", "case"], _SETTINGS) == 1
    printed = capsys.readouterr()
    assert ("| writes |" in printed.out, printed.err) == (True, "names: BIND 9 is not installed\n")
