"""Ensures that our kinds and our namespace exist before a controller starts.

In: a cluster. Out: both are there, or an error that names what is missing.
Never: changes any other object.
"""

from __future__ import annotations

from contextlib import suppress

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import install_crds


async def ensure_own_kinds(cluster: Cluster, *, component: str, manager: str) -> None:
    """Install all kinds of ours, and make our namespace; ``component`` is the subject of the error, such as "Regions".

    Raises:
        BadConfiguration: a kind is missing, and it may not be installed.
    """
    if problems := await install_crds(cluster, all_crds(), manager):
        raise BadConfiguration(f"{component} cannot start. {' '.join(problems)}")
    # Where that is not allowed, the operator who gave us our rights has made it.
    with suppress(AlreadyExists, Forbidden):
        await cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
