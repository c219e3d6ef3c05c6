"""Imports of the members of a cluster set, and the conditions of their exports.

    exports of one namespace and name  ─►  admitted?  ─►  reachable?  ─►  oldest first: one import for each set
                                              │              │                └─ differences: Conflict on all
                                              └── Ready=False ┘

A Service of the same namespace and name is the same Service in all members of a set. An export that is not admitted,
or that the others cannot reach, is in no import. In: ExportedServices, Tenants, EndpointSlices and addresses at the
hub. Out: an import for each set, its slices for each member, conditions. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice
from fairlead.api.meta import ObjectMeta, WireCondition
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


class MemberExport(msgspec.Struct, frozen=True):
    """An export with what is known of its member: its slices, and the addresses that the hub gave to the Service."""

    export: ExportedService
    tenant: Tenant
    slices: tuple[EndpointSlice, ...] = ()
    addresses: tuple[str, ...] = ()

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
        """Return the key that sorts the oldest export first; of equally old ones the first that the hub received."""
        return (self.spec.exported_at or "~", self.export.metadata.creation_timestamp or "", self.member)


class SetImport(msgspec.Struct, frozen=True):
    """The import of one Service in one set: its properties, and the ports that each exporter serves."""

    spec: ImportedServiceSpec
    exporters: tuple[MemberExport, ...]
    ports: Mapping[str, frozenset[str]]


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
    for export in sorted(exports, key=lambda export: export.age):
        others = by_set.setdefault(export.tenant.spec.cluster_set, [])
        if refusal := _not_admitted(export) or _not_reachable(export) or _overlap(export, others, loopback=loopback):
            conditions[export.member] = (refusal, _no_conflict())
        else:
            others.append(export)
    imports: dict[str, SetImport] = {}
    for cluster_set, exporters in by_set.items():
        if exporters:
            merged, conflict = _merge(exporters)
            imports[cluster_set] = merged
            ready = WireCondition(
                READY, "True", "Exported", f"Members of cluster set {cluster_set} import the Service."
            )
            conditions |= {export.member: (ready, conflict) for export in exporters}
    return SharedDecision(imports, conditions)


def admits(tenant: Tenant, namespace: str) -> bool:
    """Return whether a member shares the Services of a namespace with its set."""
    if not tenant.spec.cluster_set or tenant.refused or tenant.deleting:
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
    if admits(tenant, namespace):
        return None
    named = f"Tenant {tenant.metadata.name} at the hub"
    if tenant.deleting:
        return _not_ready("Failed", f"{named} is being removed.")
    if not tenant.spec.cluster_set:
        return _not_ready("Failed", f"{named} is in no cluster set; the operator of the hub sets spec.clusterSet.")
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


def _overlap(export: MemberExport, others: Iterable[MemberExport], *, loopback: bool) -> WireCondition | None:
    """Return why an export cannot join older ones: both have an endpoint at one address."""
    own = _pods(export, loopback=loopback)
    for other in others:
        if shared := own & _pods(other, loopback=loopback):
            return _not_ready(
                "Failed",
                f"Endpoint {min(shared)} is also an endpoint of member {other.member}, whose export is older. The pod "
                f"networks overlap: set spec.reachability of Tenant {export.member} to Hub.",
            )
    return None


def _pods(export: MemberExport, *, loopback: bool) -> set[str]:
    if not export.direct:
        return set()
    policy = _policy(export.tenant, loopback=loopback)
    return {
        address
        for endpoint_slice in export.slices
        for endpoint in endpoint_slice.endpoints or ()
        if endpoint.addresses and (address := admit(endpoint.addresses[0], policy)) is not None
    }


# --- several exports --------------------------------------------------------------------------------------------------


def _merge(exporters: Sequence[MemberExport]) -> tuple[SetImport, WireCondition]:
    """Return the import of exports, the oldest first, and the condition Conflict of all of them."""
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
    values: dict[str, Any] = {name: getattr(first, name) for name in SharedService.__struct_fields__}
    clusters = sorted(exporter.member for exporter in exporters)
    values["ports"] = ports
    spec = ImportedServiceSpec(**values, clusters=clusters)
    merged = SetImport(spec, tuple(exporters), served)
    if not differences:
        return merged, _no_conflict()
    reasons = ",".join(reason for reason, _ in differences)
    sentence = "; ".join(text for _, text in differences)
    return merged, WireCondition(CONFLICT, "True", reasons, f"{sentence[:1].upper()}{sentence[1:]}.")


def _merge_ports(
    exporters: Iterable[MemberExport],
) -> tuple[list[ImportPort], dict[str, frozenset[str]], list[str]]:
    """Return the union of the ports, the names of the ports that each member serves, and which ports are refused.

    Of two ports with one name or one number, that of the older export is kept. A port without a name is alone.
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
    """Return the object with which a member learns of an import."""
    spec = imported.spec
    labels = {LABEL_MANAGED_BY: MANAGED_BY}
    meta = ObjectMeta(name=hub_name(spec.namespace, spec.name), namespace=tenant.namespace, labels=labels)
    return ImportedService(metadata=meta, spec=spec)


def slices_for(tenant: Tenant, imported: SetImport, *, loopback: bool = False) -> list[EndpointSlice]:
    """Return the slices that a member gets of an import, each with endpoints of one exporter.

    A member reaches its own pods, and those of exporters with reachability Pods. Of other exporters it gets the
    addresses that the hub gave to the Service.
    """
    slices: list[EndpointSlice] = []
    for exporter in imported.exporters:
        own = exporter.member == tenant.metadata.name
        names = imported.ports[exporter.member]
        if own or exporter.direct:
            slices += _pod_slices(tenant, exporter, names, own=own, loopback=loopback)
        else:
            slices += _hub_slices(tenant, imported, exporter, names)
    families = imported.spec.ip_families
    return [endpoint_slice for endpoint_slice in slices if not families or endpoint_slice.address_type in families]


def _pod_slices(
    tenant: Tenant, exporter: MemberExport, names: Collection[str], *, own: bool, loopback: bool
) -> Iterable[EndpointSlice]:
    policy = _policy(exporter.tenant, loopback=loopback)
    for endpoint_slice in exporter.slices:
        endpoints = [
            msgspec.structs.replace(
                endpoint, addresses=[address], target_ref=None, node_name=endpoint.node_name if own else None
            )
            for endpoint in endpoint_slice.endpoints or ()
            if endpoint.addresses and (address := admit(endpoint.addresses[0], policy)) is not None
        ]
        ports = [port for port in endpoint_slice.ports or () if (port.name or "") in names]
        yield _slice(tenant, exporter, endpoint_slice.metadata.name, endpoint_slice.address_type, endpoints, ports)


def _hub_slices(
    tenant: Tenant, imported: SetImport, exporter: MemberExport, names: Collection[str]
) -> Iterable[EndpointSlice]:
    ports = [
        EndpointPort(name=port.name, port=port.port, protocol=port.protocol)
        for port in imported.spec.ports
        if port.name in names
    ]
    for address in exporter.addresses:
        if (family := family_of(address)) is not None:
            yield _slice(tenant, exporter, f"hub {family}", family, [Endpoint(addresses=[address])], ports)


def _slice(
    tenant: Tenant,
    exporter: MemberExport,
    source: str,
    family: str,
    endpoints: list[Endpoint],
    ports: list[EndpointPort],
) -> EndpointSlice:
    key = (exporter.spec.namespace, exporter.spec.name)
    name = fit(
        f"{hub_name(*key)}.import.{exporter.member}.{short_hash(source)}",
        limit=_NAME_LIMIT,
        identity=(*key, exporter.member, source),
    )
    labels = {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_SLICE_MANAGED_BY: IMPORT_SLICE_MANAGED_BY,
        LABEL_IMPORT: backend_label("/".join(key)),
        LABEL_ORIGIN_NAMESPACE: key[0],
        LABEL_ORIGIN_NAME: label_value(key[1]),
        LABEL_SOURCE_CLUSTER: exporter.member,
    }
    meta = ObjectMeta(name=name, namespace=tenant.namespace, labels=labels)
    return EndpointSlice(metadata=meta, address_type=family, endpoints=endpoints, ports=ports)


def _policy(tenant: Tenant, *, loopback: bool) -> TargetPolicy:
    return TargetPolicy(target_ranges(tenant.spec), loopback=loopback, ipv6=True)
