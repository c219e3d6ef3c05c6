"""The first pass of a hub: every key that there was at the start is reconciled once before anything is published.

What a kind refers to may be read only then, as certificates are: published without these, listeners would close for a
moment. So the keys of such a kind are reconciled once more when all has been read. In: keys. Out: wake-ups, and when it
is over. Never: a second round for kinds that refer to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fairlead.hub.intents.intent import Intent
from fairlead.model.keys import LoadBalancerKey

Reconcile = Callable[[LoadBalancerKey], Awaitable[float | None]]
#: Limit for reading what load balancers refer to, in seconds.
READ_S = 60.0


class FirstPass:
    """Counts keys off as they are reconciled, successfully or not."""

    def __init__(self) -> None:
        self._left: set[LoadBalancerKey] = set()
        self._done = asyncio.Event()

    async def run(
        self,
        keys: Iterable[LoadBalancerKey],
        intents: Iterable[Intent[Any, Any]],
        wake: Callable[[Iterable[LoadBalancerKey], str], None],
    ) -> None:
        """Return once every key has been reconciled, with all that it refers to."""
        await self._round(keys, "the hub started", wake)
        read = [intent for intent in intents if await intent.wait_read(READ_S)]
        again = [intent.objects.key(obj) for intent in read for obj in intent.objects.served()]
        await self._round(again, "what it refers to has been read", wake)

    async def _round(
        self, keys: Iterable[LoadBalancerKey], cause: str, wake: Callable[[Iterable[LoadBalancerKey], str], None]
    ) -> None:
        self._left = set(keys)
        if not self._left:
            return
        self._done.clear()
        wake(list(self._left), cause)
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
