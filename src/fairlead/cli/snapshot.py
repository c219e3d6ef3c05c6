"""Read every load balancer as a hub would see it now, and whether a hub leads; the input of the operators' verbs.

In: a kubeconfig and what is selected. Out: ``Snapshot``. Never: a write; ``pause`` and ``gc`` write themselves.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fairlead.cli.selection import EVERYTHING, Selection, select
from fairlead.status.object_ref import ANY, CLASS, IN_MEMBERS

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed
    from fairlead.kube.cluster import Cluster
    from fairlead.model.keys import LoadBalancerKey
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


async def take_snapshot(kubeconfig: Path | None, selection: Selection = EVERYTHING, *, context: str = "") -> Snapshot:
    """Read all load balancers, or those that are selected; ``NotFound`` when there are none of those."""
    from fairlead.cli.connect import connect
    from fairlead.cli.options import LogFormat, LogLevel, start_logging

    # Warnings that a provider logs while it is read are not part of the answer.
    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        return await snapshot_of(cluster, selection)


async def snapshot_of(cluster: Cluster, selection: Selection = EVERYTHING) -> Snapshot:
    """Read as ``take_snapshot`` does, over an open connection."""
    from fairlead.cli.connect import check_kinds
    from fairlead.cli.status_reader import read_hub
    from fairlead.errors import NotFound
    from fairlead.hub.inspect.preview import preview
    from fairlead.model.keys import LoadBalancerKey

    classes = await check_kinds(cluster)
    now = cluster.server_clock.now()
    hub = await read_hub(cluster, now=now)
    ref = selection.ref
    if ref is None and not selection.filters:
        return Snapshot(await preview(cluster), hub, now)
    if ref is not None and ref.kind == CLASS:
        if ref.name not in classes:
            raise NotFound(ref.not_found)
        of_class = [lb for lb in await preview(cluster) if lb.class_name == ref.name]
        if selection.selector:
            keys = await keys_of(cluster, selection)
            of_class = [lb for lb in of_class if lb.key in keys]
        return Snapshot(of_class, hub, now)
    if ref is not None and ref.kind not in (ANY, *IN_MEMBERS) and not selection.selector:
        load_balancers = await preview(cluster, LoadBalancerKey(ref.kind, ref.namespace, ref.name))
        if not load_balancers:
            raise NotFound(ref.not_found)
        return Snapshot(load_balancers, hub, now)
    return Snapshot(await _selected(cluster, selection), hub, now)


async def _selected(cluster: Cluster, selection: Selection) -> list[Previewed]:
    """Return the load balancers that are found by their objects; in a namespace also those that are only on record."""
    from fairlead.errors import NotFound
    from fairlead.hub.inspect.preview import preview

    try:
        keys, missing = await keys_of(cluster, selection), None
    except NotFound as error:
        if selection.ref is not None or selection.selector:
            raise
        keys, missing = set(), error
    namespace = "" if selection.ref is not None or selection.selector else selection.namespace
    chosen = [
        lb
        for lb in await preview(cluster, next(iter(keys)) if len(keys) == 1 and not namespace else None)
        if lb.key in keys or (lb.gone and lb.key.namespace == namespace)
    ]
    if missing is not None and not chosen:
        raise missing
    return chosen


async def keys_of(cluster: Cluster, selection: Selection) -> set[LoadBalancerKey]:
    """Return the keys of all that is selected; ``NotFound`` when nothing is."""
    from fairlead.model.keys import LoadBalancerKey

    return {LoadBalancerKey(each.kind, each.namespace, each.name) for each in await select(cluster, selection)}
