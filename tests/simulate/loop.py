"""An event loop in which waiting takes no time, and processes that are suspended or killed between any two steps.

In: coroutines, each in the context of a process. Out: the same order of steps for the same seed. A killed process
never takes another step: no ``finally`` of it runs, as after SIGKILL. A suspended one takes its steps when it resumes.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from typing import Any

import msgspec

START = datetime(2030, 1, 1, tzinfo=UTC)


class Process:
    """One simulated process: a context for its tasks, a clock, and whether it runs."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.name = name
        self.loop = loop
        self.alive = True
        self.suspended = False
        #: Seconds that its machine was suspended: its timers did not run meanwhile, its clock did.
        self.slept_s = 0.0
        self.held: list[Step] = []
        self.clock = SimClock(loop)
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        self.main: asyncio.Task[Any] | None = None

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        """Run ``main`` as the main task of this process."""
        self.main = self.loop.create_task(main, name=self.name, context=self.context)

    def suspend(self) -> None:
        """Stop taking steps; time goes on."""
        self.suspended = True

    def resume(self) -> None:
        """Take the steps that came due meanwhile, in order."""
        self.suspended = False
        held, self.held = self.held, []
        self.loop.ready.extend(held)

    def sleep(self, seconds: float) -> None:
        """Suspend the machine for ``seconds`` that its clock counts and its timers do not."""
        self.slept_s += seconds
        self.suspend()
        self.loop.call_later(seconds, self.resume, context=OUTSIDE)

    def kill(self) -> None:
        """End without another step."""
        self.alive = False
        self.held = []


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("PROCESS", default=None)
_copy_context, _process_here = contextvars.copy_context, PROCESS.get
#: The context of everything outside of processes: networks, servers, users.
OUTSIDE = contextvars.Context()


class SimClock:
    """The clocks of one process: the monotonic one of the loop, and a wall clock that may be wrong and may jump."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_s = 0.0

    def monotonic(self) -> float:
        """Return the virtual seconds since the start, suspension included."""
        return self._loop.now_s

    def now(self) -> datetime:
        """Return the wall-clock time of this process."""
        return START + timedelta(seconds=self._loop.now_s + self.skew_s)

    def processor_s(self) -> float:
        """Return 0: computing takes no virtual time."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        if seconds <= 0.0:
            await asyncio.sleep(0)
            return
        loop = self._loop
        woken = loop.create_future()
        step = loop.call_at(loop.now_s + seconds, _wake, woken)
        try:
            await woken
        finally:
            step.cancel()


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    made = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        SimTask.made += 1
        self._place = SimTask.made
        super().__init__(*args, **options)
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._place


class Step(msgspec.Struct, eq=False, gc=False):
    """A call that is due, in the place of ``asyncio.Handle``: far more of them are made than of anything else."""

    run: Any
    args: tuple[Any, ...]
    context: contextvars.Context
    process: Process | None
    when_s: float = 0.0
    slept_s: float = 0.0
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Do not run."""
        self.is_cancelled = True
        self.run = self.args = None  # type: ignore[assignment]

    def cancelled(self) -> bool:
        """Return whether it will not run."""
        return self.is_cancelled

    def when(self) -> float:
        """Return when it is due."""
        return self.when_s


class SimLoop(asyncio.BaseEventLoop):
    """A loop with virtual time. ``steps`` counts what it has run; it returns early once ``ended``."""

    def __init__(self) -> None:
        SimTask.made = 0
        self.now_s = 0.0
        self.steps = 0
        self.ended = False
        self.ready: deque[Step] = deque()
        super().__init__()
        self.failures: list[dict[str, Any]] = []
        self._timers: list[tuple[float, int, Step]] = []
        self._order = 0
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda _loop, context: self.failures.append(context))

    def _make_task(self, _loop: Any, coroutine: Any, **options: Any) -> SimTask:
        return SimTask(coroutine, loop=self, **options)

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self.now_s

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Queue a step."""
        if context is None:
            step = Step(callback, args, _copy_context(), _process_here())
        else:
            step = Step(callback, args, context, context.get(PROCESS))
        self.ready.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Queue a step for later."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Queue a step for a moment."""
        process: Process | None = _process_here() if context is None else context.get(PROCESS)
        slept_s = process.slept_s if process is not None else 0.0
        step = Step(callback, args, _copy_context() if context is None else context, process, when, slept_s)
        self._order += 1
        heappush(self._timers, (when, self._order, step))
        return step

    def _process_events(self, event_list: Any) -> None:
        del event_list

    def run_until(self, until_s: float) -> None:
        """Run all steps up to a moment, or until it has ``ended``."""
        ready, next_of = self.ready, self.ready.popleft
        taken = 0
        events._set_running_loop(self)
        try:
            while True:
                if ready:
                    step = next_of()
                elif self.ended or (step := self._next_timer(until_s)) is None:
                    return
                if step.is_cancelled:
                    continue
                process = step.process
                if process is not None:
                    if not process.alive:
                        continue
                    if process.suspended:
                        process.held.append(step)
                        continue
                taken += 1
                try:
                    step.context.run(step.run, *step.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as a loop does with what a callback raises
                    self.call_exception_handler({"message": "a callback has failed", "exception": error})
        finally:
            self.steps += taken
            events._set_running_loop(None)

    def _next_timer(self, until_s: float) -> Step | None:
        """Return the next step that is due, and move time there; None when none is before ``until_s``."""
        timers = self._timers
        while timers:
            step = timers[0][2]
            if step.is_cancelled:
                heappop(timers)
                continue
            if timers[0][0] > until_s:
                break
            when_s, order, step = heappop(timers)
            process = step.process
            if process is not None and process.slept_s > step.slept_s:
                later_s = when_s + process.slept_s - step.slept_s
                step.slept_s = process.slept_s
                heappush(timers, (later_s, order, step))
                continue
            if when_s > self.now_s:
                self.now_s = when_s
            return step
        self.now_s = max(self.now_s, until_s)
        return None

    def is_running(self) -> bool:
        """Return whether it runs, as far as ``asyncio`` asks."""
        return True

    #: Every future asks; ``bool()`` is the cheapest way to say that nothing is debugged.
    get_debug = bool  # type: ignore[assignment]


__all__ = ["OUTSIDE", "PROCESS", "START", "Process", "SimClock", "SimLoop"]
