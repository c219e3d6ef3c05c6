from __future__ import annotations

import asyncio
from datetime import UTC

import pytest

from fairlead.runtime.clock import SystemClock, VirtualClock, settle
from fairlead.runtime.queue import TokenBucket


async def test_the_system_clock_is_aware_and_monotonic() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    before = clock.monotonic()
    await clock.sleep(0)
    await clock.sleep(-5)
    assert clock.monotonic() >= before


async def test_virtual_sleepers_wake_at_their_times_in_order() -> None:
    clock = VirtualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(name, s)) for name, s in [("c", 3), ("a", 1), ("b", 2)]]
    await settle()
    assert clock.sleepers == 3
    await clock.advance(2.5)
    assert woken == [("a", 1.0), ("b", 2.0)]
    await clock.advance(1)
    assert woken[-1] == ("c", 3.0)
    await asyncio.gather(*tasks)


async def test_a_sleeper_that_sleeps_again_wakes_within_one_advance() -> None:
    clock = VirtualClock()
    times: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            times.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(3.5)
    assert times == [1.0, 2.0, 3.0]
    task.cancel()


async def test_advance_until_gives_up() -> None:
    with pytest.raises(TimeoutError):
        await VirtualClock().advance_until(lambda: False, step_s=10, limit_s=50)


async def test_the_bucket_passes_a_burst_and_then_its_rate() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(10, 5, clock)
    times: list[float] = []

    async def ask() -> None:
        await bucket.acquire()
        times.append(clock.monotonic())

    tasks = [asyncio.create_task(ask()) for _ in range(10)]
    await clock.advance(2)
    await asyncio.gather(*tasks)
    assert times[:5] == [0.0] * 5
    assert times[5:] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


async def test_a_cancelled_request_gives_its_token_back() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(1, 1, clock)
    await bucket.acquire()
    task = asyncio.create_task(bucket.acquire())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    following = asyncio.create_task(bucket.acquire())
    await clock.advance(0.9)
    assert not following.done()
    await clock.advance(0.2)
    assert following.done(), "with the token of the request before it would wait for two seconds"


async def test_no_rate_means_no_limit() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(0, 1, clock)
    for _ in range(1000):
        await bucket.acquire()
    assert clock.sleepers == 0
