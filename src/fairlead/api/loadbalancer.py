"""LoadBalancer: a load balancer as an object of its own, made from parameters or existing already.

What it is (class, existing, parameters) never changes; what is asked of it (listeners, attributes, scope) may.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, PROGRAMMED, Column, Crd, Rule
from fairlead.api.intent import IntentObject, IntentStatus, Port, ProtocolName
from fairlead.api.loadbalancerclass import EnsurePolicy
from fairlead.api.meta import Resource, Wire
from fairlead.api.names import GROUP, VERSION

LIST_OF_PORTS = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]}


class LoadBalancerListener(Wire, frozen=True, gc=False):
    """One open port; BackendGroups name it when a load balancer has several."""

    port: Port
    name: Annotated[str, Meta(max_length=63)] = ""
    protocol: ProtocolName = "TCP"


class LoadBalancerSpec(Wire, frozen=True, gc=False):
    """Which load balancer, and what is asked of it.

    existing identifies one that already exists: it is used, and never deleted. Without it, one is made from
    parameters. Neither may set what its class sets. scope names the other namespaces whose BackendGroups may use it;
    * is all of them.
    """

    class_name: Annotated[str, Meta(min_length=1, max_length=253)]
    existing: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    listeners: Annotated[
        list[LoadBalancerListener], Meta(min_length=1, max_length=256, extra_json_schema=LIST_OF_PORTS)
    ] = msgspec.field(default_factory=list[LoadBalancerListener])
    attributes: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    scope: Annotated[
        list[Annotated[str, Meta(max_length=63)]],
        Meta(max_length=256, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ] = msgspec.field(default_factory=list[str])
    ensure_policy: EnsurePolicy | None = None


class LoadBalancerObjectStatus(IntentStatus, frozen=True, gc=False):
    """What became of it.

    backends is registered/expected. frontend is deprecated: release 0.1 wrote it, and it is replaced by provisioned.
    """

    backends: str = ""


class LoadBalancer(IntentObject, frozen=True, gc=False):
    """A load balancer that BackendGroups share."""

    spec: LoadBalancerSpec = LoadBalancerSpec(class_name="")
    status: LoadBalancerObjectStatus = LoadBalancerObjectStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for."""
        return self.spec.class_name


LOAD_BALANCERS = Resource(GROUP, VERSION, "LoadBalancer", "loadbalancers", True, LoadBalancer)


def _fixed(field: str) -> Rule:
    """Return the rule that a map never changes; absent and empty are the same."""
    return Rule(
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
        Column("Programmed", f"{PROGRAMMED}.status"),
        Column("Reason", f"{PROGRAMMED}.reason"),
        Column("Targets", ".status.backends", description="registered/expected"),
        AGE,
    ),
    rules=(
        Rule(
            "self.className == oldSelf.className",
            "className is immutable: create another LoadBalancer",
            ".className",
        ),
        _fixed("existing"),
        _fixed("parameters"),
        Rule("size(self.listeners) > 0", "at least one listener is needed"),
    ),
)
