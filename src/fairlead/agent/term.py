"""Leader election among the agents of one member, and what runs during a term.

In: the lease in the member, and the eligibility of this copy. Out: heartbeat and workers, for as long as this agent
leads and can work. Never: writes outside of a term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from fairlead.agent.checks import find_system_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.eligibility import Eligibility
from fairlead.agent.heartbeat import MemberHeartbeat, Refusals
from fairlead.agent.offboarding import Offboarding
from fairlead.api.names import AGENT_LEADER_LEASE
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import LeaderElector
from fairlead.runtime.queue import backoff_s


class Leadership:
    """Stands for the lease whenever this agent is eligible. ``begin`` prepares a term, ``work`` is done during it."""

    def __init__(
        self,
        *,
        member: Cluster,
        hub: Cluster,
        hub_namespace: str,
        identity: str,
        config: AgentConfig,
        eligibility: Eligibility,
        is_fresh: Callable[[], bool],
        refusals: Refusals,
        offboarding: Offboarding,
        begin: Callable[[], None],
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._member = member
        self._hub = hub
        self._hub_namespace = hub_namespace
        self._identity = identity
        self._config = config
        self._eligibility = eligibility
        self._is_fresh = is_fresh
        self._refusals = refusals
        self._offboarding = offboarding
        self._begin = begin
        self._work = work
        self._elector: LeaderElector | None = None
        self._heartbeat: MemberHeartbeat | None = None
        self.working = False
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=config.tenant)

    def may_write(self) -> bool:
        """Return whether this agent is proven to be the only one that writes, at this very moment."""
        return self._elector is not None and self._elector.is_leader

    @property
    def problems(self) -> list[str]:
        """Return what is in the way of the lease and of the heartbeat, one sentence each."""
        parts = (self._elector, self._heartbeat)
        return [part.problem for part in parts if part is not None and part.problem]

    async def run(self) -> None:
        """Be a candidate, once it is known in which namespace the agents of this member have their lease."""
        lease_s = self._config.lease_s
        self._elector = LeaderElector(
            self._member,
            namespace=await self._lease_namespace(),
            name=AGENT_LEADER_LEASE,
            identity=self._identity,
            lease_s=lease_s,
            renew_s=lease_s * 2 / 3,
            retry_s=lease_s * 2 / 15,
            reclaim=self._config.reclaim_lease,
        )
        while True:
            await self._eligibility.wait_eligible()
            await self._elector.run(self._lead)
            # It was released: another copy has the first turn.
            await self._member.clock.sleep(lease_s / 2)

    async def _lease_namespace(self) -> str:
        failures = 0
        while True:
            try:
                return await find_system_namespace(self._member, preferred=self._config.system_namespace)
            except FairleadError as error:
                failures += 1
                self._log.warning("the member does not answer", sentence=error.sentence, detail=error.detail)
                await self._member.reachable.pause(backoff_s(failures, limit_s=30.0))

    async def _lead(self, epoch: int) -> None:
        """Do the work of one term; return when it cannot be done."""
        if not await self._eligibility.check():
            # It may have been waiting for its turn for days.
            return
        self._log.info("exporting", epoch=epoch, namespace=self._hub_namespace)
        self._begin()
        heartbeat = self._heartbeat = MemberHeartbeat(
            hub=self._hub,
            namespace=self._hub_namespace,
            tenant=self._config.tenant,
            region=self._config.region,
            identity=self._identity,
            member_uid=self._eligibility.member_uid,
            interval_s=self._config.heartbeat_s,
            is_fresh=self._is_fresh,
            refusals=self._refusals,
            offboarding=self._offboarding,
            clock=self._hub.clock,
        )
        self.working = True
        try:
            async with asyncio.TaskGroup() as group:
                tasks = (
                    group.create_task(heartbeat.run(), name="heartbeat"),
                    group.create_task(self._work(), name="work"),
                )
                await self._eligibility.wait_ineligible(heartbeat)
                for task in tasks:
                    task.cancel()
        finally:
            self.working = False
            self._heartbeat = None
