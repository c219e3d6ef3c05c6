"""Let other tasks run during work over many objects, every few milliseconds.

time_slice = TimeSlice()
for item in many:
    ...
    await time_slice.yield_if_used_up()
"""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.01


class TimeSlice:
    """A time slice of ``SLICE_S`` seconds; no other task runs before it has been used up."""

    def __init__(self) -> None:
        self._ends = time.perf_counter() + SLICE_S

    @property
    def used_up(self) -> bool:
        """Return whether the slice has been used up."""
        return time.perf_counter() >= self._ends

    async def yield_if_used_up(self) -> None:
        """Let other tasks run if the slice has been used up, and start the next one."""
        if self.used_up:
            await asyncio.sleep(0)
            self._ends = time.perf_counter() + SLICE_S
