"""A limit for one call of a provider: no caller waits longer than that for one that does not answer.

In: a call, and seconds. Out: its answer, or ``Retry``. Never: the end of a write that goes on behind its caller's back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fairlead.errors import Retry
from fairlead.runtime.clock import Clock

T = TypeVar("T")


async def in_time(call: Awaitable[T], *, clock: Clock, limit_s: float | None, reads: bool = False) -> T:
    """Return the result of ``call`` within ``limit_s`` seconds; None is no limit.

    A late call is cancelled and, unless it only ``reads``, awaited, so that two writes to one load balancer never
    overlap.

    Raises:
        Retry: it has not answered in time.
    """
    if limit_s is None:
        return await call
    task = asyncio.ensure_future(call)
    sleeper = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait((task, sleeper), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Retry(f"the provider has not answered for {limit_s:g} s", reason="Timeout")
    finally:
        sleeper.cancel()
        if not task.done():
            task.cancel()
            if reads:
                task.add_done_callback(_forget)
            else:
                await asyncio.wait((task,))


def _forget(task: asyncio.Future[T]) -> None:
    """Retrieve the exception of a read that is not awaited any more."""
    if not task.cancelled():
        task.exception()
