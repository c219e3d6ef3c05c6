"""Cluster sets: the hub gives each member the Services that others of its set export, and answers the exports.

    ExportedService, its slices ─┐
    Tenants ─────────────────────┼─► key ─► decide_shared ─► ImportedService and slices in each member's namespace
    addresses of Services ───────┘              └──────────► status of each ExportedService

A member reads its own namespace only, so each gets copies of the slices of others. In: caches of the hub. Out: objects
that differ from the present ones. Never: changes or removes an import because something cannot be read, or because the
agent of an exporter is silent for less time than its Tenant allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import KubeObject, ObjectKey, mirrored_conditions, only_status_changed
from fairlead.api.multicluster import EXPORTED_SERVICES, ExportedService, ExportedServiceStatus, ImportedService
from fairlead.api.names import LABEL_EXPORT, LABEL_ORIGIN_NAME, LABEL_ORIGIN_NAMESPACE, MANAGER_HUB, hub_name
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NamespaceNotFound, NotFound, Retry, Wait
from fairlead.hub.inventory import Inventory, service_of_shared
from fairlead.hub.tenants.tenants import MemberHealth
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay, write_status
from fairlead.model.keys import family_of
from fairlead.publish.objects import canonical_slice, object_from_slice, slice_difference
from fairlead.publish.publisher import BY_LOAD_BALANCER, ObjectWriter, Published, slices_of_import
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.cluster_set import (
    MemberExport,
    SetImport,
    SharedDecision,
    SharedKey,
    admits,
    decide_shared,
    import_for,
    slices_for,
)

#: Changes of one Service that follow each other within this time are one pass, beginning with the second of them.
_GATHER_S = 0.02
#: The fields of a Tenant that its rights in a set depend on.
_FIELDS_OF_SET = (
    "spec.namespace",
    "spec.clusterSet",
    "spec.clusterSetNamespaces",
    "spec.reachability",
    "spec.targetRanges",
    "status.conditions",
)


class ClusterSets:
    """Reconciles the Services that members share, by namespace and name."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        member_health: MemberHealth,
        clock: Clock,
        leading: Callable[[], bool],
        loopback: bool = False,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._member_health = member_health
        self._clock = clock
        self._leading = leading
        self._loopback = loopback
        self.queue: KeyedQueue[SharedKey] = KeyedQueue(clock=clock, group_of=lambda key: key[0], gather_s=_GATHER_S)
        writer = ObjectWriter(cluster, manager=MANAGER_HUB, may_write=leading)
        self._exports: Overlay[ExportedService] = Overlay(inventory.exports)
        self._imports: Published[ImportedService] = Published(writer, inventory.imports)
        self._slices = Published(writer, inventory.import_slices, difference=_difference, body=object_from_slice)

    def watch(self) -> None:
        """Subscribe to everything that an import depends on."""
        inventory = self._inventory
        inventory.exports.on_change(self._export_changed)
        inventory.imports.on_change(self._import_changed)
        inventory.slices.on_object(self._exported_slice_changed)
        inventory.import_slices.on_change(self._import_slice_changed)
        inventory.tenants.on_change(self._tenant_changed)
        inventory.exports.broken.on_change(lambda obj: self._add([_service_named(obj)]))
        inventory.slices.broken.on_change(lambda obj: self.member_changed(obj.namespace))
        inventory.tenants.broken.on_change(lambda _obj: self.lead())
        load_balancers: WatchCache[TCPLoadBalancer] = inventory.intents[TCP_LOAD_BALANCERS.kind].cache
        load_balancers.on_object(lambda obj: self._served_changed(obj.key))
        load_balancers.broken.on_change(self._served_changed)

    def lead(self) -> None:
        """Enqueue every Service that is exported or imported."""
        if not self._leading():
            return
        inventory = self._inventory
        for cache in (inventory.exports, inventory.imports):
            for obj in cache.values():
                self._add(service_of_shared(obj))
        self._add({_origin(endpoint_slice) for endpoint_slice in inventory.import_slices.values()})

    def member_changed(self, namespace: str) -> None:
        """Enqueue the exports of a member: its agent may have been silent for longer than its Tenant allows."""
        for export in self._inventory.exports.by_index("namespace", namespace):
            self._add(service_of_shared(export))

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _add(self, keys: Iterable[SharedKey]) -> None:
        if self._leading():
            for key in keys:
                self.queue.add(key)

    def _export_changed(self, old: ExportedService | None, new: ExportedService | None) -> None:
        if old is None or new is None or not only_status_changed(old, new):
            for version in (old, new):
                self._add(service_of_shared(version) if version is not None else ())

    def _import_changed(self, old: ImportedService | None, new: ImportedService | None) -> None:
        # The hub's own writes come back, too: only objects deleted by others are created again at once.
        if new is None and old is not None:
            self._add(service_of_shared(old))

    def _exported_slice_changed(self, endpoint_slice: EndpointSlice) -> None:
        if endpoint_slice.label(LABEL_EXPORT):
            self._add([_origin(endpoint_slice)])

    def _import_slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        if new is None and old is not None:
            self._add([_origin(old)])

    def _served_changed(self, load_balancer: ObjectKey) -> None:
        if (export := self._inventory.exports.get(*load_balancer)) is not None:
            self._add(service_of_shared(export))

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if _of_sets(old) == _of_sets(new):
            return
        versions = [version for version in (old, new) if version is not None]
        if any(version.spec.cluster_set for version in versions):
            self.lead()
            return
        for version in versions:
            self.member_changed(version.namespace)

    # --- one Service --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: SharedKey) -> None:
        """Write all members' imports of one Service, and answer its exports.

        Raises:
            Retry: an object cannot be read, or the API did not accept a write; other members have their imports.
        """
        if not self._leading():
            return
        if problem := self._inventory.problem:
            raise Retry(problem)
        exports, complete = self._exports_of(key)
        decision = decide_shared(exports, loopback=self._loopback)
        inventory, error = self._inventory, None
        exporters = {export.export.metadata.namespace for export in exports}
        whole = complete and exporters.isdisjoint(obj.namespace for obj in inventory.slices.broken)
        wanted: set[str] = set()
        for cluster_set, imported in decision.imports.items():
            for tenant in self._members_of(cluster_set):
                if not admits(tenant, key[0]):
                    continue
                wanted.add(tenant.namespace)
                try:
                    await self._write_import(key, tenant, imported, complete=complete, whole=whole)
                except Wait:
                    raise
                except (NotFound, NamespaceNotFound) as failure:  # the namespace of a new member
                    error = error or Retry(failure.sentence)
                except FairleadError as failure:
                    error = error or failure
        if whole and not inventory.tenants.broken:
            gone = [obj for obj in self._imports.by_index("service", key) if obj.metadata.namespace not in wanted]
            await self._imports.delete(gone)
            slices = self._slices.by_index(BY_LOAD_BALANCER, slices_of_import("", "/".join(key)))
            await self._slices.delete(obj for obj in slices if obj.metadata.namespace not in wanted)
        for export in exports:
            await self._answer(export, decision)
        if error is not None:
            raise error

    def _exports_of(self, key: SharedKey) -> tuple[list[MemberExport], bool]:
        """Return the exports of a Service, and whether the list is complete: some may be unreadable."""
        inventory, exports = self._inventory, list[MemberExport]()
        object_name = hub_name(*key)
        complete = not any(
            obj.name == object_name and inventory.exports.get(*obj) is None for obj in inventory.exports.broken
        )
        for export in self._exports.by_index("service", key):
            namespace = export.metadata.namespace
            tenant = inventory.tenant_of(namespace)
            if export.deleting or (tenant is None and not inventory.tenants.broken):
                continue
            if tenant is None or not self._is_known(tenant):
                complete = False
                continue
            slices = inventory.export_slices_of(namespace, "/".join(key))
            state = self._member_health.view(tenant, namespace)
            gone = state.message if state.drained else ""
            member = MemberExport(export, tenant, slices, self._addresses(namespace, key), gone)
            if not member.direct and self._is_unread(ObjectKey(namespace, object_name)):
                complete = False
                continue
            exports.append(member)
        return exports, complete

    def _is_known(self, tenant: Tenant) -> bool:
        """Return whether the fields of a Tenant that its set depends on could be read."""
        tenants = self._inventory.tenants
        if tenants.get(*tenant.key) is not None:
            return True
        remains = tenants.remains().get(tenant.key)
        return remains is not None and all(map(remains.has, _FIELDS_OF_SET))

    def _members_of(self, cluster_set: str) -> list[Tenant]:
        tenants = self._inventory.tenants
        unread = (remains.obj for remains in tenants.remains().values())
        known = (tenant for tenant in unread if tenant is not None and self._is_known(tenant))
        return [
            *tenants.by_index("set", cluster_set),
            *(tenant for tenant in known if tenant.spec.cluster_set == cluster_set),
        ]

    def _is_unread(self, load_balancer: ObjectKey) -> bool:
        cache = self._inventory.intents[TCP_LOAD_BALANCERS.kind].cache
        return load_balancer in cache.broken and cache.get(*load_balancer) is None

    def _addresses(self, namespace: str, key: SharedKey) -> tuple[str, ...]:
        """Return the IP addresses at which the hub serves a Service of a member.

        A status keeps an address that was served once, also while no proxy is connected to the hub.
        """
        obj = self._inventory.intents[TCP_LOAD_BALANCERS.kind].cache.get(namespace, hub_name(*key))
        if obj is None or obj.deleting:
            return ()
        return tuple(address for address in obj.status.addresses if family_of(address) is not None)

    async def _write_import(
        self, key: SharedKey, tenant: Tenant, imported: SetImport, *, complete: bool, whole: bool
    ) -> None:
        slices, desired = slices_for(tenant, imported, loopback=self._loopback), import_for(tenant, imported)
        if complete or self._imports.get(*desired.key) is None:
            await self._imports.apply(desired)
        for endpoint_slice in slices:
            await self._slices.apply(endpoint_slice)
        if whole:
            names = {endpoint_slice.metadata.name for endpoint_slice in slices}
            present = self._slices.by_index(BY_LOAD_BALANCER, slices_of_import(tenant.namespace, "/".join(key)))
            await self._slices.delete(obj for obj in present if obj.metadata.name not in names)

    async def _answer(self, export: MemberExport, decision: SharedDecision) -> None:
        obj = export.export
        status = ExportedServiceStatus(
            observed_generation=obj.metadata.generation,
            conditions=mirrored_conditions(
                decision.conditions[export.member],
                obj.status.conditions,
                generation=obj.metadata.generation,
                now=wire_time(self._clock.now()),
            ),
        )
        try:
            written = await write_status(self._cluster, EXPORTED_SERVICES, obj, obj.status, status, manager=MANAGER_HUB)
        except NotFound:
            return  # the watch is about to show it
        if written is not None:
            self._exports.written(written, before=obj)


def _difference(desired: EndpointSlice, present: EndpointSlice | None) -> str:
    """Return why a slice must be applied; agents write canonical slices, so most need no conversion."""
    return slice_difference(desired, present) and slice_difference(canonical_slice(desired), present)


def _origin(obj: KubeObject) -> SharedKey:
    return (obj.label(LABEL_ORIGIN_NAMESPACE), obj.label(LABEL_ORIGIN_NAME))


def _service_named(obj: ObjectKey) -> SharedKey:
    """Return the Service that an export of this name belongs to; neither part contains a dot."""
    namespace, _, name = obj.name.partition(".")
    return (namespace, name)


def _of_sets(tenant: Tenant | None) -> tuple[object, ...]:
    """Return the part of a Tenant that its set depends on."""
    if tenant is None:
        return ()
    spec = tenant.spec
    shared = (spec.cluster_set, spec.cluster_set_namespaces, spec.reachability, spec.target_ranges)
    return (*shared, tenant.namespace, tenant.refused, tenant.draining)
