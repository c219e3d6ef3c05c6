"""NodePool, a region, and PoolService, the share of a Service in one region: the contract of layers 1 and 2."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, PROGRAMMED, Column, Crd
from fairlead.api.kubernetes import LoadBalancerStatus
from fairlead.api.meta import Conditions, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION


class PoolServiceSpec(Wire, frozen=True, gc=False):
    """Written by layer 1 alone.

    nodepoolName is the region. renewTime moves exactly when something that concerns this region has changed: the
    Service, or the pool's backends. loadBalancerClass says which layer 2 has to act; all others leave it alone.
    """

    nodepool_name: Annotated[str, Meta(max_length=253)] = ""
    renew_time: Annotated[str | None, Meta(extra_json_schema={"format": "date-time"})] = None
    load_balancer_class: Annotated[str, Meta(max_length=253)] = ""


class PoolServiceStatus(Wire, frozen=True, gc=False):
    """Written by layer 2 alone.

    loadBalancer holds the region's access point. aggregateToAnnotations and aggregateToLabels are shown on the
    Service as aggregated.<key>. address is the first access point, targets is ready/total.
    """

    address: str = ""
    targets: str = ""
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    aggregate_to_annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    aggregate_to_labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    observed_generation: int = 0
    conditions: Conditions = None


class PoolService(KubeObject, frozen=True, gc=False):
    """One region's share of a Service."""

    spec: PoolServiceSpec = PoolServiceSpec()
    status: PoolServiceStatus = PoolServiceStatus()


POOL_SERVICES = Resource(GROUP, VERSION, "PoolService", "poolservices", True, PoolService)

POOL_SERVICE_CRD = Crd(
    POOL_SERVICES,
    short_names=("ps",),
    columns=(
        Column("Service", ".metadata.labels.openyurt\\.io/service-name"),
        Column("Pool", ".spec.nodepoolName"),
        Column("Class", ".spec.loadBalancerClass"),
        Column("Address", ".status.address"),
        Column("Programmed", f"{PROGRAMMED}.status"),
        Column("Ready/Total", ".status.targets"),
        Column("Renewed", ".spec.renewTime", "date", priority=1),
        AGE,
    ),
)


class NodePoolSpec(Wire, frozen=True, gc=False):
    """Which nodes, and where they are.

    A node belongs to the pool when it has all labels of nodeSelector; an empty nodeSelector selects no node. When two
    pools claim a node the older pool keeps it. region defaults to the pool's name; its hub is started with --region.
    """

    node_selector: Annotated[dict[str, str], Meta(max_length=32)] = msgspec.field(default_factory=dict[str, str])
    region: Annotated[str, Meta(max_length=63)] = ""


class NodePool(KubeObject, frozen=True, gc=False):
    """One region. Its own labels are what a Service's fairlead.dev/nodepool-selector matches."""

    spec: NodePoolSpec = NodePoolSpec()


class OpenYurtNodePool(KubeObject, frozen=True, gc=False):
    """OpenYurt's NodePool: its nodes carry its name in the label apps.openyurt.io/nodepool."""


NODE_POOLS = Resource(GROUP, VERSION, "NodePool", "nodepools", False, NodePool)

OPENYURT_GROUP = "apps.openyurt.io"
#: Newest first: the first one that is served is used.
OPENYURT_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")


def openyurt_node_pools(version: str) -> Resource[OpenYurtNodePool]:
    """Return OpenYurt's kind in one of its versions."""
    return Resource(OPENYURT_GROUP, version, "NodePool", "nodepools", False, OpenYurtNodePool)


NODE_POOL_CRD = Crd(NODE_POOLS, short_names=("np",), columns=(Column("Region", ".spec.region"), AGE))
