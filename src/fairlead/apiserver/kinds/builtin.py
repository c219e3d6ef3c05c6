"""The table of the built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Flag, auto

from fairlead.apiserver.kinds.allocations import Allocations
from fairlead.apiserver.kinds.builtin_columns import COLUMNS, DEFAULT
from fairlead.apiserver.kinds.core import (
    BindingBehaviour,
    DataBehaviour,
    IngressBehaviour,
    LeaseBehaviour,
    NamespaceBehaviour,
    NodeBehaviour,
    PodBehaviour,
    SecretBehaviour,
    WorkloadBehaviour,
)
from fairlead.apiserver.kinds.crd import CrdBehaviour
from fairlead.apiserver.kinds.endpoint_slices import EndpointSliceBehaviour
from fairlead.apiserver.kinds.events import EVENTS_V1, EventBehaviour
from fairlead.apiserver.kinds.kind import Behaviour, Kind
from fairlead.apiserver.kinds.names import RBAC
from fairlead.apiserver.kinds.services import ServiceBehaviour
from fairlead.apiserver.objects import Obj
from fairlead.apiserver.schema.builtin import APIEXT, BuiltinSchemas
from fairlead.apiserver.schema.rules import Rules

_APIEXT_GROUP, _NETWORKING = "apiextensions.k8s.io", "networking.k8s.io"
_EVENT_FIELDS = (
    "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason type source "
    "reportingComponent"
)
_POD_FIELDS = (
    "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName"
)
_SERVICE_FIELDS = "spec.type spec.clusterIP"
_DAEMONS: Obj = {"revisionHistoryLimit": 10}
_REPLICAS: Obj = {"replicas": 1} | _DAEMONS


class _Trait(Flag):
    CLUSTER_SCOPED = auto()
    STATUS = auto()
    GENERATION = auto()
    ALL = auto()
    """The kind is in the category ``all``."""


_CLUSTER, _STATUS, _GENERATION, _ALL = _Trait
_NONE, _BOTH = _Trait(0), _STATUS | _GENERATION


def builtin_kinds(
    schemas: BuiltinSchemas,
    rules: Rules,
    *,
    allocations: Allocations,
    fill_token: Callable[[Obj], None],
    now: Callable[[], float],
) -> list[Kind]:
    """Return every built-in kind of one server, in the order of discovery."""

    def kind(
        group: str,
        plural: str,
        name: str,
        short: str = "",
        behaviour: Behaviour | None = None,
        traits: _Trait = _NONE,
        *,
        fields: str = "",
    ) -> Kind:
        package = {"": "core", RBAC: "rbac"}.get(group, group.partition(".")[0])
        definition = f"{APIEXT}{name}" if group == _APIEXT_GROUP else f"io.k8s.api.{package}.v1.{name}"
        bucket = f"{plural}.{group}" if group else plural
        return Kind(
            group,
            "v1",
            plural,
            name,
            schemas.node(definition),
            namespaced=_CLUSTER not in traits,
            short_names=tuple(short.split()),
            categories=("all",) if _ALL in traits else (),
            has_status=_STATUS in traits,
            generation=_GENERATION in traits,
            bucket=bucket,
            definition=definition,
            columns=COLUMNS.get(bucket, DEFAULT),
            selectable=frozenset({"metadata.name", "metadata.namespace", *fields.split()}),
            behaviour=behaviour or Behaviour(),
        )

    binding, daemons, replicas = BindingBehaviour(), WorkloadBehaviour(_DAEMONS), WorkloadBehaviour(_REPLICAS)
    accounts = kind("", "serviceaccounts", "ServiceAccount", "sa")
    accounts.subresources = {"token": ("authentication.k8s.io", "v1", "TokenRequest")}
    events = kind("events.k8s.io", "events", "Event", "ev", EventBehaviour())
    crd = CrdBehaviour(schemas, rules, now)
    crds = kind(
        _APIEXT_GROUP, "customresourcedefinitions", "CustomResourceDefinition", "crd crds", crd, _CLUSTER | _BOTH
    )
    namespaces, nodes = NamespaceBehaviour("spec", "status"), NodeBehaviour("spec", "status")
    return [
        kind("", "configmaps", "ConfigMap", "cm", DataBehaviour()),
        kind("", "endpoints", "Endpoints", "ep"),
        kind("", "events", "Event", "ev", EventBehaviour(), fields=_EVENT_FIELDS),
        kind("", "namespaces", "Namespace", "ns", namespaces, _CLUSTER | _STATUS, fields="status.phase"),
        kind("", "nodes", "Node", "no", nodes, _CLUSTER | _STATUS, fields="spec.unschedulable"),
        kind("", "pods", "Pod", "po", PodBehaviour("status"), _STATUS | _ALL, fields=_POD_FIELDS),
        kind("", "secrets", "Secret", behaviour=SecretBehaviour(fill_token), fields="type"),
        accounts,
        kind(
            "",
            "services",
            "Service",
            "svc",
            ServiceBehaviour(allocations),
            _STATUS | _ALL,
            fields=_SERVICE_FIELDS,
        ),
        kind("apps", "daemonsets", "DaemonSet", "ds", daemons, _BOTH | _ALL),
        kind("apps", "deployments", "Deployment", "deploy", replicas, _BOTH | _ALL),
        kind("apps", "replicasets", "ReplicaSet", "rs", replicas, _BOTH | _ALL),
        kind("apps", "statefulsets", "StatefulSet", "sts", replicas, _BOTH | _ALL),
        kind(_NETWORKING, "ingresses", "Ingress", "ing", IngressBehaviour("status.loadBalancer"), _BOTH),
        kind(_NETWORKING, "ingressclasses", "IngressClass", traits=_CLUSTER | _GENERATION),
        kind(_NETWORKING, "networkpolicies", "NetworkPolicy", "netpol", traits=_GENERATION),
        kind("discovery.k8s.io", "endpointslices", "EndpointSlice", "", EndpointSliceBehaviour(), _GENERATION),
        kind(RBAC, "clusterrolebindings", "ClusterRoleBinding", "", binding, _CLUSTER),
        kind(RBAC, "clusterroles", "ClusterRole", traits=_CLUSTER),
        kind(RBAC, "rolebindings", "RoleBinding", "", binding),
        kind(RBAC, "roles", "Role"),
        replace(events, bucket="events", conversion=EVENTS_V1, columns=COLUMNS["events"]),
        kind("coordination.k8s.io", "leases", "Lease", "", LeaseBehaviour()),
        kind("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", Behaviour("status"), _BOTH),
        replace(crds, categories=("api-extensions",)),
    ]
