"""Workers that take keys from a queue and decide, by the class of an error, what happens next.

    reconcile(key) ──► None       forget
                   ──► seconds    forget, come back then
                   ──► Retry      back off, not before after_s; NotFound too, as the watch is about to show it
                   ──► Wait       forget: what is missing will wake us
                   ──► Terminal   say so once, back off up to REFUSED_RETRY_S
                   ──► anything else is a bug: traceback, retried slowly

In: a queue and a function of one key. Out: log lines and metrics; nothing else leaves this loop.
Never: lets one key's failure stop another key. This is the only place with a broad ``except``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from fairlead.errors import Bug, Forbidden, NotFound, Retry, Terminal, Unauthorized, Wait
from fairlead.runtime.queue import BACKOFF_LIMIT_S, KeyedQueue, QueueClosed
from fairlead.runtime.telemetry import Telemetry

K = TypeVar("K", bound=Hashable)

BUG_RETRY_S = 30.0
#: A rejected write may be accepted later for a reason that no watch shows: a policy, a webhook, a proxy, a quota.
REFUSED_RETRY_S = 300.0


async def run_workers(
    queue: KeyedQueue[K],
    reconcile: Callable[[K], Awaitable[float | None]],
    *,
    workers: int,
    name: str,
    telemetry: Telemetry | None = None,
) -> None:
    """Work until cancelled, or until the queue is closed; ``reconcile`` returns seconds to come back, or None."""
    loop = _Loop(queue, reconcile, name=name, telemetry=telemetry or Telemetry())
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(loop.work(), name=f"{name}-{number}")


class _Loop(Generic[K]):
    def __init__(
        self,
        queue: KeyedQueue[K],
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        name: str,
        telemetry: Telemetry,
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.loop").bind(controller=name)
        self._logged: dict[K, str] = {}
        self._total = telemetry.reconcile_total
        self._seconds = telemetry.reconcile_seconds.labels(name)
        self._name = name
        telemetry.queue_depth.labels(name).set_function(lambda: float(len(queue)))

    async def work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            started_s = time.perf_counter()
            try:
                result = await self._run(key)
            finally:
                self._queue.done(key)
            self._seconds.observe(time.perf_counter() - started_s)
            self._total.labels(self._name, result).inc()
            # A key that waits for nothing and a queue that is never empty would keep everybody else from their turn:
            # with thousands of keys the lease runs out.
            await asyncio.sleep(0)

    async def _run(self, key: K) -> str:
        try:
            again_s = await self._reconcile(key)
        except (Retry, NotFound) as error:
            self._queue.retry(key, after_s=error.after_s if isinstance(error, Retry) else None)
            # The first failures of a key are normal (a conflict, a restart); repeated ones are warnings.
            level = self._log.warning if self._queue.failures(key) >= 5 else self._log.info
            level("retry", key=_text(key), reason=error.reason, sentence=error.sentence, detail=error.detail)
            return "retry"
        except Wait as error:
            self._queue.forget(key)
            self._log.debug("wait", key=_text(key), sentence=error.sentence)
            return "wait"
        except Terminal as error:
            # A right can be granted any moment, and an API server that has just started refuses for a moment.
            is_right = isinstance(error, Forbidden | Unauthorized)
            self._queue.retry(key, limit_s=BACKOFF_LIMIT_S if is_right else REFUSED_RETRY_S)
            if self._logged.get(key) != error.sentence:
                self._logged[key] = error.sentence
                self._log.error(
                    "terminal", key=_text(key), reason=error.reason, sentence=error.sentence, detail=error.detail
                )
            return "terminal"
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            # Something that was awaited was cancelled, not we: unnoticed, this worker would end in silence.
            return self._bug(key, error)
        except (Bug, Exception) as error:  # noqa: BLE001 - the one broad except: a bug in one key must not stop the others
            return self._bug(key, error)
        self._queue.forget(key)
        self._logged.pop(key, None)
        if again_s is not None:
            self._queue.add_after(key, again_s)
            return "later"
        return "ok"

    def _bug(self, key: K, error: BaseException) -> str:
        self._queue.retry(key, after_s=BUG_RETRY_S)
        self._log.error("bug", key=_text(key), error=str(error) or type(error).__name__, exc_info=error)
        return "bug"


def _text(key: Hashable) -> str:
    return key if isinstance(key, str) else repr(key)
