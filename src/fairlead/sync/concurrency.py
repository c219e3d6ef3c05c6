"""Operations under way at each failure domain, limited so that one that hangs takes no room from another.

A failure domain is what answers, or hangs, as one: a socket, a URL. In: places that are taken and given back. Out:
whether there is another. An operation that gave its place up and needs it again comes before new ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable


class Concurrency:
    """``parallel`` places for each failure domain; ``freed`` is called when another operation may begin."""

    def __init__(self, *, parallel: int, freed: Callable[[], None] = lambda: None) -> None:
        self._parallel = parallel
        self._freed = freed
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def taken(self, failure_domain: str) -> int:
        """Return how many operations are under way at ``failure_domain``."""
        return self._taken[failure_domain]

    def free(self, failure_domain: str) -> bool:
        """Return whether another operation may begin now."""
        return self._taken[failure_domain] < self._parallel

    def take(self, failure_domain: str) -> Slot:
        """Take a place, for which the caller has looked whether it is free."""
        self._taken[failure_domain] += 1
        return Slot(self, failure_domain)

    def reserve(self, failure_domain: str) -> Slot:
        """Return a place that is not taken yet."""
        return Slot(self, failure_domain, held=False)

    async def acquire(self, failure_domain: str) -> None:
        """Wait for a place, first come first served."""
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
                # The place was acquired already when the operation was cancelled.
                self.release(failure_domain)
            raise

    def release(self, failure_domain: str) -> None:
        """Give a place back: to the first operation that waits for it, if one does."""
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
    """The place of one operation; giving it up twice is once."""

    def __init__(self, slots: Concurrency, failure_domain: str, *, held: bool = True) -> None:
        self._slots = slots
        self._held = held
        self.failure_domain = failure_domain

    async def take(self) -> None:
        """Have the place (again)."""
        if not self._held:
            await self._slots.acquire(self.failure_domain)
            self._held = True

    def give(self) -> None:
        """Do without it."""
        if self._held:
            self._held = False
            self._slots.release(self.failure_domain)
