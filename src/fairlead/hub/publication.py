"""Whether a starting hub has sent its proxies all that there is, and whether they have had time to apply it.

In: the moment of it. Out: for how long an answer of a proxy may still be awaited without anything being wrong.
"""

from __future__ import annotations

import asyncio
import math

from fairlead.runtime.clock import Clock

#: How long proxies may take for thousands of load balancers, in seconds; they answer when they have them all.
TAKE_OVER_S = 30.0


class FirstPublication:
    """Whether and when a starting hub has published; the hub calls ``done`` once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_s = math.inf
        self._event = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Return whether the hub has published."""
        return self._event.is_set()

    @property
    def take_over_s(self) -> float:
        """Return for how many seconds its proxies may still take over what it published; infinite before."""
        return max(0.0, self._at_s + TAKE_OVER_S - self._clock.monotonic())

    def done(self) -> None:
        """Note that all there is has been sent."""
        self._at_s = self._clock.monotonic()
        self._event.set()

    async def wait(self) -> None:
        """Return once the hub has published."""
        await self._event.wait()
