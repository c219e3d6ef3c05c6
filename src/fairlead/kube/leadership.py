"""Leadership of one replica of a controller: whether it may write now, and what a term begins with.

In: the lease, our identity, and what to enqueue at the beginning. Out: ``may_write``, asked right before every write.
Never: writes anything but the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import LeaderElector

log = structlog.get_logger(__name__)


class Leadership:
    """One replica as a candidate for one lease; ``in_term`` once the work of its term has been enqueued."""

    def __init__(self, cluster: Cluster, lease: str, *, identity: str, lease_s: float, reclaim: bool) -> None:
        self._identity = identity
        self.in_term = False
        self._elector = LeaderElector(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=lease,
            identity=identity,
            lease_s=lease_s,
            renew_s=lease_s * 2 / 3,
            retry_s=lease_s / 8,
            reclaim=reclaim,
        )

    def may_write(self) -> bool:
        """Return whether this replica may write, at this very moment."""
        return self.in_term and self._elector.is_leader

    async def run(self, begin: Callable[[], None]) -> None:
        """Run for leadership until cancelled; ``begin`` enqueues everything at the beginning of each term."""

        async def lead(epoch: int) -> None:
            log.info("leading", epoch=epoch, identity=self._identity)
            self.in_term = True
            try:
                begin()
                await asyncio.Event().wait()
            finally:
                self.in_term = False

        await self._elector.run(lead)
