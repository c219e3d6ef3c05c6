"""Run a blocking call in a daemon thread; it blocks neither the event loop nor the exit of the process.

In: a function. Out: what it returns or raises. The thread is a daemon: a hub that stops does not wait for a server
that does not answer; what the call would have done is repeated after the next start.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fairlead.errors import Bug, FairleadError

T = TypeVar("T")

#: A call may be several requests, each with a limit of its own; a server that sends an answer byte by byte has none.
LIMIT_S = 60.0


async def in_thread(call: Callable[[], T], *, name: str, limit_s: float = LIMIT_S) -> T:
    """Return what ``call`` returns, made in a thread of its own.

    Raises:
        TimeoutError: it has not ended within ``limit_s`` seconds; its thread ends when the server closes or answers.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def done(result: list[T], error: BaseException | None) -> None:
        if answer.done():
            return
        if result:
            answer.set_result(result[0])
        else:
            answer.set_exception(error or Bug(f"{name}: the call has ended without a result"))

    def run() -> None:
        result: list[T] = []
        error: BaseException | None = None
        try:
            result.append(call())
        except FairleadError as refused:
            error = refused
        finally:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done, result, error or sys.exc_info()[1])

    threading.Thread(target=run, name=name, daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await answer
