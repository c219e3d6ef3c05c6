"""Limits the concurrent operations at each failure domain, so that one that hangs does not block others.

A failure domain is a party that answers or hangs as a whole: a socket, a URL. In: slots that are taken and released.
Out: whether a slot is free. An operation that has released its slot and needs it again comes before new operations.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead.errors import Retry
from fairlead.runtime.clock import Clock


class Concurrency:
    """``parallel`` slots for each failure domain; ``freed`` is called when a slot becomes free."""

    def __init__(self, *, parallel: int, freed: Callable[[], None] = lambda: None) -> None:
        self._parallel = parallel
        self._freed = freed
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def taken(self, failure_domain: str) -> int:
        """Return the number of taken slots of ``failure_domain``."""
        return self._taken[failure_domain]

    def free(self, failure_domain: str) -> bool:
        """Return whether ``failure_domain`` has a free slot."""
        return self._taken[failure_domain] < self._parallel

    def take(self, failure_domain: str) -> Slot:
        """Take a slot; the caller has checked ``free``."""
        self._taken[failure_domain] += 1
        return Slot(self, failure_domain)

    def reserve(self, failure_domain: str) -> Slot:
        """Return a slot that is not taken yet."""
        return Slot(self, failure_domain, held=False)

    async def acquire(self, failure_domain: str) -> None:
        """Wait for a slot, first come first served."""
        if self.free(failure_domain):
            self._taken[failure_domain] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(failure_domain, deque())
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was handed over just before the cancellation.
                self.release(failure_domain)
            raise

    def release(self, failure_domain: str) -> None:
        """Hand a slot to the first operation that waits for it, or free it."""
        waiting = self._waiting.get(failure_domain, deque())
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(failure_domain, None)
        self._taken[failure_domain] -= 1
        if not self._taken[failure_domain]:
            del self._taken[failure_domain]
        self._freed()


class Slot:
    """The slot of one operation; ``take`` and ``give`` are idempotent."""

    def __init__(self, slots: Concurrency, failure_domain: str, *, held: bool = True) -> None:
        self._slots = slots
        self._held = held
        self.failure_domain = failure_domain

    async def take(self) -> None:
        """Wait until the operation has its slot."""
        if not self._held:
            await self._slots.acquire(self.failure_domain)
            self._held = True

    def give(self) -> None:
        """Release the slot."""
        if self._held:
            self._held = False
            self._slots.release(self.failure_domain)


T = TypeVar("T")


async def in_time(call: Awaitable[T], *, clock: Clock, limit_s: float | None, reads: bool = False) -> T:
    """Return the result of ``call`` within ``limit_s`` seconds; None means no limit.

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
    """Retrieve the exception of a read that is no longer awaited."""
    if not task.cancelled():
        task.exception()
