"""Leader election and heartbeats, both by Lease objects.

                 free or expired: take it, epoch + 1                 cannot prove it in time, or another holds it
    candidate ─────────────────────────────────────────► leader ─────────────────────────────────────────► candidate
                                                           │ clean stop: hand it back

In: a Cluster, a name, an identity that is unique to this process. Out: ``while_leading(epoch)`` runs only while this
process can prove that no other one leads. Never: compares clocks of two machines; a lease has expired when *we* have
watched it stand still for its whole duration, on our monotonic clock.
Source: https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime

import msgspec
import structlog

from fairlead.api.kubernetes import LEASES, NAMESPACES, Lease, Namespace
from fairlead.api.meta import JSONObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.times import parsed_time
from fairlead.errors import AlreadyExists, BadConfiguration, Conflict, FairleadError, NotFound, Retry, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.runtime.background import keep
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import backoff_s

_RELEASE_S = 3.0
#: The time between a candidate's looks, as a share of that between a leader's renewals: what is seen late is late.
_STANDBY_SHARE = 0.3
#: A longer lease was written by something else; waiting for it would leave no leader.
_MOST_LEASE_S = 600


class LeaderElector:
    """One candidate for one lease.

    ``lease_s``: how long others wait for a leader that went silent. ``renew_s``: how long a leader continues without
    being able to renew; the difference is the margin for clocks of different speed. ``retry_s``: between attempts.
    ``reclaim``: the caller guarantees (by a lock) that no other living process has this identity, so a lease that
    carries it is that of our own previous life, and is taken back at once.
    The epoch (``leaseTransitions``) grows with every change of leader, and fences writes. A lease that was deleted, or
    a new one, begins at 1: those who fence writes by the epoch call ``raise_epoch`` with the highest one on record.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_s: float = 15.0,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
        reclaim: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if not lease_s > renew_s > retry_s > 0:
            raise BadConfiguration(
                f"Leader election needs lease ({lease_s:g} s) > renew ({renew_s:g} s) > retry ({retry_s:g} s) > 0."
            )
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._reclaim = reclaim
        self._clock: Clock = clock or cluster.clock
        self._seen: Lease | None = None
        self._seen_s = 0.0
        self._missing_s: float | None = None  # since when the lease has been missing
        self._mine: Lease | None = None
        self._until_s = 0.0
        #: One write of our lease at a time: a renewal, or a higher epoch.
        self._turn = asyncio.Lock()
        self._highest = 0  # the highest epoch ever seen, ours or not
        self.epoch = 0
        self.problem = ""
        self._logged_holder = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.kube.lease").bind(
            lease=f"{namespace}/{name}", identity=identity
        )

    @property
    def is_leader(self) -> bool:
        """Return whether leadership is proven at this very moment; ask again right before every write."""
        return self._mine is not None and self._clock.monotonic() < self._until_s

    @property
    def holder(self) -> str:
        """Return the identity that held the lease when it was last read; empty when none did."""
        return (self._seen.spec.holder_identity or "") if self._seen else ""

    async def run(self, while_leading: Callable[[int], Awaitable[None]]) -> None:
        """Be a candidate until cancelled; run ``while_leading(epoch)`` during each term.

        Leadership that is lost cancels it at once, and candidacy continues. When it returns, so does this; what it
        raises is raised. Either way, and when cancelled, the lease is handed back.
        """
        failures = 0
        while True:
            try:
                led = await self._try_to_lead()
                self.problem = ""
                failures = 0
            except Conflict:
                led = False  # another candidate was faster
            except FairleadError as error:
                led = False
                failures += 1
                self._report(error)
            if led and await self._lead(while_leading):
                return
            if not led:
                if failures:
                    pause_s = backoff_s(failures, base_s=self._retry_s, limit_s=30.0)
                    await self._cluster.reachable.pause(max(self._standby_s(), pause_s), clock=self._clock)
                else:
                    await self._clock.sleep(self._standby_s())

    async def raise_epoch(self, above: int) -> int:
        """Return the epoch of this term, which is in the lease and higher than ``above``.

        An epoch on record that is not lower than ours is that of a leader whose lease we never saw. The write proves
        that we hold the lease now; a leader that has not noticed yet stops within ``renew_s``, which is waited for.

        Raises:
            FairleadError: the epoch was not raised; the term ends when the lease is no longer ours.
        """
        async with self._turn:
            if self.epoch > above:
                return self.epoch
            if not self.is_leader or self._mine is None:
                raise Conflict(f"{self._identity} no longer holds the lease {self._namespace}/{self._name}.")
            self._log.info("raising the epoch above that of records", epoch=self.epoch, above=above)
            lease = await self._cluster.replace(LEASES, self._body(self._mine, transitions=above + 1))
            self._mine = lease
            self._saw(lease)
            self.epoch = above + 1
        await self._clock.sleep(self._renew_s)
        return self.epoch

    # --- a term -----------------------------------------------------------------------------------------------

    async def _lead(self, while_leading: Callable[[int], Awaitable[None]]) -> bool:
        """Run one term; return True when the work has finished by itself."""
        self._logged_holder = ""
        self._log.info("leading", epoch=self.epoch)
        work = asyncio.create_task(_awaited(while_leading(self.epoch)), name=f"leading-{self._name}")
        keep: asyncio.Task[None] = asyncio.create_task(self._keep(), name=f"lease-{self._name}")
        watch: asyncio.Task[None] = asyncio.create_task(self._watchdog(), name=f"lease-watchdog-{self._name}")
        try:
            await asyncio.wait({work, keep, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Whatever happened, the work is cancelled first; only then is there time for anything else.
            finished = work.done()
            for task in (work, keep, watch):
                task.cancel()
            if not finished:
                await asyncio.wait({work})
            await asyncio.wait({keep, watch})
            if not keep.cancelled() and keep.exception():
                self._log.error("lease loop failed", exc_info=keep.exception())
            await self._release()
        if finished:
            await work
            return True
        if not work.cancelled() and (error := work.exception()):
            # It was cancelled because the term was over; how it stopped is news, but no reason to end.
            self._log.warning("work ended with an error when leadership was lost", error=str(error))
        self._log.warning("leadership lost", epoch=self.epoch, problem=self.problem)
        return False

    async def _watchdog(self) -> None:
        """Return when leadership is no longer proven, whatever the renewing request is stuck in."""
        while (left_s := self._until_s - self._clock.monotonic()) > 0:
            # Checked often: after a suspension of the machine a timer still has its old time to go.
            await self._clock.sleep(min(left_s, 1.0))
        self.problem = self.problem or f"The lease could not be renewed for {self._renew_s:g} s."

    async def _keep(self) -> None:
        """Renew until that is impossible for good; return when another process holds the lease, or it is gone."""
        while True:
            await self._clock.sleep(self._retry_s)
            started_s = self._clock.monotonic()
            try:
                # A request that hangs must leave time for another one, over another connection.
                async with asyncio.timeout(self._renew_s / 3), self._turn:
                    renewed = await self._renew()
            except TimeoutError:
                self.problem = f"{self._cluster.name} does not answer."
                continue
            except NotFound as error:
                # Deleted under us: another candidate may take it at this moment, so this term ends.
                self._report(error)
                self._lose()
                return
            except FairleadError as error:
                self._report(error)
                continue
            if renewed is None:
                self._lose()
                return
            self._mine = renewed
            self._saw(renewed)
            if not self.is_leader:
                # The machine was suspended. Work that was due meanwhile was dropped; only a new term queues it again.
                self.problem = f"The lease was not renewed for {self._renew_s:g} s."
                return
            self._until_s = started_s + self._renew_s
            self.problem = ""

    def _lose(self) -> None:
        """Stop being the leader at once: the work takes a while to end, and must not write meanwhile."""
        self._mine, self._until_s = None, 0.0

    async def _renew(self) -> Lease | None:
        """Write a new renewTime; return None when the lease is no longer ours."""
        assert self._mine is not None
        try:
            return await self._cluster.replace(LEASES, self._body(self._mine, transitions=self.epoch))
        except Conflict:
            # Perhaps our own last write, whose answer was lost. What the lease says decides.
            lease = await self._cluster.get(LEASES, self._namespace, self._name)
            self._saw(lease)
            ours = lease.spec.holder_identity == self._identity and lease.spec.lease_transitions == self.epoch
            if not ours:
                self.problem = f'The lease is now held by "{lease.spec.holder_identity or "none"}".'
                return None
            self._mine = lease
            return await self._cluster.replace(LEASES, self._body(lease, transitions=self.epoch))

    async def _release(self) -> None:
        """Hand the lease back, if it is still ours; a failure only makes the others wait."""
        lease = self._mine
        self._lose()
        if lease is None:
            return
        body = self._body(lease, transitions=self.epoch)
        body["spec"]["holderIdentity"] = ""
        body["spec"]["leaseDurationSeconds"] = 1
        try:
            async with asyncio.timeout(_RELEASE_S):
                self._saw(await self._cluster.replace(LEASES, body))
        except (FairleadError, TimeoutError) as error:
            self._log.info("lease not handed back", error=str(error))

    # --- candidacy --------------------------------------------------------------------------------------------

    async def _try_to_lead(self) -> bool:
        """Read the lease, and take it if it is free, or has stood still for its whole duration."""
        started_s = self._clock.monotonic()
        try:
            lease = await self._cluster.get(LEASES, self._namespace, self._name)
        except NotFound:
            if await self._other_may_lead():
                return False
            transitions = self._highest + 1
            body = self._body(None, transitions=transitions)
            try:
                self._take(await self._cluster.create(LEASES, body), transitions, started_s)
            except AlreadyExists:
                return False
            return True
        self._saw(lease)
        if not self._free(lease):
            holder = lease.spec.holder_identity or ""
            if holder != self._logged_holder:
                self._logged_holder = holder
                self._log.info("standing by", holder=holder, takes_over_after_s=self._lease_s)
            return False
        transitions = self._highest + 1
        started_s = self._clock.monotonic()
        self._take(
            await self._cluster.replace(LEASES, self._body(lease, transitions=transitions)), transitions, started_s
        )
        return True

    async def _other_may_lead(self) -> bool:
        """Return whether a leader may not have noticed yet that the lease was deleted.

        Only an observed absence proves that none leads: the leader's last renewal was before the deletion, and it
        leads on for ``renew_s`` when it cannot reach the API. A lease that is created and deleted between two looks is
        not observed. Our own former lease needs no proof, and neither does a namespace that is too young for anyone to
        have deleted a lease in it.
        """
        if self._highest and self.holder == self._identity and self._highest == self.epoch:
            return False
        now_s = self._clock.monotonic()
        if self._missing_s is None:
            if self._seen is None and await self._namespace_is_new():
                return False
            self._missing_s = now_s
            self._log.info("no lease; another leader may not have noticed yet", takes_it_after_s=self._renew_s)
        return now_s - self._missing_s < self._renew_s

    async def _namespace_is_new(self) -> bool:
        """Return whether the namespace of the lease was created a moment ago, by the clock of the server."""
        try:
            namespace: Namespace = await self._cluster.get(NAMESPACES, "", self._namespace)
        except FairleadError as error:
            # Whatever the reason, such as a missing right to read it: the age is not known.
            self._log.info("the namespace's age is not known", sentence=error.sentence)
            return False
        created = parsed_time(namespace.metadata.creation_timestamp)
        if created is None or namespace.deleting:
            return False
        return abs((self._cluster.server_clock.now() - created).total_seconds()) < self._renew_s / 2

    def _standby_s(self) -> float:
        """Return the time to the next look at the lease: no later than when it expires."""
        look_s = self._retry_s * _STANDBY_SHARE
        if self._seen is None or not self._seen.spec.holder_identity:
            return look_s
        left_s = self._seen_s + self._duration_s(self._seen) - self._clock.monotonic()
        return min(look_s, left_s) if left_s > 0 else look_s

    def _duration_s(self, lease: Lease) -> float:
        """Return how long the holder of a lease is waited for; a duration that no replica has does not count."""
        duration_s = lease.spec.lease_duration_seconds or 0
        return float(duration_s) if 0 < duration_s <= _MOST_LEASE_S else self._lease_s

    def _free(self, lease: Lease) -> bool:
        if not lease.spec.holder_identity:
            return True
        if self._reclaim and lease.spec.holder_identity == self._identity:
            return True
        # Also when the name in it is ours: it may be a twin with the same name, so it is waited for like any other.
        return self._clock.monotonic() - self._seen_s >= self._duration_s(lease)

    def _take(self, lease: Lease, transitions: int, started_s: float) -> None:
        self._mine = lease
        self._saw(lease)
        self.epoch = self._highest = transitions
        # Counted from before the request: the server may have stored it long before the answer came.
        self._until_s = started_s + self._renew_s

    def _saw(self, lease: Lease) -> None:
        if self._seen is None or self._seen.metadata.resource_version != lease.metadata.resource_version:
            self._seen, self._seen_s = lease, self._clock.monotonic()
        self._missing_s = None
        self._highest = max(self._highest, lease.spec.epoch)

    def _body(self, old: Lease | None, *, transitions: int) -> JSONObject:
        now = micro_time(self._clock.now())
        meta: JSONObject = {"namespace": self._namespace, "name": self._name}
        acquired = now
        if old is not None:
            meta["resourceVersion"] = old.metadata.resource_version
            meta["uid"] = old.metadata.uid
            # A replace keeps only what it names, and these belong to their author.
            if old.metadata.labels:
                meta["labels"] = old.metadata.labels
            if old.metadata.annotations:
                meta["annotations"] = old.metadata.annotations
            if self._mine is not None:
                acquired = old.spec.acquire_time or now
        spec: JSONObject = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._lease_s)),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        return {"metadata": meta, "spec": spec}

    def _report(self, error: FairleadError) -> None:
        if self.problem != error.sentence:
            self.problem = error.sentence
            self._log.warning("lease", sentence=error.sentence, detail=error.detail)


class Heartbeat:
    """Renews a Lease as a heartbeat; creates it when it is missing."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        interval_s: float = 10.0,
        annotations: Callable[[], Mapping[str, str]] | None = None,
        labels: Mapping[str, str] | None = None,
        manager: str = "fairlead-heartbeat",
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._interval_s = interval_s
        self._annotations = annotations
        self._labels = dict(labels or {})
        self._manager = manager
        self._clock: Clock = clock or cluster.clock
        self.beats = 0
        self.problem = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.kube.heartbeat").bind(
            lease=f"{namespace}/{name}"
        )

    async def run(self) -> None:
        """Renew the lease until cancelled; failures are in ``problem``, and retried at the next renewal."""
        await keep("heartbeat", self._run, clock=self._clock)

    async def _run(self) -> None:
        while True:
            try:
                await self.beat()
                self.problem = ""
            except FairleadError as error:
                if self.problem != error.sentence:
                    self._log.warning("no heartbeat", sentence=error.sentence, detail=error.detail)
                self.problem = error.sentence
            await self._cluster.reachable.pause(self._interval_s, clock=self._clock)

    async def beat(self) -> Lease:
        """Renew the lease once, and return it as it is then, with what others have written in it.

        Raises:
            FairleadError: as its class says.
        """
        meta: JSONObject = {"namespace": self._namespace, "name": self._name}
        if self._labels:
            meta["labels"] = self._labels
        if self._annotations:
            meta["annotations"] = dict(self._annotations())
        spec: JSONObject = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._interval_s * 4)),
            "renewTime": micro_time(self._clock.now()),
        }
        lease = await self._cluster.apply(LEASES, {"metadata": meta, "spec": spec}, manager=self._manager)
        self.beats += 1
        return lease


def micro_time(when: datetime) -> str:
    """Return RFC 3339 with microseconds, as Kubernetes MicroTime wants it."""
    return when.isoformat(timespec="microseconds")[:26] + "Z"


async def _awaited(work: Awaitable[None]) -> None:
    await work


log = structlog.get_logger(__name__)


def check_may_write(may_write: Callable[[], bool]) -> None:
    """Return when this replica may write at this very moment; asked right before a write.

    Raises:
        Wait: it may not, and begins with every key when it leads.
    """
    if not may_write():
        raise Wait("not the leader; write skipped")


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

    async def run(self, begin: Callable[[], None], *, events: Collection[EventRecorder] = ()) -> None:
        """Run for leadership until cancelled; ``begin`` enqueues everything at the beginning of each term.

        Everything is enqueued again where ``events`` have Warnings of the leader before, which may be over.
        """

        async def lead(epoch: int) -> None:
            log.info("leading", epoch=epoch, identity=self._identity)
            self.in_term = True
            try:
                begin()
                if any([await recorder.read_earlier() for recorder in events]):
                    begin()
                await asyncio.Event().wait()
            finally:
                self.in_term = False

        await self._elector.run(lead)
