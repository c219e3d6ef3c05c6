"""Exports and imports of the Multi-Cluster Services API: the objects at the hub, and those in the member.

    ServiceExport, Service, its slices ─► ExportedService and slices at the hub, or why there are none
    ImportedService, its slices        ─► Service with the ClusterSetIP, slices, ServiceImport

The ServiceImport has the addresses of the Service that is made for it, so kube-proxy forwards them. A headless import
has no such Service. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from fairlead.agent.identity import ServiceKey
from fairlead.agent.sources.caches import MemberService, MemberServiceMeta, MemberServiceSpec
from fairlead.agent.sources.service.plan import Settings
from fairlead.api.kubernetes import (
    ClientIPConfig,
    Endpoint,
    EndpointHints,
    EndpointSlice,
    ForZone,
    ServicePort,
    SessionAffinityConfig,
)
from fairlead.api.meta import JSONObject, KubeObject, ObjectMeta, WireCondition, mirrored_conditions
from fairlead.api.multicluster import (
    ANNOTATION_DERIVED_SERVICE,
    LABEL_MULTICLUSTER_SERVICE,
    LABEL_SOURCE_CLUSTER,
    READY,
    SERVICE_EXPORTS,
    VALID,
    ExportedService,
    ExportedServiceSpec,
    ImportCluster,
    ImportedService,
    ImportPort,
    ServiceExport,
    ServiceExportStatus,
    ServiceImport,
    ServiceImportSpec,
    ServiceImportStatus,
    derived_name,
)
from fairlead.api.names import (
    ANNOTATION_DIGEST,
    ANNOTATION_UNUSED_SINCE,
    IMPORT_SLICE_MANAGED_BY,
    LABEL_EXPORT,
    LABEL_IMPORT,
    LABEL_MANAGED_BY,
    LABEL_SERVICE_NAME,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    backend_label,
    fit,
    hub_name,
    short_hash,
)
from fairlead.publish.objects import NAME_LIMIT, families_of, metadata_difference, origin_labels, whole

HEADLESS, CLUSTER_SET_IP = "Headless", "ClusterSetIP"
#: For these values of trafficDistribution, kube-proxy looks for hints.
_BY_ZONE = frozenset({"PreferClose", "PreferSameZone", "PreferSameNode"})
_LABEL_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL_PART}")
_VALUE = re.compile(rf"({_LABEL_PART})?")


# --- exports ----------------------------------------------------------------------------------------------------------


class ExportPlan(msgspec.Struct, frozen=True):
    """The objects that are published for one export. ``problem``: why the previously published objects stay."""

    valid: WireCondition
    exported: ExportedService | None = None
    slices: tuple[EndpointSlice, ...] = ()
    problem: str = ""


def plan_export(
    export: ServiceExport, service: MemberService | None, slices: Iterable[EndpointSlice], settings: Settings
) -> ExportPlan:
    """Return the published objects of one export; ``slices`` are those of its Service."""
    if service is None or service.deleting:
        return _invalid(
            "NoService", f"Service {export.metadata.name} was not found in namespace {export.key.namespace}."
        )
    if service.spec.type == "ExternalName":
        return _invalid("InvalidServiceType", "A Service of type ExternalName has no endpoints and is not exported.")
    if service.label(LABEL_IMPORT):
        return _invalid("InvalidServiceType", "The Service was made for a ServiceImport and is not exported.")
    valid = WireCondition(VALID, "True", "Valid", "The Service can be exported.")
    problem, key = _metadata_problem(export), export.key
    meta = ObjectMeta(name=hub_name(*key), namespace=settings.namespace, labels=_export_labels(key, settings))
    exported = None if problem else ExportedService(metadata=meta, spec=_exported_spec(export, service))
    return ExportPlan(valid, exported, exported_slices(key, slices, settings), problem)


def exported_slices(key: ServiceKey, slices: Iterable[EndpointSlice], settings: Settings) -> tuple[EndpointSlice, ...]:
    """Return the published slices of an exported Service.

    Slices that another implementation copied from other clusters are left out: these clusters export them.
    """
    labels = {
        **_export_labels(key, settings),
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
        LABEL_EXPORT: backend_label("/".join(key)),
    }
    return tuple(
        EndpointSlice(
            metadata=ObjectMeta(
                name=fit(
                    f"{hub_name(*key)}.export.{endpoint_slice.metadata.name}",
                    limit=NAME_LIMIT,
                    identity=(*key, endpoint_slice.metadata.name),
                ),
                namespace=settings.namespace,
                labels=labels,
            ),
            address_type=endpoint_slice.address_type,
            endpoints=endpoint_slice.endpoints or [],
            ports=endpoint_slice.ports or [],
        )
        for endpoint_slice in slices
        if not endpoint_slice.deleting and not endpoint_slice.label(LABEL_SOURCE_CLUSTER)
    )


def export_status(
    export: ServiceExport, plan: ExportPlan, answer: ExportedService | None, refusal: str, *, now: str
) -> ServiceExportStatus:
    """Return the status of an export; ``refusal`` is why the hub rejects the published objects."""
    conditions = [plan.valid]
    if plan.valid.status != "True":
        conditions.append(WireCondition(READY, "False", "Pending", "The export is not valid."))
    elif plan.problem or refusal:
        conditions.append(WireCondition(READY, "False", "Failed", plan.problem or refusal))
    elif answer is not None and answer.status.conditions:
        conditions += answer.status.conditions
    else:
        conditions.append(WireCondition(READY, "Unknown", "Pending", "The hub has not answered yet."))
    meta = export.metadata
    return ServiceExportStatus(
        mirrored_conditions(conditions, export.status.conditions, generation=meta.generation, now=now)
    )


def _invalid(reason: str, message: str) -> ExportPlan:
    return ExportPlan(WireCondition(VALID, "False", reason, message))


def _export_labels(key: ServiceKey, settings: Settings) -> dict[str, str]:
    namespace, name = key
    return origin_labels(kind=SERVICE_EXPORTS.kind, namespace=namespace, name=name, tenant=settings.tenant)


def _exported_spec(export: ServiceExport, service: MemberService) -> ExportedServiceSpec:
    spec = service.spec
    affinity = spec.session_affinity_config
    timeout_s = affinity.client_ip.timeout_seconds if affinity is not None and affinity.client_ip is not None else None
    return ExportedServiceSpec(
        namespace=export.metadata.namespace,
        name=export.metadata.name,
        type="Headless" if spec.cluster_ip == "None" else "ClusterSetIP",
        ports=[_port(port) for port in spec.ports or ()],
        session_affinity="ClientIP" if spec.session_affinity == "ClientIP" else "None",
        session_affinity_seconds=timeout_s or 0,
        internal_traffic_policy=spec.internal_traffic_policy or "",
        traffic_distribution=spec.traffic_distribution or "",
        ip_families=list(families_of(service)),
        labels=dict(export.spec.exported_labels or {}),
        annotations=dict(export.spec.exported_annotations or {}),
        exported_at=export.metadata.creation_timestamp or "",
    )


def _port(port: ServicePort) -> ImportPort:
    protocol = "UDP" if port.protocol == "UDP" else "SCTP" if port.protocol == "SCTP" else "TCP"
    return ImportPort(port=port.port, name=port.name, protocol=protocol, app_protocol=port.app_protocol)


def _metadata_problem(export: ServiceExport) -> str:
    for field, entries in (
        ("exportedLabels", export.spec.exported_labels or {}),
        ("exportedAnnotations", export.spec.exported_annotations or {}),
    ):
        for key, value in entries.items():
            if not _KEY.fullmatch(key) or (field == "exportedLabels" and not _VALUE.fullmatch(value)):
                return (
                    f"spec.{field}: {key[:60]!r} with value {value[:60]!r} is invalid. Use names and values that "
                    "Kubernetes accepts in metadata. The last valid version is still exported."
                )
    return ""


# --- imports ----------------------------------------------------------------------------------------------------------


def import_of(service: KubeObject) -> str:
    """Return the ServiceImport that a Service was made for, empty if none."""
    name = service.label(LABEL_IMPORT)
    ours = service.label(LABEL_MANAGED_BY) == MANAGED_BY and service.metadata.name == derived_name(name)
    return name if ours else ""


def is_ours(service_import: ServiceImport) -> bool:
    """Return whether the agent made a ServiceImport."""
    return service_import.label(LABEL_MANAGED_BY) == MANAGED_BY


def derived_service(imported: ImportedService, present: MemberService | None = None) -> MemberService | None:
    """Return the Service that has the ClusterSetIP; None for a headless import.

    Its first family is that of ``present`` if the import has this family: it cannot change.
    """
    spec = imported.spec
    if spec.type == HEADLESS:
        return None
    first = (present.spec.ip_families or [])[:1] if present is not None else []
    families: list[str] = sorted(spec.ip_families, key=lambda family: family not in first)
    return MemberService(
        metadata=MemberServiceMeta(
            name=derived_name(spec.name),
            namespace=spec.namespace,
            labels={LABEL_MANAGED_BY: MANAGED_BY, LABEL_IMPORT: spec.name},
            annotations={ANNOTATION_UNUSED_SINCE: ""},
        ),
        spec=MemberServiceSpec(
            ports=[
                ServicePort(port=port.port, name=port.name, protocol=port.protocol, app_protocol=port.app_protocol)
                for port in spec.ports
            ],
            session_affinity=spec.session_affinity,
            session_affinity_config=_affinity(spec.session_affinity_seconds),
            # A single-stack cluster has an address of that family only.
            ip_families=families[:1] or None,
            ip_family_policy="PreferDualStack" if len(families) > 1 else "SingleStack",
            internal_traffic_policy=spec.internal_traffic_policy or None,
            traffic_distribution=spec.traffic_distribution or None,
        ),
    )


def unused(derived: MemberService, *, since: str) -> MemberService:
    """Return the Service of a deleted import; it keeps the ClusterSetIP for a while."""
    annotations = {ANNOTATION_UNUSED_SINCE: since}
    labels = {name: derived.label(name) for name in (LABEL_MANAGED_BY, LABEL_IMPORT)}
    meta = MemberServiceMeta(
        name=derived.metadata.name, namespace=derived.metadata.namespace, labels=labels, annotations=annotations
    )
    families = derived.spec.ip_families or []
    spec = msgspec.structs.replace(derived.spec, ip_families=families[:1] or None)
    return MemberService(metadata=meta, spec=spec)


def derived_difference(desired: MemberService, present: MemberService | None) -> str:
    """Return why the Service of an import must be applied."""
    if present is None:
        return "new"
    if _content(desired) != _content(present):
        return "spec changed"
    return metadata_difference(desired, present)


def derived_body(service: MemberService) -> JSONObject:
    """Return the JSON of the Service of an import; it has no selector, since its slices are the agent's."""
    spec, meta = service.spec, service.metadata
    fields: JSONObject = {
        "type": "ClusterIP",
        "ports": [
            {"name": port.name, "port": port.port, "protocol": port.protocol}
            | ({"appProtocol": port.app_protocol} if port.app_protocol else {})
            for port in spec.ports or ()
        ],
        "sessionAffinity": spec.session_affinity,
        "ipFamilies": spec.ip_families,
        "ipFamilyPolicy": spec.ip_family_policy,
        "internalTrafficPolicy": spec.internal_traffic_policy,
        "trafficDistribution": spec.traffic_distribution,
    }
    if spec.session_affinity_config is not None and spec.session_affinity == "ClientIP":
        fields["sessionAffinityConfig"] = msgspec.to_builtins(spec.session_affinity_config)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": meta.labels,
            "annotations": meta.annotations,
        },
        "spec": {name: value for name, value in fields.items() if value is not None},
    }


def _content(service: MemberService) -> tuple[object, ...]:
    spec = service.spec
    affinity = spec.session_affinity_config
    return (
        [(port.name, port.port, port.protocol, port.app_protocol or "") for port in spec.ports or ()],
        spec.session_affinity,
        (affinity.client_ip if affinity is not None else None) if spec.session_affinity == "ClientIP" else None,
        (spec.ip_families or [])[:1],
        spec.ip_family_policy,
        spec.internal_traffic_policy or "Cluster",
        spec.traffic_distribution or "",
    )


def member_slices(imported: ImportedService, slices: Iterable[EndpointSlice]) -> list[EndpointSlice]:
    """Return the slices of an import in the member, given those that the hub wrote for it."""
    spec, derived = imported.spec, derived_name(imported.spec.name)
    made: list[EndpointSlice] = []
    for endpoint_slice in slices:
        cluster = endpoint_slice.label(LABEL_SOURCE_CLUSTER)
        if endpoint_slice.deleting or not cluster:
            continue
        labels = {
            LABEL_MANAGED_BY: MANAGED_BY,
            LABEL_SLICE_MANAGED_BY: IMPORT_SLICE_MANAGED_BY,
            LABEL_MULTICLUSTER_SERVICE: spec.name,
            LABEL_SOURCE_CLUSTER: cluster,
        }
        if spec.type == CLUSTER_SET_IP:
            labels[LABEL_SERVICE_NAME] = derived
        name = fit(
            f"{spec.name}-{cluster}-{short_hash(endpoint_slice.metadata.name)}",
            limit=NAME_LIMIT,
            identity=(spec.name, cluster, endpoint_slice.metadata.name),
        )
        endpoints = endpoint_slice.endpoints
        if spec.traffic_distribution in _BY_ZONE:
            endpoints = [_for_own_zone(endpoint) for endpoint in endpoints or ()]
        meta = ObjectMeta(name=name, namespace=spec.namespace, labels=labels)
        made.append(msgspec.structs.replace(endpoint_slice, metadata=meta, endpoints=endpoints))
    return made


def _for_own_zone(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with the hint that the cluster sets for a Service with a selector."""
    if not endpoint.zone or not _VALUE.fullmatch(endpoint.zone):
        return endpoint
    return msgspec.structs.replace(endpoint, hints=EndpointHints(for_zones=[ForZone(endpoint.zone)]))


def service_import(imported: ImportedService, derived: MemberService | None) -> ServiceImport:
    """Return the ServiceImport, with the addresses of the Service that was made for it."""
    spec = imported.spec
    meta = _import_meta(imported, derived)
    families: list[str] = list(spec.ip_families)
    ips: list[str] = []
    if derived is not None:
        ips = [address for address in derived.spec.cluster_ips or () if address != "None"]
        families = list(derived.spec.ip_families or families)[: len(ips) or None]
    return ServiceImport(
        metadata=meta,
        spec=ServiceImportSpec(
            ports=list(spec.ports),
            ips=ips,
            type=spec.type,
            session_affinity=spec.session_affinity,
            session_affinity_config=_affinity(spec.session_affinity_seconds),
            ip_families=families,
            internal_traffic_policy=spec.internal_traffic_policy or None,
            traffic_distribution=spec.traffic_distribution or None,
        ),
    )


def _import_meta(imported: ImportedService, derived: MemberService | None) -> ObjectMeta:
    spec = imported.spec
    own = {ANNOTATION_DIGEST: _digest(spec.labels, spec.annotations)}
    if derived is not None:
        own[ANNOTATION_DERIVED_SERVICE] = derived.metadata.name
    return ObjectMeta(
        name=spec.name,
        namespace=spec.namespace,
        labels={**spec.labels, LABEL_MANAGED_BY: MANAGED_BY},
        annotations={**spec.annotations, **own},
    )


def _digest(*parts: Mapping[str, str]) -> str:
    """Return a digest of exported labels and annotations, so that a removed one is noticed."""
    return short_hash(*(msgspec.json.encode(part, order="deterministic").decode() for part in parts))


def import_body(obj: ServiceImport, api_version: str) -> JSONObject:
    """Return the JSON of a ServiceImport."""
    return {
        "apiVersion": api_version,
        "kind": "ServiceImport",
        "metadata": msgspec.to_builtins(obj.metadata),
        "spec": whole(obj.spec),
    }


def import_status(
    imported: ImportedService, present: ServiceImport, ready: WireCondition, *, now: str
) -> ServiceImportStatus:
    """Return the status of a ServiceImport."""
    return ServiceImportStatus(
        clusters=[ImportCluster(cluster) for cluster in imported.spec.clusters],
        conditions=mirrored_conditions(
            [ready], present.status.conditions, generation=present.metadata.generation, now=now
        ),
    )


def _affinity(seconds: int) -> SessionAffinityConfig | None:
    return SessionAffinityConfig(ClientIPConfig(seconds)) if seconds else None
