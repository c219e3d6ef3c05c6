"""Read what ``fairlead status`` shows from the hub's API.

In: a connection to the hub. Out: ``FleetStatus``. Never: a write.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TypeVar

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.dnszone import DNS_ZONES
from fairlead.api.heartbeat import STAMPED_LEASES, StampedLease
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import AGENT_LEASE, HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.standalone.proxy_report import read_reports
from fairlead.status.builder import FleetObjects, build_status, hub_row
from fairlead.status.rows import FleetStatus, HubRow

T = TypeVar("T", bound=KubeObject)


async def gather_status(cluster: Cluster) -> FleetStatus:
    """Read everything once."""
    (
        (tcp, http, shared),
        (pool_services, classes, groups),
        (tenants, leases, hub_lease, reports),
        (pools, zones, hostnames, certificates),
    ) = await asyncio.gather(
        asyncio.gather(
            cluster.list(TCP_LOAD_BALANCERS),
            _if_known(cluster, HTTP_LOAD_BALANCERS),
            cluster.list(LOAD_BALANCERS),
        ),
        asyncio.gather(
            _if_known(cluster, POOL_SERVICES), cluster.list(LOAD_BALANCER_CLASSES), cluster.list(BACKEND_GROUPS)
        ),
        asyncio.gather(
            cluster.list(TENANTS),
            cluster.list(STAMPED_LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
            _hub_lease(cluster),
            read_reports(cluster),
        ),
        asyncio.gather(
            _if_known(cluster, ADDRESS_POOLS),
            _if_known(cluster, DNS_ZONES),
            _if_known(cluster, HOSTNAMES),
            _if_known(cluster, MANAGED_CERTIFICATES),
        ),
    )
    read = FleetObjects(
        tenants=tenants,
        load_balancers=[*tcp, *http, *shared],
        pool_services=pool_services,
        classes=classes,
        groups=groups,
        pools=pools,
        zones=zones,
        hostnames=hostnames,
        certificates=certificates,
        leases={lease.metadata.namespace: lease for lease in leases},
        hub_lease=hub_lease,
        reports=reports,
    )
    return build_status(read, now=cluster.server_clock.now())


async def read_hub(cluster: Cluster, *, now: datetime | None = None) -> HubRow:
    """Read which hub leads."""
    lease = await _hub_lease(cluster)
    return hub_row(lease, now or cluster.server_clock.now())


async def _hub_lease(cluster: Cluster) -> StampedLease | None:
    try:
        return await cluster.get(STAMPED_LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    except NotFound:
        return None


async def _if_known(cluster: Cluster, resource: Resource[T]) -> list[T]:
    try:
        return await cluster.list(resource)
    except NotServed:
        # A hub without regions, and one of version 0.1, may have been set up without this kind.
        return []
