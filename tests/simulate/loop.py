"""An event loop in which waiting takes no time, and processes that are suspended or killed between any two steps.

In: coroutines, each in the context of a process. Out: the same order of steps for the same seed. A killed process
never takes another step: no ``finally`` of it runs, as after SIGKILL. A suspended one takes its steps when it resumes.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

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
        await asyncio.sleep(max(0.0, seconds))


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


class Step:
    """A call that is due, in the place of ``asyncio.Handle``: far more of them are made than of anything else."""

    __slots__ = ("_args", "_cancelled", "_context", "_run", "_when_s", "process", "slept_s")

    def __init__(self, run: Any, args: tuple[Any, ...], context: contextvars.Context | None, when_s: float) -> None:
        self._run: Any = run
        self._args: Any = args
        self._when_s = when_s
        self._cancelled = False
        if context is None:
            self._context, self.process = contextvars.copy_context(), PROCESS.get()
        else:
            self._context, self.process = context, context.get(PROCESS)

    def cancel(self) -> None:
        """Do not run."""
        self._cancelled = True
        self._run = self._args = None

    def cancelled(self) -> bool:
        """Return whether it will not run."""
        return self._cancelled

    def when(self) -> float:
        """Return when it is due."""
        return self._when_s


class SimLoop(asyncio.BaseEventLoop):
    """A loop with virtual time. ``steps`` counts what it has run; it returns early once ``ended``."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.ended = False
        self.ready: deque[Step] = deque()
        super().__init__()
        self.failures: list[dict[str, Any]] = []
        self._timers: list[tuple[float, int, Step]] = []
        self._order = 0
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda _loop, context: self.failures.append(context))

    def _make_task(self, _loop: Any, coroutine: Any, **options: Any) -> SimTask:
        return SimTask(coroutine, loop=self, **options)

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self.now_s

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Queue a step."""
        step = Step(callback, args, context, 0.0)
        self.ready.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Queue a step for later."""
        return self._at(self.now_s + delay, callback, args, context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Queue a step for a moment."""
        return self._at(when, callback, args, context)

    def _at(self, when_s: float, callback: Any, args: tuple[Any, ...], context: Any) -> Step:
        step = Step(callback, args, context, when_s)
        step.slept_s = step.process.slept_s if step.process is not None else 0.0
        self._order += 1
        heapq.heappush(self._timers, (when_s, self._order, step))
        return step

    def _process_events(self, event_list: Any) -> None:
        del event_list

    def run_until(self, until_s: float) -> None:
        """Run all steps up to a moment, or until it has ``ended``."""
        ready, timers = self.ready, self._timers
        next_of, pop, push = ready.popleft, heapq.heappop, heapq.heappush
        events._set_running_loop(self)
        try:
            while True:
                while ready:
                    self._take(next_of())
                if self.ended:
                    return
                while timers and timers[0][2]._cancelled:
                    pop(timers)
                if not timers or timers[0][0] > until_s:
                    self.now_s = max(self.now_s, until_s)
                    return
                when_s, order, step = pop(timers)
                process = step.process
                if process is not None and process.slept_s > step.slept_s:
                    later_s = when_s + process.slept_s - step.slept_s
                    step.slept_s = process.slept_s
                    push(timers, (later_s, order, step))
                    continue
                if when_s > self.now_s:
                    self.now_s = when_s
                self._take(step)
        finally:
            events._set_running_loop(None)

    def _take(self, step: Step) -> None:
        if step._cancelled:
            return
        process = step.process
        if process is not None:
            if not process.alive:
                return
            if process.suspended:
                process.held.append(step)
                return
        self.steps += 1
        try:
            step._context.run(step._run, *step._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as a loop does with what a callback raises
            self.call_exception_handler({"message": "a callback has failed", "exception": error})

    def is_running(self) -> bool:
        """Return whether it runs, as far as ``asyncio`` asks."""
        return True

    def get_debug(self) -> bool:
        """Return that nothing is debugged: cheaper."""
        return False


__all__ = ["OUTSIDE", "PROCESS", "START", "Process", "SimClock", "SimLoop"]
