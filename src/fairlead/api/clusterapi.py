"""The kinds of Cluster API with the fields that Fairlead reads, its contract, and ClusterLoadBalancerPolicy.

v1beta1 and v1beta2 have the same names for all of them. Markers, hooks and labels are Cluster API's own words.
Source: https://cluster-api.sigs.k8s.io/reference/api/labels-and-annotations
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.capiside import ControlPlaneEndpoint, TargetSelector
from fairlead.api.crd import ACCEPTED, AGE, Column, Crd
from fairlead.api.loadbalancer import LoadBalancerListener
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, Parameters
from fairlead.api.meta import LIST_BY_PORT, LIST_SET, Conditions, JSONObject, KubeObject, Resource, Wire, WireCondition
from fairlead.api.names import GROUP, VERSION

CLUSTER_API_GROUP = "cluster.x-k8s.io"
#: The versions that are read, the preferred one first.
CLUSTER_API_VERSIONS = ("v1beta2", "v1beta1")
LABEL_CONTROL_PLANE = "cluster.x-k8s.io/control-plane"
LABEL_CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
ANNOTATION_CLUSTER_PAUSED = "cluster.x-k8s.io/paused"
ANNOTATION_MANAGED_BY = "cluster.x-k8s.io/managed-by"
#: Put on by controllers that clusterctl has to wait for before it moves anything; and by clusterctl on what has moved.
ANNOTATION_BLOCK_MOVE = "clusterctl.cluster.x-k8s.io/block-move"
ANNOTATION_DELETED_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"
MARKER_NAME = "loadbalancer.cluster.x-k8s.io/name"
MARKER_STATUS = "loadbalancer.cluster.x-k8s.io/status"
MARKER_DISABLED = "loadbalancer.cluster.x-k8s.io/disabled"
PRE_DRAIN_HOOK = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
PRE_TERMINATE_HOOK = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"


class CapiReference(Wire, frozen=True, gc=False):
    """Another object of the same namespace; v1beta1 has apiVersion, v1beta2 apiGroup."""

    kind: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""

    @property
    def group(self) -> str:
        """Return the API group, whichever version of the contract wrote the reference."""
        return self.api_group or self.api_version.rpartition("/")[0]


class ClusterSpec(Wire, frozen=True, gc=False):
    """The spec of a Cluster: endpoint, providers of machines, and whether controllers are to leave it alone."""

    control_plane_endpoint: ControlPlaneEndpoint | None = None
    control_plane_ref: CapiReference | None = None
    infrastructure_ref: CapiReference | None = None
    paused: bool | None = None


class CapiCluster(KubeObject, frozen=True, gc=False):
    """A cluster that Cluster API makes."""

    spec: ClusterSpec = ClusterSpec()

    @property
    def endpoint(self) -> ControlPlaneEndpoint:
        """Return its endpoint, as it is set."""
        return self.spec.control_plane_endpoint or ControlPlaneEndpoint()

    @property
    def paused(self) -> bool:
        """Return whether its controllers are to leave it alone."""
        return bool(self.spec.paused) or ANNOTATION_CLUSTER_PAUSED in (self.metadata.annotations or {})


class MachineAddress(Wire, frozen=True, gc=False):
    """One address; type is InternalIP, ExternalIP, InternalDNS, ExternalDNS or Hostname."""

    type: str = ""
    address: str = ""


class TargetSpec(Wire, frozen=True, gc=False):
    """What a Machine says of its cluster; other kinds may have no such field."""

    cluster_name: str = ""


class TargetStatus(Wire, frozen=True, gc=False):
    """The addresses of a member."""

    addresses: list[MachineAddress] | None = None


class TargetObject(KubeObject, frozen=True, gc=False):
    """A Machine, or an object of any kind whose status has addresses as a Machine's has."""

    spec: TargetSpec = TargetSpec()
    status: TargetStatus = TargetStatus()

    @property
    def cluster(self) -> str:
        """Return the Cluster that it belongs to; empty when it does not say."""
        return self.label(LABEL_CLUSTER_NAME) or self.spec.cluster_name


CLUSTERS = Resource(CLUSTER_API_GROUP, "v1beta2", "Cluster", "clusters", True, CapiCluster)
MACHINES = Resource(CLUSTER_API_GROUP, "v1beta2", "Machine", "machines", True, TargetObject)


def is_moved(obj: KubeObject) -> bool:
    """Return whether it is deleted here because it is in another management cluster now."""
    return ANNOTATION_DELETED_FOR_MOVE in (obj.metadata.annotations or {})


class ClusterLoadBalancerPolicySpec(Wire, frozen=True, gc=False):
    """Which Clusters of its namespace, and what they get.

    clusterSelector and infrastructureKinds must both hold; without them every Cluster is meant. A Cluster that has an
    endpoint or a LoadBalancer already is left alone. listeners default to port 6443.
    """

    class_name: Annotated[str, Meta(min_length=1, max_length=253)]
    cluster_selector: TargetSelector | None = None
    infrastructure_kinds: Annotated[
        list[Annotated[str, Meta(max_length=63)]], Meta(max_length=64, extra_json_schema=LIST_SET)
    ] = msgspec.field(default_factory=list[str])
    parameters: Parameters = msgspec.field(default_factory=dict[str, str])
    listeners: Annotated[list[LoadBalancerListener], Meta(max_length=256, extra_json_schema=LIST_BY_PORT)] = (
        msgspec.field(default_factory=list[LoadBalancerListener])
    )


class ClusterLoadBalancerPolicyStatus(Wire, frozen=True, gc=False):
    """Whether it is in force (condition Accepted), and how many LoadBalancers it has made that are there."""

    load_balancers: int = 0
    observed_generation: int = 0
    conditions: Conditions = None


class ClusterLoadBalancerPolicy(KubeObject, frozen=True, gc=False):
    """Clusters of its namespace get a LoadBalancer by themselves."""

    spec: ClusterLoadBalancerPolicySpec = ClusterLoadBalancerPolicySpec(class_name="")
    status: ClusterLoadBalancerPolicyStatus = ClusterLoadBalancerPolicyStatus()


CLUSTER_POLICIES = Resource(
    GROUP, VERSION, "ClusterLoadBalancerPolicy", "clusterloadbalancerpolicies", True, ClusterLoadBalancerPolicy
)

CLUSTER_POLICY_CRD = Crd(
    CLUSTER_POLICIES,
    short_names=("clbp",),
    columns=(
        Column("Class", ".spec.className"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("LoadBalancers", ".status.loadBalancers", "integer"),
        AGE,
    ),
    rules=(),
)


class InfraSpec(Wire, frozen=True, gc=False):
    """The endpoint at which its clients reach it: set by its owner, or by its provider."""

    endpoint: ControlPlaneEndpoint = ControlPlaneEndpoint()


class InfraStatus(Wire, frozen=True, gc=False):
    """The status that its provider reports."""

    targets: int = 0
    active_targets: int = 0
    conditions: list[WireCondition] | None = None


class InfraLoadBalancer(KubeObject, frozen=True, gc=False):
    """A load balancer that another provider serves."""

    spec: InfraSpec = InfraSpec()
    status: InfraStatus = InfraStatus()


#: The name of the provider, and its type: an add-on, so that nothing takes it for what makes machines.
PROVIDER, PROVIDER_TYPE = "fairlead", "AddonProvider"
PROVIDER_LABEL = f"addon-{PROVIDER}"
CONTRACT = "v1beta2"
#: Every contract that our kinds follow; an older Cluster API looks for the older one.
_CONTRACTS = ("v1beta1", CONTRACT)
_LABEL_PROVIDER = "cluster.x-k8s.io/provider"
_LABEL_CLUSTERCTL = "clusterctl.cluster.x-k8s.io"
_LABEL_MOVE = "clusterctl.cluster.x-k8s.io/move"


def labels_of(crd: JSONObject) -> dict[str, str]:
    """Return the labels of one definition.

    A LoadBalancer is owned by its Cluster, and a BackendGroup by its LoadBalancer, so both move with it. A class is
    owned by nothing, and is copied: clusterctl never removes one from where it was.
    """
    contracts = {f"cluster.x-k8s.io/{contract}": VERSION for contract in _CONTRACTS}
    labels = {_LABEL_PROVIDER: PROVIDER_LABEL, _LABEL_CLUSTERCTL: "", **contracts}
    return {**labels, _LABEL_MOVE: ""} if crd["metadata"]["name"] == LOAD_BALANCER_CLASSES.full_name else labels


def labelled(crds: Iterable[JSONObject]) -> list[JSONObject]:
    """Return the definitions with the labels of the contract added to their own."""
    copies = [deepcopy(crd) for crd in crds]
    for crd in copies:
        meta: JSONObject = crd["metadata"]
        meta["labels"] = {**meta.get("labels", {}), **labels_of(crd)}
    return copies


def metadata(version: str) -> JSONObject:
    """Return metadata.yaml: the contract of the release series that ``version`` is of.

    Raises:
        ValueError: the version has no major and minor number.
    """
    major, minor, *_ = version.removeprefix("v").split(".")
    return {
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [{"major": int(major), "minor": int(minor), "contract": CONTRACT}],
    }
