"""The rate limit of requests: a token bucket, first come first served.

In: a rate and a burst. Out: ``acquire`` returns when it is the caller's turn.
Never: drops a request, or lets later callers overtake earlier ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

from fairlead.runtime.clock import Clock, SystemClock


class TokenBucket:
    """At most ``burst`` at once and ``qps`` per second in the long run; ``qps`` of 0 means no limit."""

    def __init__(self, qps: float, burst: int, clock: Clock | None = None) -> None:
        self._qps = qps
        self._burst = float(max(1, burst))
        self._clock: Clock = clock or SystemClock()
        self._tokens = self._burst
        self._at_s = self._clock.monotonic()

    async def acquire(self) -> None:
        """Wait for one token."""
        if self._qps <= 0:
            return
        self._refill()
        self._tokens -= 1.0
        if self._tokens >= 0.0:
            return
        # A negative balance is a reservation: a later caller goes deeper, and so waits longer.
        try:
            await self._clock.sleep(-self._tokens / self._qps)
        except BaseException:
            self._tokens += 1.0
            raise

    def _refill(self) -> None:
        now_s = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._qps)
        self._at_s = now_s


class KeyedLock:
    """One lock for each key."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the lock of ``key``, once every earlier holder has released it."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
