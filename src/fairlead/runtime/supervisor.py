"""Runs the tasks of a process: named, started in order and stopped in reverse.

In: coroutine functions. Out: ``run_until_stopped`` returns after a clean stop, or raises the error that ended us.
Never: leaves a task behind, or waits longer than the deadline for one that will not stop.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import structlog

from fairlead.errors import FairleadError
from fairlead.runtime.background import CoroutineFunction, keep
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.file_limit import NO_MORE_FILES, no_more_files

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

    async def run_until_stopped(self) -> None:
        """Run everything until SIGTERM, SIGINT, ``stop()`` or the failure of a task without ``restart``.

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
        finally:
            self._running = False
            await self._stop_all()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._error:
            raise self._error

    def _on_signal(self, number: signal.Signals) -> None:
        self._log.info("stopping", signal=number.name)
        self.stop()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # That a connection cannot be accepted asyncio reports a hundred times a second, with a traceback.
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
            # The first one is raised to the caller, which reports it in one sentence; the log need not, too.
            reported_later = isinstance(error, FairleadError) and self._error is None
            log = self._log.debug if reported_later else self._log.error
            log("task failed", task=task.get_name(), error=str(error))
            self._error = self._error or error
            self.stop()

    async def _stop_all(self) -> None:
        end_s = asyncio.get_running_loop().time() + self._deadline_s
        for task in reversed(self._tasks):
            if task.done():
                continue
            task.cancel()
            left_s = max(0.0, end_s - asyncio.get_running_loop().time())
            _, pending = await asyncio.wait({task}, timeout=left_s)
            if pending:
                self._log.error("task did not stop in time", task=task.get_name(), deadline_s=self._deadline_s)


async def _once(coro_fn: CoroutineFunction) -> None:
    await coro_fn()
