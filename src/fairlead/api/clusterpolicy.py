"""ClusterLoadBalancerPolicy: which Clusters of a namespace get a LoadBalancer without asking for one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.capiside import TargetSelector
from fairlead.api.crd import ACCEPTED, AGE, Column, Crd
from fairlead.api.lists import LIST_BY_PORT, LIST_SET, Conditions
from fairlead.api.loadbalancer import LoadBalancerListener
from fairlead.api.loadbalancerclass import Parameters
from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION


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
