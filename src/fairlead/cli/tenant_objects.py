"""Load balancers of every kind in a tenant's namespace, also where the hub is too old to know one of the kinds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.api.intent import IntentObject
    from fairlead.api.meta import Resource
    from fairlead.kube.cluster import Cluster


async def load_balancers_of(cluster: Cluster, namespace: str = "") -> list[tuple[str, IntentObject]]:
    """Return (kind, object) of every load balancer in a namespace; an empty one means all."""
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.api.loadbalancer import LOAD_BALANCERS
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.errors import NotFound

    async def of(resource: Resource[Any]) -> list[tuple[str, IntentObject]]:
        try:
            return [(resource.kind, each) for each in await cluster.list(resource, namespace)]
        except NotFound:
            return []  # a hub of an older version does not have this kind

    lists = await asyncio.gather(*map(of, (TCP_LOAD_BALANCERS, LOAD_BALANCERS, HTTP_LOAD_BALANCERS)))
    return [each for objects in lists for each in objects]
