"""An event loop in which waiting takes no time: thousands of schedules of minutes each, in seconds.

In: coroutines. Out: their results, in an order that depends on nothing but them. ``time()`` is virtual.
"""

from __future__ import annotations

import asyncio
import selectors
from datetime import UTC, datetime, timedelta

_START = datetime(2030, 1, 1, tzinfo=UTC)


class _Selector(selectors.SelectSelector):
    """Selects nothing, and lets the time pass that a task was willing to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        # The loop fires timers a nanosecond early; one that finds its time not come would wait forever for nothing.
        self.now_s += max(0.0, timeout) + 2e-9
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for programs that talk to nothing outside."""

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def reset(self) -> None:
        """Begin at the beginning, so that no schedule depends on the one before it."""
        self._virtual.now_s = 0.0
        self._scheduled.clear()
        self._timer_cancelled_count = 0

    def time(self) -> float:
        return self._virtual.now_s


class LoopClock:
    """The running loop's time, as the ``Clock`` of everything."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def now(self) -> datetime:
        return _START + timedelta(seconds=self.monotonic())

    def processor_s(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
