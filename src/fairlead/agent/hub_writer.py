"""How does a plan become requests to the hub?

In: writes, in order. Out: requests by server-side apply under one field manager, and what the hub answered, remembered
until our own cache shows it: so that the next plan is made from what is, and not from what was before our last write.
Never writes while another agent leads, or deletes an object that is not the very one that the plan was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.plan import Write
from fairlead.agent.transforms import compact_load_balancer, compact_slice
from fairlead.agent.wire import object_from_load_balancer, object_from_slice
from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import MANAGER_AGENT
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import Conflict, NotFound, Wait
from fairlead.kube.cluster import Cluster

T = TypeVar("T", bound=KubeObject)

_PENDING_DELETE = "pending"


class Recent:
    """What the hub answered to our last writes, by kind and name, as long as our cache does not show it yet.

    An answer is dropped as soon as the cache's version of the object is another than at the time of the write: then
    the cache has moved on, to our write or past it.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[str, Any]] = {}
        self._groups: dict[tuple[str, str], set[str]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def note(self, kind: str, name: str, before: KubeObject | None, answer: KubeObject) -> None:
        """Remember an answer; ``before`` is what the plan was made from, our own last answer possibly."""
        standing = self._answers.get((kind, name))
        version = standing[0] if standing else _version(before)
        self._answers[kind, name] = (version, answer)
        self._groups.setdefault((kind, group_of(name)), set()).add(name)

    def see(self, kind: str, name: str, cached: T | None) -> T | None:
        """Return the newer of the cache's object and our last answer."""
        standing = self._answers.get((kind, name))
        if standing is None:
            return cached
        if _version(cached) == standing[0]:
            return standing[1]
        self.drop(kind, name)
        return cached

    def drop(self, kind: str, name: str) -> None:
        """Forget an answer."""
        self._answers.pop((kind, name), None)
        group = self._groups.get((kind, group_of(name)), set())
        group.discard(name)
        if not group:
            self._groups.pop((kind, group_of(name)), None)

    def clear(self) -> None:
        """Forget everything."""
        self._answers.clear()
        self._groups.clear()

    def names(self, kind: str, group: str) -> frozenset[str]:
        """Return the names of remembered objects of one group (see ``group_of``)."""
        return frozenset(self._groups.get((kind, group), ()))


def group_of(name: str) -> str:
    """Return what the names of all slices of one Service (or of all nodes slices) have in common."""
    parts = name.split(".", 2)
    return ".".join(parts[:2]) if len(parts) > 1 else name.rstrip("0123456789")


class HubWriter:
    """Writes to the tenant's namespace at the hub."""

    def __init__(self, *, hub: Cluster, namespace: str, metrics: AgentMetrics, may_write: Callable[[], bool]) -> None:
        self._hub = hub
        self._namespace = namespace
        self._metrics = metrics
        self._may_write = may_write
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.hub")
        self.recent = Recent()

    async def write(self, writes: Iterable[Write], *, cached: Callable[[str, str], KubeObject | None]) -> None:
        """Make the writes one after the other; ``cached`` returns what a cache holds now, by kind and name.

        Raises:
            Wait: another agent leads.
            Retry, Terminal: the hub did not take one; those before it are done.
        """
        for write in writes:
            if not self._may_write():
                raise Wait("another agent leads, or may: nothing is written")
            resource = TCP_LOAD_BALANCERS if isinstance(write.wanted, TCPLoadBalancer) else ENDPOINT_SLICES
            name = write.wanted.metadata.name
            before = cached(resource.kind, name)
            if write.action == "apply":
                answer = await self._apply(write.wanted)
            else:
                answer = await self._delete(resource, write.wanted)
            if write.action == "delete" and before is None:
                # The cache never showed it, so nothing would ever tell us that this answer is out of date.
                self.recent.drop(resource.kind, name)
            else:
                self.recent.note(resource.kind, name, before, answer)
            self._metrics.hub_writes.labels(resource.kind, write.action).inc()
            self._log.info("wrote", action=write.action, kind=resource.kind, name=name, reason=write.reason)

    async def _apply(self, wanted: TCPLoadBalancer | EndpointSlice) -> KubeObject:
        if isinstance(wanted, TCPLoadBalancer):
            body = object_from_load_balancer(wanted)
            return compact_load_balancer(await self._hub.apply(TCP_LOAD_BALANCERS, body, manager=MANAGER_AGENT))
        return compact_slice(await self._hub.apply(ENDPOINT_SLICES, object_from_slice(wanted), manager=MANAGER_AGENT))

    async def _delete(self, resource: AnyResource, wanted: TCPLoadBalancer | EndpointSlice) -> KubeObject:
        meta = wanted.metadata
        try:
            await self._hub.delete(resource, self._namespace, meta.name, uid=meta.uid)
        except (Conflict, NotFound):
            # Gone, or another object by now: the cache will show which, and the key comes again.
            self._log.info("already gone", kind=resource.kind, name=meta.name)
        going = msgspec.structs.replace(meta, deletion_timestamp=meta.deletion_timestamp or _PENDING_DELETE)
        return msgspec.structs.replace(wanted, metadata=going)


def _version(one: KubeObject | None) -> str:
    return one.metadata.resource_version if one is not None else ""
