"""The identity of a cluster, whatever its address and credentials are."""

from __future__ import annotations

from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import KubeObject
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster


async def read_cluster_uid(cluster: Cluster) -> str:
    """Return the uid of the namespace kube-system, which identifies a cluster; empty without that namespace.

    Raises:
        FairleadError: it cannot be read.
    """
    try:
        namespace: KubeObject = await cluster.get(NAMESPACES, "", "kube-system")
    except NotFound:
        return ""
    return namespace.metadata.uid
