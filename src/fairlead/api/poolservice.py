"""PoolService: one region's share of a Service, the contract between layer 1 (regions) and layer 2 (load balancers)."""

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
