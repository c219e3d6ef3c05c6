"""Ensures that our kinds and our namespace exist before a controller starts.

In: a cluster, and whether kinds may be installed. Out: both are there, or an error that names what is missing.
Never: changes any other object.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import AnyResource
from fairlead.api.names import API_VERSION, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import install_crds


async def ensure_own_kinds(
    cluster: Cluster, kinds: Sequence[AnyResource], *, component: str, manager: str, install: bool
) -> None:
    """Install all kinds of ours, or without ``install`` check that ``kinds`` are there; make our namespace.

    ``component`` is the subject of the error message, such as "The hub".

    Raises:
        BadConfiguration: a kind is missing, and it may not be installed.
    """
    problems = await (install_crds(cluster, all_crds(), manager) if install else _missing(cluster, kinds))
    if problems:
        raise BadConfiguration(f"{component} cannot start. {' '.join(problems)}")
    # Where that is not allowed, the operator who gave us our rights has made it.
    with suppress(AlreadyExists, Forbidden):
        await cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})


async def _missing(cluster: Cluster, kinds: Sequence[AnyResource]) -> list[str]:
    """Return a sentence about the kinds that the server does not serve."""
    try:
        body = await cluster.raw("GET", f"/apis/{API_VERSION}")
    except NotFound:
        body = b""
    names = ", ".join(kind.full_name for kind in kinds if f'"{kind.plural}"'.encode() not in body)
    if not names:
        return []
    return [f"{cluster.name} does not serve {names}: apply `fairlead crds | kubectl apply -f -` first."]
