"""Keep a Lease for each living hub replica, and drop the reports of those that are gone.

    each replica   renews a Lease of its own           Lease fairlead-system/fairlead-replica-<name>
    the leader     watches these, and the reports of proxies; one whose Lease stands still is gone, and so is its report

In: our identity, and whether we lead. Out: a Lease, and the ConfigMap of reports without the keys of dead replicas,
whose proxies would otherwise count as STALE for ever.
Never compares clocks of two machines: a replica is gone when its Lease has not changed for five minutes of our own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from fairlead.api.kubernetes import CONFIG_MAPS, LEASES, Lease
from fairlead.api.names import GROUP, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.naming import fit, replica_key
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import Heartbeat
from fairlead.runtime.clock import Clock
from fairlead.standalone.proxy_report import NAME, read_reports

#: A label of its own: with the agents' one, every heartbeat would wake the hub's list of members.
LABEL_REPLICA = f"{GROUP}/hub-replica"
_INTERVAL_S = 30.0

log = structlog.get_logger(__name__)


class Replicas:
    """Renews one replica's Lease, and watches those of the others while it leads.

    ``returned`` is called when our own Lease was not renewed for so long that a leader may have dropped our report,
    ``gone`` with the key of a replica whose report is dropped.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        identity: str,
        leading: Callable[[], bool],
        returned: Callable[[], None],
        gone: Callable[[str], Awaitable[None]] | None = None,
        clock: Clock,
        gone_s: float = 300.0,
    ) -> None:
        self._cluster = cluster
        self._key = replica_key(identity)
        self._leading = leading
        self._returned = returned
        self._gone = gone
        self._clock = clock
        self._gone_s = gone_s
        self._lived_s = clock.monotonic()
        self._signs: dict[str, tuple[str, float]] = {}
        self._heartbeat = Heartbeat(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=fit(f"fairlead-replica-{self._key.lower().replace('_', '-')}", identity=(self._key,)),
            identity=self._key,
            interval_s=_INTERVAL_S,
            labels={LABEL_REPLICA: "true"},
            manager=MANAGER_HUB,
            clock=clock,
        )

    async def run(self) -> None:
        """Renew the Lease, and check the others, until cancelled."""
        problem = ""
        while True:
            try:
                await self.renew()
                problem = ""
            except FairleadError as error:
                if problem != error.sentence:
                    log.warning("hub replicas", sentence=error.sentence, detail=error.detail)
                problem = error.sentence
            await self._clock.sleep(_INTERVAL_S)

    async def renew(self) -> None:
        """Renew the Lease once; the leader checks those of the others.

        Raises:
            FairleadError: the hub's API cannot be asked, or refuses.
        """
        await self._heartbeat.beat()
        # Half of the time, because the leader counts from its own last check.
        if self._clock.monotonic() - self._lived_s > self._gone_s / 2:
            self._returned()
        self._lived_s = self._clock.monotonic()
        if self._leading():
            await self._sweep()

    async def _sweep(self) -> None:
        listed = await self._cluster.list(LEASES, SYSTEM_NAMESPACE, label_selector=LABEL_REPLICA)
        leases = {lease.spec.holder_identity or "": lease for lease in listed}
        reports = await read_reports(self._cluster)
        now_s = self._clock.monotonic()
        before, self._signs = self._signs, {}
        for key in sorted({*leases, *reports} - {self._key}):
            sign = leases[key].metadata.resource_version if key in leases else ""
            known, since_s = before.get(key, (sign, now_s))
            self._signs[key] = (sign, since_s if known == sign else now_s)
        dead = [key for key, (_, since_s) in self._signs.items() if now_s - since_s >= self._gone_s]
        for key in dead:
            await self._drop(key, leases.get(key), reported=key in reports)
            del self._signs[key]

    async def _drop(self, key: str, lease: Lease | None, *, reported: bool) -> None:
        # The last of the two that goes is how a later sweep finds the key again when something fails before that.
        if reported and lease is not None:
            # First, and only as we saw it: one that has just come back keeps both.
            await self._delete(lease)
        if self._gone is not None:
            await self._gone(key)
        if reported:
            patch = {"data": {key: None}}
            await self._cluster.merge_patch(CONFIG_MAPS, SYSTEM_NAMESPACE, NAME, patch, manager=MANAGER_HUB)
        elif lease is not None:
            await self._delete(lease)
        log.info("dropped what a hub that is gone had reported", hub=key, silent_s=self._gone_s)

    async def _delete(self, lease: Lease) -> None:
        version = lease.metadata.resource_version
        await self._cluster.delete(LEASES, SYSTEM_NAMESPACE, lease.metadata.name, resource_version=version)
