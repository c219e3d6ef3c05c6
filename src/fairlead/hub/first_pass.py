"""The first pass of a hub: every key that there was at the start is reconciled once before anything is published."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from fairlead.model.keys import LoadBalancerKey

Reconcile = Callable[[LoadBalancerKey], Awaitable[float | None]]


class FirstPass:
    """Counts keys off as they are reconciled, successfully or not."""

    def __init__(self) -> None:
        self._left: set[LoadBalancerKey] = set()
        self._done = asyncio.Event()

    def begin(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Wait for ``keys`` from now on."""
        self._left = set(keys)
        if not self._left:
            self._done.set()

    async def wait(self) -> None:
        """Return once every key has been reconciled."""
        await self._done.wait()

    def counted(self, reconcile: Reconcile) -> Reconcile:
        """Return ``reconcile``, counting."""

        async def counting(key: LoadBalancerKey) -> float | None:
            try:
                return await reconcile(key)
            finally:
                if self._left:
                    self._left.discard(key)
                    if not self._left:
                        self._done.set()

        return counting
