"""Warnings about load balancers whose object cannot be decoded: no status can be written that would say so.

In: what the watch of one kind shows. Out: an Event each time that such an object is shown, from its metadata, also
while it is being deleted. Never: a decision; what cannot be read is left as it is (``finalization``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlead.api.meta import KubeObject, ObjectKey
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.inventory import IntentObjects
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey


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
