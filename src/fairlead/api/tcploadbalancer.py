"""TCPLoadBalancer: one L4 load balancer asked for by a member (TCP and UDP, whatever its name says)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.intent import Frontend, IntentObject, IntentStatus, Port, ProtocolName
from fairlead.api.meta import Resource, Wire
from fairlead.api.names import DEFAULT_CLASS, GROUP, VERSION

TargetType = Literal["Node", "Pod", "Address"]


class LoadBalancerPort(Wire, frozen=True, gc=False):
    """One open port. For Node targets, nodePort is where the nodes take its traffic."""

    port: Port
    name: Annotated[str, Meta(max_length=63)] = ""
    protocol: ProtocolName = "TCP"
    node_port: Annotated[int, Meta(ge=0, le=65535)] = 0


class Origin(Wire, frozen=True, gc=False):
    """The user's object in the member that this load balancer is for."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class TCPLoadBalancerSpec(Wire, frozen=True, gc=False):
    """What the member asks for.

    Targets are EndpointSlices in the same namespace labelled fairlead.dev/load-balancer (Pod, Address), or the
    member's nodes at each port's nodePort (Node). A hub that was started with --region serves those of its region.
    """

    ports: Annotated[
        list[LoadBalancerPort],
        Meta(
            min_length=1,
            max_length=256,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
        ),
    ]
    class_name: Annotated[str, Meta(max_length=253)] = DEFAULT_CLASS
    targets: TargetType = "Node"
    external_traffic_policy: Literal["Cluster", "Local"] = "Cluster"
    session_affinity: Literal["None", "ClientIP"] = "None"
    load_balancer_source_ranges: Annotated[
        list[Annotated[str, Meta(max_length=43)]],
        Meta(max_length=256, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ] = msgspec.field(default_factory=list[str])
    proxy_protocol: Literal["", "v1", "v2"] = ""
    address: Annotated[str, Meta(max_length=253)] = ""
    region: Annotated[str, Meta(max_length=63)] = ""
    origin: Origin = Origin()


class TCPLoadBalancerStatus(IntentStatus, frozen=True, gc=False):
    """What became of it.

    address is the first of loadBalancer.ingress, targets is ready/total. accepted is the version of spec that is
    served: when spec is refused, the last one that was not, and while it moves to another class, the one before.
    provider is the one that serves it, also when its class is gone. frontends are those, by provider, that it has
    beside frontend while it moves.
    """

    targets: str = ""
    accepted: TCPLoadBalancerSpec | None = None
    provider: str = ""
    frontends: dict[str, Frontend] = msgspec.field(default_factory=dict[str, Frontend])

    def frontend_of(self, provider: str) -> Frontend | None:
        """Return what is on record of one provider's."""
        beside = self.frontends.get(provider)
        if beside is None and self.frontend is not None and self.frontend.provider == provider:
            return self.frontend
        return beside

    def is_beside(self, provider: str) -> bool:
        """Say whether the frontend of ``provider`` is recorded beside that of another one."""
        return provider in self.frontends or self.provider not in ("", provider)

    @property
    def serving_provider(self) -> str:
        """Return the provider that serves it, empty before there is one."""
        return self.provider

    @property
    def recorded_providers(self) -> frozenset[str]:
        """Return the providers that were, or may have been, asked for it."""
        return frozenset(filter(None, (*self.frontends, self.frontend.provider if self.frontend else "")))


class TCPLoadBalancer(IntentObject, frozen=True, gc=False):
    """One L4 load balancer asked for by a member cluster."""

    spec: TCPLoadBalancerSpec = TCPLoadBalancerSpec(ports=[])
    status: TCPLoadBalancerStatus = TCPLoadBalancerStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        return self.spec.class_name


TCP_LOAD_BALANCERS = Resource(GROUP, VERSION, "TCPLoadBalancer", "tcploadbalancers", True, TCPLoadBalancer)
