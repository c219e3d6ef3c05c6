"""Tasks that their caller does not await, and the supervisor of a process: a failure is logged, counted and answered.

    keep_running   started again after a pause, which grows from half a second to a minute
    watched        run once
    end            cancelled and waited for
    first_done     several, until the first of them is over
    all_done       several, whose results are needed; none outlives a failure of another
    close_all      several closed, whatever becomes of one

In: coroutine functions. Out: tasks, and ``fairlead_task_failures_total``. Never: a task that ends in silence. Outside
this package no task is started any other way but in a ``TaskGroup``, or where the function that starts it awaits it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import structlog
from prometheus_client import Counter

from fairlead.errors import FairleadError
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.file_limit import NO_MORE_FILES, no_more_files
from fairlead.runtime.queue import backoff_s

T = TypeVar("T")
CoroutineFunction = Callable[[], Awaitable[object]]

_RESTART_BASE_S = 0.5
_RESTART_LIMIT_S = 60.0
_HEALTHY_AFTER_S = 60.0

#: Of this process; each ``Telemetry`` shows it.
TASK_FAILURES = Counter(
    "fairlead_task_failures",
    "Failures of tasks that run in the background; permanent ones are started again.",
    ["task"],
    registry=None,
)

log = structlog.get_logger(__name__)


def keep_running(name: str, run: CoroutineFunction, *, clock: Clock | None = None) -> asyncio.Task[None]:
    """Return a task that runs ``run()`` until it returns; after a failure it is run again, after a pause.

    ``name`` is the task's, and a label of a metric: it names no object.
    """
    return asyncio.create_task(keep(name, run, clock=clock), name=name)


def watched(
    name: str,
    coroutine: Coroutine[Any, Any, T],
    *,
    expected: type[Exception] | tuple[type[Exception], ...] = (),
    **shown: str,
) -> asyncio.Task[T]:
    """Return a task that runs ``coroutine`` once; a failure that is not ``expected`` is logged with ``shown``."""
    task = asyncio.create_task(coroutine, name=name)

    def ended(task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, expected):
            TASK_FAILURES.labels(name).inc()
            log.error("task failed", task=name, error=str(error), exc_info=_trace(error), **shown)

    task.add_done_callback(ended)
    return task


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel ``tasks`` and return when all have ended, in any way."""
    running = {task for task in tasks if task is not None}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def first_done(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run ``coroutines`` until one returns, or raises, which is raised; the others are cancelled and waited for."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)
    for task in done:
        task.result()


async def all_done(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of ``coroutines``, in order; the first failure is raised once all have ended."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]


async def close_all(closing: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Await all of ``closing``, by name; a failure is logged and does not stop the others."""
    results = await asyncio.gather(*(_awaited(close) for close in closing.values()), return_exceptions=True)
    for name, result in zip(closing, results, strict=True):
        if isinstance(result, Exception):
            log.error("not closed", what=name, error=str(result), exc_info=_trace(result))


async def keep(
    name: str,
    run: CoroutineFunction,
    *,
    clock: Clock | None = None,
    passes: type[Exception] | tuple[type[Exception], ...] = (),
) -> None:
    """Run ``run()`` until it returns; after a failure again, after a pause. What is of ``passes`` is raised."""
    clock = clock or SystemClock()
    failures = 0
    while True:
        started_s = clock.monotonic()
        attempt = asyncio.ensure_future(_awaited(run))
        try:
            # wait() reports a failure without raising it, so no broad except is needed here.
            await asyncio.wait({attempt})
        except asyncio.CancelledError:
            attempt.cancel()
            await asyncio.wait({attempt})
            raise
        # Cancelled from inside, by something that it awaited, is a failure, too: we are not being cancelled.
        error = asyncio.CancelledError() if attempt.cancelled() else attempt.exception()
        if error is None:
            return
        if isinstance(error, passes):
            raise error
        if clock.monotonic() - started_s >= _HEALTHY_AFTER_S:
            failures = 0
        failures += 1
        TASK_FAILURES.labels(name).inc()
        pause_s = backoff_s(failures, base_s=_RESTART_BASE_S, limit_s=_RESTART_LIMIT_S)
        reason = str(error) or type(error).__name__
        log.error("task restarts", task=name, error=reason, in_s=round(pause_s, 1), exc_info=_trace(error))
        await clock.sleep(pause_s)


def _trace(error: BaseException) -> BaseException | None:
    """Return the error if a log line needs its traceback: the sentence of a FairleadError is enough."""
    return None if isinstance(error, FairleadError) else error


async def _awaited(run: CoroutineFunction) -> None:
    await run()


_FILES_EVERY_S = 10.0


class Supervisor:
    """The tasks of one process."""

    def __init__(self, *, stop_deadline_s: float = 10.0, clock: Clock | None = None) -> None:
        self._deadline_s = stop_deadline_s
        self._clock: Clock = clock or SystemClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._planned: list[tuple[str, CoroutineFunction, bool]] = []
        self._running = False
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._next_s = float("-inf")
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.supervisor")

    def spawn(self, name: str, coro_fn: CoroutineFunction, *, restart: bool = False) -> None:
        """Run ``coro_fn()``, now or as soon as we run; one that returns is done, and is never started again.

        With ``restart`` a failure is logged and it starts again after a pause; without, its error ends the process.
        """
        if self._running:
            self._start(name, coro_fn, restart=restart)
        else:
            self._planned.append((name, coro_fn, restart))

    def stop(self) -> None:
        """Ask for a clean stop; safe to call more than once."""
        self._stop.set()

    async def run_until_stopped(self, before_end: CoroutineFunction | None = None) -> None:
        """Run everything until SIGTERM, SIGINT, ``stop()`` or the failure of a task without ``restart``.

        ``before_end`` is awaited when a stop was asked for, while everything still runs.

        Raises:
            BaseException: what that task raised, after everything has been stopped.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        self._running = True
        try:
            for name, coro_fn, restart in self._planned:
                self._start(name, coro_fn, restart=restart)
            self._planned.clear()
            await self._stop.wait()
            if before_end is not None and self._error is None:
                await before_end()
        finally:
            self._running = False
            end_s = asyncio.get_running_loop().time() + self._deadline_s
            for task in reversed(self._tasks):
                if task.done():
                    continue
                task.cancel()
                left_s = max(0.0, end_s - asyncio.get_running_loop().time())
                _, pending = await asyncio.wait({task}, timeout=left_s)
                if pending:
                    self._log.error("task did not stop in time", task=task.get_name(), deadline_s=self._deadline_s)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._error:
            raise self._error

    def _on_signal(self, number: signal.Signals) -> None:
        self._log.info("stopping", signal=number.name)
        self.stop()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # asyncio reports failed accepts a hundred times a second, each with a traceback.
        if not no_more_files(context.get("exception")):
            loop.default_exception_handler(context)
        elif (now_s := self._clock.monotonic()) >= self._next_s:
            self._next_s = now_s + _FILES_EVERY_S
            self._log.warning("connections wait", sentence=f"{NO_MORE_FILES[0].upper()}{NO_MORE_FILES[1:]}.")

    def _start(self, name: str, coro_fn: CoroutineFunction, *, restart: bool) -> None:
        run = keep(name, coro_fn, clock=self._clock) if restart else _once(coro_fn)
        task = asyncio.create_task(run, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The first error is raised to the caller, which reports it; no log line is needed.
            reported_later = isinstance(error, FairleadError) and self._error is None
            log = self._log.debug if reported_later else self._log.error
            log("task failed", task=task.get_name(), error=str(error))
            self._error = self._error or error
            self.stop()


async def _once(coro_fn: CoroutineFunction) -> None:
    await coro_fn()
