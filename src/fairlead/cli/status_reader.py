"""Read what ``fairlead status`` shows from the hub's API.

In: a connection to the hub. Out: ``FleetStatus``. Never: a write.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from fairlead.api.kubernetes import LEASES, Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import AGENT_LEASE, HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.cli.status_builder import build_status, hub_row
from fairlead.cli.status_rows import FleetStatus, HubRow
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.standalone.proxy_report import read_reports


async def gather_status(cluster: Cluster, *, now: datetime | None = None) -> FleetStatus:
    """Read everything once."""
    (tcp, shared, pool_services), (tenants, leases, hub_lease, reports) = await asyncio.gather(
        asyncio.gather(cluster.list(TCP_LOAD_BALANCERS), cluster.list(LOAD_BALANCERS), _pool_services(cluster)),
        asyncio.gather(
            cluster.list(TENANTS),
            cluster.list(LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
            _hub_lease(cluster),
            read_reports(cluster),
        ),
    )
    return build_status(
        tenants, [*tcp, *shared], {lease.metadata.namespace: lease for lease in leases}, hub_lease, reports,
        pool_services=pool_services, now=now or datetime.now(UTC),
    )  # fmt: skip


async def read_hub(cluster: Cluster, *, now: datetime | None = None) -> HubRow:
    """Read which hub leads."""
    return hub_row(await _hub_lease(cluster), now or datetime.now(UTC))


async def _hub_lease(cluster: Cluster) -> Lease | None:
    try:
        return await cluster.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    except NotFound:
        return None


async def _pool_services(cluster: Cluster) -> list[PoolService]:
    try:
        return await cluster.list(POOL_SERVICES)
    except NotFound:
        # A hub without regions may have been set up without this kind.
        return []
