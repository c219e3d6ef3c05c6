"""Read every load balancer as a hub would see it now, and whether a hub leads; the input of the operators' verbs.

In: a kubeconfig and, where given, one object. Out: ``Snapshot``. Never: a write; ``pause`` and ``gc`` write themselves.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fairlead.cli.object_ref import CLASS, IN_MEMBERS, ObjectRef
from fairlead.cli.service_ref import resolve_all

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed
    from fairlead.kube.cluster import Cluster
    from fairlead.status.rows import HubRow

_NO_LEADER = "No hub leads now, so nothing is done; start one with: fairlead hub"


class Snapshot(NamedTuple):
    """The load balancers ordered by key, the hub that leads (or none), and when they were read."""

    load_balancers: list[Previewed]
    hub: HubRow
    now: datetime

    @property
    def warning(self) -> str:
        """Return what a reader of the rows has to know: that no hub leads; empty when one does."""
        return "" if self.hub.leading else _NO_LEADER


async def take_snapshot(kubeconfig: Path | None, ref: ObjectRef | None = None, *, context: str = "") -> Snapshot:
    """Read all load balancers, or those that ``ref`` names; ``NotFound`` when ``ref`` does not exist."""
    from fairlead.cli.connect import connect
    from fairlead.cli.options import LogFormat, LogLevel, start_logging

    # Warnings that a provider logs while it is read are not part of the answer.
    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        return await snapshot_of(cluster, ref)


async def snapshot_of(cluster: Cluster, ref: ObjectRef | None = None) -> Snapshot:
    """Read as ``take_snapshot`` does, over an open connection."""
    from fairlead.cli.connect import check_kinds
    from fairlead.cli.status_reader import read_hub
    from fairlead.errors import NotFound
    from fairlead.hub.inspect.preview import preview
    from fairlead.model.keys import LoadBalancerKey

    classes = await check_kinds(cluster)
    now = cluster.server_clock.now()
    hub = await read_hub(cluster, now=now)
    if ref is None:
        return Snapshot(await preview(cluster), hub, now)
    if ref.kind in IN_MEMBERS:
        keys = {LoadBalancerKey(each.kind, each.namespace, each.name) for each in await resolve_all(cluster, ref)}
        return Snapshot([lb for lb in await preview(cluster) if lb.key in keys], hub, now)
    if ref.kind == CLASS:
        if ref.name not in classes:
            raise NotFound(ref.not_found)
        return Snapshot([lb for lb in await preview(cluster) if lb.class_name == ref.name], hub, now)
    load_balancers = await preview(cluster, LoadBalancerKey(ref.kind, ref.namespace, ref.name))
    if not load_balancers:
        raise NotFound(ref.not_found)
    return Snapshot(load_balancers, hub, now)
