"""Can this agent work? If not, it must not hold the lease, so that another copy may try.

    not able ──every cache read, the hub serves us, the tenant is ours──► candidate ──► leader
        ▲                                                                                  │
        └────── the hub takes no heartbeat, or a cache is silent, for too long ────────────┘

In: both clusters, the caches, the heartbeat. Out: waits that end when the answer changes, and one sentence that says
why.
Never: gives up for one error, or for a right whose lack leaves the rest working.
"""

from __future__ import annotations

from typing import Any

import structlog

from fairlead.agent.checks import find_missing_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.heartbeat import MemberHeartbeat, read_member_uid, tenant_is_taken
from fairlead.agent.sources import Sources
from fairlead.errors import FairleadError, Forbidden
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.runtime.queue import backoff_s

_LOOK_S = 1.0
_READING_S = 0.05
_ASK_S = 5.0


class Fitness:
    """Knows whether this agent can work. ``why`` says what is in the way; empty when nothing is.

    ``member_uid`` stands for the member's identity; it is empty when it has none, or may not be read.
    """

    def __init__(
        self, *, member: Cluster, hub: Cluster, sources: Sources, config: AgentConfig, hub_namespace: str
    ) -> None:
        self._member = member
        self._hub = hub
        self._caches: tuple[WatchCache[Any], ...] = (*sources.of_member, *sources.of_hub)
        self._config = config
        self._namespace = hub_namespace
        self.why = ""
        self.member_uid = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)

    async def wait_able(self) -> None:
        """Return once this agent can work."""
        failures, told = 0, ""
        limit_s = min(self._config.preflight_retry_s, _ASK_S)
        while not await self.able():
            if self.why != told and not self._reading():
                told = self.why
                self._log.error("not exporting, and not standing for the lease", sentence=self.why)
            if self._reading():
                await self._hub.clock.sleep(_READING_S)
                continue
            failures += 1
            await self._hub.clock.sleep(backoff_s(failures, base_s=0.5, limit_s=limit_s))

    async def able(self) -> bool:
        """Look once, at everything."""
        self.why = self._unread() or self._silent()
        if self.why:
            return False
        try:
            self.member_uid = await self._read_member_uid()
            missing = await find_missing_namespace(self._hub, self._namespace, self._config.tenant)
            self.why = missing[0] if missing else await self._taken()
        except FairleadError as error:
            self.why = error.sentence
        return not self.why

    async def wait_unable(self, heartbeat: MemberHeartbeat) -> None:
        """Return when a leader has not been able to work for ``let_go_s``; ``why`` says what was in the way."""
        clock, let_go_s = self._hub.clock, self._config.let_go_s
        able_s = clock.monotonic()
        while True:
            await clock.sleep(min(_LOOK_S, let_go_s / 4))
            # A heartbeat is the smallest write at the hub: where it is refused, all others are.
            why = heartbeat.problem or self._silent()
            if not why:
                able_s = clock.monotonic()
            elif clock.monotonic() - able_s >= let_go_s:
                self.why = why
                self._log.error("letting the lease go, so that another agent may try", sentence=why)
                return

    async def _read_member_uid(self) -> str:
        try:
            return await read_member_uid(self._member)
        except Forbidden:
            # Then two clusters of one tenant cannot be told apart; the checks say that the right is lacking.
            return ""

    async def _taken(self) -> str:
        return await tenant_is_taken(
            self._hub, namespace=self._namespace, tenant=self._config.tenant, member_uid=self.member_uid
        )

    def _reading(self) -> bool:
        """Say whether a first look is under way, with nothing wrong so far."""
        return any(not cache.synced for cache in self._caches) and not any(cache.problem for cache in self._caches)

    def _unread(self) -> str:
        """Return why some cache has never been complete, the one that has met with a problem first."""
        unread = [cache for cache in self._caches if not cache.synced]
        told = [cache.problem for cache in unread if cache.problem]
        lines = [f"The {cache.resource.full_name} of {cache.cluster.name} have not been read yet." for cache in unread]
        return next(iter((*told, *lines)), "")

    def _silent(self) -> str:
        """Return the problem of a cache that has heard nothing for long; one that can only poll is heard at times."""
        fresh_s = self._config.fresh_s
        return next((cache.problem for cache in self._caches if cache.problem and cache.age_s > fresh_s), "")
