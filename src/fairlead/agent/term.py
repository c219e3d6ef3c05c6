"""One term of an agent as leader: eligibility, election, heartbeat, and the end of its tenant.

    not eligible ──every cache read, the hub serves us, the tenant is ours──► candidate ──► leader, heartbeat
        ▲                                                                                      │
        └──────── the hub accepts no heartbeat, or a cache is silent, for too long ────────────┘

    the hub marks the agent's Lease ──► nothing is published; a Warning on each Service that has a load balancer
    a load balancer is gone at the hub ──► its address leaves the Service
    no Service shows an address of ours ──► the Lease says so, and the hub ends the tenant

In: both clusters, and the caches of Services. Out: terms of leadership; a Lease in the tenant's namespace, renewed only
while the member can be seen; one sentence that says what prevents work. Never: leads for a tenant that belongs to
another cluster, or gives up for one error, or for a right whose lack leaves the rest working.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import structlog

from fairlead import __version__
from fairlead.agent.checks import find_missing_namespace, find_system_namespace
from fairlead.agent.config import AgentConfig
from fairlead.agent.sources.caches import MemberService, ServiceCaches
from fairlead.api.kubernetes import LEASES, Lease
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    AGENT_LEASE,
    ANNOTATION_ADDRESS,
    ANNOTATION_REFUSED,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    MANAGER_AGENT,
    label_value,
)
from fairlead.api.tenant import (
    ANNOTATION_LAST_SYNC,
    ANNOTATION_LEAVING,
    ANNOTATION_MEMBER_UID,
    ANNOTATION_REGION,
    ANNOTATION_SERVICES_INFORMED,
    ANNOTATION_VERSION,
)
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, Forbidden, NotFound
from fairlead.kube.cache import AnyCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import InlineToken, TokenTimes, request_token, token_times
from fairlead.kube.discovery import read_cluster_uid
from fairlead.kube.lease import Heartbeat, LeaderElector
from fairlead.runtime.clock import Clock, wait_for
from fairlead.runtime.private_file import write_private
from fairlead.runtime.queue import backoff_s

_CHECK_S = 1.0
_READING_S = 0.05
_RETRY_LIMIT_S = 5.0


class Eligibility:
    """Knows whether this agent can work. ``problem`` says what is in the way; empty when nothing is.

    ``member_uid`` identifies the member; it is empty when it has none, or may not be read.
    """

    def __init__(
        self,
        *,
        member: Cluster,
        hub: Cluster,
        caches: ServiceCaches,
        config: AgentConfig,
        hub_namespace: str,
        offboarding: Offboarding,
    ) -> None:
        self._member = member
        self._hub = hub
        self._caches: tuple[AnyCache, ...] = caches.all
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


#: A Lease is renewed often, so it stays small.
_REFUSALS, _LONGEST = 16, 300
#: The hub waits for what the Services show.
_LEAVING_S = 1.0
#: Shortest time between two beats, in seconds: what changes meanwhile is one write.
_GATHER_S = 1.0


class Refusals:
    """Why objects are refused; ``changed`` is set when that is not what was read last.

    A key is namespace and name of a Service, and kind, namespace and name of another object.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._sentences: dict[tuple[str, ...], str] = {}

    def put(self, key: tuple[str, ...], sentence: str) -> None:
        """Store why ``key`` is refused; empty when it is not."""
        if sentence != self._sentences.get(key, ""):
            self._sentences[key] = sentence
            if not sentence:
                del self._sentences[key]
            self.changed.set()

    def read(self) -> Mapping[tuple[str, ...], str]:
        """Return the sentences."""
        self.changed.clear()
        return self._sentences


async def tenant_conflict(
    hub: Cluster, *, namespace: str, tenant: str, member_uid: str, seen: Callable[[Lease], None]
) -> str:
    """Return why this member may not write to the tenant's namespace; empty when it may; its Lease goes to ``seen``.

    An agent with the kubeconfig of the wrong member would find none of the tenant's Services there, and remove all
    its load balancers.

    Raises:
        FairleadError: the lease cannot be read.
    """
    try:
        lease: Lease = await hub.get(LEASES, namespace, AGENT_LEASE)
    except NotFound:
        return ""
    seen(lease)
    recorded = lease.annotation(ANNOTATION_MEMBER_UID)
    if not recorded or not member_uid or recorded == member_uid:
        return ""
    return (
        f"Tenant {tenant} at the hub belongs to another cluster: the uid of its kube-system namespace is {recorded}, "
        f"here it is {member_uid}. Nothing is written. Give each member its own tenant; if this cluster has replaced "
        f"the other one, delete the Lease {namespace}/{AGENT_LEASE} at the hub."
    )


class MemberHeartbeat:
    """The sign of life of one member."""

    def __init__(
        self,
        *,
        hub: Cluster,
        namespace: str,
        tenant: str,
        region: str,
        identity: str,
        member_uid: str,
        interval_s: float,
        is_fresh: Callable[[], bool],
        refusals: Refusals,
        offboarding: Offboarding,
        clock: Clock,
    ) -> None:
        self._interval_s = interval_s
        self._is_fresh = is_fresh
        self._refusals = refusals
        self._offboarding = offboarding
        self._clock = clock
        self._region = region
        self._member_uid = member_uid
        self.problem = ""
        self._beat = Heartbeat(
            hub,
            namespace=namespace,
            name=AGENT_LEASE,
            identity=identity,
            interval_s=interval_s,
            annotations=self._annotations,
            labels={LABEL_MANAGED_BY: MANAGED_BY, LABEL_TENANT: label_value(tenant)},
            manager=MANAGER_AGENT,
            clock=clock,
        )
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.term")

    async def run(self) -> None:
        """Beat until cancelled, except while the member cannot be seen."""
        while True:
            if self._is_fresh():
                try:
                    self._offboarding.heard(await self._beat.beat())
                    self.problem = ""
                except FairleadError as error:
                    if self.problem != error.sentence:
                        self._log.warning("no heartbeat", sentence=error.sentence, detail=error.detail)
                    self.problem = error.sentence
            # Wait for the next beat, which is due early while the tenant leaves, and when what is refused has
            # changed.
            wait_s = min(self._interval_s, _LEAVING_S) if self._offboarding.leaving else self._interval_s
            first_s = min(wait_s, _GATHER_S)
            await self._clock.sleep(first_s)
            await wait_for(self._refusals.changed, self._clock, wait_s - first_s)

    def _annotations(self) -> Mapping[str, str]:
        now = wire_time(self._clock.now())
        annotations = {ANNOTATION_VERSION: __version__, ANNOTATION_LAST_SYNC: now}
        if self._region:
            annotations[ANNOTATION_REGION] = self._region
        if self._member_uid:
            annotations[ANNOTATION_MEMBER_UID] = self._member_uid
        if refusals := self._refusals.read():
            annotations[ANNOTATION_REFUSED] = refusals_text(refusals)
        if self._offboarding.done:
            annotations[ANNOTATION_SERVICES_INFORMED] = "true"
        return annotations


def refusals_text(refusals: Mapping[tuple[str, ...], str]) -> str:
    """Return as JSON why objects are refused: the first by name, and under no name how many more there are."""
    shown = sorted(refusals.items(), key=lambda refusal: (len(refusal[0]), refusal[0]))[:_REFUSALS]
    texts = {"/".join(key): sentence[:_LONGEST] for key, sentence in shown}
    if more := len(refusals) - len(shown):
        texts[""] = f"{more} more objects are refused; the Warnings on them say why"
    return msgspec.json.encode(texts).decode()


class Offboarding:
    """Whether the tenant leaves; ``changed`` is called when it begins to, and when it no longer does.

    A Tenant no longer leaves when a load balancer turns up that it has to serve, or when it was created again.
    """

    def __init__(self, *, tenant: str, caches: ServiceCaches, changed: Callable[[], None]) -> None:
        self._tenant = tenant
        self._seen = caches
        self._changed = changed
        self.leaving = False
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=tenant)

    @property
    def problem(self) -> str:
        """Return what a person should know, empty while the tenant stays."""
        if not self.leaving:
            return ""
        return f"Tenant {self._tenant} is being removed at the hub: nothing is exported. Stop this agent."

    @property
    def done(self) -> bool:
        """Return whether no Service shows an address of ours."""
        return self.leaving and self._seen.synced and not any(map(self._shows, self._seen.services.values()))

    def heard(self, lease: Lease) -> None:
        """Apply what the hub has written into the Lease."""
        leaving = bool(lease.annotation(ANNOTATION_LEAVING))
        if leaving == self.leaving:
            return
        self.leaving = leaving
        if leaving:
            self._log.warning("leaving", sentence=self.problem)
        else:
            self._log.info("no longer leaving")
        self._changed()

    @staticmethod
    def _shows(service: MemberService) -> bool:
        by_status = service.status_is_ours and bool(service.status.load_balancer.ingress)
        return by_status or ANNOTATION_ADDRESS in (service.metadata.annotations or {})


class AgentLeadership:
    """A candidate for the lease whenever this agent is eligible; ``work`` is done during a term."""

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
        work: Callable[[], Coroutine[None, None, None]],
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


# --- the token for the hub -------------------------------------------------------------------------------------------

#: The kubeconfig may get another token, and the hub's clock may turn out to be another: both are read this often.
_LOOK_S = 60.0
#: A token that cannot be renewed is a problem from this part of its life before its end on, and this long at most.
_PROBLEM_PART, _PROBLEM_S = 1 / 3, 3 * 86_400.0
_RENEW_LIMIT_S = 60.0


class TokenRenewal:
    """Renews the agent's token for the hub at half of its life; ``run`` it in every copy, leading or not.

    The new token is used from the next request on, and written to the kubeconfig where that can be written. What
    another renews (token files, plugins, OIDC) is left alone. ``problem`` is a sentence when the token soon ends.
    """

    def __init__(self, hub: Cluster, *, tenant: str) -> None:
        self._hub = hub
        self._tenant = tenant
        self._failures = 0
        self._failure = ""
        self._times: TokenTimes | None = None
        self._in_memory = False
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.token").bind(tenant=tenant)

    @property
    def problem(self) -> str:
        """Return a sentence when the token ends soon and renewing it fails; else nothing."""
        if not self._failure or self._times is None:
            return ""
        left_s = self._left_s(self._times)
        return self._sentence(self._times) if left_s <= min(self._times.life_s * _PROBLEM_PART, _PROBLEM_S) else ""

    async def run(self) -> None:
        """Renew until cancelled; where the token is not ours to renew, return at once."""
        inline = self._hub.config.inline_token
        while inline is not None:
            await self._hub.clock.sleep(await self._look(inline))

    async def _look(self, inline: InlineToken) -> float:
        """Renew the token when it is due; return after how many seconds it may be due next."""
        try:
            token = await inline.token()
        except FairleadError:
            return _LOOK_S  # every request says it
        written, times = inline.written(), token_times(token)
        if times != self._times:
            self._times, self._failures, self._failure = times, 0, ""
        if times is None:
            return _LOOK_S
        due_s = self._left_s(times) - times.life_s / 2
        if due_s > 0:
            return min(due_s, _LOOK_S)
        try:
            issued = await request_token(self._hub, times.namespace, times.account, valid_s=round(times.life_s))
        except FairleadError as error:
            self._failures += 1
            if error.sentence != self._failure:
                self._failure = error.sentence
                self._log.warning("token not renewed", sentence=self._sentence(times), detail=error.detail)
            limit_s = min(_RENEW_LIMIT_S, max(1.0, times.life_s / 20))
            return backoff_s(self._failures, base_s=1.0, limit_s=limit_s)
        new = issued.token
        files = inline.files()
        inline.replace(token, new)
        self._times, self._failures, self._failure = token_times(new), 0, ""
        unwritten = await asyncio.to_thread(replace_token, files, written, new)
        until = self._times.expires.isoformat() if self._times else ""
        self._log.info("token renewed", until=until, written=not unwritten)
        warned, self._in_memory = self._in_memory, bool(unwritten)
        if unwritten and not warned:
            self._log.warning(
                "token is kept in memory",
                sentence=f"{unwritten}, so the renewed token is kept in memory only. This agent continues; one that is "
                "started after the token in the file has expired needs a new key: "
                f"fairlead tenant rotate {self._tenant}.",
            )
        # However short its life is, and whatever the clocks say: the server is not asked without a pause.
        return min(_LOOK_S, max(1.0, times.life_s / 4))

    def _left_s(self, times: TokenTimes) -> float:
        return (times.expires - self._hub.server_clock.now()) / timedelta(seconds=1)

    def _sentence(self, times: TokenTimes) -> str:
        ended = "has expired" if self._left_s(times) <= 0 else "expires"
        return (
            f"The agent's token for the hub {ended} at {times.expires:%Y-%m-%dT%H:%M:%SZ} and cannot be renewed: "
            f"{self._failure} If this continues, run: fairlead tenant rotate {self._tenant}"
        )


def replace_token(files: Sequence[Path], old: str, new: str) -> str:
    """Replace ``old`` in the first file that has it; return why that cannot be done, empty when it was.

    Between reading and replacing the file nothing waits, so that a key that is put there at the same time is not
    overwritten by the renewal of an older one.
    """
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            if old not in text:
                continue
            write_private(path, text.replace(old, new))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            return f"The kubeconfig {path} cannot be written ({reason})"
        return ""
    names = ", ".join(map(str, files)) or "none"
    return f"The token to be replaced is not in the kubeconfig ({names})"
