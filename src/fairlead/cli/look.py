"""What do the operators' verbs look at? Every load balancer as a hub would see it now, and whether a hub leads.

In: a kubeconfig and what is meant. Out: ``Looked``. Never: a change of anything; ``pause`` and ``gc`` write themselves.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fairlead.cli.subject import CLASS, Subject

if TYPE_CHECKING:
    from fairlead.cli.status_view import HubRow
    from fairlead.hub.inspect.preview import Previewed
    from fairlead.kube.cluster import Cluster

_SILENT = "No hub leads now, so nothing is done; start one with: fairlead hub"


class Looked(NamedTuple):
    """What was found, ordered by key; ``hub`` may be silent."""

    found: list[Previewed]
    hub: HubRow
    now: datetime

    @property
    def note(self) -> str:
        """Return what has to be known beside the rows: whether anybody is at work at all."""
        return "" if self.hub.leading else _SILENT


async def look(kubeconfig: Path | None, subject: Subject | None = None) -> Looked:
    """Look once; ``NotFound`` when ``subject`` is not there."""
    from fairlead.cli.connect import connect
    from fairlead.cli.options import LogFormat, LogLevel, start_logging

    # What a provider has to say while it is read is no part of the answer.
    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, name="the hub") as cluster:
        return await look_at(cluster, subject)


async def look_at(cluster: Cluster, subject: Subject | None = None) -> Looked:
    """Look once, over a connection that is there."""
    from fairlead.cli.connect import check_kinds
    from fairlead.cli.status_view import read_hub
    from fairlead.errors import NotFound
    from fairlead.hub.inspect.preview import preview
    from fairlead.model.keys import LoadBalancerKey

    classes = await check_kinds(cluster)
    now = datetime.now(UTC)
    hub = await read_hub(cluster, now=now)
    if subject is None:
        return Looked(await preview(cluster), hub, now)
    if subject.kind == CLASS:
        if subject.name not in classes:
            raise NotFound(subject.missing)
        return Looked([one for one in await preview(cluster) if one.class_name == subject.name], hub, now)
    found = await preview(cluster, LoadBalancerKey(*subject))
    if not found:
        raise NotFound(subject.missing)
    return Looked(found, hub, now)
