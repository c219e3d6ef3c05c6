"""How does a status get onto its PoolService? By server-side apply, only when it differs, with Events of what changed.

In: a PoolService and its next status. Out: at most one write. Never: writes to another object of the same name.
"""

from __future__ import annotations

from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_BALANCER
from fairlead.api.poolservice import POOL_SERVICES, PoolService, PoolServiceStatus
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.regions.balancer.status import object_from_status, status_events


class StatusWriter:
    """Writes statuses of PoolServices."""

    def __init__(self, *, cluster: Cluster, events: EventRecorder) -> None:
        self._cluster = cluster
        self._events = events

    async def write(self, pool_service: PoolService, status: PoolServiceStatus) -> None:
        """Write a status without Events."""
        meta = pool_service.metadata
        # The uid keeps a status from landing on a successor of the same name.
        body: JSONObject = {
            "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            "status": object_from_status(status),
        }
        await self._cluster.apply(POOL_SERVICES, body, manager=MANAGER_BALANCER, subresource="status")

    async def update(self, pool_service: PoolService, status: PoolServiceStatus) -> None:
        """Write a status that differs, and emit what has changed."""
        if status == pool_service.status:
            return
        await self.write(pool_service, status)
        for warning, reason, message in status_events(pool_service.status, status):
            self._events.emit_about(POOL_SERVICES, pool_service, warning=warning, reason=reason, message=message)
