"""The watch reports the first look and what changed since, once, and outlives its own bugs."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.providers import readback_watch as watch_module
from fairlead.providers.readback_watch import ReadbackWatch
from fairlead.runtime.clock import SystemClock, VirtualClock

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


async def test_the_first_look_and_each_difference_are_notified() -> None:
    answers: list[Observed | Exception] = [
        Observed(epoch="1"),
        Observed(epoch="1"),
        Observed(epoch="2"),
        Retry("no answer"),
        Retry("no answer"),
        Observed(epoch="3"),
    ]
    notified: list[int] = []

    async def observe(_key: LoadBalancerKey) -> Observed:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = ReadbackWatch(observe=observe, keys=lambda: {"one": [KEY]}, clock=SystemClock(), interval_s=1)
    watch.subscribe(lambda _key: notified.append(6 - len(answers)))
    for _ in range(6):
        await watch.check()
    assert notified == [1, 3, 4, 6]


async def test_a_load_balancer_that_comes_back_is_looked_at_for_the_first_time_again() -> None:
    keys = [KEY]
    notified: list[LoadBalancerKey] = []

    async def observe(_key: LoadBalancerKey) -> Observed:
        return Observed(epoch="1")

    watch = ReadbackWatch(observe=observe, keys=lambda: {"one": keys}, clock=SystemClock(), interval_s=1)
    watch.subscribe(notified.append)
    for present in ([KEY], [], [KEY], [KEY]):
        keys = present
        await watch.check()
    assert notified == [KEY, KEY]


async def test_a_bug_is_logged_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_AFTER_BUG_S", 0.01)
    looks: asyncio.Queue[int] = asyncio.Queue()

    async def observe(_key: LoadBalancerKey) -> Observed:
        looks.put_nowait(1)
        if looks.qsize() == 1:
            raise RuntimeError("bug")
        return Observed()

    watch = ReadbackWatch(observe=observe, keys=lambda: {"one": [KEY]}, clock=SystemClock(), interval_s=0.01)
    with structlog.testing.capture_logs() as logged:
        watch.start()
        async with asyncio.timeout(180):
            while looks.qsize() < 3:  # noqa: ASYNC110 - the queue is only counted
                await asyncio.sleep(0.005)
        await watch.close()
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["the watch on a load balancer failed"]
    after = looks.qsize()
    await asyncio.sleep(0)
    assert looks.qsize() == after


@pytest.mark.req("T-8")
async def test_a_socket_that_hangs_delays_the_notice_of_no_other() -> None:
    clock = VirtualClock()
    hanging = [LoadBalancerKey("LoadBalancer", "shop", f"hangs-{number}") for number in range(3)]
    epoch = "1"
    notified: list[LoadBalancerKey] = []

    async def observe(key: LoadBalancerKey) -> Observed:
        if key in hanging:
            await clock.sleep(5)
            raise Retry("HAProxy does not answer")
        return Observed(epoch=epoch)

    watch = ReadbackWatch(
        observe=observe, keys=lambda: {"hangs": hanging, "answers": [KEY]}, clock=clock, interval_s=0.5
    )
    watch.subscribe(notified.append)
    watch.start()
    await clock.advance(1)
    assert notified == [KEY], "the first look"
    for epoch in ("2", "3"):  # noqa: B007 - what is observed next
        notified.clear()
        await clock.advance(0.5)
        assert notified == [KEY]
    await watch.close()


@pytest.mark.req("T-8")
async def test_a_bug_about_one_load_balancer_concerns_no_other_socket() -> None:
    clock = VirtualClock()
    broken = LoadBalancerKey("LoadBalancer", "shop", "broken")
    looks: list[LoadBalancerKey] = []

    async def observe(key: LoadBalancerKey) -> Observed:
        looks.append(key)
        if key == broken:
            raise RuntimeError("bug")
        return Observed()

    watch = ReadbackWatch(observe=observe, keys=lambda: {"broken": [broken], "fine": [KEY]}, clock=clock, interval_s=1)
    watch.start()
    await clock.advance(9.5)
    await watch.close()
    assert looks.count(KEY) == 10
    assert 2 <= looks.count(broken) <= 3, "not at every turn: each time it is logged"
