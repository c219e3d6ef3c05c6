"""Enqueues the keys that a change concerns.

In: changes of the caches of both sides. Out: keys in queues; what to do about a key is read from the caches later.
Never: reads more of a change than whose it is.
"""

from __future__ import annotations

from fairlead.agent.identity import ServiceKey, origin_of
from fairlead.agent.node_exporter import NODES_KEY
from fairlead.agent.sources import MemberService, Sources, service_of_slice
from fairlead.api.kubernetes import EndpointSlice, Node
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import only_status_changed
from fairlead.api.names import LABEL_NODES, LABEL_NODES_IPV6
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.runtime.queue import KeyedQueue


class WatchEvents:
    """Connects caches to queues; made once, before the caches run."""

    def __init__(
        self,
        *,
        sources: Sources,
        tenant: str,
        exports: KeyedQueue[ServiceKey],
        feedbacks: KeyedQueue[ServiceKey],
        nodes: KeyedQueue[str],
    ) -> None:
        self._sources = sources
        self._tenant = tenant
        self._exports = exports
        self._feedbacks = feedbacks
        self._nodes = nodes
        sources.services.on_change(self._service)
        sources.slices.on_change(self._slice)
        sources.nodes.on_change(self._node)
        sources.load_balancers.on_change(self._load_balancer)
        sources.hub_slices.on_change(self._hub_slice)
        sources.classes.on_change(self._class)

    def enqueue_all(self) -> None:
        """Enqueue what exists in the member, and what is at the hub without existing there any more."""
        keys: set[ServiceKey] = {service.key for service in self._sources.services.values()}
        for hub_object in (*self._sources.load_balancers.values(), *self._sources.hub_slices.values()):
            origin = origin_of(hub_object, tenant=self._tenant)
            if origin is not None:
                keys.add(origin)
        self._nodes.add(NODES_KEY)
        for key in keys:
            self._enqueue(key)

    def enqueue_local(self) -> None:
        """Enqueue the Services whose export lists nodes."""
        for service in self._sources.services.values():
            if service.spec.external_traffic_policy == "Local":
                self._exports.add(service.key)

    def _enqueue(self, key: ServiceKey) -> None:
        self._exports.add(key)
        self._feedbacks.add(key)

    def _service(self, old: MemberService | None, new: MemberService | None) -> None:
        service = new or old
        if service is not None:
            self._enqueue(service.key)

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            key = service_of_slice(version) if version is not None else None
            if key is not None:
                self._exports.add(key)
        if new is not None:
            # Its addresses may have been those of the last endpoints of another Service, which the hub keeps.
            for key in self._sources.departed.waiting_for(new):
                self._exports.add(key)

    def _node(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or not _same_node(old, new):
            self._nodes.add(NODES_KEY)

    def _load_balancer(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        load_balancer = new or old
        if load_balancer is None:
            return
        # By name, not by label: an object that is not ours may stand in the way of one that is.
        namespace, _, name = load_balancer.metadata.name.partition(".")
        # An export is compared with all but the status, of which a hub may write thousands at once.
        exported = not (old and new and only_status_changed(old, new))
        for key in {(namespace, name), origin_of(load_balancer, tenant=self._tenant) or (namespace, name)}:
            self._feedbacks.add(key)
            if exported:
                self._exports.add(key)

    def _hub_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            if version is None:
                continue
            key = origin_of(version, tenant=self._tenant)
            if key is not None:
                self._exports.add(key)
            elif version.label(LABEL_NODES) or version.label(LABEL_NODES_IPV6):
                self._nodes.add(NODES_KEY)

    def _class(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if old is None or new is None or old.spec.targets != new.spec.targets:
            for service in self._sources.services.values():
                self._exports.add(service.key)


def _same_node(old: Node, new: Node) -> bool:
    """Return whether a change of a node can matter: its heartbeats do not."""
    same_meta = old.metadata.labels == new.metadata.labels and old.deleting == new.deleting
    return same_meta and old.spec == new.spec and old.status == new.status
