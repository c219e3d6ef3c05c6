"""The ledger of providers whose whole state we serve ourselves: the tracker's own memory is all that is needed.

When the process dies, so does the state that it served from; what should be is rebuilt from the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.change import Outcome, TargetChange


class MemoryLedger:
    """Remembers nothing beyond the tracker."""

    async def record(self, changes: Sequence[TargetChange]) -> None:
        """Store nothing."""

    async def settle(self, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]) -> None:
        """Store nothing."""
