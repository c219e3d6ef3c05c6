from __future__ import annotations

import asyncio
import itertools
from typing import Self

import pytest
from structlog.testing import capture_logs

from fairlead.errors import (
    AlreadyExists,
    BadConfiguration,
    Bug,
    Forbidden,
    Invalid,
    NamespaceNotFound,
    NotFound,
    NotServed,
    Terminal,
    Throttled,
    Unauthorized,
    Unreachable,
    Wait,
)
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.runtime.loop import BUG_RETRY_S, REFUSED_RETRY_S, run_workers
from fairlead.runtime.queue import BACKOFF_LIMIT_S, KeyedQueue
from fairlead.runtime.telemetry import Telemetry


class Bench:
    """One queue with its workers, and what each key's reconcile shall do next."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue: KeyedQueue[str] = KeyedQueue(clock=self.clock)
        self.telemetry = Telemetry()
        self.answers: dict[str, list[float | Exception | None]] = {}
        self.runs: list[tuple[str, float]] = []
        self.task: asyncio.Task[None] | None = None

    async def reconcile(self, key: str) -> float | None:
        self.runs.append((key, self.clock.monotonic()))
        answer = self.answers[key].pop(0) if self.answers.get(key) else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(
            run_workers(self.queue, self.reconcile, workers=2, name="test", telemetry=self.telemetry)
        )
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task
        self.queue.close()
        await asyncio.wait_for(self.task, 180)

    def count(self, result: str) -> float:
        return (
            self.telemetry.registry.get_sample_value(
                "fairlead_reconcile_total", {"controller": "test", "result": result}
            )
            or 0.0
        )

    def times(self, key: str) -> list[float]:
        return [at for name, at in self.runs if name == key]


async def test_a_good_run_is_forgotten() -> None:
    async with Bench() as bench:
        bench.queue.add("a")
        await bench.clock.advance(1000)
        assert bench.times("a") == [0.0]
        assert bench.count("ok") == 1


async def test_seconds_bring_it_back() -> None:
    async with Bench() as bench:
        bench.answers["a"] = [30.0]
        bench.queue.add("a")
        await bench.clock.advance(100)
        assert bench.times("a") == [0.0, 30.0]
        assert bench.count("later") == 1


async def test_retry_backs_off_and_honours_after() -> None:
    async with Bench() as bench:
        bench.answers["a"] = [Unreachable("no"), Throttled("slow", after_s=9)]
        bench.queue.add("a")
        await bench.clock.advance(100)
        first, second, third = bench.times("a")
        assert 0.05 <= second - first <= 0.1
        assert third - second >= 9
        assert bench.count("retry") == 2
        assert bench.queue.failures("a") == 0


async def test_wait_is_not_retried() -> None:
    async with Bench() as bench:
        bench.answers["a"] = [Wait("not yet")]
        bench.queue.add("a")
        await bench.clock.advance(1000)
        assert len(bench.times("a")) == 1


@pytest.mark.req("CORE-08")
@pytest.mark.parametrize(
    ("error", "limit_s"),
    [
        (Invalid("denied by a webhook"), REFUSED_RETRY_S),
        (AlreadyExists("the name is taken"), REFUSED_RETRY_S),
        (BadConfiguration("a redirect"), REFUSED_RETRY_S),
        (NotServed("no such kind"), REFUSED_RETRY_S),
        (NamespaceNotFound("no such namespace"), REFUSED_RETRY_S),
        (Terminal("the namespace belongs to another Tenant"), REFUSED_RETRY_S),
        (NotFound("deleted meanwhile"), BACKOFF_LIMIT_S),
        (Forbidden("no right"), BACKOFF_LIMIT_S),
        (Unauthorized("unknown"), BACKOFF_LIMIT_S),
    ],
)
async def test_rejected_changes_are_retried_with_growing_delays(error: Exception, limit_s: float) -> None:
    async with Bench() as bench:
        bench.answers["a"] = [error] * 40
        bench.queue.add("a")
        await bench.clock.advance(50 * limit_s)
        runs = bench.times("a")
        assert len(runs) == 41, "the 41st is accepted"
        pauses = [after - before for before, after in itertools.pairwise(runs)]
        assert pauses[0] < 1
        assert 0.5 * limit_s <= max(pauses) <= limit_s
        assert bench.queue.failures("a") == 0


async def test_terminal_errors_are_logged_once_per_key_and_sentence() -> None:
    with capture_logs() as logs:
        async with Bench() as bench:
            bench.answers["a"] = [Invalid("bad"), Invalid("bad"), Invalid("worse"), None, Invalid("bad")]
            for _ in range(5):
                bench.queue.add("a")
                await bench.clock.advance(1)
    said = [entry["sentence"] for entry in logs if entry["event"] == "terminal"]
    assert said == ["bad", "worse", "bad"]


@pytest.mark.req("I-7")
@pytest.mark.parametrize("error", [Bug("ours"), ZeroDivisionError("oops"), KeyError("x")])
async def test_a_bug_in_one_key_does_not_stop_the_others(error: Exception) -> None:
    with capture_logs() as logs:
        async with Bench() as bench:
            bench.answers["bad"] = [error]
            bench.queue.add("bad")
            bench.queue.add("good")
            await bench.clock.advance(BUG_RETRY_S - 1)
            assert bench.times("good") == [0.0]
            assert len(bench.times("bad")) == 1
            await bench.clock.advance(2)
            assert len(bench.times("bad")) == 2
            assert bench.count("bug") == 1
    (entry,) = [entry for entry in logs if entry["event"] == "bug"]
    assert entry["exc_info"] is error


@pytest.mark.req("I-7")
async def test_a_cancellation_that_is_not_ours_is_a_bug_and_ends_no_worker() -> None:
    runs: list[str] = []

    async def reconcile(key: str) -> None:
        runs.append(key)
        if key.startswith("bad"):
            shared = asyncio.get_running_loop().create_future()
            shared.cancel()
            await shared

    clock = VirtualClock()
    queue: KeyedQueue[str] = KeyedQueue(clock=clock)
    queue.add("bad-1")
    queue.add("bad-2")
    with capture_logs() as logs:
        task = asyncio.create_task(run_workers(queue, reconcile, workers=2, name="test"))
        await settle()
        queue.add("good")
        await settle()
        assert runs == ["bad-1", "bad-2", "good"]
        await clock.advance(BUG_RETRY_S + 1)
        assert sorted(runs) == ["bad-1", "bad-1", "bad-2", "bad-2", "good"]
    assert {entry["error"] for entry in logs if entry["event"] == "bug"} == {"CancelledError"}
    queue.close()
    await asyncio.wait_for(task, 180)


async def test_metrics_have_the_documented_names() -> None:
    async with Bench() as bench:
        bench.queue.add("a")
        await settle()
        value = bench.telemetry.registry.get_sample_value
        assert value("fairlead_reconcile_seconds_count", {"controller": "test"}) == 1
        assert value("fairlead_queue_depth", {"controller": "test"}) == 0


async def test_cancelling_the_loop_cancels_the_reconcile() -> None:
    ended = asyncio.Event()

    async def reconcile(_key: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    task = asyncio.create_task(run_workers(queue, reconcile, workers=1, name="test"))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert queue.processing == 0


@pytest.mark.req("I-5")
async def test_keys_that_wait_for_nothing_leave_others_their_turn() -> None:
    """A hub with thousands of load balancers renews its lease between two of them, and not after all."""
    async with Bench() as bench:
        for number in range(1000):
            bench.queue.add(f"key-{number}")
        turns = 0
        while len(bench.runs) < 1000:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 400
