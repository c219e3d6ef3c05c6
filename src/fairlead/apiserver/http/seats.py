"""Limit the concurrent and the queued requests of each user.

It stands for API Priority and Fairness of kube-apiserver. In: users. Out: a seat, first come first served, or 429 with
Retry-After. Administrators (``system:masters``), and so the hub, are exempt, as there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from fairlead.apiserver.auth.identity import User
from fairlead.apiserver.failure import ApiFailure

#: Concurrent requests of one user, and queued ones; the bodies of queued requests have not been read yet.
MAX_RUNNING, MAX_WAITING = 4, 200
#: An agent has fewer than twenty watches; each may have events queued for a slow client.
MAX_WATCHES = 100


class Seats:
    """The seats of one server; a user without requests takes no memory."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._watches: dict[str, int] = {}

    async def take(self, user: User) -> None:
        """Wait for a seat; raises 429 when the queue of the user is full."""
        name, running = user.name, self._running.get(user.name, 0)
        if user.is_master:
            return
        if running < MAX_RUNNING:
            self._running[name] = running + 1
            return
        queue = self._waiting.setdefault(name, deque())
        if len(queue) >= MAX_WAITING:
            raise _too_many(f"{MAX_RUNNING} requests of {name} are under way and {MAX_WAITING} wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(user)  # the seat was handed over just before the cancellation
            elif turn in queue:
                queue.remove(turn)
            raise

    def release(self, user: User) -> None:
        """Hand the seat to the next queued request of the same user, or free it."""
        if user.is_master:
            return
        queue = self._waiting.get(user.name)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(user.name, None)
        running = self._running.get(user.name, 1) - 1
        if running:
            self._running[user.name] = running
        else:
            self._running.pop(user.name, None)

    @contextmanager
    def watch(self, user: User) -> Generator[None]:
        """Count an open watch inside the block; raises 429 when the user has too many."""
        held = self._watches.get(user.name, 0)
        if held >= MAX_WATCHES and not user.is_master:
            raise _too_many(f"{user.name} has {held} open watches")
        self._watches[user.name] = held + 1
        try:
            yield
        finally:
            self._watches[user.name] -= 1
            if not self._watches[user.name]:
                del self._watches[user.name]


def _too_many(why: str) -> ApiFailure:
    message = f"too many requests: {why}; try again later"
    return ApiFailure(429, "TooManyRequests", message, retry_after_s=1)
