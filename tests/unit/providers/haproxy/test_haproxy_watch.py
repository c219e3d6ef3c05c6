"""The watch reports what changed, once, and outlives its own bugs."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.providers.haproxy import watch as watch_module
from fairlead.providers.haproxy.watch import ReadbackWatch
from fairlead.runtime.clock import SystemClock

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


async def test_only_differences_are_notified() -> None:
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

    watch = ReadbackWatch(observe=observe, keys=lambda: [KEY], clock=SystemClock(), interval_s=1)
    watch.subscribe(lambda _key: notified.append(6 - len(answers)))
    for _ in range(6):
        await watch.check()
    assert notified == [3, 4, 6]


async def test_a_bug_is_logged_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_AFTER_BUG_S", 0.01)
    looks: asyncio.Queue[int] = asyncio.Queue()

    async def observe(_key: LoadBalancerKey) -> Observed:
        looks.put_nowait(1)
        if looks.qsize() == 1:
            raise RuntimeError("bug")
        return Observed()

    watch = ReadbackWatch(observe=observe, keys=lambda: [KEY], clock=SystemClock(), interval_s=0.01)
    with structlog.testing.capture_logs() as logged:
        watch.start()
        async with asyncio.timeout(10):
            while looks.qsize() < 3:  # noqa: ASYNC110 - the queue is only counted
                await asyncio.sleep(0.005)
        await watch.close()
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["the watch on HAProxy failed"]
    after = looks.qsize()
    await asyncio.sleep(0)
    assert looks.qsize() == after
