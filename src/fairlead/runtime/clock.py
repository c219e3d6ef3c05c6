"""The clock: the only module that reads the time or sleeps.

In: nothing. Out: monotonic seconds (for durations and deadlines), aware UTC time (for what users read), sleep.
Never: a duration computed from wall-clock time, which jumps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Time as every part of Fairlead sees it."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        ...

    def processor_s(self) -> float:
        """Return the seconds that this thread has computed; 0 where time is virtual."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; zero or less only yields to other tasks."""
        ...


# CLOCK_BOOTTIME also counts the time that a virtual machine was suspended, so that a leader that was frozen past
# its lease knows so at the first look; CLOCK_MONOTONIC does not. See clock_gettime(2).
_MONOTONIC_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Return seconds since boot, suspension included."""
        return time.clock_gettime(_MONOTONIC_ID)

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def processor_s(self) -> float:
        """Return the processor time of this thread."""
        return time.thread_time()

    async def sleep(self, seconds: float) -> None:
        """Wait for real."""
        await asyncio.sleep(max(0.0, seconds))


class VirtualClock:
    """A clock that moves only on request: for tests and simulations.

    ``advance`` wakes sleepers one by one in the order of their deadlines, at exactly their deadlines, and lets
    everything that can run without waiting run in between.
    """

    def __init__(self, *, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Return the virtual seconds since the start."""
        return self._elapsed_s

    def now(self) -> datetime:
        """Return the virtual wall-clock time."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def processor_s(self) -> float:
        """Return 0: computing takes no virtual time."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), woken))
        await woken

    @property
    def sleepers(self) -> int:
        """Return the number of tasks that wait on this clock."""
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking the sleepers that are due, in order."""
        target_s = self._elapsed_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target_s:
            due_s, _, woken = heapq.heappop(self._sleepers)
            if woken.done():  # its sleeper was cancelled
                continue
            self._elapsed_s = max(self._elapsed_s, due_s)
            woken.set_result(None)
            await settle()
        self._elapsed_s = target_s
        await settle()

    def jump(self, seconds: float) -> None:
        """Move time forward without letting a task run: a frozen process, or a suspended machine."""
        self._elapsed_s += seconds

    async def advance_until(self, done: Callable[[], bool], *, step_s: float = 0.5, limit_s: float = 3600.0) -> None:
        """Move time in steps until ``done()``; between steps real input and output gets a chance to arrive.

        Raises:
            TimeoutError: ``limit_s`` virtual seconds went by first.
        """
        end_s = self._elapsed_s + limit_s
        while not done():
            if self._elapsed_s >= end_s:
                raise TimeoutError(f"not so after {limit_s} virtual seconds")
            # A short real wait, for sockets: virtual time must not run away from the machine's.
            for _ in range(5):
                await asyncio.sleep(0.001)
                if done():
                    return
            await self.advance(step_s)


async def wait_for(event: asyncio.Event, clock: Clock, seconds: float | None) -> bool:
    """Return whether ``event`` is set, once it is or ``seconds`` by ``clock`` are over; None means no limit."""
    if seconds is None:
        return await event.wait()
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
        waiter.cancel()
    return event.is_set()


async def settle(rounds: int = 20) -> None:
    """Let every task that can run without waiting run, for at most ``rounds`` rounds of the event loop."""
    # Loops other than asyncio's do not say what is ready: they always get all rounds.
    ready: Collection[object] = getattr(asyncio.get_running_loop(), "_ready", (None,))
    idle_rounds = 0
    for _ in range(rounds):
        await asyncio.sleep(0)
        # The loop polls its sockets between rounds: only the second idle round has seen that nothing arrived either.
        idle_rounds = 0 if ready else idle_rounds + 1
        if idle_rounds == 2:
            return
