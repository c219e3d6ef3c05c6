"""TCPLoadBalancer: one L4 load balancer that an agent or a region requests for a Service."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

from fairlead.api.kubernetes import EndpointSlice, Ingress, PortStatus
from fairlead.api.meta import JSONMapping, KubeObject, WireCondition
from fairlead.api.names import label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer, TCPLoadBalancerSpec, TCPLoadBalancerStatus
from fairlead.hub.intents.certificates import CertificateIntent, TenantCertificates, certificates_named
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberObjects, MemberViews
from fairlead.hub.intents.status import StatusRules, draining_targets, ingress_of, shown_targets
from fairlead.hub.inventory import Inventory, slice_labels
from fairlead.hub.tenants.addresses import listeners_of
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import IPV4, ListenerKey, LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.translate.member import decide_tcp, recorded_tcp, serve_tcp
from fairlead.translate.view import Decision, NodeAddresses, TCPView


class TCPIntent(CertificateIntent[TCPView]):
    """TCPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        objects = TCPObjects(context.cluster, context.inventory)
        rules = TCPStatus(events=context.events, resource=TCP_LOAD_BALANCERS)
        certificates = TenantCertificates(context.cluster, changed=self._certificates_changed)
        views = TCPViews(context, objects, certificates)
        super().__init__(context, views=views, rules=rules, certificates=certificates)
        #: By key, the last view without targets and the frontend of that decision, where its allocation is on record.
        self._settled: dict[LoadBalancerKey, tuple[TCPView, FrontendSpec]] = {}

    def decide(self, view: TCPView) -> Decision:
        """Return the decision about ``view``; while only targets differ, nothing is validated and allocated again."""
        key, basis = view.key, _without_targets(view)
        may_settle = self._context.may_write(key) and not self._context.allocator.is_waiting(key)
        if may_settle and (settled := self._settled.get(key)) is not None and settled[0] == basis:
            return serve_tcp(view, view.load_balancer.spec, settled[1])
        decision = decide_tcp(view, self.allocation_of(view))
        self._settled.pop(key, None)
        if decision.desired is not None and may_settle and _is_settled(view, decision):
            self._settled[key] = (basis, decision.desired.spec)
        return decision

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed."""
        super().forget(key)
        self._settled.pop(key, None)

    def decision_on_record(self, view: TCPView) -> Decision | None:
        """Return the decision about the accepted version."""
        return recorded_tcp(view)


class TCPViews(MemberViews[TCPLoadBalancer, TCPView]):
    """Gathers the views of TCPLoadBalancers."""

    default_families = (IPV4,)

    def __init__(self, context: IntentContext, objects: TCPObjects, certificates: TenantCertificates) -> None:
        super().__init__(context, objects)
        self._certificates = certificates

    def make(self, obj: TCPLoadBalancer, common: JSONMapping) -> TCPView:
        """Return the view of ``obj`` with the slices that have its label, and the certificates that it names."""
        certificates, missing = self._certificates.get(obj.metadata.namespace, certificates_named(obj))
        return TCPView(
            load_balancer=obj,
            slices=self.inventory.slices_of(common["key"]),
            certificates=certificates,
            missing_certificates=missing,
            **common,
        )

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


_NO_NODES = NodeAddresses()
Obj = TypeVar("Obj", bound=KubeObject)


def _without_targets(view: TCPView) -> TCPView:
    """Return ``view`` without endpoints and nodes, and without statuses that no decision depends on."""
    tenant, lb_class, accepted_class = view.tenant, view.load_balancer_class, view.accepted_class
    recorded = {name: getattr(view.load_balancer.status, name) for name in TCPStatus.owned_elsewhere}
    return msgspec.structs.replace(
        view,
        slices=(),
        nodes=_NO_NODES,
        load_balancer=_with_status(view.load_balancer, TCPLoadBalancerStatus(**recorded)),
        tenant=tenant and _with_status(tenant, msgspec.structs.replace(tenant.status, used=None, last_sync_time=None)),
        load_balancer_class=lb_class and _with_status(lb_class, None),
        accepted_class=accepted_class and _with_status(accepted_class, None),
    )


def _with_status(obj: Obj, status: object) -> Obj:
    """Return ``obj`` without its version, to be compared, with another status."""
    metadata = msgspec.structs.replace(obj.metadata, resource_version="")
    return msgspec.structs.replace(obj, metadata=metadata, status=status)


def _is_settled(view: TCPView, decision: Decision) -> bool:
    """Return whether ``decision`` serves the present spec, at the recorded allocation, with unchanged health checks."""
    recorded = decision.allocation == view.allocation and not decision.serving_last_accepted
    return recorded and view.checks.slowdown == 1


def _global_service_of(obj: TCPLoadBalancer) -> list[tuple[str, str]]:
    """Return the namespace of the member with the GlobalService that its Service joins, if any."""
    return [(obj.metadata.namespace, obj.spec.global_service)] if obj.spec.global_service else []


def _node_ports_of(obj: TCPLoadBalancer) -> set[tuple[str, int]]:
    """Return the namespace and number of the node ports in the present and in the accepted spec."""
    specs = filter(None, (obj.spec, obj.status.accepted))
    ports = (port for spec in specs if spec.targets == "Node" for port in spec.ports)
    return {(obj.metadata.namespace, port.node_port) for port in ports if port.node_port}
