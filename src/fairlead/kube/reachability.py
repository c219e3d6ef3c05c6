"""Whether an API server answers; ends all retry pauses once it answers again.

    answers ──request breaks──► lost ──LOST_S later, a request is answered──► back: waits end, callbacks are called

In: how each request went. Out: pauses that end early. Never: a request of its own, or the end of a pause where only
some requests fail: a server that answers others in between was not away, and must not be asked without a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.runtime.clock import Clock, wait_for

#: A server that has not answered for so long, in seconds, was away.
LOST_S = 2.0


class Reachability:
    """Tracks whether a server answers, by the results of requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_s: float | None = None
        self._back = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []
        #: How often it has come back.
        self.returns = 0

    def on_back(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the server answers again after it was away; it must not block or raise."""
        self._callbacks.append(callback)

    def failed(self) -> None:
        """Note that a request was not answered, or that a stream broke."""
        if self._lost_s is None:
            self._lost_s = self._clock.monotonic()

    def answered(self) -> None:
        """Note that a request was answered as it should be."""
        lost_s, self._lost_s = self._lost_s, None
        if lost_s is None or self._clock.monotonic() - lost_s < LOST_S:
            return
        self.returns += 1
        back, self._back = self._back, asyncio.Event()
        back.set()
        for callback in self._callbacks:
            callback()

    async def pause(self, seconds: float, *, clock: Clock | None = None) -> None:
        """Return after ``seconds`` by ``clock``, or as soon as the server is back."""
        await wait_for(self._back, clock or self._clock, seconds)
