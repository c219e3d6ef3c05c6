"""Tasks that their caller does not await: a failure is logged with the task's name, counted, and answered.

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
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import structlog
from prometheus_client import Counter

from fairlead.errors import FairleadError
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.queue import backoff_s

T = TypeVar("T")
CoroutineFunction = Callable[[], Awaitable[object]]

_RESTART_BASE_S = 0.5
_RESTART_LIMIT_S = 60.0
_HEALTHY_AFTER_S = 60.0

#: Of this process; each ``Telemetry`` shows it.
TASK_FAILURES = Counter(
    "fairlead_task_failures",
    "Failures of tasks that run in the background; those that serve on are started again.",
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
    """Cancel ``tasks`` and return when all are over, however they end."""
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
    """Return what ``coroutines`` return, in their order; the first failure is raised once all are over."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]


async def close_all(closing: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Await all of ``closing``, by name; a failure of one is logged, and keeps none of the others from its end."""
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
