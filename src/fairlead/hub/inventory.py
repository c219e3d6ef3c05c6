"""What the hub sees: one cache for each kind, and which load balancers a change concerns.

In: a Cluster. Out: typed objects by key, and calls of ``wake`` with the keys of load balancers to look at again.
Never decides anything, and never calls an object gone because it could not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup
from fairlead.api.backendrecord import BACKEND_RECORDS, BackendRecord
from fairlead.api.kubernetes import ENDPOINT_SLICES, LEASES, EndpointSlice, Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.meta import KubeObject
from fairlead.api.names import (
    DEFAULT_CLASS,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
)
from fairlead.api.naming import label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.keys import LoadBalancerKey

Wake = Callable[[LoadBalancerKey], None]


def tcp_key(load_balancer: TCPLoadBalancer) -> LoadBalancerKey:
    """Return the key of the load balancer that ``load_balancer`` asks for."""
    return LoadBalancerKey(TCP_LOAD_BALANCERS.kind, load_balancer.metadata.namespace, load_balancer.metadata.name)


class Inventory:
    """The hub's caches, wired to the keys that depend on them."""

    def __init__(self, cluster: Cluster, *, region: str = "") -> None:
        self.region = region
        self.tenants: WatchCache[Tenant] = WatchCache(
            cluster, TENANTS, indexes={"namespace": lambda tenant: [tenant.namespace]}
        )
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(cluster, LOAD_BALANCER_CLASSES)
        self.load_balancers: WatchCache[TCPLoadBalancer] = WatchCache(
            cluster,
            TCP_LOAD_BALANCERS,
            indexes={
                "namespace": lambda lb: [lb.metadata.namespace],
                "label": lambda lb: [(lb.metadata.namespace, label_value(lb.metadata.name))],
                "class": lambda lb: [lb.spec.class_name or DEFAULT_CLASS],
            },
        )
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            cluster,
            ENDPOINT_SLICES,
            label_selector=f"{LABEL_SLICE_MANAGED_BY}={SLICE_MANAGED_BY}",
            indexes={"label": _slice_label, "nodes": _nodes_namespace},
        )
        self.records: WatchCache[BackendRecord] = WatchCache(
            cluster, BACKEND_RECORDS, indexes={"lb": lambda one: [load_balancer_of(one)]}
        )
        self.shared: WatchCache[LoadBalancer] = WatchCache(
            cluster, LOAD_BALANCERS, indexes={"class": lambda lb: [lb.spec.class_name]}
        )
        self.groups: WatchCache[BackendGroup] = WatchCache(
            cluster,
            BACKEND_GROUPS,
            indexes={"lb": _load_balancers_of, "namespace": lambda group: [group.metadata.namespace]},
        )
        self.leases: WatchCache[Lease] = WatchCache(cluster, LEASES, label_selector=f"{LABEL_MANAGED_BY}={MANAGED_BY}")
        self._wakes: list[Wake] = []
        self.load_balancers.on_change(self._load_balancer_changed)
        self.slices.on_change(self._slice_changed)
        self.tenants.on_change(self._tenant_changed)
        self.classes.on_change(self._class_changed)
        self.shared.on_change(self._shared_changed)
        self.groups.on_change(self._group_changed)
        self.records.on_change(self._record_changed)

    @property
    def caches(self) -> dict[str, WatchCache[Any]]:
        """Return every cache by the plural of its kind."""
        return {
            "tenants": self.tenants,
            "loadbalancerclasses": self.classes,
            "tcploadbalancers": self.load_balancers,
            "endpointslices": self.slices,
            "leases": self.leases,
            "loadbalancers": self.shared,
            "backendgroups": self.groups,
            "backendrecords": self.records,
        }

    @property
    def synced(self) -> bool:
        """Say whether everything has been read once."""
        return all(cache.synced for cache in self.caches.values())

    @property
    def problem(self) -> str:
        """Return why the view is incomplete right now, empty when it is whole."""
        return "; ".join(f"{name}: {cache.problem}" for name, cache in self.caches.items() if cache.problem)

    def is_unreadable(self, key: LoadBalancerKey) -> bool:
        """Say whether the object that asks for ``key`` is there, and cannot be understood."""
        cache = self.shared if key.kind == LOAD_BALANCERS.kind else self.load_balancers
        return (key.namespace, key.name) in cache.broken

    def unreadable_groups(self, namespaces: Iterable[str]) -> str:
        """Return which groups in ``namespaces`` (``*``: all) cannot be understood, empty when there are none."""
        wanted = set(namespaces)
        found = sorted(key for key in self.groups.broken if wanted & {"*", key[0]})
        return f"BackendGroup {'/'.join(found[0])} cannot be read: {self.groups.broken[found[0]]}" if found else ""

    def unreadable_slices(self, namespace: str) -> str:
        """Return which slice of a member cannot be understood, empty when there is none."""
        found = sorted(key for key in self.slices.broken if key[0] == namespace)
        return f"EndpointSlice {'/'.join(found[0])} cannot be read: {self.slices.broken[found[0]]}" if found else ""

    def on_wake(self, wake: Wake) -> None:
        """Call ``wake`` with every load balancer that a change concerns."""
        self._wakes.append(wake)

    def tcp(self, key: LoadBalancerKey) -> TCPLoadBalancer | None:
        """Return the object of ``key``, None when there is none."""
        load_balancer = self.load_balancers.get(key.namespace, key.name)
        return load_balancer if load_balancer is not None and self.serves(load_balancer) else None

    def intent(self, key: LoadBalancerKey) -> TCPLoadBalancer | LoadBalancer | None:
        """Return the object that asks for ``key``, of whichever kind, None when there is none."""
        if key.kind != LOAD_BALANCERS.kind:
            return self.tcp(key)
        load_balancer = self.shared.get(key.namespace, key.name)
        return load_balancer if load_balancer is not None and self.serves(load_balancer) else None

    def groups_of(self, key: LoadBalancerKey) -> tuple[BackendGroup, ...]:
        """Return the groups that name a LoadBalancer, ordered by key."""
        return tuple(self.groups.by_index("lb", key))

    def load_balancers_of(self, group: BackendGroup) -> list[LoadBalancerKey]:
        """Return the LoadBalancers that a group names."""
        return _load_balancers_of(group)

    def selection_changed(self, namespace: str) -> None:
        """Look again at what groups select from: in one namespace, or with an empty one everywhere."""
        groups = self.groups.by_index("namespace", namespace) if namespace else list(self.groups.values())
        self.wake({key for group in groups for key in _load_balancers_of(group)})

    def serves(self, load_balancer: TCPLoadBalancer | LoadBalancer) -> bool:
        """Say whether this hub is the one for it: each region has its own, unless one serves all.

        A LoadBalancer is in no region: it is for the hub that serves all, so that it never has two writers.
        """
        wanted = load_balancer.spec.region if isinstance(load_balancer, TCPLoadBalancer) else ""
        return self.region in {"", wanted}

    def served(self) -> list[TCPLoadBalancer]:
        """Return the load balancers that are this hub's."""
        return [lb for lb in self.load_balancers.values() if self.serves(lb)]

    def tenant_of(self, namespace: str) -> Tenant | None:
        """Return the member whose namespace this is; the first by name should two claim it."""
        return next(iter(self.tenants.by_index("namespace", namespace)), None)

    def slices_of(self, key: LoadBalancerKey) -> tuple[EndpointSlice, ...]:
        """Return the slices that belong to one load balancer."""
        return tuple(self.slices.by_index("label", (key.namespace, label_value(key.name))))

    def node_slices_of(self, namespace: str) -> tuple[EndpointSlice, ...]:
        """Return the slices that hold the nodes of a member."""
        return tuple(self.slices.by_index("nodes", namespace))

    def keys_of_namespace(self, namespace: str) -> list[LoadBalancerKey]:
        """Return the load balancers of one member."""
        return [tcp_key(lb) for lb in self.load_balancers.by_index("namespace", namespace) if self.serves(lb)]

    def all_keys(self) -> list[LoadBalancerKey]:
        """Return every load balancer there is."""
        shared = [LoadBalancerKey(LOAD_BALANCERS.kind, *one.key) for one in self.shared.values() if self.serves(one)]
        return [*(tcp_key(lb) for lb in self.served()), *shared]

    def wake(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Have ``keys`` looked at again."""
        for key in keys:
            for call in self._wakes:
                call(key)

    def _load_balancer_changed(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        ours = [one for one in (new, old) if one is not None and self.serves(one)]
        if ours and not _only_words_changed(old, new):
            self.wake([tcp_key(ours[0])])

    def _shared_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        one = new or old
        # What is on record of it is told in the status.
        same = old and new and _only_status_changed(old, new) and old.status.frontend == new.status.frontend
        if one is not None and not same:
            self.wake([LoadBalancerKey(LOAD_BALANCERS.kind, *one.key)])

    def _group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        if not (old and new and _only_status_changed(old, new)):
            self.wake({key for one in (old, new) if one is not None for key in _load_balancers_of(one)})

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        one = new or old
        # One state more or less is told in the status; one record that goes or comes may change what is wanted.
        if one is not None and (old is None or new is None or old.status.state != new.status.state):
            self.wake([load_balancer_of(one)])

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for one in (old, new):
            if one is None:
                continue
            for namespace in _nodes_namespace(one):
                self.wake(
                    tcp_key(lb)
                    for lb in self.load_balancers.by_index("namespace", namespace)
                    if lb.spec.targets == "Node" and self.serves(lb)
                )
            for label in _slice_label(one):
                self.wake(tcp_key(lb) for lb in self.load_balancers.by_index("label", label) if self.serves(lb))

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        for one in (old, new):
            if one is not None and (old is None or new is None or old.spec != new.spec):
                self.wake(self.keys_of_namespace(one.namespace))

    def _class_changed(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        one = new or old
        # Its status says how many use it, which is no news to any of them.
        if one is not None and not (old and new and old.spec == new.spec and _only_status_changed(old, new)):
            found = self.load_balancers.by_index("class", one.metadata.name)
            self.wake(tcp_key(lb) for lb in found if self.serves(lb))
            shared = self.shared.by_index("class", one.metadata.name)
            self.wake(LoadBalancerKey(LOAD_BALANCERS.kind, *lb.key) for lb in shared)


def _load_balancers_of(group: BackendGroup) -> list[LoadBalancerKey]:
    names = (
        (group.metadata.namespace, name) if "/" not in name else name.split("/", 1)
        for name in group.spec.load_balancers
    )
    return [LoadBalancerKey(LOAD_BALANCERS.kind, namespace, name) for namespace, name in names]


def _only_status_changed(old: KubeObject, new: KubeObject) -> bool:
    one, other = old.metadata, new.metadata
    return (one.generation, one.uid, one.labels, one.annotations, one.finalizers, one.deletion_timestamp) == (
        other.generation,
        other.uid,
        other.labels,
        other.annotations,
        other.finalizers,
        other.deletion_timestamp,
    )


def _only_words_changed(old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> bool:
    """Say whether nothing changed but conditions, counts and addresses: our own words coming back to us."""
    if old is None or new is None:
        return False
    return (
        old.metadata.generation == new.metadata.generation
        and old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.finalizers == new.metadata.finalizers
        and old.metadata.uid == new.metadata.uid
        and old.deleting == new.deleting
        and old.status.allocation == new.status.allocation
        and old.status.accepted == new.status.accepted
    )


def _slice_label(one: EndpointSlice) -> list[tuple[str, str]]:
    label = one.label(LABEL_LOAD_BALANCER)
    return [(one.metadata.namespace, label)] if label else []


def _nodes_namespace(one: EndpointSlice) -> list[str]:
    return [one.metadata.namespace] if one.label(LABEL_NODES) else []
