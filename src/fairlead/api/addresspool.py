"""AddressPool: addresses that load balancers on the hub's own proxies may get, and who may get them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, CelRule, Column, Crd
from fairlead.api.meta import LIST_ATOMIC, LIST_SET, Conditions, KubeObject, Resource, Wire, list_by
from fairlead.api.names import GROUP, VERSION

#: Counts end there: a range of IPv6 has more addresses than a number of JSON is sure to hold.
COUNTED = 2**53 - 1

_Ranges = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=63)]], Meta(max_length=128, extra_json_schema=LIST_ATOMIC)
]
_Names = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=63)]], Meta(max_length=64, extra_json_schema=LIST_SET)
]


class Reservation(Wire, frozen=True, gc=False):
    """An address that only one member, or only one load balancer, may get.

    loadBalancer is the object in the member, as namespace/name, or the name of the object at the hub; it gets the
    address without asking. Without one, any load balancer of the tenant gets the address by asking for it. Without
    tenant, the load balancer is an object of the hub's own cluster, as namespace/name.
    """

    address: Annotated[str, Meta(min_length=1, max_length=45)]
    tenant: Annotated[str, Meta(max_length=63)] = ""
    load_balancer: Annotated[str, Meta(max_length=253)] = ""


class AddressPoolSpec(Wire, frozen=True, gc=False):
    """Which addresses, and who may get one.

    addresses are CIDRs, ranges (192.0.2.10-192.0.2.20) and single addresses, of IPv4, IPv6 or both; avoid takes some
    out of them again. classes and tenants say which LoadBalancerClasses and members are served, all when empty.
    maxPerTenant is how many addresses of each family of the pool one member may have, 0 any number. region is that of
    the hub that gives them away.
    """

    addresses: Annotated[_Ranges, Meta(min_length=1)]
    avoid: _Ranges = msgspec.field(default_factory=list[str])
    classes: _Names = msgspec.field(default_factory=list[str])
    tenants: _Names = msgspec.field(default_factory=list[str])
    max_per_tenant: Annotated[int, Meta(ge=0)] = 0
    reservations: Annotated[list[Reservation], Meta(max_length=1024, extra_json_schema=list_by("address"))] = (
        msgspec.field(default_factory=list[Reservation])
    )
    region: Annotated[str, Meta(max_length=63)] = ""


class AddressPoolStatus(Wire, frozen=True, gc=False):
    """The numbers of addresses: all, allocated, reserved and free.

    reserved counts those that are kept for a load balancer that does not have them now; they are not free. outside
    counts allocated addresses that are no longer in the pool: their load balancers keep them. freeIPv4 and freeIPv6
    are what is left of each family that the pool has. No count is above 9007199254740991. acceptedAddresses are the
    ranges that it had when its spec was valid last, without those to avoid: while the spec is not, they are held, and
    no other pool gets them.
    """

    size: int = 0
    used: int = 0
    reserved: int = 0
    free: int = 0
    free_ipv4: int | None = msgspec.field(default=None, name="freeIPv4")
    free_ipv6: int | None = msgspec.field(default=None, name="freeIPv6")
    outside: int = 0
    accepted_addresses: Annotated[list[str] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None
    observed_generation: int = 0
    conditions: Conditions = None


class AddressPool(KubeObject, frozen=True, gc=False):
    """Addresses for load balancers on the hub's own proxies."""

    spec: AddressPoolSpec = AddressPoolSpec(addresses=[])
    status: AddressPoolStatus = AddressPoolStatus()


ADDRESS_POOLS = Resource(GROUP, VERSION, "AddressPool", "addresspools", False, AddressPool)

ADDRESS_POOL_CRD = Crd(
    ADDRESS_POOLS,
    short_names=("ap",),
    columns=(
        Column("Addresses", ".spec.addresses"),
        Column("Used", ".status.used", "integer"),
        Column("Reserved", ".status.reserved", "integer"),
        Column("Free-IPv4", ".status.freeIPv4", "integer"),
        Column("Free-IPv6", ".status.freeIPv6", "integer"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("Reason", f"{ACCEPTED}.reason"),
        Column("Tenants", ".spec.tenants", priority=1),
        Column("Classes", ".spec.classes", priority=1),
        Column("Region", ".spec.region", priority=1),
        AGE,
    ),
    rules=(
        CelRule(
            "(has(self.region) ? self.region : '') == (has(oldSelf.region) ? oldSelf.region : '')",
            "region is immutable: create another AddressPool for the hub of another region",
            ".region",
        ),
    ),
)
