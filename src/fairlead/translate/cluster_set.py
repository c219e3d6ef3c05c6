"""Imports of the members of a cluster set, and the conditions of their exports.

    exports of one namespace and name  ─►  admitted?  ─►  reachable?  ─►  oldest first: one import for each set
                                              │              │                └─ differences: Conflict on all
                                              └── Ready=False ┘

A new export with an endpoint at the address of another exporter's endpoint is not reachable, because the pod networks
overlap. An export that is already served keeps its other endpoints: the address may be that of a former pod.

Services with the same namespace and name are the same Service in all members of a set. An export that is not admitted,
or that other members cannot reach, is in no import. In: ExportedServices, Tenants, EndpointSlices and addresses at the
hub. Out: an import for each set, its slices for each member, conditions. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice
from fairlead.api.meta import ObjectMeta, WireCondition, is_true
from fairlead.api.multicluster import (
    CONFLICT,
    LABEL_SOURCE_CLUSTER,
    READY,
    ExportedService,
    ExportedServiceSpec,
    ImportedService,
    ImportedServiceSpec,
    ImportPort,
    SharedService,
)
from fairlead.api.names import (
    IMPORT_SLICE_MANAGED_BY,
    LABEL_IMPORT,
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    backend_label,
    fit,
    hub_name,
    label_value,
    short_hash,
)
from fairlead.api.tenant import Tenant
from fairlead.model.in_words import listed
from fairlead.model.keys import family_of
from fairlead.translate.endpoints import TargetPolicy, admit
from fairlead.translate.member import target_ranges

#: Namespace and name of a Service, the same in all members.
SharedKey = tuple[str, str]
_NAME_LIMIT = 253
_SHARED_BY_DEFAULT = "kube-"

#: The fields in which exports of one Service may differ, and the reason of the standard.
_COMPARED = (
    ("type", "TypeConflict"),
    ("session_affinity", "SessionAffinityConflict"),
    ("session_affinity_seconds", "SessionAffinityConfigConflict"),
    ("internal_traffic_policy", "InternalTrafficPolicyConflict"),
    ("traffic_distribution", "TrafficDistributionConflict"),
    ("labels", "LabelsConflict"),
    ("annotations", "AnnotationsConflict"),
)
_FAMILIES = "IPFamilyConflict"
_PORTS = "PortConflict"
#: A reason that the standard does not have.
_ENDPOINTS = "EndpointConflict"


class MemberExport(msgspec.Struct, frozen=True):
    """An export with its member's slices, and the addresses that the hub assigned to the Service.

    ``gone``: why its endpoints are not used: the member is being removed, or was silent for too long.
    """

    export: ExportedService
    tenant: Tenant
    slices: tuple[EndpointSlice, ...] = ()
    addresses: tuple[str, ...] = ()
    gone: str = ""

    @property
    def member(self) -> str:
        """Return the name of the member."""
        return self.tenant.metadata.name

    @property
    def spec(self) -> ExportedServiceSpec:
        """Return what the member exports."""
        return self.export.spec

    @property
    def direct(self) -> bool:
        """Return whether the other members reach its pods."""
        return self.tenant.spec.reachability == "Pods"

    @property
    def age(self) -> tuple[str, str, str]:
        """Return the sort key: oldest export first; of equally old exports, the one that the hub received first."""
        return (self.spec.exported_at or "~", self.export.metadata.creation_timestamp or "", self.member)


class SourceSlice(NamedTuple):
    """A slice of an exporter as other members get it, without metadata."""

    name: str
    family: str
    endpoints: list[Endpoint]
    ports: list[EndpointPort]


class SetImport(msgspec.Struct, frozen=True):
    """The import of one Service in one set: its properties, and the ports that each exporter serves.

    ``sources`` are the slices of each exporter, made once for all members.
    """

    spec: ImportedServiceSpec
    exporters: tuple[MemberExport, ...]
    ports: Mapping[str, frozenset[str]]
    sources: Mapping[str, Sequence[SourceSlice]]


class SharedDecision(NamedTuple):
    """The import of each set, and the conditions of each export by its member."""

    imports: dict[str, SetImport]
    conditions: dict[str, tuple[WireCondition, ...]]


def decide_shared(exports: Iterable[MemberExport], *, loopback: bool = False) -> SharedDecision:
    """Decide what the sets import of one Service, given all exports of its namespace and name.

    ``loopback``: endpoints on loopback are admitted, since all members are on one machine.
    """
    conditions: dict[str, tuple[WireCondition, ...]] = {}
    by_set: dict[str, list[MemberExport]] = {}
    pods: dict[str, list[SourceSlice]] = {}
    overlaps: dict[str, str] = {}
    for export in sorted(exports, key=lambda export: export.age):
        others = by_set.setdefault(export.tenant.spec.cluster_set, [])
        refusal = _not_admitted(export) or _not_reachable(export)
        if refusal is None and export.direct:
            pods[export.member] = pod_slices(export, loopback=loopback)
            refusal = _separate(export, others, pods, overlaps)
        if refusal is not None:
            conditions[export.member] = (refusal, _no_conflict())
        else:
            others.append(export)
    imports: dict[str, SetImport] = {}
    for cluster_set, exporters in by_set.items():
        if exporters:
            merged, conflict = _merge(exporters, pods, overlaps)
            imports[cluster_set] = merged
            ready = WireCondition(
                READY, "True", "Exported", f"Members of cluster set {cluster_set} import the Service."
            )
            conditions |= {export.member: (ready, conflict) for export in exporters}
    return SharedDecision(imports, conditions)


def admits(tenant: Tenant, namespace: str) -> bool:
    """Return whether a member shares the Services of a namespace with its set."""
    if not tenant.spec.cluster_set or tenant.refused or tenant.draining:
        return False
    allowed = tenant.spec.cluster_set_namespaces
    return namespace in allowed if allowed else not namespace.startswith(_SHARED_BY_DEFAULT)


# --- one export -------------------------------------------------------------------------------------------------------


def _not_ready(reason: str, message: str) -> WireCondition:
    return WireCondition(READY, "False", reason, message)


def _no_conflict() -> WireCondition:
    return WireCondition(CONFLICT, "False", "NoConflicts", "No export of another member differs.")


def _not_admitted(export: MemberExport) -> WireCondition | None:
    tenant, namespace = export.tenant, export.spec.namespace
    if export.gone:
        return _not_ready("Failed", f"{export.gone[:1].upper()}{export.gone[1:]}.")
    if admits(tenant, namespace):
        return None
    named = f"Tenant {tenant.metadata.name} at the hub"
    if not tenant.spec.cluster_set:
        return _not_ready("Failed", f"{named} is not in a cluster set; the operator of the hub sets spec.clusterSet.")
    return _not_ready(
        "Failed",
        f"{named} does not share namespace {namespace}; the operator of the hub adds it to spec.clusterSetNamespaces.",
    )


def _not_reachable(export: MemberExport) -> WireCondition | None:
    if export.direct:
        return None
    named = f"Tenant {export.member} at the hub has spec.reachability Hub"
    if export.spec.type == "Headless":
        return _not_ready(
            "Failed", f"{named}: other members do not reach its pods, which a headless Service needs. Set it to Pods."
        )
    if not export.addresses:
        return _not_ready(
            "Pending",
            f"{named}, and the Service has no address of the hub. Change the Service to type LoadBalancer, or set "
            "spec.reachability to Pods if other members reach its pods.",
        )
    return None


def _separate(
    export: MemberExport, others: Iterable[MemberExport], pods: dict[str, list[SourceSlice]], overlaps: dict[str, str]
) -> WireCondition | None:
    """Return why a new export cannot join older ones: both have an endpoint at the same address.

    If the export is already served, such endpoints are removed from ``pods``, and ``overlaps`` names one.
    """
    own = pods[export.member]
    shared = {
        address: other.member
        for other in others
        if other.direct
        for address in _addresses(own) & _addresses(pods[other.member])
    }
    if not shared:
        return None
    first = min(shared)
    sentence = f"endpoint {first} of {export.member} is also an endpoint of {shared[first]}, whose export is older"
    remedy = f"if the pod networks overlap, set spec.reachability of Tenant {export.member} to Hub"
    if not is_true(export.export.status.conditions, READY):
        return _not_ready("Failed", f"{sentence[:1].upper()}{sentence[1:]}; {remedy}.")
    overlaps[export.member] = f"{sentence}, and is left out; {remedy}"
    pods[export.member] = [
        source._replace(
            endpoints=[endpoint for endpoint in source.endpoints if shared.keys().isdisjoint(endpoint.addresses or ())]
        )
        for source in own
    ]
    return None


def _addresses(slices: Iterable[SourceSlice]) -> set[str]:
    return {address for source in slices for endpoint in source.endpoints for address in endpoint.addresses or ()}


# --- several exports --------------------------------------------------------------------------------------------------


def _merge(
    exporters: Sequence[MemberExport], pods: Mapping[str, Sequence[SourceSlice]], overlaps: Mapping[str, str]
) -> tuple[SetImport, WireCondition]:
    """Return the import of the exports, oldest first, and the condition Conflict for all of them."""
    first, oldest = exporters[0].spec, exporters[0].member
    on_wire = dict(zip(first.__struct_fields__, first.__struct_encode_fields__, strict=True))
    differences: list[tuple[str, str]] = []
    for field, reason in _COMPARED:
        if others := [other.member for other in exporters if getattr(other.spec, field) != getattr(first, field)]:
            differences.append((reason, f"{on_wire[field]} of {oldest} wins over {listed(others, 3)}"))
    ports, served, refused = _merge_ports(exporters)
    if any(set(other.spec.ports) != set(first.ports) for other in exporters):
        sentence = "the Services have different ports, and each port is served by the members that have it"
        differences.append((_PORTS, "; ".join([sentence, *refused])))
    if any(set(other.spec.ip_families) != set(first.ip_families) for other in exporters):
        differences.append((_FAMILIES, f"ipFamilies of {oldest} win"))
    if shared := [overlaps[exporter.member] for exporter in exporters if exporter.member in overlaps]:
        differences.append((_ENDPOINTS, "; ".join(shared)))
    values: dict[str, Any] = {name: getattr(first, name) for name in SharedService.__struct_fields__}
    clusters = sorted(exporter.member for exporter in exporters)
    values["ports"] = ports
    spec = ImportedServiceSpec(**values, clusters=clusters)
    sources = {
        exporter.member: _with_ports(pods[exporter.member], served[exporter.member])
        if exporter.direct
        else _hub_slices(exporter, [port for port in ports if port.name in served[exporter.member]])
        for exporter in exporters
    }
    merged = SetImport(spec, tuple(exporters), served, sources)
    if not differences:
        return merged, _no_conflict()
    reasons = ",".join(reason for reason, _ in differences)
    sentence = "; ".join(text for _, text in differences)
    return merged, WireCondition(CONFLICT, "True", reasons, f"{sentence[:1].upper()}{sentence[1:]}.")


def _merge_ports(exporters: Iterable[MemberExport]) -> tuple[list[ImportPort], dict[str, frozenset[str]], list[str]]:
    """Return the union of the ports, the names of the ports that each member serves, and which ports are refused.

    If two ports share a name or number, the one of the older export is kept. A port without a name must be the only
    one.
    """
    ports: list[ImportPort] = []
    served: dict[str, frozenset[str]] = {}
    refused: list[str] = []
    for export in exporters:
        names: set[str] = set()
        for port in export.spec.ports:
            other = next((kept for kept in ports if _collide(kept, port)), None)
            if other is None:
                ports.append(port)
            elif (other.name, other.port, other.protocol) != (port.name, port.port, port.protocol):
                refused.append(
                    f"port {_text(port)} of {export.member} is left out, since an older export has {_text(other)}"
                )
                continue
            names.add(port.name)
        served[export.member] = frozenset(names)
    return ports, served, refused


def _collide(kept: ImportPort, port: ImportPort) -> bool:
    same_number = (kept.port, kept.protocol) == (port.port, port.protocol)
    return same_number or kept.name == port.name or not (kept.name and port.name)


def _text(port: ImportPort) -> str:
    return f"{port.port}/{port.protocol}" + (f" ({port.name})" if port.name else "")


# --- what one member gets ---------------------------------------------------------------------------------------------


def import_for(tenant: Tenant, imported: SetImport) -> ImportedService:
    """Return the object that informs a member of an import."""
    spec = imported.spec
    labels = {LABEL_MANAGED_BY: MANAGED_BY}
    meta = ObjectMeta(name=hub_name(spec.namespace, spec.name), namespace=tenant.namespace, labels=labels)
    return ImportedService(metadata=meta, spec=spec)


def slices_for(tenant: Tenant, imported: SetImport, *, loopback: bool = False) -> list[EndpointSlice]:
    """Return the slices of an import for a member, each with endpoints of one exporter.

    A member reaches its own pods, and those of exporters with reachability Pods. For other exporters it gets the
    addresses that the hub assigned to the Service.
    """
    families = imported.spec.ip_families
    slices: list[EndpointSlice] = []
    for exporter in imported.exporters:
        sources = imported.sources[exporter.member]
        if exporter.member == tenant.metadata.name:
            pods = pod_slices(exporter, own=True, loopback=loopback)
            sources = _with_ports(pods, imported.ports[exporter.member])
        slices += [_slice(tenant, exporter, source) for source in sources if not families or source.family in families]
    return slices


def pod_slices(export: MemberExport, *, own: bool = False, loopback: bool = False) -> list[SourceSlice]:
    """Return the slices of an exporter with the endpoints that its Tenant admits.

    ``own``: for the exporter itself, whose nodes the endpoints are on.
    """
    policy = TargetPolicy(target_ranges(export.tenant.spec), loopback=loopback, ipv6=True)
    return [
        SourceSlice(
            endpoint_slice.metadata.name,
            endpoint_slice.address_type,
            [
                replace(endpoint, addresses=[address], target_ref=None, node_name=endpoint.node_name if own else None)
                for endpoint in endpoint_slice.endpoints or ()
                if endpoint.addresses and (address := admit(endpoint.addresses[0], policy)) is not None
            ],
            endpoint_slice.ports or [],
        )
        for endpoint_slice in export.slices
    ]


def _with_ports(sources: Iterable[SourceSlice], names: Collection[str]) -> list[SourceSlice]:
    return [source._replace(ports=[port for port in source.ports if (port.name or "") in names]) for source in sources]


def _hub_slices(exporter: MemberExport, ports: Iterable[ImportPort]) -> list[SourceSlice]:
    served = [EndpointPort(name=port.name, port=port.port, protocol=port.protocol) for port in ports]
    return [
        SourceSlice(f"hub {family}", family, [Endpoint(addresses=[address])], served)
        for address in exporter.addresses
        if (family := family_of(address)) is not None
    ]


def _slice(tenant: Tenant, exporter: MemberExport, source: SourceSlice) -> EndpointSlice:
    key = (exporter.spec.namespace, exporter.spec.name)
    name = fit(
        f"{hub_name(*key)}.import.{exporter.member}.{short_hash(source.name)}",
        limit=_NAME_LIMIT,
        identity=(*key, exporter.member, source.name),
    )
    labels = {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_SLICE_MANAGED_BY: IMPORT_SLICE_MANAGED_BY,
        LABEL_IMPORT: backend_label("/".join(key)),
        LABEL_ORIGIN_NAMESPACE: key[0],
        LABEL_ORIGIN_NAME: label_value(key[1]),
        LABEL_SOURCE_CLUSTER: exporter.member,
    }
    return EndpointSlice(
        metadata=ObjectMeta(name=name, namespace=tenant.namespace, labels=labels),
        address_type=source.family,
        endpoints=source.endpoints,
        ports=source.ports,
    )
