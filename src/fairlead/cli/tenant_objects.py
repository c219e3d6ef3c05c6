"""The Tenant of a member at the hub, or those with a near name, and its load balancers.

In: a connection to the hub. Out: load balancers of every kind, also where the hub is too old to know one of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.api.intent import IntentObject
    from fairlead.api.meta import Resource
    from fairlead.errors import NotFound
    from fairlead.kube.cluster import Cluster


async def load_balancers_of(cluster: Cluster, namespace: str = "") -> list[tuple[str, IntentObject]]:
    """Return (kind, object) of every load balancer in a namespace; an empty one means all."""
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.api.loadbalancer import LOAD_BALANCERS
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.errors import NotServed

    async def of(resource: Resource[Any]) -> list[tuple[str, IntentObject]]:
        try:
            return [(resource.kind, each) for each in await cluster.list(resource, namespace)]
        except NotServed:
            return []  # a hub of an older version does not have this kind

    lists = await asyncio.gather(*map(of, (TCP_LOAD_BALANCERS, LOAD_BALANCERS, HTTP_LOAD_BALANCERS)))
    return [each for objects in lists for each in objects]


async def no_tenant(cluster: Cluster, name: str, *, detail: str = "") -> NotFound:
    """Return the error for a Tenant that there is not, with the name that is near, else with those that there are."""
    from fairlead.api.near_names import did_you_mean
    from fairlead.api.tenant import TENANTS
    from fairlead.errors import NotFound

    there = sorted(each.metadata.name for each in await cluster.list(TENANTS))
    listed = f"There are: {', '.join(there[:20])}" if there else "There are none"
    hint = did_you_mean(name, there, most=3) or f" {listed}{f' and {len(there) - 20} more' if there[20:] else ''}."
    return NotFound(f"There is no Tenant {name} at {cluster.server}.{hint}", detail=detail)
