"""The fields that all objects that ask for a load balancer share: the class, and most of the status."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.kubernetes import LoadBalancerStatus
from fairlead.api.meta import LIST_ATOMIC, LIST_BY_PORT, Conditions, KubeObject, Wire
from fairlead.api.provisioned import ProvisionedStatus
from fairlead.model.families import Family

Port = Annotated[int, Meta(ge=1, le=65535)]
Families = Annotated[tuple[Family, ...], Meta(max_length=2, extra_json_schema=LIST_ATOMIC)]
FamilyPolicy = Literal["", "SingleStack", "PreferDualStack", "RequireDualStack"]
ProtocolName = Literal["TCP", "UDP"]
#: Held changes that a status lists, as a hub that starts holds those and no others; it counts them all.
HELD_LISTED = 1000


class ProxyPort(Wire, frozen=True, gc=False):
    """The port of the shared proxies that serves one port of this load balancer."""

    port: Port
    protocol: ProtocolName
    proxy_port: Port


class Allocation(Wire, frozen=True, gc=False):
    """The addresses and ports of this load balancer, recorded before anything is programmed.

    pool is the AddressPool that the address is of; empty for --address-pool. secondAddress is that of the other family,
    and secondPool where it is from; both are empty for a load balancer of one family. limitsConnections: its proxies
    limit its connections, which release 0.1 did not; their listeners stay unchanged until they are recreated.
    """

    address: str = ""
    ports: Annotated[list[ProxyPort], Meta(extra_json_schema=LIST_BY_PORT)] = msgspec.field(
        default_factory=list[ProxyPort]
    )
    pool: str = ""
    second_address: str = ""
    second_pool: str = ""
    limits_connections: bool = False

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Return each address with its pool, in order."""
        both = ((self.address, self.pool), (self.second_address, self.second_pool))
        return tuple(place for place in both if place[0])


class HeldChange(Wire, frozen=True, gc=False):
    """One change that a pause or a guard holds back: what, why it would be made, which guard holds it, and why.

    backend is that of a load balancer of requests; port is then 0. owners are those of the target.
    """

    action: str
    reason: str
    held_by: str
    message: str
    protocol: ProtocolName
    port: Annotated[int, Meta(ge=0, le=65535)]
    address: str
    backend_port: Port
    source: str = ""
    backend: str = ""
    owners: Annotated[list[str] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None


class IntentStatus(ProvisionedStatus, frozen=True, gc=False):
    """What became of an intent, as far as every kind has it.

    address is the first of loadBalancer.ingress. provisioned has what its provider was asked for. held has the first
    changes that are held, of heldTotal. repaired is the value of annotation fairlead.dev/repair that was done last.
    unhealthyTargets names the first fifty targets that a proxy sees unhealthy.
    """

    address: str = ""
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    allocation: Allocation = Allocation()
    observed_generation: int = 0
    held: Annotated[list[HeldChange] | None, Meta(extra_json_schema={**LIST_ATOMIC, "maxItems": HELD_LISTED})] = None
    held_total: int = 0
    repaired: str = ""
    unhealthy_targets: Annotated[list[str] | None, Meta(extra_json_schema={**LIST_ATOMIC, "maxItems": 50})] = None
    conditions: Conditions = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return every address at which it answers, in order."""
        entries = self.load_balancer.ingress or ()
        return tuple(each.address for each in entries if each.address) or tuple(filter(None, (self.address,)))


class NamesStatus(Wire, frozen=True, gc=False):
    """What became of the host names of an object: the name that the hub made for it, and which it may not have."""

    hostname: str = ""
    conditions: Conditions = None


class IntentObject(KubeObject, frozen=True, gc=False):
    """An object that asks for a load balancer."""

    status: IntentStatus = IntentStatus()

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        raise NotImplementedError
