from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal

import pytest
from structlog.testing import capture_logs

from fairlead.errors import Unreachable
from fairlead.runtime.background import Supervisor
from fairlead.runtime.clock import VirtualClock, settle


def forever(name: str, order: list[str], *, slow: bool = False):
    async def run() -> None:
        order.append(f"start {name}")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            order.append(f"stop {name}")
            if slow:
                await asyncio.get_running_loop().create_future()

    return run


async def test_stops_in_reverse_order() -> None:
    order: list[str] = []
    supervisor = Supervisor()
    for name in "abc":
        supervisor.spawn(name, forever(name, order), restart=True)
    task = asyncio.create_task(supervisor.run_until_stopped())
    await settle()
    supervisor.stop()
    await asyncio.wait_for(task, 180)
    assert order == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_a_clean_stop(number: signal.Signals) -> None:
    order: list[str] = []
    supervisor = Supervisor()
    supervisor.spawn("a", forever("a", order))
    task = asyncio.create_task(supervisor.run_until_stopped())
    await settle()
    os.kill(os.getpid(), number)
    await asyncio.wait_for(task, 180)
    assert order == ["start a", "stop a"]


async def test_a_failing_task_ends_everything_with_its_error() -> None:
    order: list[str] = []

    async def fail() -> None:
        raise Unreachable("the server is gone")

    supervisor = Supervisor()
    supervisor.spawn("a", forever("a", order))
    supervisor.spawn("b", fail)
    with pytest.raises(Unreachable, match="the server is gone"):
        await asyncio.wait_for(supervisor.run_until_stopped(), 180)
    assert order == ["start a", "stop a"]


async def test_a_restarted_task_backs_off_and_says_why() -> None:
    clock = VirtualClock()
    starts: list[float] = []

    async def fail() -> None:
        starts.append(clock.monotonic())
        if len(starts) % 2:
            raise Unreachable("gone")
        raise ValueError("bug")

    supervisor = Supervisor(clock=clock)
    supervisor.spawn("a", fail, restart=True)
    with capture_logs() as logs:
        task = asyncio.create_task(supervisor.run_until_stopped())
        await clock.advance(200)
        supervisor.stop()
        await asyncio.wait_for(task, 180)
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert 0.25 <= gaps[0] <= 0.5
    assert gaps[5] > gaps[0] * 4
    assert max(gaps) <= 60
    failures = [entry for entry in logs if entry["event"] == "task restarts"]
    assert failures[0]["exc_info"] is None
    assert isinstance(failures[1]["exc_info"], ValueError)


async def test_a_task_that_returns_is_done() -> None:
    runs: list[int] = []

    async def once() -> None:
        runs.append(1)

    supervisor = Supervisor()
    supervisor.spawn("once", once, restart=True)
    task = asyncio.create_task(supervisor.run_until_stopped())
    await settle()
    supervisor.spawn("later", once)
    await settle()
    assert not task.done()
    supervisor.stop()
    await asyncio.wait_for(task, 180)
    assert runs == [1, 1]


async def test_a_task_that_will_not_stop_is_left_at_the_deadline() -> None:
    order: list[str] = []
    supervisor = Supervisor(stop_deadline_s=0.05)
    supervisor.spawn("a", forever("a", order))
    supervisor.spawn("b", forever("b", order, slow=True))
    task = asyncio.create_task(supervisor.run_until_stopped())
    await settle()
    supervisor.stop()
    with capture_logs() as logs:
        await asyncio.wait_for(task, 180)
    assert order[-2:] == ["stop b", "stop a"]
    assert [entry["task"] for entry in logs] == ["b"]
    for left in asyncio.all_tasks() - {asyncio.current_task()}:
        left.cancel()


async def test_exhausted_files_are_reported_at_intervals() -> None:
    """A status page whose process had no files left wrote a hundred tracebacks a second."""
    clock, loop = VirtualClock(), asyncio.get_running_loop()
    supervisor = Supervisor(clock=clock)
    running = asyncio.create_task(supervisor.run_until_stopped())
    await settle()
    with capture_logs() as logged:
        for _ in range(3):
            for _ in range(100):
                error = OSError(errno.EMFILE, "Too many open files")
                loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
            await clock.advance(8)
    supervisor.stop()
    await running
    assert [line["event"] for line in logged] == ["connections wait"] * 2
    assert "ulimit -n" in logged[0]["sentence"]


async def test_tasks_that_are_not_awaited_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor()
    running = asyncio.create_task(supervisor.run_until_stopped())
    await settle()
    asyncio.get_running_loop().call_exception_handler({"message": "lost", "exception": ValueError("why")})
    supervisor.stop()
    await running
    assert "lost" in caplog.text
