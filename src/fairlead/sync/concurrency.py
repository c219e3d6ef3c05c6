"""How many operations are under way at each account, so that one that hangs takes no room from another.

An account is what answers, or hangs, as one: a socket, a URL. In: places that are taken and given back. Out: whether
there is another. An operation that gave its place up and needs it again comes before new ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable


class Concurrency:
    """``parallel`` places for each account; ``freed`` is called when another operation may begin."""

    def __init__(self, *, parallel: int, freed: Callable[[], None] = lambda: None) -> None:
        self._parallel = parallel
        self._freed = freed
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def taken(self, account: str) -> int:
        """Return how many operations are under way at ``account``."""
        return self._taken[account]

    def free(self, account: str) -> bool:
        """Say whether another operation may begin now."""
        return self._taken[account] < self._parallel

    def take(self, account: str) -> Slot:
        """Take a place, for which the caller has looked whether it is free."""
        self._taken[account] += 1
        return Slot(self, account)

    def reserve(self, account: str) -> Slot:
        """Return a place that is not taken yet."""
        return Slot(self, account, held=False)

    async def acquire(self, account: str) -> None:
        """Wait for a place, first come first served."""
        if self.free(account):
            self._taken[account] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(account, deque())
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The place was acquired already when the operation was cancelled.
                self.release(account)
            raise

    def release(self, account: str) -> None:
        """Give a place back: to the first operation that waits for it, if one does."""
        waiting = self._waiting.get(account, deque())
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(account, None)
        self._taken[account] -= 1
        if not self._taken[account]:
            del self._taken[account]
        self._freed()


class Slot:
    """The place of one operation; giving it up twice is once."""

    def __init__(self, slots: Concurrency, account: str, *, held: bool = True) -> None:
        self._slots = slots
        self._held = held
        self.account = account

    async def take(self) -> None:
        """Have the place (again)."""
        if not self._held:
            await self._slots.acquire(self.account)
            self._held = True

    def give(self) -> None:
        """Do without it."""
        if self._held:
            self._held = False
            self._slots.release(self.account)
