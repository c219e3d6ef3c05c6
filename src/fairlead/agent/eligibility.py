"""Whether this agent can work. If it cannot, it must not hold the lease, so that another copy may try.

    not eligible ──every cache read, the hub serves us, the tenant is ours──► candidate ──► leader
        ▲                                                                                      │
        └──────── the hub accepts no heartbeat, or a cache is silent, for too long ────────────┘

In: both clusters, the caches, the heartbeat. Out: waits that end when the answer changes, and one sentence that says
why.
Never: gives up for one error, or for a right whose lack leaves the rest working.
"""

from __future__ import annotations

import structlog

from fairlead.agent.checks import find_missing_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.heartbeat import MemberHeartbeat, tenant_conflict
from fairlead.agent.offboarding import Offboarding
from fairlead.agent.sources import Sources
from fairlead.errors import FairleadError, Forbidden
from fairlead.kube.cache import AnyCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import read_cluster_uid
from fairlead.runtime.queue import backoff_s

_CHECK_S = 1.0
_READING_S = 0.05
_RETRY_LIMIT_S = 5.0


class Eligibility:
    """Knows whether this agent can work. ``problem`` says what is in the way; empty when nothing is.

    ``member_uid`` stands for the member's identity; it is empty when it has none, or may not be read.
    """

    def __init__(
        self,
        *,
        member: Cluster,
        hub: Cluster,
        sources: Sources,
        config: AgentConfig,
        hub_namespace: str,
        offboarding: Offboarding,
    ) -> None:
        self._member = member
        self._hub = hub
        self._caches: tuple[AnyCache, ...] = (*sources.of_member, *sources.of_hub)
        self._config = config
        self._offboarding = offboarding
        self._namespace = hub_namespace
        self.problem = ""
        self.member_uid = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)

    async def wait_eligible(self) -> None:
        """Return once this agent can work."""
        failures, logged = 0, ""
        limit_s = min(self._config.preflight_retry_s, _RETRY_LIMIT_S)
        while not await self.check():
            if self._reading():
                await self._hub.clock.sleep(_READING_S)
                continue
            if self.problem != logged:
                logged = self.problem
                self._log.error("not exporting, and not a candidate for the lease", sentence=self.problem)
            failures += 1
            await self._hub.reachable.pause(backoff_s(failures, base_s=0.5, limit_s=limit_s))

    async def check(self) -> bool:
        """Check everything once; say whether this agent can work."""
        self.problem = self._unread() or self._silent()
        if self.problem:
            return False
        try:
            self.member_uid = await self._read_member_uid()
            missing = await find_missing_namespace(self._hub, self._namespace, self._config.tenant)
            self.problem = missing[0] if missing else await self._tenant_conflict()
        except FairleadError as error:
            self.problem = error.sentence
        return not self.problem

    async def wait_ineligible(self, heartbeat: MemberHeartbeat) -> None:
        """Return when a leader has not been able to work for ``let_go_s``; ``problem`` says what was in the way."""
        clock, limit_s = self._hub.clock, self._config.let_go_s
        eligible_s = clock.monotonic()
        while True:
            await clock.sleep(min(_CHECK_S, limit_s / 4))
            # A heartbeat is the smallest write at the hub: where it is refused, all others are.
            problem = heartbeat.problem or self._silent()
            if not problem:
                eligible_s = clock.monotonic()
            elif clock.monotonic() - eligible_s >= limit_s:
                self.problem = problem
                self._log.error("releasing the lease, so that another agent may try", sentence=problem)
                return

    async def _read_member_uid(self) -> str:
        try:
            return await read_cluster_uid(self._member)
        except Forbidden:
            # Then two clusters of one tenant cannot be distinguished; the checks say that the right is lacking.
            return ""

    async def _tenant_conflict(self) -> str:
        return await tenant_conflict(
            self._hub,
            namespace=self._namespace,
            tenant=self._config.tenant,
            member_uid=self.member_uid,
            seen=self._offboarding.heard,
        )

    def _reading(self) -> bool:
        """Return whether the first read of the caches is under way, with nothing wrong so far."""
        return any(not cache.synced for cache in self._caches) and not any(cache.problem for cache in self._caches)

    def _unread(self) -> str:
        """Return why some cache has never been complete, the one that has met with a problem first."""
        unread = [cache for cache in self._caches if not cache.synced]
        problems = [cache.problem for cache in unread if cache.problem]
        lines = [f"The {cache.resource.full_name} of {cache.cluster.name} have not been read yet." for cache in unread]
        return next(iter((*problems, *lines)), "")

    def _silent(self) -> str:
        """Return the problem of a cache that has not heard from its server for ``fresh_s``; a polling one hears it."""
        fresh_s = self._config.fresh_s
        return next((cache.problem for cache in self._caches if cache.problem and cache.age_s > fresh_s), "")
