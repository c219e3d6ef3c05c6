"""TCPLoadBalancer as an intent: one L4 load balancer that an agent or a region asks for on behalf of a Service."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import msgspec

from fairlead.api.kubernetes import EndpointSlice, Ingress, PortStatus
from fairlead.api.meta import JSONMapping, WireCondition
from fairlead.api.names import label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer, TCPLoadBalancerSpec, TCPLoadBalancerStatus
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberIntent, MemberViews
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import shown_targets
from fairlead.hub.inventory import IntentObjects, Inventory, nodes_namespaces, slice_labels
from fairlead.hub.tenants.addresses import listeners_of
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import IPV4, ListenerKey, LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.translate.member import decide_tcp, recorded_tcp
from fairlead.translate.view import Decision, TCPView


class TCPIntent(MemberIntent[TCPView]):
    """TCPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        self._tcp_objects = TCPObjects(context.cluster, context.inventory)
        rules = TCPStatus(events=context.events, resource=TCP_LOAD_BALANCERS)
        super().__init__(context, views=TCPViews(context, self._tcp_objects), rules=rules)

    def watch(self) -> None:
        """Subscribe to slices and Tenants."""
        self._tcp_objects.watch()

    def decide(self, view: TCPView) -> Decision:
        """Return what is decided about ``view``."""
        return decide_tcp(view, self.allocation_of(view))

    def recorded(self, view: TCPView) -> Decision | None:
        """Return what is served as it is on record."""
        return recorded_tcp(view)


class TCPViews(MemberViews[TCPLoadBalancer, TCPView]):
    """Gathers the views of TCPLoadBalancers."""

    default_families = (IPV4,)

    def make(self, obj: TCPLoadBalancer, common: JSONMapping) -> TCPView:
        """Return the view of ``obj`` with the slices that carry its label."""
        return TCPView(load_balancer=obj, slices=self.inventory.slices_of(common["key"]), **common)

    def listeners(self, spec: TCPLoadBalancerSpec) -> Sequence[ListenerKey]:
        """Return the ports that ``spec`` opens, in its own order."""
        return listeners_of(spec)


class TCPStatus(StatusRules[TCPLoadBalancer, Decision]):
    """The rules for the status of TCPLoadBalancers; the record (``accepted_status``) has its own field managers."""

    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names", "provider", "frontends")

    def compose(
        self, obj: TCPLoadBalancer, translation: Decision, conditions: list[WireCondition], observed: Observed | None
    ) -> TCPLoadBalancerStatus:
        """Return the status with the number of targets: healthy of all when they are checked, else ready of all."""
        status = super().compose(obj, translation, conditions, observed)
        return msgspec.structs.replace(status, targets=shown_targets(translation.targets, observed))

    def ingress(self, obj: TCPLoadBalancer, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` with the ports that are served."""
        ports = [PortStatus(port.port, port.protocol) for port in (obj.status.accepted or obj.spec).ports]
        return [ingress_of(address, ports) for address in addresses]


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
            serves=lambda obj: inventory.serves_region(obj.spec.region),
            region=lambda obj: obj.spec.region,
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
