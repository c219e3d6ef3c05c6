"""Warnings about load balancers whose object cannot be decoded: no status can be written that would say so.

In: what the watch of one kind shows. Out: an Event each time that such an object is shown, from its metadata, also
while it is being deleted. Never: a decision; what cannot be read is left as it is (``finalization``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fairlead.api.meta import KubeObject, ObjectKey
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.inventory import IntentObjects, first_broken
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import ListenerKey, LoadBalancerKey


class RemainsHolder:
    """Holds what load balancers of one kind have that were never read, so that no other one gets it.

    ``listeners`` returns the ports of a spec.
    """

    def __init__(
        self,
        objects: IntentObjects[Any],
        allocator: AddressAllocator,
        listeners: Callable[[Any], Iterable[ListenerKey]],
    ) -> None:
        self._objects = objects
        self._allocator = allocator
        self._listeners = listeners
        objects.cache.broken.on_change(self._changed)

    def hold(self) -> None:
        """Hold what is known of them; where that is nothing, no address and no port is assigned."""
        for place, remains in self._objects.cache.remains().items():
            key = LoadBalancerKey(self._objects.resource.kind, *place)
            if remains.obj is None or not remains.has("status.allocation"):
                self._allocator.block(key, first_broken(key.kind, self._objects.cache, [place]))
                continue
            status = remains.obj.status
            accepted = status.accepted if remains.has("status.accepted") else None
            spec = accepted or (remains.obj.spec if remains.has("spec") else None)
            listeners = self._listeners(spec) if spec is not None else ()
            self._allocator.hold(key, status.allocation, listeners, alone=spec is None)

    def _changed(self, place: ObjectKey) -> None:
        self._allocator.unblock(LoadBalancerKey(self._objects.resource.kind, *place))
        self.hold()


class UnreadableWarnings:
    """Writes the Warnings of one kind of intent."""

    def __init__(
        self, *, objects: IntentObjects[Any], cluster: Cluster, events: EventRecorder, leading: Callable[[], bool]
    ) -> None:
        self._objects = objects
        self._cluster = cluster
        self._events = events
        self._leading = leading
        #: What was shown since the last Warning about it.
        self._shown: set[ObjectKey] = set()
        objects.cache.broken.on_change(self._shown.add)

    async def write(self, key: LoadBalancerKey) -> None:
        """Write a Warning when the object of ``key`` was shown and cannot be decoded."""
        place = ObjectKey(key.namespace, key.name)
        if place not in self._shown or not self._leading():
            return
        self._shown.discard(place)
        # One that is too large to have its name read is none that could be written about.
        why = self._objects.cache.broken.get(place, "") if place.name else ""
        if not why:
            return
        resource = self._objects.resource
        try:
            bare = await self._cluster.get(msgspec.structs.replace(resource, type=KubeObject), *place)
        except NotFound:
            return
        except FairleadError:
            self._shown.add(place)
            raise
        waits = "it is being deleted, and waits: " if bare.deleting else ""
        text = f"{waits}it cannot be read, and nothing of it is changed or removed until it can: {why}; correct it"
        self._events.emit_about(resource, bare, warning=True, reason=ConditionReason.INVALID, message=text)
