"""Which kinds does the server have from the start? One table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fairlead.apiserver.kinds.allocations import Allocations
from fairlead.apiserver.kinds.columns import COLUMNS, DEFAULT
from fairlead.apiserver.kinds.core import (
    BindingBehaviour,
    DataBehaviour,
    EndpointSliceBehaviour,
    IngressBehaviour,
    LeaseBehaviour,
    NamespaceBehaviour,
    NodeBehaviour,
    PodBehaviour,
    StatusBehaviour,
    WorkloadBehaviour,
)
from fairlead.apiserver.kinds.crd import CrdBehaviour
from fairlead.apiserver.kinds.events import EVENTS_V1, EventBehaviour
from fairlead.apiserver.kinds.kind import Behaviour, Kind
from fairlead.apiserver.kinds.services import ServiceBehaviour
from fairlead.apiserver.objects import Obj
from fairlead.apiserver.schema.builtin import BuiltinSchemas
from fairlead.apiserver.schema.rules import Rules

RBAC = "rbac.authorization.k8s.io"
_API = "io.k8s.api."
_EVENT_FIELDS = (
    "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason type source "
    "reportingComponent"
)
_POD_FIELDS = (
    "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName"
)


class Builtins:
    """Makes the built-in kinds of one server."""

    def __init__(
        self,
        schemas: BuiltinSchemas,
        rules: Rules,
        *,
        allocations: Allocations,
        fill_token: Callable[[Obj], None],
        now: Callable[[], float],
    ) -> None:
        self._schemas = schemas
        self._rules = rules
        self._allocations = allocations
        self._fill_token = fill_token
        self._now = now

    def kinds(self) -> list[Kind]:
        """Return every built-in kind, in the order of discovery."""
        return [*self._core(), *self._apps(), *self._networking(), *self._rbac(), *self._others()]

    def _kind(
        self,
        group: str,
        plural: str,
        kind: str,
        behaviour: Behaviour | None = None,
        *,
        short: str = "",
        namespaced: bool = True,
        status: bool = False,
        generation: bool = False,
        fields: str = "",
        categories: str = "",
    ) -> Kind:
        package = {"": "core", RBAC: "rbac"}.get(group, group.partition(".")[0])
        definition = f"{_API}{package}.v1.{kind}"
        if group == "apiextensions.k8s.io":
            definition = f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{kind}"
        bucket = f"{plural}.{group}" if group else plural
        return Kind(
            group,
            "v1",
            plural,
            kind,
            self._schemas.node(definition),
            namespaced=namespaced,
            short_names=tuple(short.split()),
            categories=tuple(categories.split()),
            has_status=status,
            generation=generation,
            bucket=bucket,
            definition=definition,
            columns=COLUMNS.get(bucket, DEFAULT),
            selectable=frozenset({"metadata.name", "metadata.namespace", *fields.split()}),
            behaviour=behaviour or Behaviour(),
        )

    def _core(self) -> list[Kind]:
        services = ServiceBehaviour(self._allocations)
        secrets = DataBehaviour(base64_data=True, fill_token=self._fill_token)
        accounts = self._kind("", "serviceaccounts", "ServiceAccount", short="sa")
        accounts.subresources = {"token": ("authentication.k8s.io", "v1", "TokenRequest")}
        phase = "status.phase"
        return [
            self._kind("", "configmaps", "ConfigMap", DataBehaviour(base64_data=False), short="cm"),
            self._kind("", "endpoints", "Endpoints", short="ep"),
            self._kind("", "events", "Event", EventBehaviour(), short="ev", fields=_EVENT_FIELDS),
            self._kind(
                "",
                "namespaces",
                "Namespace",
                NamespaceBehaviour(),
                short="ns",
                namespaced=False,
                status=True,
                fields=phase,
            ),
            self._kind(
                "",
                "nodes",
                "Node",
                NodeBehaviour(),
                short="no",
                namespaced=False,
                status=True,
                fields="spec.unschedulable",
            ),
            self._kind(
                "", "pods", "Pod", PodBehaviour(), short="po", status=True, fields=_POD_FIELDS, categories="all"
            ),
            self._kind("", "secrets", "Secret", secrets, fields="type"),
            accounts,
            self._kind(
                "",
                "services",
                "Service",
                services,
                short="svc",
                status=True,
                fields="spec.type spec.clusterIP",
                categories="all",
            ),
        ]

    def _apps(self) -> list[Kind]:
        counted, uncounted = WorkloadBehaviour(replicas=True), WorkloadBehaviour(replicas=False)
        rows = (
            ("daemonsets", "DaemonSet", uncounted, "ds"),
            ("deployments", "Deployment", counted, "deploy"),
            ("replicasets", "ReplicaSet", counted, "rs"),
            ("statefulsets", "StatefulSet", counted, "sts"),
        )
        return [
            self._kind("apps", plural, kind, behaviour, short=short, status=True, generation=True, categories="all")
            for plural, kind, behaviour, short in rows
        ]

    def _networking(self) -> list[Kind]:
        group = "networking.k8s.io"
        return [
            self._kind(group, "ingresses", "Ingress", IngressBehaviour(), short="ing", status=True, generation=True),
            self._kind(group, "ingressclasses", "IngressClass", namespaced=False, generation=True),
            self._kind(group, "networkpolicies", "NetworkPolicy", short="netpol", generation=True),
            self._kind(
                "discovery.k8s.io", "endpointslices", "EndpointSlice", EndpointSliceBehaviour(), generation=True
            ),
        ]

    def _rbac(self) -> list[Kind]:
        binding = BindingBehaviour()
        return [
            self._kind(RBAC, "clusterrolebindings", "ClusterRoleBinding", binding, namespaced=False),
            self._kind(RBAC, "clusterroles", "ClusterRole", namespaced=False),
            self._kind(RBAC, "rolebindings", "RoleBinding", binding),
            self._kind(RBAC, "roles", "Role"),
        ]

    def _others(self) -> list[Kind]:
        core_events = next(kind for kind in self._core() if kind.plural == "events")
        events = self._kind("events.k8s.io", "events", "Event", core_events.behaviour, short="ev")
        events = replace(events, bucket="events", conversion=EVENTS_V1, columns=COLUMNS["events"])
        crd = CrdBehaviour(self._schemas, self._rules, self._now)
        disruption = "poddisruptionbudgets"
        return [
            events,
            self._kind("coordination.k8s.io", "leases", "Lease", LeaseBehaviour()),
            self._kind(
                "policy",
                disruption,
                "PodDisruptionBudget",
                StatusBehaviour(),
                short="pdb",
                status=True,
                generation=True,
            ),
            self._kind(
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "CustomResourceDefinition",
                crd,
                short="crd crds",
                namespaced=False,
                status=True,
                generation=True,
                categories="api-extensions",
            ),
        ]
