"""What every object that asks for a load balancer has in common: its class, and most of its status."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.kubernetes import LoadBalancerStatus
from fairlead.api.meta import KubeObject, Wire, WireCondition

Port = Annotated[int, Meta(ge=1, le=65535)]
ProtocolName = Literal["TCP", "UDP"]


class ProxyPort(Wire, frozen=True, gc=False):
    """The port on the shared proxies that stands for one port of this load balancer."""

    port: Port
    protocol: ProtocolName
    proxy_port: Port


class Allocation(Wire, frozen=True, gc=False):
    """What was given to this load balancer and stays its own: recorded before anything is programmed."""

    address: str = ""
    ports: Annotated[
        list[ProxyPort],
        Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]}),
    ] = msgspec.field(default_factory=list[ProxyPort])


class Frontend(Wire, frozen=True, gc=False):
    """What the ledger knows of the load balancer itself, stored before and after its provider is asked for it.

    ensured is what was last asked for, in Fairlead's own words; info is the provider's identity of it; epoch is the
    provider's own life in which its backends were registered.
    """

    provider: str = ""
    state: Literal["", "Ensuring", "Ensured"] = ""
    ensured: str = ""
    info: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    addresses: Annotated[list[str], Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})] = msgspec.field(
        default_factory=list[str]
    )
    epoch: str = ""


class IntentStatus(Wire, frozen=True, gc=False):
    """What became of an intent, as far as every kind has it.

    address is the first of loadBalancer.ingress. frontend is what the ledger knows of it.
    """

    address: str = ""
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    allocation: Allocation = Allocation()
    frontend: Frontend | None = None
    observed_generation: int = 0
    conditions: Annotated[
        list[WireCondition] | None,
        Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = None

    def frontend_of(self, provider: str) -> Frontend | None:
        """Return what is on record of one provider's."""
        return self.frontend if self.frontend is not None and self.frontend.provider == provider else None

    def is_beside(self, provider: str) -> bool:
        """Say whether the frontend of ``provider`` is recorded beside that of another one."""
        return bool(provider) and False

    @property
    def serving_provider(self) -> str:
        """Return the provider that serves it, empty before there is one."""
        return self.frontend.provider if self.frontend is not None else ""

    @property
    def recorded_providers(self) -> frozenset[str]:
        """Return the providers that were, or may have been, asked for it."""
        return frozenset(filter(None, (self.serving_provider,)))


class IntentObject(KubeObject, frozen=True, gc=False):
    """An object that asks for a load balancer."""

    status: IntentStatus = IntentStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        raise NotImplementedError
