"""Are the kinds there that regions need?

In: a cluster. Out: the kinds installed where that is allowed, and our namespace made; an error that names what is
missing. Never: changes anything else.
"""

from __future__ import annotations

from contextlib import suppress

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import API_VERSION, MANAGER_REGIONS, SYSTEM_NAMESPACE
from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import AlreadyExists, BadConfiguration, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import install_crds

_KINDS = (NODE_POOLS, POOL_SERVICES, TCP_LOAD_BALANCERS, LOAD_BALANCER_CLASSES)


async def ensure_kinds(cluster: Cluster, *, install: bool) -> None:
    """Install the kinds, or without ``install`` check that they are there.

    Raises:
        BadConfiguration: a kind is missing, and it may not be installed.
    """
    problems = await (install_crds(cluster, all_crds(), MANAGER_REGIONS) if install else _missing(cluster))
    if problems:
        raise BadConfiguration(f"Regions cannot start. {' '.join(problems)}")
    with suppress(AlreadyExists):
        await cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})


async def _missing(cluster: Cluster) -> list[str]:
    """Return a sentence about the kinds that the server does not serve."""
    try:
        body = await cluster.raw("GET", f"/apis/{API_VERSION}")
    except NotFound:
        body = b""
    names = ", ".join(kind.full_name for kind in _KINDS if f'"{kind.plural}"'.encode() not in body)
    if not names:
        return []
    return [f"{cluster.name} does not serve {names}: apply `fairlead crds | kubectl apply -f -` first."]
