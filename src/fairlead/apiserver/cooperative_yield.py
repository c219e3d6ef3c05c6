"""Let other tasks run during work over many objects, every few milliseconds.

time_slice = TimeSlice()
for item in many:
    ...
    await time_slice.give_way()
"""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.01


class TimeSlice:
    """The time slice of one piece of work; no other task runs before it is over."""

    def __init__(self) -> None:
        self._ends = time.perf_counter() + SLICE_S

    @property
    def over(self) -> bool:
        """Return whether the slice has been used up."""
        return time.perf_counter() >= self._ends

    async def give_way(self) -> None:
        """Let other tasks run if the slice is over, and start the next one."""
        if self.over:
            await asyncio.sleep(0)
            self._ends = time.perf_counter() + SLICE_S
