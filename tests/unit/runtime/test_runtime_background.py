"""Tasks without a caller that awaits them: each failure is logged by name, counted, and followed by a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from fairlead.errors import Unreachable
from fairlead.runtime.background import all_done, end, first_done, keep_running, watched
from fairlead.runtime.clock import VirtualClock, settle, wait_for
from fairlead.runtime.telemetry import Telemetry


def failures_of(task: str) -> Callable[[], float]:
    """Return a function that says how many failures were counted since this call."""
    registry = Telemetry().registry

    def value() -> float:
        return registry.get_sample_value("fairlead_task_failures_total", {"task": task}) or 0.0

    before = value()
    return lambda: value() - before


async def test_what_fails_is_logged_by_name_counted_and_run_again():
    clock, starts, failures = VirtualClock(), [], failures_of("pump")

    async def pump() -> None:
        starts.append(clock.monotonic())
        if len(starts) < 3:
            raise ValueError("a bug")

    with capture_logs() as logs:
        task = keep_running("pump", pump, clock=clock)
        await clock.advance(60)
    assert task.done()
    assert task.get_name() == "pump"
    assert (len(starts), failures()) == (3, 2.0)
    assert [(entry["event"], entry["task"]) for entry in logs] == [("task restarts", "pump")] * 2
    assert isinstance(logs[0]["exc_info"], ValueError)
    assert 0 < starts[1] <= starts[2] - starts[1], "each pause is longer than the one before"


async def test_a_task_cancelled_from_inside_is_restarted():
    clock, starts = VirtualClock(), []

    async def awaits_a_cancelled_call() -> None:
        starts.append(1)
        if len(starts) == 1:
            raise asyncio.CancelledError

    with capture_logs() as logs:
        task = keep_running("reader", awaits_a_cancelled_call, clock=clock)
        await clock.advance(5)
    assert task.done()
    assert (len(starts), logs[0]["error"]) == (2, "CancelledError")


async def test_end_waits_for_a_task_and_its_last_steps():
    steps: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    task = keep_running("slow", slow)
    await settle()
    await end(task, None)
    assert (task.cancelled(), steps) == (True, ["closed"])


async def test_a_task_that_runs_once_is_logged_unless_its_end_was_expected():
    failures = failures_of("stream")

    async def fail(error: Exception) -> None:
        raise error

    with capture_logs() as logs:
        watched("stream", fail(Unreachable("closed")), expected=Unreachable)
        watched("stream", fail(KeyError("a bug")), proxy="p1")
        await settle()
    assert [(entry["event"], entry["task"], entry["proxy"]) for entry in logs] == [("task failed", "stream", "p1")]
    assert failures() == 1.0


async def test_waiting_for_an_event_ends_with_it_or_with_the_time():
    clock, event = VirtualClock(), asyncio.Event()
    late = asyncio.create_task(wait_for(event, clock, 5.0))
    await clock.advance(5)
    assert await late is False
    event.set()
    assert await wait_for(event, clock, None)
    assert await wait_for(event, clock, 5.0)


async def test_the_first_that_is_done_ends_the_others_and_its_failure_is_raised():
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    async def once(error: Exception | None) -> None:
        if error is not None:
            raise error

    await first_done(forever(), once(None))
    with pytest.raises(KeyError):
        await first_done(once(KeyError("a bug")), forever())
    waiting = asyncio.create_task(first_done(forever()))
    await settle()
    await end(waiting)
    assert waiting.cancelled()
    assert ended == ["forever"] * 3


async def test_a_failure_is_raised_once_all_are_over():
    written, answered = [], asyncio.Event()

    async def write(number: int) -> int:
        await answered.wait()
        written.append(number)
        return number

    async def fail() -> int:
        raise Unreachable("closed")

    writing = asyncio.create_task(all_done([write(1), fail(), write(2)]))
    await settle()
    assert not writing.done()
    answered.set()
    with pytest.raises(Unreachable):
        await writing
    assert written == [1, 2]
    assert await all_done([write(3), write(4)]) == [3, 4]
