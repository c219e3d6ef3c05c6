"""The reference provider fails on purpose, and the same way each time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fairlead.errors import FairleadError, Retry, Terminal, Throttled
from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.memory import Faults, MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock, settle

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
SPEC = FrontendSpec(KEY, "group", (Listener(80),))
HTTP = Listener(80).key


def rows(count: int, action: Action = Action.REGISTER) -> list[TargetChange]:
    targets = [Target(TargetKey(f"10.0.0.{number}", 80)) for number in range(count)]
    return [TargetChange(KEY, HTTP, target, action, Reason.NEW) for target in targets]


async def history(seed: int) -> tuple[list[str], object]:
    faults = Faults(seed=seed, error_rate=0.2, lost_answer_rate=0.2, half_done_rate=0.2, item_error_rate=0.1)
    provider = MemoryProvider(cloud=MemoryCloud(clock=VirtualClock()), faults=faults)
    said: list[str] = []
    for turn in range(40):
        try:
            await provider.ensure(SPEC)
            outcomes = await provider.apply(rows(5, Action.DEREGISTER if turn % 3 == 2 else Action.REGISTER))
            said.append(",".join(outcome.status for outcome in outcomes))
        except FairleadError as error:
            said.append(error.sentence)
    return said, provider.cloud.members(KEY)


async def test_a_seed_is_a_history() -> None:
    first, again, other = [await history(seed) for seed in (1, 1, 2)]
    assert first == again
    assert first != other
    assert len(Counter(first[0])) > 4


async def test_an_answer_may_be_lost_after_success() -> None:
    provider = MemoryProvider(faults=Faults(lost_answer_rate=1.0))
    with pytest.raises(Retry, match="may have been done"):
        await provider.ensure(SPEC)
    assert KEY in provider.cloud.load_balancers


async def test_an_error_before_leaves_nothing() -> None:
    provider = MemoryProvider(faults=Faults(error_rate=1.0))
    with pytest.raises(Retry, match="nothing was done"):
        await provider.ensure(SPEC)
    assert provider.cloud.load_balancers == {}


async def test_half_of_a_batch_may_be_done() -> None:
    provider = MemoryProvider(faults=Faults(seed=3))
    await provider.ensure(SPEC)
    provider.faults.half_done_rate = 1.0
    with pytest.raises(Retry, match="of 100 items"):
        await provider.apply(rows(100))
    assert 0 < len(provider.cloud.members(KEY)) < 100


async def test_throttling_says_how_long_to_wait() -> None:
    clock = VirtualClock()
    provider = MemoryProvider(cloud=MemoryCloud(clock=clock), faults=Faults(calls_per_s=3))
    for _ in range(3):
        await provider.ensure(SPEC)
    clock.jump(0.25)
    with pytest.raises(Throttled) as caught:
        await provider.ensure(SPEC)
    assert caught.value.after_s == pytest.approx(0.75)
    clock.jump(0.75)
    await provider.ensure(SPEC)
    assert provider.calls == {"ensure": 5}


async def test_latency_is_virtual_and_overlaps_are_noticed() -> None:
    clock = VirtualClock()
    provider = MemoryProvider(cloud=MemoryCloud(clock=clock), faults=Faults(latency_s=(2.0, 3.0)))
    first = asyncio.ensure_future(provider.ensure(SPEC))
    await settle()
    second = asyncio.ensure_future(provider.ensure(SPEC))
    await clock.advance(1.9)
    assert not first.done()
    await clock.advance(1.2)
    await asyncio.gather(first, second)
    assert provider.overlaps == 1


async def test_effects_may_show_late() -> None:
    clock = VirtualClock()
    provider = MemoryProvider(cloud=MemoryCloud(clock=clock), faults=Faults(visible_after_s=5.0))
    await provider.ensure(SPEC)
    await provider.apply(rows(1))
    assert await provider.observe(KEY) is None
    clock.jump(5)
    seen = await provider.observe(KEY)
    assert seen is not None
    assert seen.targets is not None
    assert len(seen.targets) == 1
    await provider.delete(KEY)
    assert await provider.observe(KEY) is not None
    clock.jump(5)
    assert await provider.observe(KEY) is None


async def test_quota_and_refused_items_are_final() -> None:
    """B22: what could not be created can be deleted."""
    bad = TargetKey("10.0.0.1", 80)
    provider = MemoryProvider(faults=Faults(refuse_new="quota of 100 reached", rejected=frozenset({bad})))
    with pytest.raises(Terminal, match="quota"):
        await provider.ensure(SPEC)
    await provider.delete(KEY)
    provider.faults.refuse_new = ""
    await provider.ensure(SPEC)
    outcomes = await provider.apply(rows(3))
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE, OutcomeStatus.REJECTED, OutcomeStatus.DONE]


async def test_changes_by_others_are_notified() -> None:
    provider = MemoryProvider()
    notified: list[LoadBalancerKey] = []
    await provider.ensure(SPEC)
    await provider.apply(rows(2))
    provider.on_change(notified.append)
    cloud = provider.cloud
    cloud.drift(KEY, HTTP, TargetKey("10.0.0.0", 80), None)
    cloud.drift(KEY, HTTP, TargetKey("10.0.0.1", 80), Target(TargetKey("10.0.0.1", 80), weight=9))
    seen = await provider.observe(KEY)
    assert seen is not None
    assert seen.targets is not None
    assert [(target.key.address, target.weight) for target in seen.targets] == [("10.0.0.1", 9)]
    cloud.add_foreign(KEY, "theirs", Target(TargetKey("10.0.0.9", 80)))
    before = seen.epoch
    cloud.restart()
    seen = await provider.observe(KEY)
    assert seen is not None
    assert (seen.targets, seen.foreign) == ((), ("theirs",))
    assert seen.epoch != before
    cloud.delete(KEY)
    assert await provider.observe(KEY) is None
    assert await provider.apply(rows(1, Action.DEREGISTER)) == [DONE]
    (outcome,) = await provider.apply(rows(1))
    assert outcome.status is OutcomeStatus.RETRY
    assert notified.count(KEY) >= 5
