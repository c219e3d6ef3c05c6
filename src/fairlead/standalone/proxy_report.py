"""Report the proxies of a hub, whether they have its newest state, and its address pool, in a ConfigMap of its API.

    provider.proxies() ──read every second──► settled for 5 s ──► ConfigMap fairlead-system/fairlead-proxies

One key for each hub replica, written only when a proxy comes, goes, or is SYNCED or STALE for good: an idle hub writes
nothing. In: a function that lists proxies. Out: that ConfigMap; and, for ``fairlead status``, its content.
Never reports the moment between a push and its acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec
import structlog

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import CONFIG_MAPS, CONFIG_MAPS_WITH_DATA
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB, SYSTEM_NAMESPACE, replica_key
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import Clock
from fairlead.status.fleet import ProxyRow, ReplicaReport

NAME = "fairlead-proxies"
_POLL_S = 1.0
_SETTLE_S = 5.0

log = structlog.get_logger(__name__)


async def read_reports(cluster: Cluster) -> dict[str, ReplicaReport]:
    """Return the report of each hub replica by the replica's identity."""
    try:
        config_map = await cluster.get(CONFIG_MAPS_WITH_DATA, SYSTEM_NAMESPACE, NAME)
    except NotFound:
        return {}
    return decode_reports(config_map.data or {})


def decode_reports(data: Mapping[str, str]) -> dict[str, ReplicaReport]:
    """Return the reports in the data of the ConfigMap; one that cannot be read is left out."""
    reports: dict[str, ReplicaReport] = {}
    for identity, text in sorted(data.items()):
        with suppress(msgspec.DecodeError):  # written by a hub of another version: others can still be read
            reports[identity] = decode(text, ReplicaReport)
    return reports


class ProxyReporter:
    """Keeps one replica's key up to date."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        identity: str,
        proxies: Callable[[], Sequence[ProxyRow]],
        address_pool: str = "",
        clock: Clock,
        settle_s: float = _SETTLE_S,
    ) -> None:
        self._cluster = cluster
        self._key = replica_key(identity)
        self._proxies = proxies
        self._address_pool = address_pool
        self._clock = clock
        self._settle_s = settle_s
        self._written: list[ProxyRow] | None = None

    async def run(self) -> None:
        """Report until cancelled; what cannot be written now is tried again a second later."""
        await self._read_own_report()
        candidate: list[ProxyRow] = []
        since_s = self._clock.monotonic()
        while True:
            rows = list(self._proxies())
            now_s = self._clock.monotonic()
            if rows != candidate:
                candidate, since_s = rows, now_s
            # The first report is not held back: until then there is nothing to compare with.
            settled = now_s - since_s >= self._settle_s or (self._written is None and bool(rows))
            if settled and rows != self._written:
                await self.write(rows)
            await self._clock.sleep(_POLL_S)

    def again(self) -> None:
        """Report once more: what was written may be gone."""
        self._written = None

    async def _read_own_report(self) -> None:
        """Start from what an earlier process of the same identity wrote, so that a restart writes nothing."""
        try:
            report = (await read_reports(self._cluster)).get(self._key)
        except FairleadError as error:
            log.info("proxies were not read back", error=error.sentence)
            return
        same = report is not None and report.address_pool == self._address_pool
        self._written = report.proxies if report is not None and same else None

    async def write(self, rows: list[ProxyRow]) -> None:
        """Report these now; what cannot be written is tried again a second later."""
        since = wire_time(self._clock.now())
        text = msgspec.json.encode(ReplicaReport(since, rows, self._address_pool)).decode()
        obj: JSONObject = {
            "metadata": {"namespace": SYSTEM_NAMESPACE, "name": NAME, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
            "data": {self._key: text},
        }
        try:
            # A manager for each replica: one replica's key is never taken for another's omission.
            await self._cluster.apply(CONFIG_MAPS, obj, manager=f"{MANAGER_HUB}-{self._key}"[:128])
        except FairleadError as error:
            log.warning("proxies were not reported", error=error.sentence)
            return
        self._written = rows
