"""The table of the built-in kinds."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from enum import Flag, auto
from typing import cast

from podless.failure import (
    Cause,
    duplicate_value,
    immutable_field,
    invalid_value,
    required_value,
    too_many,
    unsupported_value,
)
from podless.kinds.allocations import Allocations
from podless.kinds.builtin_columns import COLUMNS, DEFAULT
from podless.kinds.core import (
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
from podless.kinds.crd import CrdBehaviour
from podless.kinds.kind import Behaviour, Conversion, Kind, ObjectChange
from podless.kinds.names import DNS_LABEL, DNS_SUBDOMAIN, LABEL_RULE, PORT_RULE, RBAC
from podless.kinds.services import ServiceBehaviour
from podless.objects import Obj, at, child, items
from podless.schema.builtin import APIEXT, BuiltinSchemas
from podless.schema.rules import Rules

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
        kind("", "services", "Service", "svc", ServiceBehaviour(allocations), _STATUS | _ALL, fields=_SERVICE_FIELDS),
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


_CORE_TO_EVENTS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENTS_TO_CORE = {new: old for old, new in _CORE_TO_EVENTS.items()}


def _renamed(obj: Obj, names: dict[str, str], api_version: str) -> Obj:
    return {names.get(key, key): value for key, value in obj.items()} | {"apiVersion": api_version}


EVENTS_V1 = Conversion(
    to_storage=lambda obj: _renamed(obj, _EVENTS_TO_CORE, "v1"),
    from_storage=lambda obj: _renamed(obj, _CORE_TO_EVENTS, "events.k8s.io/v1"),
)


class EventBehaviour(Behaviour):
    """Events, in their core/v1 form."""

    def default(self, obj: Obj) -> None:
        """Set the fields as Go serializes them."""
        child(obj, "involvedObject")
        child(obj, "source")
        obj.setdefault("firstTimestamp", None)
        obj.setdefault("lastTimestamp", None)
        obj.setdefault("eventTime", None)
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that the Event is in the namespace of its involved object."""
        new = change.new
        involved_namespace, own_namespace = (
            at(new, "involvedObject", "namespace") or "",
            at(new, "metadata", "namespace"),
        )
        if involved_namespace and involved_namespace != own_namespace:
            return [invalid_value("involvedObject.namespace", involved_namespace, "does not match event.namespace")]
        if not involved_namespace and own_namespace not in {"default", "kube-system"}:
            return [invalid_value("involvedObject.namespace", involved_namespace, "does not match event.namespace")]
        return [] if new.get("eventTime") is None or new.get("reason") else [required_value("reason")]


MAX_ENDPOINTS, MAX_ADDRESSES = 1000, 100
_MAX_NAME = 253


def _host_name(text: str) -> None:
    if len(text) > _MAX_NAME or not DNS_SUBDOMAIN.match(text.removesuffix(".")):
        raise ValueError


def _ipv6(text: str) -> None:
    if ipaddress.IPv6Address(text).scope_id is not None:
        raise ValueError  # a zone is a text of any length


_PARSERS: dict[str, Callable[[str], object]] = {"FQDN": _host_name, "IPv4": ipaddress.IPv4Address, "IPv6": _ipv6}


class EndpointSliceBehaviour(Behaviour):
    """EndpointSlices."""

    def default(self, obj: Obj) -> None:
        """Set the fields as Go serializes them: empty lists are null, and conditions are always present."""
        obj["endpoints"] = obj.get("endpoints") or None
        obj["ports"] = obj.get("ports") or None
        for endpoint in items(obj, "endpoints"):
            if isinstance(endpoint, dict):
                child(cast("Obj", endpoint), "conditions")
        for port in items(obj, "ports"):
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check sizes, addresses and ports."""
        new, old = change.new, change.old
        causes: list[Cause] = []
        kind = new.get("addressType") or ""
        if not kind:
            causes.append(required_value("addressType"))
        elif kind not in _PARSERS:
            causes.append(unsupported_value("addressType", kind, list(_PARSERS)))
        if old is not None and old.get("addressType") != kind:
            causes.append(immutable_field("addressType", kind))
        endpoints = items(new, "endpoints")
        causes += too_many("endpoints", len(endpoints), MAX_ENDPOINTS)
        if old is None or old.get("endpoints") != new.get("endpoints"):
            for index, endpoint in enumerate(endpoints):
                causes += _check_addresses(cast("Obj", endpoint), kind, f"endpoints[{index}].addresses")
        return causes + _check_ports(cast("list[Obj]", items(new, "ports")))


def _check_addresses(endpoint: Obj, kind: str, field: str) -> list[Cause]:
    addresses = cast("list[str]", endpoint.get("addresses") or [])
    if not addresses:
        return [required_value(field, "must contain at least 1 address")]
    if causes := too_many(field, len(addresses), MAX_ADDRESSES):
        return causes
    parse = _PARSERS.get(kind, str)
    for index, address in enumerate(addresses):
        try:
            parse(address)
        except ValueError:
            causes.append(invalid_value(f"{field}[{index}]", address, f"must be an {kind} address"))
    return causes


def _check_ports(ports: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name") or "", port.get("port")
        if name in names:
            causes.append(duplicate_value(f"ports[{index}].name", name))
        names.add(name)
        if name and (len(name) > 63 or not DNS_LABEL.match(name)):
            causes.append(invalid_value(f"ports[{index}].name", name, LABEL_RULE))
        if number is not None and not 1 <= number <= 65535:
            causes.append(invalid_value(f"ports[{index}].port", number, PORT_RULE))
        if port.get("protocol") not in {"TCP", "UDP", "SCTP"}:
            causes.append(unsupported_value(f"ports[{index}].protocol", port.get("protocol"), ["SCTP", "TCP", "UDP"]))
    return causes
