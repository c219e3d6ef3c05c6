"""The Lease at the hub that shows that this member is alive, and that it is still the same member.

In: whether the member's caches are current. Out: a Lease in the tenant's namespace, renewed only while they are: what
the hub then calls Stale or Lost is the state that it serves, not this process.
Never renews for a member that it cannot see, or for a tenant that belongs to another cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead import __version__
from fairlead.agent.offboarding import Offboarding
from fairlead.api.kubernetes import LEASES, Lease
from fairlead.api.names import (
    AGENT_LEASE,
    ANNOTATION_REFUSED,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    MANAGER_AGENT,
    label_value,
)
from fairlead.api.tenant import (
    ANNOTATION_LAST_SYNC,
    ANNOTATION_MEMBER_UID,
    ANNOTATION_REGION,
    ANNOTATION_SERVICES_INFORMED,
    ANNOTATION_VERSION,
)
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import Heartbeat
from fairlead.runtime.clock import Clock, wait_for

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
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.heartbeat")

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
            await self._until_next()

    async def _until_next(self) -> None:
        """Wait for the next beat, which is due early while the tenant leaves, and when what is refused has changed."""
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
    shown = sorted(refusals.items(), key=lambda each: (len(each[0]), each[0]))[:_REFUSALS]
    texts = {"/".join(key): sentence[:_LONGEST] for key, sentence in shown}
    if more := len(refusals) - len(shown):
        texts[""] = f"{more} more objects are refused; the Warnings on them say why"
    return msgspec.json.encode(texts).decode()
