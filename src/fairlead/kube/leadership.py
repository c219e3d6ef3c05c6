"""Leadership of one replica of a controller: whether it may write now, and what a term begins with.

In: the lease, the replica's settings, and what to enqueue at the beginning. Out: ``may_write``, asked right before
every write. Never: writes anything but the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import BadConfiguration, Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import LeaderElector

log = structlog.get_logger(__name__)


def check_leads(leading: Callable[[], bool], action: str) -> None:
    """Return when this replica leads at this very moment; asked right before a write.

    Raises:
        Retry: it does not; ``action``, such as "Secret a/b", is not written, and the replica that leads decides.
    """
    if not leading():
        raise Retry(f"this replica no longer leads; {action} is not written", reason="NotLeading")


class ReplicaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one replica of a controller; ``workers`` is for each of its queues.

    ``reclaim_lease``: no other process can have this identity, so a restart leads again at once. ``look_s``: how often
    the API is asked which kinds of others it serves.
    """

    identity: str
    workers: int
    look_s: float
    lease_s: float = 15.0
    reclaim_lease: bool = False

    def check(self) -> None:
        """Raise ``BadConfiguration``, which names the setting, when one is invalid."""
        if self.workers < 1:
            raise BadConfiguration(f"--workers is {self.workers}: it must be at least 1.")


class Leadership:
    """One replica as a candidate for one lease; ``in_term`` once the work of its term has been enqueued."""

    def __init__(self, cluster: Cluster, lease: str, config: ReplicaConfig) -> None:
        self._identity = config.identity
        self.in_term = False
        self._elector = LeaderElector(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=lease,
            identity=config.identity,
            lease_s=config.lease_s,
            renew_s=config.lease_s * 2 / 3,
            retry_s=config.lease_s / 8,
            reclaim=config.reclaim_lease,
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
