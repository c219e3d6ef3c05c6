"""The ledger of providers whose whole state we serve ourselves: the tracker's own memory is all that is needed.

When the process dies, so does the state that it served from; what should be is rebuilt from the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.change import Outcome, TargetChange
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured


class MemoryLedger:
    """Remembers nothing beyond the tracker."""

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Store nothing."""

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Store nothing."""

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget nothing: nothing was remembered."""

    async def record(self, spec: FrontendSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange]:
        """Store nothing."""
        del spec
        return changes

    async def settle(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Store nothing."""
        del spec, changes
        return outcomes
