"""LoadBalancer: a load balancer as an object of its own, made from parameters or existing already.

What it is (class, existing, parameters) never changes; what is asked of it (listeners, attributes, scope) may.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.capiside import (
    MEMBERS_LISTED,
    ControlPlaneEndpoint,
    InfrastructureReference,
    MemberStatus,
    RequestCheck,
    TargetKind,
    TargetSelector,
)
from fairlead.api.crd import AGE, PAUSED, PROGRAMMED, SERVING, CelRule, Column, Crd
from fairlead.api.intent import IntentObject, IntentStatus, NamesStatus, Port, ProtocolName
from fairlead.api.loadbalancerclass import EnsurePolicy
from fairlead.api.meta import LIST_BY_PORT, LIST_SET, Resource, Wire, list_by
from fairlead.api.names import GROUP, VERSION
from fairlead.model.health import OutlierDetection


class LoadBalancerListener(Wire, frozen=True, gc=False):
    """One open port; BackendGroups name it when a load balancer has several.

    targetPort is the port of the machines behind it, with clusterName; 0: the same as port.
    """

    port: Port
    name: Annotated[str, Meta(max_length=63)] = ""
    protocol: ProtocolName = "TCP"
    target_port: Annotated[int, Meta(ge=0, le=65535)] = 0


class LoadBalancerSpec(Wire, frozen=True, gc=False):
    """Which load balancer, and what is asked of it.

    existing identifies one that already exists: it is used, and never deleted. Without it, one is made from
    parameters. Neither may set what its class sets. scope names the other namespaces whose BackendGroups may use it;
    * is all of them.

    clusterName makes it the load balancer of a Cluster of Cluster API: its backends are then the objects of targetKind
    that selector chooses. endpoint is where clients reach it, and never changes once it is set; the address of the load
    balancer when it is left out. The Cluster gets it as its controlPlaneEndpoint, but not that of an additional one.
    infrastructureRef, instead of className, names the load balancer of a provider that is not Fairlead's.
    """

    class_name: Annotated[str, Meta(max_length=253)] = ""
    existing: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    listeners: Annotated[
        list[LoadBalancerListener], Meta(min_length=1, max_length=256, extra_json_schema=LIST_BY_PORT)
    ] = msgspec.field(default_factory=list[LoadBalancerListener])
    attributes: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    scope: Annotated[list[Annotated[str, Meta(max_length=63)]], Meta(max_length=256, extra_json_schema=LIST_SET)] = (
        msgspec.field(default_factory=list[str])
    )
    ensure_policy: EnsurePolicy | None = None
    cluster_name: Annotated[str, Meta(max_length=63)] = ""
    endpoint: ControlPlaneEndpoint = ControlPlaneEndpoint()
    additional: bool = False
    target_kind: TargetKind | None = None
    selector: TargetSelector | None = None
    health_check: RequestCheck | None = None
    outlier_detection: OutlierDetection | None = None
    infrastructure_ref: InfrastructureReference | None = None


class AcceptedFrontend(Wire, frozen=True, gc=False):
    """The last accepted version that the hub's proxies serve, with provider and parameters of the class."""

    provider: str = ""
    listeners: Annotated[list[LoadBalancerListener], Meta(extra_json_schema=LIST_BY_PORT)] = msgspec.field(
        default_factory=list[LoadBalancerListener]
    )
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    attributes: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class LoadBalancerObjectStatus(IntentStatus, frozen=True, gc=False):
    """What became of it.

    backends is registered/expected. frontend is deprecated: release 0.1 wrote it, and it is replaced by provisioned.
    accepted is the version of spec that proxies of the hub serve; other providers have theirs in provisioned.
    names: of an endpoint that is a DNS name. From endpoint on: written by the controller for Cluster API.
    """

    backends: str = ""
    accepted: AcceptedFrontend | None = None
    names: NamesStatus = NamesStatus()
    endpoint: ControlPlaneEndpoint | None = None
    targets: int = 0
    active_targets: int = 0
    target_kind: str = ""
    target_selector: str = ""
    members: Annotated[
        list[MemberStatus] | None, Meta(extra_json_schema={**list_by("name"), "maxItems": MEMBERS_LISTED})
    ] = None


class LoadBalancer(IntentObject, frozen=True, gc=False):
    """A load balancer that BackendGroups share."""

    spec: LoadBalancerSpec = LoadBalancerSpec(class_name="")
    status: LoadBalancerObjectStatus = LoadBalancerObjectStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for."""
        return self.spec.class_name


LOAD_BALANCERS = Resource(GROUP, VERSION, "LoadBalancer", "loadbalancers", True, LoadBalancer)


def _fixed(field: str) -> CelRule:
    """Return the rule that a map never changes; absent and empty are the same."""
    return CelRule(
        f"(has(self.{field}) ? self.{field} : {{}}) == (has(oldSelf.{field}) ? oldSelf.{field} : {{}})",
        f"{field} is immutable: create another LoadBalancer",
        f".{field}",
    )


LOAD_BALANCER_CRD = Crd(
    LOAD_BALANCERS,
    short_names=("lb",),
    columns=(
        Column("Class", ".spec.className"),
        Column("Address", ".status.address"),
        Column(
            "On", ".status.placement.machines", priority=1, description="proxy machines that announce its addresses"
        ),
        Column("Programmed", f"{PROGRAMMED}.status"),
        Column("Reason", f"{PROGRAMMED}.reason"),
        Column("Serving", f"{SERVING}.status"),
        Column("Serving-Reason", f"{SERVING}.reason", priority=1),
        Column("Paused", f"{PAUSED}.status", priority=1),
        Column("Targets", ".status.backends", description="registered/expected"),
        AGE,
    ),
    rules=(
        CelRule(
            "(has(self.className) ? self.className : '') == (has(oldSelf.className) ? oldSelf.className : '')",
            "className is immutable: create another LoadBalancer",
            ".className",
        ),
        CelRule(
            "(has(self.className) && self.className != '') != has(self.infrastructureRef)",
            "one of className and infrastructureRef is needed, and not both",
        ),
        CelRule(
            "!has(self.infrastructureRef) || (has(self.clusterName) && self.clusterName != '')",
            "infrastructureRef needs clusterName",
            ".infrastructureRef",
        ),
        CelRule(
            "!has(self.infrastructureRef) || !has(oldSelf.infrastructureRef) || "
            "self.infrastructureRef == oldSelf.infrastructureRef",
            "infrastructureRef is immutable: create another LoadBalancer",
            ".infrastructureRef",
        ),
        _fixed("existing"),
        _fixed("parameters"),
        CelRule("size(self.listeners) > 0", "at least one listener is needed"),
        CelRule(
            "(has(self.clusterName) ? self.clusterName : '') == (has(oldSelf.clusterName) ? oldSelf.clusterName : '')",
            "clusterName is immutable: create another LoadBalancer",
            ".clusterName",
        ),
        CelRule(
            "!has(oldSelf.endpoint) || !has(oldSelf.endpoint.host) || oldSelf.endpoint.host == '' || "
            "(has(self.endpoint) && self.endpoint == oldSelf.endpoint)",
            "endpoint is immutable once it is set: serve the new one from another LoadBalancer in parallel",
            ".endpoint",
        ),
    ),
)
