"""How does work over many objects leave room for others? It takes turns of a few milliseconds.

turns = TimeSlice()
for item in many:
...
await turns.rest()
"""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.01


class TimeSlice:
    """The turns of one piece of work; everything between two rests happens without anybody else."""

    def __init__(self) -> None:
        self._ends = time.perf_counter() + SLICE_S

    @property
    def over(self) -> bool:
        """Say whether the turn has been used up."""
        return time.perf_counter() >= self._ends

    async def rest(self) -> None:
        """Let others run if the turn is over."""
        if self.over:
            await asyncio.sleep(0)
            self._ends = time.perf_counter() + SLICE_S
