"""TCPLoadBalancer: one L4 load balancer that an agent or a region requests for a Service."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import msgspec

from fairlead.api.kubernetes import EndpointSlice, Ingress, PortStatus
from fairlead.api.meta import JSONMapping, WireCondition
from fairlead.api.names import label_value
from fairlead.api.tcploadbalancer import (
    TCP_LOAD_BALANCERS,
    TCPLoadBalancer,
    TCPLoadBalancerSpec,
    TCPLoadBalancerStatus,
)
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberIntent, MemberObjects, MemberViews
from fairlead.hub.intents.status import StatusRules, draining_targets, ingress_of, shown_targets
from fairlead.hub.inventory import Inventory, slice_labels
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
        objects = TCPObjects(context.cluster, context.inventory)
        rules = TCPStatus(events=context.events, resource=TCP_LOAD_BALANCERS)
        super().__init__(context, views=TCPViews(context, objects), rules=rules)

    def decide(self, view: TCPView) -> Decision:
        """Return the decision about ``view``."""
        return decide_tcp(view, self.allocation_of(view))

    def decision_on_record(self, view: TCPView) -> Decision | None:
        """Return the decision about the accepted version."""
        return recorded_tcp(view)


class TCPViews(MemberViews[TCPLoadBalancer, TCPView]):
    """Gathers the views of TCPLoadBalancers."""

    default_families = (IPV4,)

    def make(self, obj: TCPLoadBalancer, common: JSONMapping) -> TCPView:
        """Return the view of ``obj`` with the slices that have its label."""
        return TCPView(load_balancer=obj, slices=self.inventory.slices_of(common["key"]), **common)

    def listeners(self, spec: TCPLoadBalancerSpec) -> Sequence[ListenerKey]:
        """Return the ports that ``spec`` opens, in its own order."""
        return listeners_of(spec)


class TCPStatus(StatusRules[TCPLoadBalancer, Decision]):
    """The status of TCPLoadBalancers; the record (``AcceptedStatus``) has its own field managers."""

    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names", "egress", "provider", "frontends")

    def compose(
        self, obj: TCPLoadBalancer, decision: Decision, conditions: list[WireCondition], observed: Observed | None
    ) -> TCPLoadBalancerStatus:
        """Return the status with the number of targets: healthy of all when they are checked, else ready of all."""
        status = super().compose(obj, decision, conditions, observed)
        targets = shown_targets(decision.targets, observed)
        return msgspec.structs.replace(status, targets=targets, draining=draining_targets(observed))

    def ingress(self, obj: TCPLoadBalancer, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` with the ports that are served."""
        ports = [PortStatus(port.port, port.protocol) for port in (obj.status.accepted or obj.spec).ports]
        return [ingress_of(address, ports) for address in addresses]


class TCPObjects(MemberObjects[TCPLoadBalancer]):
    """TCPLoadBalancers."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        cache: WatchCache[TCPLoadBalancer] = WatchCache(
            cluster,
            TCP_LOAD_BALANCERS,
            indexes={
                **self.indexes(),
                "label": lambda obj: [(obj.metadata.namespace, label_value(obj.metadata.name))],
                "node-port": _node_ports_of,
                "global": _global_service_of,
            },
        )
        super().__init__(cache, TCP_LOAD_BALANCERS, inventory)
        inventory.register(self)

    def open_ports(self, obj: TCPLoadBalancer) -> Collection[int]:
        """Return the ports of the accepted spec, or else of the present one."""
        return {port.port for port in (obj.status.accepted or obj.spec).ports}

    def with_targets(self, address: str, ports: Collection[int]) -> Collection[LoadBalancerKey]:
        """Return the load balancers with such an endpoint in a slice, or with such a node port at a member's node."""
        slices = self._inventory.slices_at(address, ports)
        spaces = self._inventory.members_with_node(address)
        at_nodes = (self.keys_by_index("node-port", (space, port)) for space in spaces for port in ports)
        return {
            *itertools.chain.from_iterable(map(self.keys_of_slice, slices)),
            *itertools.chain.from_iterable(at_nodes),
        }

    def keys_of_slice(self, endpoint_slice: EndpointSlice) -> Collection[LoadBalancerKey]:
        """Return the load balancers that a slice is labelled with."""
        return [key for label in slice_labels(endpoint_slice) for key in self.keys_by_index("label", label)]


def _global_service_of(obj: TCPLoadBalancer) -> list[tuple[str, str]]:
    """Return the namespace of the member with the GlobalService that its Service joins, if any."""
    return [(obj.metadata.namespace, obj.spec.global_service)] if obj.spec.global_service else []


def _node_ports_of(obj: TCPLoadBalancer) -> set[tuple[str, int]]:
    """Return the namespace and number of the node ports in the present and in the accepted spec."""
    specs = filter(None, (obj.spec, obj.status.accepted))
    ports = (port for spec in specs if spec.targets == "Node" for port in spec.ports)
    return {(obj.metadata.namespace, port.node_port) for port in ports if port.node_port}
