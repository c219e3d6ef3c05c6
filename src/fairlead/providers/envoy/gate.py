"""The listeners, routes and removals of clusters that may be sent now on one stream.

    listener, routes   their clusters are ready: endpoints acknowledged, or, where only that proves it (health checks,
                       DNS), the cluster itself; otherwise the first connections would fail
    removed cluster    the listeners and routes that used it are acknowledged as gone

In: what was sent and acknowledged, the time (given by the caller). Out: names. Nothing waits longer than ``GATE_S``.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.store import NodeGroup
from fairlead.providers.envoy.type_subscription import TypeSubscription

GATE_S = 5.0

_CLUSTER, _ENDPOINTS, _LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
_USERS = (_LISTENER, ResourceType.ROUTES)


class Gate:
    """The order between the resource types of one stream."""

    def __init__(self, *, group: NodeGroup, subscriptions: Mapping[ResourceType, TypeSubscription]) -> None:
        self._group = group
        self._subscriptions = subscriptions
        #: Clusters that were sent on this stream and are not known to be ready.
        self.warming: set[str] = set()
        #: When a listener or its routes began to wait for clusters, or a removed cluster for what used it.
        self._waiting_since: dict[tuple[ResourceType, str], float] = {}

    def open(self, kind: ResourceType, *, now: float) -> list[str]:
        """Return the marked listeners, or routes, that may be sent or removed now."""
        return [name for name in self._subscriptions[kind].dirty if self._passes(kind, name, now)]

    def removable_clusters(self, *, now: float) -> list[str]:
        """Return the marked clusters that are not wanted and that no listener or route uses any more."""
        unused = self._subscriptions[_LISTENER].subscribed and all(self._subscriptions[kind].idle for kind in _USERS)
        return [
            name
            for name in self._subscriptions[_CLUSTER].dirty
            if self._group.wanted(_CLUSTER, name) is None and self._over(_CLUSTER, name, now, done=unused)
        ]

    def deadline(self) -> float | None:
        """Return when the longest wait ends by itself; None when nothing waits, or an acknowledgement comes first."""
        sending = {kind for kind in _USERS if self._subscriptions[kind].in_flight}
        times = [since for (kind, _), since in self._waiting_since.items() if kind not in sending]
        return min(times) + GATE_S if times else None

    def is_waiting(self, kind: ResourceType, name: str) -> bool:
        """Return whether this name waits."""
        return (kind, name) in self._waiting_since

    def leave(self, kind: ResourceType, name: str) -> None:
        """Forget that this name waits: it is being sent, or there is nothing to send."""
        self._waiting_since.pop((kind, name), None)

    def acknowledged(self, kind: ResourceType, name: str, version: str) -> None:
        """Store that a cluster is ready, when this acknowledgement proves it."""
        subscription = self._subscriptions[kind]
        if name not in self.warming or name in subscription.forced:
            return
        cluster = self._group.effective(_CLUSTER, name)
        proof = _CLUSTER if cluster is not None and cluster.warms_by_ack else _ENDPOINTS
        if kind is proof and subscription.sent.get(name) == version:
            self.warming.discard(name)

    def _passes(self, kind: ResourceType, name: str, now: float) -> bool:
        user = self._group.effective(kind, name)
        if user is None or self._subscriptions[kind].sent.get(name) == user.version:
            self.leave(kind, name)
            return True
        clusters = self._subscriptions[_CLUSTER]
        ready = True
        for need in () if kind is not _LISTENER and self._all_ready() else user.needs:
            cluster = self._group.effective(_CLUSTER, need)
            if cluster is not None:
                warm = clusters.sent.get(need) == cluster.version and need not in self.warming
                ready = ready and warm and (cluster.warms_by_ack or need in self._subscriptions[_ENDPOINTS].acked)
            elif kind is _LISTENER and need not in clusters.acked:
                # Its cluster was refused and there is no good one: the listener could only fail every connection.
                self.leave(kind, name)
                return False
        return self._over(kind, name, now, done=ready)

    def _all_ready(self) -> bool:
        """Return whether no cluster is being sent or is warming, and none was refused: then there is no need to look.

        A route configuration may name thousands of clusters.
        """
        clusters, endpoints = self._subscriptions[_CLUSTER], self._subscriptions[_ENDPOINTS]
        busy = self.warming or clusters.refused or not (clusters.subscribed and clusters.idle and endpoints.idle)
        return not busy

    def _over(self, kind: ResourceType, name: str, now: float, *, done: bool) -> bool:
        """Return whether waiting is over, because the condition holds or because it has been long enough."""
        since = self._waiting_since.setdefault((kind, name), now)
        if done or now - since >= GATE_S:
            self.leave(kind, name)
            return True
        return False
