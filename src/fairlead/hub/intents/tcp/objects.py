"""The TCPLoadBalancers of a hub, and the keys that changes of other objects concern.

In: the inventory. Out: typed objects, and wake-ups.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.naming import label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.hub.inventory import IntentObjects, Inventory, nodes_namespaces, slice_labels
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import LoadBalancerKey


class TCPObjects(IntentObjects[TCPLoadBalancer]):
    """The TCPLoadBalancers of the hub's region; without a region the hub serves all of them."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        cache: WatchCache[TCPLoadBalancer] = WatchCache(
            cluster,
            TCP_LOAD_BALANCERS,
            indexes={
                **self.indexes(),
                "label": lambda obj: [(obj.metadata.namespace, label_value(obj.metadata.name))],
                "node-port": _node_ports_of,
            },
        )
        super().__init__(
            cache,
            TCP_LOAD_BALANCERS,
            serves=lambda obj: inventory.region in {"", obj.spec.region},
            recorded=lambda obj: (obj.status.allocation, obj.status.accepted),
        )
        self._inventory = inventory
        inventory.register(self)

    def open_ports(self, obj: TCPLoadBalancer) -> Collection[int]:
        """Return the ports of what was accepted last, else of what is asked for."""
        return {each.port for each in (obj.status.accepted or obj.spec).ports}

    def with_targets(self, address: str, ports: Collection[int]) -> Collection[LoadBalancerKey]:
        """Return those with such an endpoint in a slice of their own, or at their node port of a node of the member."""
        labels = {label for each in self._inventory.slices_at(address, ports) for label in slice_labels(each)}
        spaces = self._inventory.members_with_node(address)
        at_nodes = (self.keys_by_index("node-port", (space, port)) for space in spaces for port in ports)
        return {
            *(key for label in labels for key in self.keys_by_index("label", label)),
            *itertools.chain.from_iterable(at_nodes),
        }

    def watch(self) -> None:
        """Wake load balancers when their slices change."""
        self._inventory.slices.on_change(self._slice_changed)

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for endpoint_slice in filter(None, (old, new)):
            for namespace in nodes_namespaces(endpoint_slice):
                of_nodes = (obj for obj in self.cache.by_index("namespace", namespace) if obj.spec.targets == "Node")
                keys = [self.key(obj) for obj in of_nodes if self.serves(obj)]
                self._inventory.wake(keys, "nodes of the member changed")
            for label in slice_labels(endpoint_slice):
                self._inventory.wake(
                    self.keys_by_index("label", label), f"EndpointSlice {endpoint_slice.metadata.name} changed"
                )


def _node_ports_of(obj: TCPLoadBalancer) -> set[tuple[str, int]]:
    """Return namespace and number of the node ports at which it reaches nodes, also as it was accepted last."""
    specs = filter(None, (obj.spec, obj.status.accepted))
    ports = (each for spec in specs if spec.targets == "Node" for each in spec.ports)
    return {(obj.metadata.namespace, each.node_port) for each in ports if each.node_port}
