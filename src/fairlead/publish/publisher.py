"""Publishing at a hub: caches of present objects, overlaid with own writes, and writes of differences.

In: desired objects of one origin, or planned writes. Out: requests by server-side apply under one field manager, and
deletions by uid. The next plan includes the last write, even before the watch shows it.
Never: writes while another replica leads, an object that was not published for the same origin, or one that is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.api.names import (
    LABEL_BACKEND,
    LABEL_EXPORT,
    LABEL_IMPORT,
    LABEL_LOAD_BALANCER,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    backend_label,
    label_value,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, NotFound, Retry
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_may_write
from fairlead.kube.writes import Overlay
from fairlead.publish.objects import (
    HubWrite,
    Present,
    PublishPlan,
    canonical_load_balancer,
    canonical_slice,
    load_balancer_difference,
    metadata_difference,
    object_from_load_balancer,
    object_from_slice,
    slice_difference,
)

T = TypeVar("T", bound=KubeObject)

#: The watch usually shows a deletion within this time.
_DELETED_S = 0.1


class ObjectWriter:
    """Writes to one cluster under one field manager; ``on_write`` is called with kind and action after each write."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        manager: str,
        may_write: Callable[[], bool],
        on_write: Callable[[str, str], None] = lambda _kind, _action: None,
    ) -> None:
        self.cluster = cluster
        self._manager = manager
        self._may_write = may_write
        self._on_write = on_write
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.publish")

    async def apply(self, resource: Resource[T], body: JSONObject) -> T:
        """Apply one object.

        Raises:
            Wait: another replica leads.
        """
        check_may_write(self._may_write)
        return await self.cluster.apply(resource, body, manager=self._manager)

    async def delete(self, resource: Resource[T], obj: T) -> None:
        """Delete one object by uid; one that was deleted or recreated meanwhile is not an error.

        Raises:
            Wait: another replica leads.
        """
        check_may_write(self._may_write)
        try:
            await self.cluster.delete(resource, *obj.key, uid=obj.metadata.uid)
        except (Conflict, NotFound):
            # The object is gone or was recreated: the cache will show it, and the key is enqueued again.
            self._log.info("already gone", kind=resource.kind, name=obj.metadata.name)

    def wrote(self, resource: Resource[T], action: str, obj: T, reason: str) -> None:
        """Count and log one write."""
        self._on_write(resource.kind, action)
        self._log.info("wrote", action=action, kind=resource.kind, name=obj.metadata.name, reason=reason)


class Publisher(ObjectWriter):
    """Writes TCPLoadBalancers and EndpointSlices at one hub."""

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
        super().__init__(hub, manager=manager, may_write=may_write, on_write=on_write)
        self.load_balancers = Published(
            self, load_balancers, difference=load_balancer_difference, body=object_from_load_balancer
        )
        self.slices = Published(self, slices, difference=slice_difference, body=object_from_slice)

    def present(self, namespace: str, load_balancer: str, desired: Iterable[EndpointSlice] = ()) -> Present:
        """Return the present TCPLoadBalancer of a name, with its slices and those that ``desired`` names."""
        slices = {
            endpoint_slice.metadata.name: endpoint_slice
            for endpoint_slice in self.slices_in(slices_of(namespace, load_balancer))
        }
        for wanted in desired:
            name = wanted.metadata.name
            if name not in slices and (other := self.slices.get(namespace, name)) is not None:
                slices[name] = other
        return Present(self.load_balancers.get(namespace, load_balancer), tuple(slices.values()))

    def slices_in(self, group: SliceGroup) -> list[EndpointSlice]:
        """Return the slices of a load balancer, of a backend or of the nodes."""
        return self.slices.by_index(BY_LOAD_BALANCER, group)

    async def write(self, plan: PublishPlan) -> None:
        """Make the writes of a plan one after the other.

        Raises:
            Wait: another replica leads.
            Retry, Terminal: the hub did not accept one; those before it are done.
        """
        await self.load_balancers.write(plan.of_load_balancer)
        await self.slices.write(plan.of_slices)


class Published(Generic[T]):
    """The objects of one kind at a hub: the cache overlaid with own writes, and writes of differences.

    ``difference`` is the reason to write an object, empty for none; ``body`` is its JSON. By default both are made from
    metadata and ``parts``, the other fields that the publisher owns.
    """

    def __init__(
        self,
        writer: ObjectWriter,
        cache: WatchCache[T],
        *,
        parts: tuple[str, ...] = ("spec",),
        difference: Callable[[T, T | None], str] | None = None,
        body: Callable[[T], JSONObject] | None = None,
    ) -> None:
        self._cache = cache
        self._present = Overlay(cache)
        self._writer = writer
        self._parts = parts
        self._difference = difference or self._parts_difference
        self._body = body or self._parts_body

    @property
    def resource(self) -> Resource[T]:
        """Return the resource of the kind, in the version served now."""
        return self._cache.resource

    def get(self, namespace: str, name: str) -> T | None:
        """Return one object; one that was deleted has a deletionTimestamp until it is gone."""
        return self._present.get(namespace, name)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects with this value of an index of the cache, sorted by key."""
        return self._present.by_index(name, value)

    async def apply(self, desired: T) -> bool:
        """Apply one object when it differs; return whether it was written.

        Raises:
            Wait: another replica leads.
            Retry: an object of that name is being deleted; later writes depend on it and wait.
        """
        existing = self.get(*desired.key)
        if existing is not None and existing.deleting:
            # Not Wait: the end of the deletion wakes the origin of this object, and not what only needs the object.
            sentence = f"{self.resource.kind} {desired.metadata.name} is being deleted, and is created again after that"
            raise Retry(sentence, after_s=_DELETED_S)
        reason = self._difference(desired, existing)
        if reason:
            await self._apply(desired, reason)
        return bool(reason)

    async def delete(self, objects: Iterable[T], reason: str = "no longer needed") -> None:
        """Delete these objects, except those that are being deleted.

        Raises:
            Wait: another replica leads.
        """
        for obj in objects:
            if not obj.deleting:
                await self._delete(obj, reason)

    async def write(self, writes: Iterable[HubWrite[T]]) -> None:
        """Make planned writes one after the other.

        Raises:
            Wait: another replica leads.
            Retry, Terminal: the hub did not accept one; those before it are done.
        """
        for write in writes:
            await (self._apply if write.action == "apply" else self._delete)(write.obj, write.reason)

    async def _apply(self, obj: T, reason: str) -> None:
        before = self.get(*obj.key)
        answer = await self._writer.apply(self.resource, self._body(obj))
        self._present.written(answer, before=before)
        self._writer.wrote(self.resource, "apply", obj, reason)

    async def _delete(self, obj: T, reason: str) -> None:
        await self._writer.delete(self.resource, obj)
        self._present.deleted(obj, at=wire_time(self._writer.cluster.clock.now()))
        self._writer.wrote(self.resource, "delete", obj, reason)

    def _parts_difference(self, desired: T, existing: T | None) -> str:
        if existing is None:
            return "new"
        changed = [part for part in self._parts if getattr(desired, part) != getattr(existing, part)]
        return f"changed: {', '.join(changed)}" if changed else metadata_difference(desired, existing)

    def _parts_body(self, obj: T) -> JSONObject:
        meta = obj.metadata
        head: JSONObject = {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels or {})}
        if meta.annotations:
            head["annotations"] = dict(meta.annotations)
        body: JSONObject = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": head}
        names = dict(zip(obj.__struct_fields__, obj.__struct_encode_fields__, strict=True))
        parts: dict[str, Any] = {names[part]: msgspec.to_builtins(getattr(obj, part)) for part in self._parts}
        return body | {name: value for name, value in parts.items() if value is not None}


# --- watch caches -----------------------------------------------------------------------------------------------------

BY_LOAD_BALANCER = "load balancer"
BY_CERTIFICATE = "certificate"
_NODES = "\nnodes"  # no label value holds a line break
_BACKEND, _EXPORT, _IMPORT = "\nbackend ", "\nexport ", "\nimport "

#: A namespace, and what the slices of one load balancer, or those of a member's nodes, have in common.
SliceGroup = tuple[str, str]


def published_load_balancers(
    hub: Cluster, *, namespace: str = "", label_selector: str = ""
) -> WatchCache[TCPLoadBalancer]:
    """Make a cache of TCPLoadBalancers with the index ``BY_CERTIFICATE``."""
    return WatchCache(
        hub,
        TCP_LOAD_BALANCERS,
        namespace=namespace,
        label_selector=label_selector,
        transform=canonical_load_balancer,
        indexes={BY_CERTIFICATE: lambda obj: [reference.name for reference in obj.spec.certificates]},
    )


def published_slices(hub: Cluster, *, namespace: str = "", label_selector: str = "") -> WatchCache[EndpointSlice]:
    """Make a cache of EndpointSlices with the index ``BY_LOAD_BALANCER``."""
    return WatchCache(
        hub,
        ENDPOINT_SLICES,
        namespace=namespace,
        label_selector=label_selector,
        transform=lambda raw: canonical_slice(raw, owners=True, targets=True),
        indexes={BY_LOAD_BALANCER: groups_of_slice},
    )


def slices_of(namespace: str, load_balancer: str) -> SliceGroup:
    """Return the group of the slices of one TCPLoadBalancer."""
    return (namespace, label_value(load_balancer))


def slices_of_nodes(namespace: str) -> SliceGroup:
    """Return the group of the slices that hold a member's nodes."""
    return (namespace, _NODES)


def slices_of_backend(namespace: str, service: str) -> SliceGroup:
    """Return the group of the slices that hold the endpoints of one Service ("namespace/name") for routes."""
    return (namespace, _BACKEND + backend_label(service))


def slices_of_export(namespace: str, service: str) -> SliceGroup:
    """Return the group of the slices that hold the endpoints of an exported Service ("namespace/name")."""
    return (namespace, _EXPORT + backend_label(service))


def slices_of_import(namespace: str, service: str) -> SliceGroup:
    """Return the group of the slices that the hub wrote for an imported Service ("namespace/name").

    With an empty namespace: those of all members.
    """
    return (namespace, _IMPORT + backend_label(service))


def groups_of_slice(endpoint_slice: EndpointSlice) -> Iterable[SliceGroup]:
    """Return the group of a slice; none when it carries none of the labels."""
    namespace = endpoint_slice.metadata.namespace
    if endpoint_slice.label(LABEL_NODES) or endpoint_slice.label(LABEL_NODES_IPV6):
        return (slices_of_nodes(namespace),)
    for label, prefix in ((LABEL_BACKEND, _BACKEND), (LABEL_EXPORT, _EXPORT)):
        if service := endpoint_slice.label(label):
            return ((namespace, prefix + service),)
    if service := endpoint_slice.label(LABEL_IMPORT):
        return ((namespace, _IMPORT + service), ("", _IMPORT + service))
    value = endpoint_slice.label(LABEL_LOAD_BALANCER)
    return ((namespace, value),) if value else ()
