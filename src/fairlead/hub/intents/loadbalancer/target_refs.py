"""The object behind the address of a backend, from which a provider makes an address of its own.

    Pod/ns/name/uid    the pod itself: labels, phase, node
    Node//name/uid     the NodePort Service that one of the owners names, and the addresses of that node
    nothing            the address is all that there is

In: one change, and the caches that groups select from. Out: what goes into its record when that is made. Never: a read
of the API, nor the facts of another object of the same name: what has gone meanwhile is known by its name alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.backendrecord import RecordOrigin
from fairlead.errors import Retry
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.kube.cache import WatchCache
from fairlead.model.change import TargetChange


class TargetRefs:
    """Finds what is behind targets that are about to be recorded for the first time."""

    def __init__(self, *, groups: WatchCache[BackendGroup], sources: BackendSources) -> None:
        self._groups = groups
        self._sources = sources

    def of(self, change: TargetChange) -> RecordOrigin | None:
        """Return what is behind the target of ``change``; ``Retry`` when no group names its Service any more."""
        kind, *rest = change.target.source.split("/")
        if kind == "Pod" and len(rest) == 3:
            return self._pod(*rest)
        if kind == "Node" and len(rest) == 3:
            return self._node_port(change, node=rest[1])
        return None

    def _pod(self, namespace: str, name: str, uid: str) -> RecordOrigin:
        pod = self._sources.pods.get(namespace, name)
        if pod is None or pod.metadata.uid != uid:
            return RecordOrigin("Pod", namespace, name, uid)
        return RecordOrigin(
            "Pod",
            namespace,
            name,
            uid,
            labels=pod.metadata.labels or {},
            phase=pod.status.phase or "",
            node_name=pod.spec.node_name or "",
        )

    def _node_port(self, change: TargetChange, *, node: str) -> RecordOrigin:
        for group in self._owners(change):
            service = self._sources.service_of(group)
            if group.spec.service is None or service is None:
                continue
            node_object = self._sources.nodes.get("", node)
            return RecordOrigin(
                "Service",
                *service.key,
                service.metadata.uid,
                labels=service.metadata.labels or {},
                node_name=node,
                service_port=group.spec.service.port.port,
                node_addresses=list(node_object.status.addresses or ()) if node_object is not None else [],
            )
        raise Retry(f"{change.key}: the Service behind it has just gone; it is tried again", reason="Gone")

    def _owners(self, change: TargetChange) -> Iterator[BackendGroup]:
        for owner in change.target.owners:
            _, namespace, name = owner.split("/")
            if (group := self._groups.get(namespace, name)) is not None:
                yield group
