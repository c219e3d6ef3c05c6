"""Delays without the time in which programs wait for a processor: other load of the machine does not lengthen them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

_PRESSURE = Path("/proc/pressure/cpu")


def waited_s() -> float:
    """Return for how long, in all, some program of this machine has waited for a processor; 0 if it is not counted."""
    try:
        some = _PRESSURE.read_text().partition("total=")[2]
    except OSError:
        return 0.0
    return int(some.split()[0]) / 1e6


class Moment(NamedTuple):
    """A moment from which a delay is judged; ``at`` in seconds since 1970."""

    at: float
    waited_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), waited_s())

    def own_s(self, delay_s: float) -> float:
        """Return a delay since then, which has just ended, without the waits for a processor."""
        return delay_s - (waited_s() - self.waited_s)
