"""Tasks of the API server that their caller does not await: each goes on after a failure.

In: a coroutine function. Out: a task that runs it again a moment after it failed, and logs why it did. The rest of
Fairlead has ``runtime.background``, which this package does not import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

PAUSE_S = 1.0

_log = structlog.get_logger(__name__)


def restarted_task(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """Return a task that awaits ``run()`` until it returns; after an exception it is called again."""
    return asyncio.create_task(_run_until_it_returns(name, run), name=name)


async def _run_until_it_returns(name: str, run: Callable[[], Awaitable[None]]) -> None:
    while True:
        attempt = asyncio.ensure_future(_awaited(run))
        try:
            # wait() reports a failure without raising it, so no broad except is needed here.
            await asyncio.wait({attempt})
        finally:
            if not attempt.done():
                attempt.cancel()
                await asyncio.wait({attempt})
        error = asyncio.CancelledError("cancelled from inside") if attempt.cancelled() else attempt.exception()
        if error is None:
            return
        _log.error("task restarts", task=name, error=str(error), in_s=PAUSE_S, exc_info=error)
        await asyncio.sleep(PAUSE_S)


async def _awaited(run: Callable[[], Awaitable[None]]) -> None:
    await run()
