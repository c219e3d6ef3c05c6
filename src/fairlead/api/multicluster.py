"""The Multi-Cluster Services API of a member, and the objects by which its exports reach the other members of its set.

    member west                  hub                                                          member east
    ServiceExport, Service ──►   ExportedService in tenant-west ─┐
                                 ExportedService of others ──────┴► ImportedService in tenant-east ──► ServiceImport

The agent writes the spec of an ExportedService, and the hub its status. The hub writes ImportedServices.
Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/1645-multi-cluster-services-api
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, Column, Crd
from fairlead.api.intent import Port
from fairlead.api.kubernetes import SessionAffinityConfig
from fairlead.api.meta import LIST_ATOMIC, LIST_SET, ONE_LINE, Conditions, KubeObject, Line63, Line253, Resource, Wire
from fairlead.api.names import GROUP, VERSION, fit
from fairlead.model.keys import Family

MULTICLUSTER_GROUP = "multicluster.x-k8s.io"
#: The versions of the standard's kinds, the preferred one first; they have the same fields.
MULTICLUSTER_VERSIONS = ("v1beta1", "v1alpha1")
#: On an EndpointSlice of a member: the ServiceImport that it belongs to, and the member that its endpoints are in.
LABEL_MULTICLUSTER_SERVICE = "multicluster.kubernetes.io/service-name"
LABEL_SOURCE_CLUSTER = "multicluster.kubernetes.io/source-cluster"
#: On a ServiceImport: the Service that has its ClusterSetIP.
ANNOTATION_DERIVED_SERVICE = "multicluster.kubernetes.io/derived-service"


def derived_name(service: str) -> str:
    """Name the Service that has the ClusterSetIP of an import: a label of DNS."""
    return fit(f"clusterset-{service}", identity=("import", service))


ImportType = Literal["ClusterSetIP", "Headless"]
VALID, CONFLICT, READY = "Valid", "Conflict", "Ready"


class ImportPort(Wire, frozen=True, gc=False):
    """One port of an exported Service."""

    port: Port
    name: Line63 = ""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    app_protocol: Annotated[str, Meta(max_length=317, extra_json_schema=ONE_LINE)] | None = None


# --- the standard's kinds ---------------------------------------------------------------------------------------------


class ServiceExportSpec(Wire, frozen=True, gc=False):
    """The labels and annotations that the ServiceImports get."""

    exported_labels: dict[str, str] | None = None
    exported_annotations: dict[str, str] | None = None


class ServiceExportStatus(Wire, frozen=True, gc=False):
    """What became of an export."""

    conditions: Conditions = None


class ServiceExport(KubeObject, frozen=True, gc=False):
    """A Service of this cluster that others of the set may use."""

    spec: ServiceExportSpec = ServiceExportSpec()
    status: ServiceExportStatus = ServiceExportStatus()


class ServiceImportSpec(Wire, frozen=True, gc=False):
    """The properties of a Service of the set."""

    ports: list[ImportPort] | None = None
    ips: list[str] | None = None
    type: str = "ClusterSetIP"
    session_affinity: str = ""
    session_affinity_config: SessionAffinityConfig | None = None
    ip_families: list[str] | None = None
    internal_traffic_policy: str | None = None
    traffic_distribution: str | None = None


class ImportCluster(Wire, frozen=True, gc=False):
    """A cluster that exports the Service."""

    cluster: str = ""


class ServiceImportStatus(Wire, frozen=True, gc=False):
    """The exporting clusters, and whether the import can be used."""

    clusters: list[ImportCluster] | None = None
    conditions: Conditions = None


class ServiceImport(KubeObject, frozen=True, gc=False):
    """A Service of the set, in one of its clusters."""

    spec: ServiceImportSpec = ServiceImportSpec()
    status: ServiceImportStatus = ServiceImportStatus()


SERVICE_EXPORTS = Resource(
    MULTICLUSTER_GROUP, MULTICLUSTER_VERSIONS[0], "ServiceExport", "serviceexports", True, ServiceExport
)
SERVICE_IMPORTS = Resource(
    MULTICLUSTER_GROUP, MULTICLUSTER_VERSIONS[0], "ServiceImport", "serviceimports", True, ServiceImport
)


# --- ours, at the hub -------------------------------------------------------------------------------------------------


class SharedService(Wire, frozen=True, gc=False):
    """The properties that a Service has in each member that imports it."""

    namespace: Line63 = ""
    name: Line63 = ""
    type: ImportType = "ClusterSetIP"
    ports: Annotated[list[ImportPort], Meta(max_length=1000, extra_json_schema=LIST_ATOMIC)] = msgspec.field(
        default_factory=list[ImportPort]
    )
    session_affinity: Literal["None", "ClientIP"] = "None"
    session_affinity_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 0
    internal_traffic_policy: Line63 = ""
    traffic_distribution: Annotated[str, Meta(max_length=317, extra_json_schema=ONE_LINE)] = ""
    ip_families: Annotated[list[Family], Meta(max_length=2, extra_json_schema=LIST_ATOMIC)] = msgspec.field(
        default_factory=list[Family]
    )
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class ExportedServiceSpec(SharedService, frozen=True, gc=False):
    """A Service that a member exports; exportedAt is the creation of its ServiceExport, and the oldest export wins."""

    exported_at: Annotated[str, Meta(max_length=64, extra_json_schema=ONE_LINE)] = ""


class ExportedServiceStatus(Wire, frozen=True, gc=False):
    """The conditions of the ServiceExport, without Valid, which the agent decides."""

    observed_generation: int = 0
    conditions: Conditions = None


class ExportedService(KubeObject, frozen=True, gc=False):
    """A Service that one member exports to the members of its cluster set."""

    spec: ExportedServiceSpec = ExportedServiceSpec()
    status: ExportedServiceStatus = ExportedServiceStatus()


class ImportedServiceSpec(SharedService, frozen=True, gc=False):
    """A Service as one member imports it; clusters are the members that export it."""

    clusters: Annotated[list[Line253], Meta(max_length=1000, extra_json_schema=LIST_SET)] = msgspec.field(
        default_factory=list[str]
    )


class ImportedService(KubeObject, frozen=True, gc=False):
    """A Service of a cluster set that one member imports."""

    spec: ImportedServiceSpec = ImportedServiceSpec()


EXPORTED_SERVICES = Resource(GROUP, VERSION, "ExportedService", "exportedservices", True, ExportedService)
IMPORTED_SERVICES = Resource(GROUP, VERSION, "ImportedService", "importedservices", True, ImportedService)

_OF_SERVICE = (
    Column("Of", ".spec.namespace", description="namespace of the Service in the members"),
    Column("Service", ".spec.name"),
    Column("Type", ".spec.type"),
)
EXPORTED_SERVICE_CRD = Crd(
    EXPORTED_SERVICES,
    short_names=("exsvc",),
    columns=(
        *_OF_SERVICE,
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Conflict", '.status.conditions[?(@.type=="Conflict")].reason'),
        AGE,
    ),
)
IMPORTED_SERVICE_CRD = Crd(
    IMPORTED_SERVICES, short_names=("imsvc",), columns=(*_OF_SERVICE, Column("Clusters", ".spec.clusters"), AGE)
)
