"""The Kubernetes kinds that Fairlead reads, Ingress among them, reduced to the fields that it reads.

Source: https://kubernetes.io/docs/reference/kubernetes-api/
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import KubeObject, Resource, Wire, WireCondition, is_true
from fairlead.api.names import INGRESS_CONTROLLER

#: The annotation in which kubectl keeps a copy of the whole object.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ServicePort(Wire, frozen=True, gc=False):
    """One port of a Service. ``target_port`` is a number or the name of a container port."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    node_port: int = 0
    target_port: int | str | None = None
    app_protocol: str | None = None


class ClientIPConfig(Wire, frozen=True, gc=False):
    """How long session affinity lasts, in seconds."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(Wire, frozen=True, gc=False):
    """The parameters of session affinity."""

    client_ip: ClientIPConfig | None = msgspec.field(default=None, name="clientIP")


class ServiceSpec(Wire, frozen=True, gc=False):
    """The spec of a Service."""

    type: str = "ClusterIP"
    ports: list[ServicePort] | None = None
    selector: dict[str, str] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    load_balancer_class: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: list[str] | None = None
    external_traffic_policy: str = ""
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None
    ip_families: list[str] | None = None
    ip_family_policy: str | None = None


class PortStatus(Wire, frozen=True, gc=False):
    """What became of one port of a load balancer."""

    port: int = 0
    protocol: str = "TCP"
    error: str | None = None


class Ingress(Wire, frozen=True, gc=False):
    """One address of a load balancer."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: list[PortStatus] | None = None

    @property
    def address(self) -> str:
        """Return the IP address or host name."""
        return self.ip or self.hostname


class LoadBalancerStatus(Wire, frozen=True, gc=False):
    """The addresses of a load balancer."""

    ingress: list[Ingress] | None = None


class ServiceStatus(Wire, frozen=True, gc=False):
    """What a load balancer implementation answered."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: list[WireCondition] | None = None


class Service(KubeObject, frozen=True, gc=False):
    """A v1 Service."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class NodeAddress(Wire, frozen=True, gc=False):
    """One address of a node: InternalIP, ExternalIP or Hostname."""

    type: str = ""
    address: str = ""


class Taint(Wire, frozen=True, gc=False):
    """A taint of a node."""

    key: str = ""


class NodeSpec(Wire, frozen=True, gc=False):
    """The spec of a node."""

    taints: list[Taint] | None = None


class NodeStatus(Wire, frozen=True, gc=False):
    """The status of a node."""

    addresses: list[NodeAddress] | None = None
    conditions: list[WireCondition] | None = None


class Node(KubeObject, frozen=True, gc=False):
    """A v1 Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Return whether its condition Ready is True; a node that is deleted may have it until it is gone."""
        return is_true(self.status.conditions, "Ready")


class EndpointConditions(Wire, frozen=True, gc=False):
    """The conditions of an endpoint."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


#: The part of a pod that an endpoint names while it is listed as ready only for the sake of the pod's readiness gate.
READINESS_GATES_FIELD = "spec.readinessGates"


class TargetRef(Wire, frozen=True, gc=False):
    """The object behind an endpoint; ``field_path``: the part of it that is meant."""

    uid: str = ""
    field_path: str = ""


class ForZone(Wire, frozen=True, gc=False):
    """A zone whose clients an endpoint is for."""

    name: str = ""


class EndpointHints(Wire, frozen=True, gc=False):
    """The clients that kube-proxy prefers an endpoint for."""

    for_zones: list[ForZone] | None = None


class Endpoint(Wire, frozen=True, gc=False):
    """One endpoint; several ``addresses`` are the same endpoint, and consumers use the first."""

    addresses: list[str] | None = None
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    zone: str | None = None
    hostname: str | None = None
    target_ref: TargetRef | None = None
    hints: EndpointHints | None = None

    @property
    def awaits_gate(self) -> bool:
        """Return whether its pod waits to be served, which is all that it lacks to be ready."""
        return self.target_ref is not None and self.target_ref.field_path == READINESS_GATES_FIELD

    @property
    def ready(self) -> bool:
        """Return whether it takes new connections; unset means yes."""
        return self.conditions is None or self.conditions.ready is not False

    @property
    def serving(self) -> bool:
        """Return whether it answers, terminating or not; unset means yes."""
        return self.conditions is None or self.conditions.serving is not False

    @property
    def terminating(self) -> bool:
        """Return whether it is terminating; unset means no."""
        return self.conditions is not None and bool(self.conditions.terminating)


class EndpointPort(Wire, frozen=True, gc=False):
    """One port of a slice, matched to a Service port by ``name``."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None
    app_protocol: str | None = None


class EndpointSlice(KubeObject, frozen=True, gc=False):
    """A discovery.k8s.io/v1 EndpointSlice; both lists may be null."""

    address_type: str = "IPv4"
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class LeaseSpec(Wire, frozen=True, gc=False):
    """The holder of a lease, and since when (RFC 3339 with microseconds)."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def epoch(self) -> int:
        """Return the epoch of its holder, 0 when the number cannot be one."""
        return plausible_epoch(self.lease_transitions or 0)


#: The numbers of a Lease have 32 bits. No cluster changes its leader so often, and leaders still count beyond it.
_EPOCH_LIMIT = 2**30


def plausible_epoch(number: int) -> int:
    """Return the epoch that ``number`` states; 0 for one that no leader can have reached by changes of leader.

    A leader raises its epoch above all on record, so a number near the limit would leave none above it.
    """
    return number if 0 < number < _EPOCH_LIMIT else 0


class Lease(KubeObject, frozen=True, gc=False):
    """A coordination.k8s.io/v1 Lease."""

    spec: LeaseSpec = LeaseSpec()


class Namespace(KubeObject, frozen=True, gc=False):
    """A v1 Namespace."""


class ConfigMap(KubeObject, frozen=True, gc=False):
    """A v1 ConfigMap."""

    data: dict[str, str] | None = None


class Secret(KubeObject, frozen=True, gc=False):
    """A v1 Secret; values are base64."""

    type: str = ""
    data: dict[str, str] | None = None


class DeploymentStatus(Wire, frozen=True, gc=False):
    """The progress of a Deployment."""

    replicas: int = 0


class Deployment(KubeObject, frozen=True, gc=False):
    """An apps/v1 Deployment."""

    status: DeploymentStatus = DeploymentStatus()


class CustomResourceDefinition(KubeObject, frozen=True, gc=False):
    """An apiextensions.k8s.io/v1 CustomResourceDefinition: only whether it is there."""

    class ServedStatus(Wire, frozen=True, gc=False):
        """Whether it is served."""

        conditions: list[WireCondition] | None = None

    status: ServedStatus = ServedStatus()


SERVICES = Resource("", "v1", "Service", "services", True, Service)
NODES = Resource("", "v1", "Node", "nodes", False, Node)
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", False, Namespace)
SECRETS = Resource("", "v1", "Secret", "secrets", True, Secret)
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", True, KubeObject)
#: ConfigMaps with their content.
CONFIG_MAPS_WITH_DATA = Resource("", "v1", "ConfigMap", "configmaps", True, ConfigMap)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", True, KubeObject)
EVENTS = Resource("", "v1", "Event", "events", True, KubeObject)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, EndpointSlice)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases", True, Lease)
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", True, Deployment)
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, KubeObject)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, KubeObject)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", True, KubeObject)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True, KubeObject)
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    False,
    CustomResourceDefinition,
)


#: The reason by which a kubelet says that a pod lacks nothing but its readiness gates.
_WAITS_FOR_GATES = "ReadinessGatesNotReady"


class PodCondition(Wire, frozen=True, gc=False):
    """One condition."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class PodReadinessGate(Wire, frozen=True, gc=False):
    """A condition that a pod needs, besides those of its containers, to be ready."""

    condition_type: str = ""


class PodSpec(Wire, frozen=True, gc=False):
    """The spec of a pod: where it runs, and what it waits for to be ready."""

    node_name: str | None = None
    host_network: bool | None = None
    readiness_gates: list[PodReadinessGate] | None = None


class PodIP(Wire, frozen=True, gc=False):
    """One of the addresses of a pod."""

    ip: str = ""


class PodStatus(Wire, frozen=True, gc=False):
    """The status of a pod."""

    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: list[PodIP] | None = msgspec.field(default=None, name="podIPs")
    conditions: list[PodCondition] | None = None


class Pod(KubeObject, frozen=True, gc=False):
    """A Pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Return whether it takes traffic: an address, the condition Ready, and not on its way out."""
        return self.serving and not self.deleting

    @property
    def serving(self) -> bool:
        """Return whether it answers: an address and the condition Ready, which a terminating pod may have."""
        conditions = self.status.conditions or ()
        is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
        return bool(self.status.pod_ip) and is_ready

    def condition(self, kind: str) -> PodCondition | None:
        """Return the condition of this type, None when there is none."""
        return next((condition for condition in self.status.conditions or () if condition.type == kind), None)

    def has_gate(self, kind: str) -> bool:
        """Return whether one of its readiness gates is the condition of this type."""
        return any(gate.condition_type == kind for gate in self.spec.readiness_gates or ())

    def is_open(self, kind: str) -> bool:
        """Return whether the condition of this type is True."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"

    def waits_only_for(self, kind: str) -> bool:
        """Return whether it is ready, or would be if the condition of its readiness gate ``kind`` were True.

        A node that is lost makes a pod unready whose containers still count as ready: the reason is another one then.
        """
        if self.deleting or not self.status.pod_ip or not self.has_gate(kind):
            return False
        ready = self.condition("Ready")
        if ready is None or ready.status != "True":
            if (ready.reason if ready is not None else None) not in {None, "", _WAITS_FOR_GATES}:
                return False
            others = (gate.condition_type for gate in self.spec.readiness_gates or () if gate.condition_type != kind)
            return self.is_open("ContainersReady") and all(map(self.is_open, others))
        return True


PODS = Resource("", "v1", "Pod", "pods", True, Pod)


ANNOTATION_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
#: Counts only where ``spec.ingressClassName`` is absent.
ANNOTATION_LEGACY_CLASS = "kubernetes.io/ingress.class"


class IngressPort(Wire, frozen=True, gc=False):
    """A port of a Service, by name or by number."""

    name: str = ""
    number: int = 0


class IngressService(Wire, frozen=True, gc=False):
    """A Service in the namespace of the Ingress."""

    name: str = ""
    port: IngressPort = IngressPort()


class TypedReference(Wire, frozen=True, gc=False):
    """Any other object; a backend of this kind is refused."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""


class IngressBackend(Wire, frozen=True, gc=False):
    """A backend: a Service, or a resource."""

    service: IngressService | None = None
    resource: TypedReference | None = None


class IngressPath(Wire, frozen=True, gc=False):
    """One path of a host; ``pathType`` is Exact, Prefix or ImplementationSpecific."""

    path: str = ""
    path_type: str = "ImplementationSpecific"
    backend: IngressBackend = IngressBackend()


class IngressRuleValue(Wire, frozen=True, gc=False):
    """The paths of a host."""

    paths: list[IngressPath] | None = None


class IngressRule(Wire, frozen=True, gc=False):
    """One host, empty for all of them; without ``http`` all its requests go to the default backend."""

    host: str = ""
    http: IngressRuleValue | None = None


class IngressTls(Wire, frozen=True, gc=False):
    """Hosts that are served over HTTPS with the certificate in a Secret."""

    hosts: list[str] | None = None
    secret_name: str = ""


class IngressSpec(Wire, frozen=True, gc=False):
    """The spec of an Ingress."""

    ingress_class_name: str | None = None
    default_backend: IngressBackend | None = None
    rules: list[IngressRule] | None = None
    tls: list[IngressTls] | None = None


class IngressStatus(Wire, frozen=True, gc=False):
    """The addresses of an Ingress."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class IngressObject(KubeObject, frozen=True, gc=False):
    """A networking.k8s.io/v1 Ingress."""

    spec: IngressSpec = IngressSpec()
    status: IngressStatus = IngressStatus()


class IngressClassSpec(Wire, frozen=True, gc=False):
    """Whose class it is; ``parameters`` of ours name a LoadBalancerClass of the hub."""

    controller: str = ""
    parameters: TypedReference | None = None


class IngressClass(KubeObject, frozen=True, gc=False):
    """A networking.k8s.io/v1 IngressClass."""

    spec: IngressClassSpec = IngressClassSpec()

    @property
    def is_ours(self) -> bool:
        """Return whether Fairlead serves the Ingresses of this class."""
        return self.spec.controller == INGRESS_CONTROLLER

    @property
    def load_balancer_class(self) -> str:
        """Return the LoadBalancerClass that its parameters name; empty for the default one."""
        named = self.spec.parameters
        return named.name if named is not None and named.kind == "LoadBalancerClass" else ""


INGRESSES = Resource("networking.k8s.io", "v1", "Ingress", "ingresses", True, IngressObject)
INGRESS_CLASSES = Resource("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False, IngressClass)
