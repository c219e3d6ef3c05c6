"""The LoadBalancers of a hub with the BackendGroups that name them, and the keys that changes concern.

In: the inventory. Out: typed objects, and wake-ups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import ObjectKey, only_status_changed
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.model.condition import CAPI_CONDITIONS
from fairlead.model.keys import LoadBalancerKey


class LoadBalancerObjects(IntentObjects[LoadBalancer]):
    """LoadBalancers are in no region: the hub that serves all regions serves them, so that each has one writer."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(cluster, LOAD_BALANCERS, indexes=self.indexes(), transform=without_capi_side),
            LOAD_BALANCERS,
            # What another provider serves is none of ours.
            serves=lambda obj: not inventory.region and obj.spec.infrastructure_ref is None,
            recorded=lambda obj: (obj.status.recorded, obj.status.allocation, obj.status.accepted),
        )
        self._inventory = inventory
        self.groups: WatchCache[BackendGroup] = WatchCache(
            cluster,
            BACKEND_GROUPS,
            indexes={"lb": load_balancers_of, "namespace": lambda group: [group.metadata.namespace]},
        )
        self.present_groups: Overlay[BackendGroup] = Overlay(self.groups)
        inventory.register(self, {BACKEND_GROUPS.plural: self.groups})
        self.groups.on_change(self._group_changed)
        inventory.wake_on_readability(BACKEND_GROUPS.kind, self.groups, self._may_name)

    def open_ports(self, obj: LoadBalancer) -> Collection[int]:
        """Return the ports of what was accepted last, else of what is asked for."""
        return {each.port for each in (obj.status.accepted or obj.spec).listeners}

    def groups_of(self, key: LoadBalancerKey) -> tuple[BackendGroup, ...]:
        """Return the groups that name a LoadBalancer, as they were written last, ordered by key."""
        return tuple(self.present_groups.by_index("lb", key))

    def unreadable_groups(self, namespaces: Iterable[str]) -> str:
        """Return which group in ``namespaces`` (``*``: all) cannot be decoded, empty when there is none."""
        wanted = set(namespaces)
        return first_broken(
            "BackendGroup", self.groups, sorted(key for key in self.groups.broken if wanted & {"*", key[0]})
        )

    def selection_changed(self, namespace: str) -> None:
        """Wake the load balancers of the groups in ``namespace``, empty for all: what they select from has changed."""
        groups = self.groups.by_index("namespace", namespace) if namespace else list(self.groups.values())
        keys = {key for group in groups for key in load_balancers_of(group)}
        self._inventory.wake(keys, "what a BackendGroup selects from changed")

    def _may_name(self, group: ObjectKey) -> list[LoadBalancerKey]:
        """Return the load balancers that a group may name which cannot be read."""
        return [
            self.key(obj)
            for obj in self.served()
            if group.namespace == obj.metadata.namespace or {"*", group.namespace} & set(obj.spec.scope or ())
        ]

    def _group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        if not (old and new and only_status_changed(old, new)):
            groups = [group for group in (old, new) if group is not None]
            keys = {key for group in groups for key in load_balancers_of(group)}
            self._inventory.wake(keys, f"BackendGroup {groups[0].key} changed")


def load_balancers_of(group: BackendGroup) -> list[LoadBalancerKey]:
    """Return the LoadBalancers that a group names, in its own order."""
    names = (
        (group.metadata.namespace, name) if "/" not in name else name.split("/", 1)
        for name in group.spec.load_balancers
    )
    return [LoadBalancerKey(LOAD_BALANCERS.kind, namespace, name) for namespace, name in names]


def without_capi_side(obj: LoadBalancer) -> LoadBalancer:
    """Return a LoadBalancer without the part of its status that the controller for Cluster API writes."""
    if not obj.spec.cluster_name:
        return obj
    conditions = [each for each in obj.status.conditions or () if each.type not in CAPI_CONDITIONS]
    status = msgspec.structs.replace(
        obj.status,
        endpoint=None,
        targets=0,
        active_targets=0,
        target_kind="",
        target_selector="",
        members=None,
        conditions=conditions or None,
    )
    return msgspec.structs.replace(obj, status=status)
