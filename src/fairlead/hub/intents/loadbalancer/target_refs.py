"""What is behind the address of a backend: what a provider makes its own address of it from.

    Pod/ns/name/uid    the pod itself: labels, phase, node
    Node//name/uid     the NodePort Service that one of the owners names, and the addresses of that node
    nothing            the address is all that there is

In: one row, and the caches that groups select from. Out: what goes into its record when that is made. Never: a read of
the API, and never the facts of a namesake: what has gone meanwhile is told by its name alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.backendrecord import RecordOrigin
from fairlead.errors import Retry
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.inventory import Inventory
from fairlead.model.change import TargetChange


class TargetRefs:
    """Answers for rows that are about to be recorded for the first time."""

    def __init__(self, *, inventory: Inventory, selected: BackendSources) -> None:
        self._inventory = inventory
        self._selected = selected

    def of(self, change: TargetChange) -> RecordOrigin | None:
        """Return what is behind the target of ``change``; ``Retry`` when nobody says which Service it is of."""
        kind, *rest = change.target.source.split("/")
        if kind == "Pod" and len(rest) == 3:
            return self._pod(*rest)
        if kind == "Node" and len(rest) == 3:
            return self._node_port(change, node=rest[1])
        return None

    def _pod(self, namespace: str, name: str, uid: str) -> RecordOrigin:
        pod = self._selected.pods.get(namespace, name)
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
            service = self._selected.service_of(group)
            if group.spec.service is None or service is None:
                continue
            found = self._selected.nodes.get("", node)
            return RecordOrigin(
                "Service",
                *service.key,
                service.metadata.uid,
                labels=service.metadata.labels or {},
                node_name=node,
                service_port=group.spec.service.port.port,
                node_addresses=list(found.status.addresses or ()) if found is not None else [],
            )
        raise Retry(f"{change.key}: the Service behind it has just gone; it is looked at again", reason="Gone")

    def _owners(self, change: TargetChange) -> Iterator[BackendGroup]:
        for owner in change.target.owners:
            _, namespace, name = owner.split("/")
            if (group := self._inventory.groups.get(namespace, name)) is not None:
                yield group
