"""The source for the Multi-Cluster Services API: the member's exports and imports.

    ServiceExport, Service, slices ─► key ─► plan_export ─► ExportedService, slices at the hub
    ExportedService ────────────────► key ─► export_status ─► conditions of the ServiceExport
    ImportedService, slices ────────► key ─► Service with the ClusterSetIP, slices, ServiceImport in the member

All caches run only while the member serves the API, and those of the hub too, so a member without it costs nothing.
Never: changes a ServiceImport or a Service that the agent did not create, creates a namespace, or removes an import
because the hub is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from fairlead.agent.engine import FOREIGN_STATUS_RETRY_S, SETS_LANE, STATUS_CONFLICT, Engine, Source
from fairlead.agent.identity import Key, key_of, origin_of
from fairlead.agent.slices import without_last_applied
from fairlead.agent.sources.caches import MemberService, ServiceCaches, is_fresh, service_of_slice
from fairlead.agent.sources.multicluster.plan import (
    ExportPlan,
    derived_body,
    derived_difference,
    derived_service,
    export_status,
    exported_slices,
    import_body,
    import_of,
    import_status,
    is_ours,
    member_slices,
    plan_export,
    service_import,
    unused,
)
from fairlead.agent.sources.service.plan import Settings
from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES, EndpointSlice, Namespace
from fairlead.api.meta import JSONObject, KubeObject, ObjectMeta, WireCondition
from fairlead.api.multicluster import (
    EXPORTED_SERVICES,
    IMPORTED_SERVICES,
    LABEL_MULTICLUSTER_SERVICE,
    MULTICLUSTER_GROUP,
    MULTICLUSTER_VERSIONS,
    READY,
    SERVICE_EXPORTS,
    SERVICE_IMPORTS,
    ExportedService,
    ImportedService,
    ServiceExport,
    ServiceImport,
    derived_name,
)
from fairlead.api.names import (
    ANNOTATION_UNUSED_SINCE,
    IMPORT_SLICE_MANAGED_BY,
    LABEL_EXPORT,
    LABEL_IMPORT,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_SLICE_MANAGED_BY,
    MANAGER_AGENT,
    VERSION,
    hub_name,
)
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Conflict, Invalid
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import Discovery, OptionalCache
from fairlead.model.condition import ObjectEvent, warning_event
from fairlead.publish.objects import canonical_slice, lost_ports, object_from_slice, slice_difference
from fairlead.publish.publisher import ObjectWriter, Published, slices_of_export, slices_of_import

EXPORT, IMPORT = SERVICE_EXPORTS.kind, SERVICE_IMPORTS.kind
_BY_SERVICE, _BY_NAMESPACE = "service", "namespace"
#: Seconds for which the ClusterSetIP of a deleted import is kept.
KEEP_IP_S = 3600.0
NOT_OURS = "NotOurs"


class MulticlusterCaches:
    """The caches of both sides, which run while the member serves ServiceImports."""

    def __init__(self, *, member: Cluster, hub: Cluster, hub_namespace: str) -> None:
        self.exports: OptionalCache[ServiceExport] = OptionalCache(
            member, SERVICE_EXPORTS, transform=without_last_applied
        )
        self.imports: OptionalCache[ServiceImport] = OptionalCache(
            member, SERVICE_IMPORTS, transform=without_last_applied
        )
        self.namespaces: OptionalCache[Namespace] = OptionalCache(member, NAMESPACES, transform=_without_labels)
        self.slices: OptionalCache[EndpointSlice] = OptionalCache(
            member,
            ENDPOINT_SLICES,
            label_selector=f"{LABEL_MULTICLUSTER_SERVICE},{LABEL_SLICE_MANAGED_BY}={IMPORT_SLICE_MANAGED_BY}",
            transform=partial(canonical_slice, hints=True),
            indexes={_BY_SERVICE: _imports_of_slice},
        )
        self.exported: OptionalCache[ExportedService] = OptionalCache(hub, EXPORTED_SERVICES, namespace=hub_namespace)
        self.imported: OptionalCache[ImportedService] = OptionalCache(
            hub, IMPORTED_SERVICES, namespace=hub_namespace, indexes={_BY_NAMESPACE: _namespaces_of}
        )
        self._others: dict[OptionalCache[Any], str] = {
            self.namespaces: "v1",
            self.slices: "v1",
            self.exported: VERSION,
            self.imported: VERSION,
        }
        #: Set once a new kind is served that has not been read yet.
        self.kind_came = asyncio.Event()
        self.discovery = Discovery(
            member,
            MULTICLUSTER_GROUP,
            {self.exports: MULTICLUSTER_VERSIONS, self.imports: MULTICLUSTER_VERSIONS},
            looked=self._follow,
        )

    @property
    def all(self) -> tuple[OptionalCache[Any], ...]:
        """Return all caches."""
        return (self.exports, self.imports, *self._others)

    async def run(self) -> None:
        """Run the caches, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.discovery.run(), name="multicluster-discovery")
            for cache in self.all:
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}-multicluster")

    @property
    def served(self) -> bool:
        """Return whether the member serves the API."""
        return self.exports.served and self.imports.served

    @property
    def ready(self) -> bool:
        """Return whether each served kind has been read."""
        return self.discovery.asked and all(cache.settled for cache in self.all)

    @property
    def problem(self) -> str:
        """Return why something cannot be read, empty when all can."""
        return self.discovery.problem or next((cache.problem for cache in self.all if cache.problem), "")

    def imported_of(self, namespace: str, name: str) -> ImportedService | None:
        """Return the hub's object for an import; None if there is none."""
        obj = self.imported.get(self.imported.namespace, hub_name(namespace, name))
        fits = obj is not None and not obj.deleting and (obj.spec.namespace, obj.spec.name) == (namespace, name)
        return obj if fits else None

    def _follow(self) -> None:
        for cache, version in self._others.items():
            cache.serve(version if self.served else "")
        if not self.ready:
            self.kind_came.set()


class MulticlusterSource(Source):
    """The source for ServiceExports and ServiceImports."""

    name = "ServiceExports and ServiceImports"
    lane = SETS_LANE
    publishes = frozenset({EXPORT})
    reports = frozenset({EXPORT, IMPORT})

    def __init__(
        self,
        *,
        engine: Engine,
        member: Cluster,
        services: ServiceCaches,
        caches: MulticlusterCaches,
        settings: Settings,
        fresh_s: float,
    ) -> None:
        super().__init__(engine)
        self.kind_came = caches.kind_came
        self._services = services
        self._caches = caches
        self._settings = settings
        self._fresh_s = fresh_s
        self._member = member
        self._exported = Published(engine.publisher, caches.exported)
        self._hub_slices = engine.publisher.slices
        writer = ObjectWriter(member, manager=MANAGER_AGENT, may_write=engine.may_write)
        self._derived: Published[MemberService] = Published(
            writer, services.services, difference=derived_difference, body=derived_body
        )
        self._slices = Published(writer, caches.slices, difference=slice_difference, body=object_from_slice)
        self._imports = Published(writer, caches.imports, body=self._import_body)
        self._export_status = engine.status_writer(caches.exports)
        self._import_status = engine.status_writer(caches.imports)
        self._watch()

    def _watch(self) -> None:
        caches, services, engine = self._caches, self._services, self._engine
        caches.exports.on_object(lambda export: engine.enqueue(key_of(EXPORT, export)))
        caches.exported.on_object(lambda obj: engine.enqueue((EXPORT, obj.spec.namespace, obj.spec.name)))
        caches.imports.on_object(lambda obj: engine.report(key_of(IMPORT, obj)))
        caches.imported.on_object(lambda obj: engine.report((IMPORT, obj.spec.namespace, obj.spec.name)))
        caches.slices.on_object(lambda obj: engine.report((IMPORT, *_import_of_slice(obj))))
        caches.namespaces.on_object(self._namespace_changed, part=lambda home: home.deleting)
        services.services.on_object(self._service_changed)
        services.slices.on_change(self._slice_changed)
        services.hub_slices.on_object(self._hub_slice_changed)

    # --- keys ---------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Return whether all served kinds have been read."""
        return self._services.synced and self._caches.ready

    @property
    def problem(self) -> str:
        """Return why something cannot be read, empty when all can."""
        return self._caches.problem

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of exports and imports in the member and at the hub."""
        caches = self._caches
        if not caches.served:
            return []
        origins = (origin_of(obj, tenant=self._settings.tenant) for obj in self._at_hub())
        return [
            *(key_of(EXPORT, export) for export in caches.exports.values()),
            *(origin for origin in origins if origin is not None and origin[0] == EXPORT),
            *(key_of(IMPORT, obj) for obj in caches.imports.values()),
            *((IMPORT, obj.spec.namespace, obj.spec.name) for obj in caches.imported.values()),
            *((IMPORT, *_import_of_slice(obj)) for obj in caches.slices.values()),
            *(
                (IMPORT, service.metadata.namespace, name)
                for service in self._services.services.values()
                if (name := import_of(service))
            ),
        ]

    def _at_hub(self) -> Iterable[KubeObject]:
        yield from self._caches.exported.values()
        for endpoint_slice in self._services.hub_slices.values():
            if endpoint_slice.label(LABEL_EXPORT):
                yield endpoint_slice

    def _namespace_changed(self, home: Namespace) -> None:
        for obj in self._caches.imported.by_index(_BY_NAMESPACE, home.metadata.name):
            self._engine.report((IMPORT, obj.spec.namespace, obj.spec.name))

    def _service_changed(self, service: MemberService) -> None:
        if not self._caches.served:
            return
        if name := import_of(service):
            self._engine.report((IMPORT, service.metadata.namespace, name))
        elif self._caches.exports.get(*service.key) is not None:
            self._engine.enqueue(key_of(EXPORT, service))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            key = service_of_slice(version) if version is not None else None
            if key is not None and self._caches.exports.get(*key) is not None:
                self._engine.publish((EXPORT, *key))

    def _hub_slice_changed(self, obj: EndpointSlice) -> None:
        key = (obj.label(LABEL_ORIGIN_NAMESPACE), obj.label(LABEL_ORIGIN_NAME))
        if obj.label(LABEL_IMPORT):
            self._engine.report((IMPORT, *key))
        elif obj.label(LABEL_EXPORT):
            self._engine.publish((EXPORT, *key))

    # --- exports ------------------------------------------------------------------------------------------------------

    async def publish(self, key: Key) -> bool:
        """Publish the objects of one export at the hub; return whether a removal waits."""
        _, namespace, name = key
        if not self._caches.served:
            return False
        export = self._caches.exports.get(namespace, name)
        present = self._exported.get(self._settings.namespace, hub_name(namespace, name))
        slices = self._engine.publisher.slices_in(slices_of_export(self._settings.namespace, f"{namespace}/{name}"))
        wanted: tuple[EndpointSlice, ...] = ()
        if (namespace, name) in self._caches.exports.broken or (namespace, name) in self._services.services.broken:
            # The exported object stays, and its endpoints are still updated.
            of_service = self._services.slices_of_service((namespace, name))
            if present is None or lost_ports(slices, of_service):
                return False
            present = None
            wanted = exported_slices((namespace, name), of_service, self._settings)
            for endpoint_slice in wanted:
                await self._hub_slices.apply(endpoint_slice)
        elif export is not None and not export.deleting:
            plan = self._plan(export)
            if plan.problem and present is None:
                return False
            wanted = plan.slices
            for endpoint_slice in wanted:
                await self._hub_slices.apply(endpoint_slice)
            if plan.exported is not None:
                await self._exported.apply(plan.exported)
            if plan.exported is not None or plan.problem:
                present = None
        names = {endpoint_slice.metadata.name for endpoint_slice in wanted}
        gone = [endpoint_slice for endpoint_slice in slices if endpoint_slice.metadata.name not in names]
        if not gone and present is None:
            return False
        if not self._may_remove():
            return True
        # The export first, so that the hub does not take it for one without endpoints.
        await self._exported.delete([present] if present is not None else [])
        await self._hub_slices.delete(gone)
        return False

    def _plan(self, export: ServiceExport) -> ExportPlan:
        service = self._services.services.get(*export.key)
        return plan_export(export, service, self._services.slices_of_service(export.key), self._settings)

    def _may_remove(self) -> bool:
        services, exports = self._services, self._caches.exports
        fresh = services.member_is_fresh(fresh_s=self._fresh_s) and is_fresh(exports, fresh_s=self._fresh_s)
        return fresh and services.synced and not services.slices.broken

    async def _report_export(self, namespace: str, name: str) -> float | None:
        export, services = self._export_status.get(namespace, name), self._services.services
        if export is None or export.deleting:
            return None
        if (namespace, name) in services.broken and services.get(namespace, name) is None:
            return None  # it exists, though nothing is known of it
        answer = self._caches.exported.get(self._settings.namespace, hub_name(namespace, name))
        refusal = self._engine.refusal_of((EXPORT, namespace, name))
        status = export_status(export, self._plan(export), answer, refusal, now=self._export_status.now())
        events: list[ObjectEvent] = []
        again_s = None
        try:
            await self._export_status.apply(export, export.status, status, force=False)
        except Conflict as error:
            events.append(
                warning_event(STATUS_CONFLICT, f"Another controller owns the conditions of this export: {error.detail}")
            )
            again_s = FOREIGN_STATUS_RETRY_S
        self._export_status.events.emit_new("cluster-set", export, events)
        return again_s

    # --- imports ------------------------------------------------------------------------------------------------------

    async def report(self, key: Key) -> float | None:
        """Show the hub's answer on an export, or apply an import; return the seconds until the next report."""
        kind, namespace, name = key
        if not self._caches.served:
            return None
        if kind == EXPORT:
            return await self._report_export(namespace, name)
        imported = self._caches.imported_of(namespace, name)
        present = self._imports.get(namespace, name)
        if imported is None:
            if hub_name(namespace, name) in {broken.name for broken in self._caches.imported.broken}:
                return None
            if present is not None and is_ours(present):
                await self._imports.delete([present])
            await self._slices.delete(self._slices.by_index(_BY_SERVICE, (namespace, name)))
            return await self._retire(namespace, name)
        home = self._caches.namespaces.get("", namespace)
        if home is None or home.deleting:
            return None
        if present is not None and not is_ours(present):
            sentence = (
                "Members of the cluster set export this Service, but another controller made this ServiceImport: "
                "Fairlead leaves it alone. Delete it to have Fairlead serve it."
            )
            self._import_status.events.emit_new("cluster-set", present, [warning_event(NOT_OURS, sentence)])
            return None
        return await self._make_import(imported)

    async def _make_import(self, imported: ImportedService) -> float | None:
        namespace, name = imported.spec.namespace, imported.spec.name
        derived, ready = await self._derive(imported)
        copies = self._engine.publisher.slices_in(slices_of_import(self._settings.namespace, f"{namespace}/{name}"))
        slices = member_slices(imported, copies)
        try:
            for endpoint_slice in slices:
                await self._slices.apply(endpoint_slice)
        except Invalid as error:
            ready = _not_ready("Pending", f"The API server of the member rejects endpoints: {error.sentence}")
        if not self._services.hub_slices.broken:
            names = {endpoint_slice.metadata.name for endpoint_slice in slices}
            present = self._slices.by_index(_BY_SERVICE, (namespace, name))
            await self._slices.delete(obj for obj in present if obj.metadata.name not in names)
        await self._imports.apply(service_import(imported, derived))
        shown = self._imports.get(namespace, name)
        if shown is not None:
            status = import_status(imported, shown, ready, now=self._import_status.now())
            await self._import_status.apply(shown, shown.status, status)
        return await self._retire(namespace, name) if derived_service(imported) is None else None

    async def _derive(self, imported: ImportedService) -> tuple[MemberService | None, WireCondition]:
        """Return the Service that has the ClusterSetIP, and whether the import can be used."""
        ready = WireCondition(READY, "True", "Ready", "The Service of the cluster set can be used.")
        desired = derived_service(imported)
        if desired is None:
            return None, ready
        present = self._derived.get(*desired.key)
        if present is not None and import_of(present) != imported.spec.name:
            sentence = f"Service {desired.metadata.name} was not made by Fairlead. Delete it to get a ClusterSetIP."
            return None, _not_ready("Pending", sentence)
        desired = derived_service(imported, present) or desired
        try:
            await self._apply_derived(desired, imported.spec.ip_families)
        except Invalid as error:
            reason = "IPFamilyNotSupported" if _is_of_family(error) else "Pending"
            return present, _not_ready(reason, error.sentence)
        derived = self._derived.get(*desired.key)
        if derived is None or not derived.spec.cluster_ips:
            ready = _not_ready("Pending", f"Service {desired.metadata.name} has no address yet.")
        return derived, ready

    async def _apply_derived(self, desired: MemberService, families: Sequence[str]) -> None:
        """Apply the Service of an import, with its second family if the member does not have the first.

        Raises:
            Invalid: the member rejects the Service.
        """
        try:
            await self._derived.apply(desired)
        except Invalid as error:
            others = [family for family in families if [family] != desired.spec.ip_families]
            if not others or not _is_of_family(error):
                raise
            await self._derived.apply(replace(desired, spec=replace(desired.spec, ip_families=others)))

    async def _retire(self, namespace: str, name: str) -> float | None:
        """Delete the Service of a deleted import once its address was kept long enough; return when that is."""
        derived = self._derived.get(namespace, derived_name(name))
        if derived is None or derived.deleting or import_of(derived) != name:
            return None
        now = self._member.server_clock.now()
        since = parsed_time(derived.annotation(ANNOTATION_UNUSED_SINCE))
        if since is None:
            await self._derived.apply(unused(derived, since=wire_time(now)))
            return KEEP_IP_S
        left_s = KEEP_IP_S - (now - since).total_seconds()
        if left_s > 0:
            return left_s
        await self._derived.delete([derived])
        return None

    def _import_body(self, obj: ServiceImport) -> JSONObject:
        return import_body(obj, self._caches.imports.resource.api_version)


def _is_of_family(error: Invalid) -> bool:
    return "famil" in error.sentence.lower() + error.detail.lower()


def _not_ready(reason: str, message: str) -> WireCondition:
    return WireCondition(READY, "False", reason, message)


def _import_of_slice(endpoint_slice: EndpointSlice) -> tuple[str, str]:
    return (endpoint_slice.metadata.namespace, endpoint_slice.label(LABEL_MULTICLUSTER_SERVICE))


def _imports_of_slice(endpoint_slice: EndpointSlice) -> Iterable[tuple[str, str]]:
    return [_import_of_slice(endpoint_slice)]


def _namespaces_of(imported: ImportedService) -> Iterable[str]:
    return [imported.spec.namespace]


def _without_labels(raw: Namespace) -> Namespace:
    meta = raw.metadata
    return Namespace(
        metadata=ObjectMeta(
            name=meta.name, resource_version=meta.resource_version, deletion_timestamp=meta.deletion_timestamp
        )
    )
