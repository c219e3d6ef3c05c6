"""Sends writes to the hub, and reads what is present there, our last writes included.

In: writes in order, the caches. Out: requests by server-side apply under one field manager; present objects, so that
the next plan is made from what is, and not from what was before the last write.
Never writes while another replica leads, or deletes an object that is not the very one that the plan was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import AnyResource
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, NotFound, Wait
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.overlay import Overlay
from fairlead.publish.caches import BY_LOAD_BALANCER, SliceGroup, slices_of
from fairlead.publish.plan import HubWrite, Present
from fairlead.publish.wire import object_from_load_balancer, object_from_slice


class Publisher:
    """Writes TCPLoadBalancers and EndpointSlices; ``on_write`` is called with kind and action after each write."""

    def __init__(
        self,
        *,
        hub: Cluster,
        load_balancers: WatchCache[TCPLoadBalancer],
        slices: WatchCache[EndpointSlice],
        manager: str,
        may_write: Callable[[], bool],
        on_write: Callable[[str, str], None] = lambda _kind, _action: None,
    ) -> None:
        self._hub = hub
        self._manager = manager
        self._may_write = may_write
        self._on_write = on_write
        self.load_balancers = Overlay(load_balancers)
        self.slices = Overlay(slices)
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.publish")

    def present(self, namespace: str, load_balancer: str, desired: Iterable[EndpointSlice] = ()) -> Present:
        """Return the present TCPLoadBalancer of a name, with its slices and those that ``desired`` names."""
        slices = {each.metadata.name: each for each in self.slices_in(slices_of(namespace, load_balancer))}
        for wanted in desired:
            name = wanted.metadata.name
            if name not in slices and (other := self.slices.get(namespace, name)) is not None:
                slices[name] = other
        return Present(self.load_balancers.get(namespace, load_balancer), tuple(slices.values()))

    def slices_in(self, group: SliceGroup) -> list[EndpointSlice]:
        """Return the slices of a load balancer or of the nodes."""
        return self.slices.by_index(BY_LOAD_BALANCER, group)

    async def write(self, writes: Iterable[HubWrite]) -> None:
        """Make the writes one after the other.

        Raises:
            Wait: another replica leads.
            Retry, Terminal: the hub did not accept one; those before it are done.
        """
        for write in writes:
            if not self._may_write():
                raise Wait("another replica leads, or may: nothing is written")
            if write.action == "apply":
                await self._apply(write.obj)
            else:
                await self._delete(write.obj)
            kind, name = _kind_of(write.obj).kind, write.obj.metadata.name
            self._on_write(kind, write.action)
            self._log.info("wrote", action=write.action, kind=kind, name=name, reason=write.reason)

    async def _apply(self, obj: TCPLoadBalancer | EndpointSlice) -> None:
        if isinstance(obj, TCPLoadBalancer):
            before = self.load_balancers.get(*obj.key)
            answer = await self._hub.apply(TCP_LOAD_BALANCERS, object_from_load_balancer(obj), manager=self._manager)
            self.load_balancers.written(answer, before=before)
            return
        present = self.slices.get(*obj.key)
        applied = await self._hub.apply(ENDPOINT_SLICES, object_from_slice(obj), manager=self._manager)
        self.slices.written(applied, before=present)

    async def _delete(self, obj: TCPLoadBalancer | EndpointSlice) -> None:
        kind = _kind_of(obj)
        try:
            await self._hub.delete(kind, *obj.key, uid=obj.metadata.uid)
        except (Conflict, NotFound):
            # Gone, or another object by now: the cache will show which, and the key comes again.
            self._log.info("already gone", kind=kind.kind, name=obj.metadata.name)
        at = wire_time(self._hub.clock.now())
        if isinstance(obj, TCPLoadBalancer):
            self.load_balancers.deleted(obj, at=at)
        else:
            self.slices.deleted(obj, at=at)


def _kind_of(obj: TCPLoadBalancer | EndpointSlice) -> AnyResource:
    return TCP_LOAD_BALANCERS if isinstance(obj, TCPLoadBalancer) else ENDPOINT_SLICES
