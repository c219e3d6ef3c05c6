"""Publish objects of one kind at a hub: what differs is applied, what is no longer wanted is deleted.

In: the desired objects of one origin, and those present that were published for it. Out: requests by server-side apply
under one field manager. Never: an object that was not published for that origin, a write while another replica leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.api.names import (
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_SLICE_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SLICE_MANAGED_BY,
)
from fairlead.api.naming import label_value
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, NotFound, Retry, Wait
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.overlay import Overlay
from fairlead.publish.compare import metadata_difference

T = TypeVar("T", bound=KubeObject)

#: The watch usually shows a deletion within this time.
_DELETED_S = 0.1


class ObjectPublisher(Generic[T]):
    """Writes the objects of one kind. ``parts`` are the fields beside metadata that are ours, such as ``spec``."""

    def __init__(
        self,
        *,
        hub: Cluster,
        resource: Resource[T],
        cache: WatchCache[T],
        manager: str,
        may_write: Callable[[], bool],
        parts: tuple[str, ...] = ("spec",),
        on_write: Callable[[str, str], None] = lambda _kind, _action: None,
    ) -> None:
        self.resource = resource
        self.present = Overlay(cache)
        self._hub = hub
        self._manager = manager
        self._may_write = may_write
        self._parts = parts
        self._on_write = on_write
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.publish")

    async def apply(self, desired: T) -> bool:
        """Apply one object when it differs; returns whether it was written.

        Raises:
            Wait: another replica leads.
            Retry: an object of that name is being deleted; what is to be written later needs this one, so it waits.
        """
        existing = self.present.get(*desired.key)
        if existing is not None and existing.deleting:
            # Not Wait: the end of the deletion wakes the origin of this object, and not what only needs the object.
            sentence = f"{self.resource.kind} {desired.metadata.name} is being deleted; it is made anew after that"
            raise Retry(sentence, after_s=_DELETED_S)
        if existing is not None and not self._difference(desired, existing):
            return False
        self._check()
        answer = await self._hub.apply(self.resource, self._body(desired), manager=self._manager)
        self.present.written(answer, before=existing)
        self._wrote("apply", desired)
        return True

    async def delete(self, objects: Iterable[T]) -> None:
        """Delete these objects by uid; one that was deleted or recreated meanwhile is not an error."""
        for obj in objects:
            if obj.deleting:
                continue
            self._check()
            try:
                await self._hub.delete(self.resource, *obj.key, uid=obj.metadata.uid)
            except (Conflict, NotFound):
                self._log.info("already gone", kind=self.resource.kind, name=obj.metadata.name)
            self.present.deleted(obj, at=wire_time(self._hub.clock.now()))
            self._wrote("delete", obj)

    def _difference(self, desired: T, existing: T) -> str:
        for part in self._parts:
            if getattr(desired, part) != getattr(existing, part):
                return part
        return metadata_difference(desired, existing)

    def _body(self, obj: T) -> JSONObject:
        meta = obj.metadata
        head: JSONObject = {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels or {})}
        if meta.annotations:
            head["annotations"] = dict(meta.annotations)
        body: JSONObject = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": head}
        names = dict(zip(obj.__struct_fields__, obj.__struct_encode_fields__, strict=True))
        parts: dict[str, Any] = {names[part]: msgspec.to_builtins(getattr(obj, part)) for part in self._parts}
        return body | {name: value for name, value in parts.items() if value is not None}

    def _check(self) -> None:
        if not self._may_write():
            raise Wait("another replica leads, or may: nothing is written")

    def _wrote(self, action: str, obj: T) -> None:
        self._on_write(self.resource.kind, action)
        self._log.info("wrote", action=action, kind=self.resource.kind, name=obj.metadata.name)


#: The longest name of an object.
NAME_LIMIT = 253


def origin_labels(*, kind: str, namespace: str, name: str, tenant: str = "") -> dict[str, str]:
    """Return the labels of everything that is published for one origin."""
    labels = {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_ORIGIN_KIND: kind,
        LABEL_ORIGIN_NAMESPACE: namespace,
        LABEL_ORIGIN_NAME: label_value(name),
    }
    return labels | {LABEL_TENANT: label_value(tenant)} if tenant else labels


def slice_labels(origin: dict[str, str], load_balancer: str) -> dict[str, str]:
    """Return the labels of an EndpointSlice of one TCPLoadBalancer, given those of their common origin."""
    return {
        **origin,
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
        LABEL_LOAD_BALANCER: label_value(load_balancer),
    }
