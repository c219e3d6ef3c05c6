"""The pools that a load balancer may get an address of, and the addresses that are kept for others.

In: AddressPool objects, and the ranges of --address-pool. Out: pools in the order in which they are tried, and for each
object the condition Accepted. Pools that name tenants or classes come before those for all; then the older first.
Pure: it reads no allocations.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

import msgspec

from fairlead.api.addresspool import AddressPool, Reservation
from fairlead.api.names import hub_name
from fairlead.errors import BadConfiguration
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.translate.addresses import AddressRanges, warnings_of

#: The name of the pool of the hub's flag, among the names of AddressPools.
OWN_POOL = "--address-pool"


class AddressClaimant(msgspec.Struct, frozen=True):
    """A load balancer that needs an address, with its Tenant (empty for none) and class."""

    key: LoadBalancerKey
    tenant: str = ""
    class_name: str = ""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Address ranges and the tenants and classes that may use them; ``name``: of the AddressPool, or ``OWN_POOL``."""

    name: str
    ranges: AddressRanges
    classes: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    max_per_tenant: int = 0
    #: By address, in its canonical form.
    reservations: Mapping[str, Reservation] = msgspec.field(default_factory=dict[str, Reservation])

    def serves(self, claimant: AddressClaimant) -> bool:
        """Return whether ``claimant`` may get an address of this pool."""
        return (not self.classes or claimant.class_name in self.classes) and (
            not self.tenants or claimant.tenant in self.tenants
        )

    def may_have(self, claimant: AddressClaimant, address: str) -> bool:
        """Return whether no reservation keeps ``address`` from ``claimant``."""
        reserved = self.reservations.get(address)
        if reserved is None:
            return True
        return reserved.tenant == claimant.tenant and (not reserved.load_balancer or _is_for(reserved, claimant))

    def kept_for(self, claimant: AddressClaimant) -> list[str]:
        """Return the addresses that are reserved for exactly this load balancer, in the order of the spec."""
        return [
            address
            for address, each in self.reservations.items()
            if each.load_balancer and each.tenant == claimant.tenant and _is_for(each, claimant)
        ]


class Pools(msgspec.Struct, frozen=True):
    """All pools that can be used, in the order in which they are tried.

    ``held`` are those that are not valid now, with the ranges that they had when they were; they give no address.
    ``incomplete`` names an AddressPool that is invalid or unreadable, ``unknown_ranges`` one without known ranges.
    """

    pools: tuple[Pool, ...] = ()
    held: tuple[Pool, ...] = ()
    incomplete: str = ""
    unknown_ranges: str = ""

    @classmethod
    def own(cls, ranges: AddressRanges | None) -> Pools:
        """Return the pools of a hub without AddressPools."""
        return cls((Pool(name=OWN_POOL, ranges=ranges),) if ranges is not None else ())

    def serving(self, claimant: AddressClaimant) -> Sequence[Pool]:
        """Return the pools that ``claimant`` may get an address of."""
        return [pool for pool in self.pools if pool.serves(claimant)]

    def __contains__(self, address: object) -> bool:
        return any(address in pool.ranges for pool in self.pools)

    def __len__(self) -> int:
        return len(self.pools)

    def __str__(self) -> str:
        return "; ".join(describe(pool) for pool in self.pools)


def describe(pool: Pool) -> str:
    """Return a pool as messages name it, such as "AddressPool edge (192.0.2.0/24)"."""
    kind = "the hub's address pool" if pool.name == OWN_POOL else f"AddressPool {pool.name}"
    return f"{kind} ({pool.ranges})"


def usable_pools(
    own: AddressRanges | None,
    objects: Iterable[AddressPool],
    *,
    region: str,
    unread: Mapping[str, AddressPool | None] = MappingProxyType({}),
) -> tuple[Pools, dict[str, Condition]]:
    """Return the pools of the hub of ``region``, and the condition Accepted of each of its objects by name.

    An object that overlaps an older one, or --address-pool, is not used. One whose spec is not valid gives nothing, and
    holds the ranges that it had when it was (``status.acceptedAddresses``): a typo moves no address to another pool.
    ``unread`` has those that cannot be read, by the reason: with their last ranges, None when these are not known.
    """
    pools = list(Pools.own(own).pools)
    taken = list(pools)
    held: list[Pool] = []
    conditions: dict[str, Condition] = {}
    incomplete = next(iter(unread), "")
    for former in (_held(obj) for obj in unread.values() if obj is not None):
        if former is not None:
            held.append(former)
            taken.append(former)
    ours = (obj for obj in objects if obj.spec.region.lower() == region.lower() and not obj.deleting)
    for obj in sorted(ours, key=attrgetter("age_order")):
        name = obj.metadata.name
        try:
            pool = _pool(obj)
            older = next((other for other in taken if pool.ranges.overlap(other.ranges)), None)
            taken.append(pool)
            if older is not None:
                own_range, older_range = pool.ranges.overlap(older.ranges) or ("", "")
                first = "comes first" if older.name == OWN_POOL else "is older"
                raise BadConfiguration(
                    f"spec.addresses: {own_range} overlaps {older_range} of {describe(older)}, which {first}; no "
                    "address is given from this pool until they do not overlap"
                )
        except BadConfiguration as error:
            if (former := _held(obj)) is not None:
                held.append(former)
                taken.append(former)
            incomplete = incomplete or f"AddressPool {name} is not valid"
            conditions[name] = Condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID, error.sentence)
            continue
        pools.append(pool)
        warnings = warnings_of(",".join((*(obj.spec.addresses or ()), *(obj.spec.avoid or ()))))
        conditions[name] = Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "; ".join(warnings))
    # Stable: the older first within each kind.
    pools.sort(key=lambda pool: (not pool.tenants, not pool.classes))
    unknown_ranges = next((why for why, obj in unread.items() if obj is None), "")
    return Pools(tuple(pools), tuple(held), incomplete, unknown_ranges), conditions


def _held(obj: AddressPool) -> Pool | None:
    """Return an invalid pool with the ranges that it had when it was last valid; None when it never was."""
    try:
        ranges = AddressRanges.whole(",".join(obj.status.accepted_addresses or ()), field="status.acceptedAddresses")
    except BadConfiguration:
        return None  # not as we wrote it
    return Pool(name=obj.metadata.name, ranges=ranges) if ranges.ranges else None


def _pool(obj: AddressPool) -> Pool:
    spec = obj.spec
    avoid = AddressRanges.whole(",".join(spec.avoid or ()), field="spec.avoid")
    ranges = AddressRanges.parse(",".join(spec.addresses or ()), field="spec.addresses", avoid=avoid)
    reservations: dict[str, Reservation] = {}
    for index, each in enumerate(spec.reservations or ()):
        field = f"spec.reservations[{index}]"
        try:
            address = str(ipaddress.ip_address(each.address))
        except ValueError:
            raise BadConfiguration(f"{field}.address: {each.address!r} is not an IP address") from None
        if address not in ranges:
            raise BadConfiguration(f"{field}.address: {address} is not in spec.addresses; add it there, or remove this")
        if not each.tenant and "/" not in each.load_balancer:
            raise BadConfiguration(
                f"{field}: names neither a tenant nor a load balancer as namespace/name; say who {address} is for"
            )
        reservations[address] = each
    return Pool(
        name=obj.metadata.name,
        ranges=ranges,
        classes=frozenset(spec.classes or ()),
        tenants=frozenset(spec.tenants or ()),
        max_per_tenant=spec.max_per_tenant,
        reservations=reservations,
    )


def _is_for(reserved: Reservation, claimant: AddressClaimant) -> bool:
    namespace, slash, name = reserved.load_balancer.partition("/")
    key = claimant.key
    if not claimant.tenant:
        return (namespace, name) == (key.namespace, key.name)
    return key.name == (hub_name(namespace, name) if slash else reserved.load_balancer)


T = TypeVar("T")

#: Ports of shared proxies; below the kernel's ephemeral range (32768..), above well-known services.
PROXY_PORTS = range(10_000, 32_000)


def allocate_address(key: LoadBalancerKey, pool: AddressRanges, taken: Container[str]) -> str | None:
    """Return a free address for ``key``; None when the pool is exhausted."""
    return _probe(str(key), pool.size, pool.__getitem__, taken)


def allocate_proxy_port(key: LoadBalancerKey, listener: ListenerKey, taken: Container[int]) -> int | None:
    """Return a free port on the group's shared proxies; None when there is none left."""
    return _probe(f"{key} {listener}", len(PROXY_PORTS), PROXY_PORTS.__getitem__, taken)


def _probe(seed: str, count: int, item: Callable[[int], T], taken: Container[T]) -> T | None:
    """Return the first free one of ``count`` items, starting at the hash of ``seed``; None when all are taken."""
    start = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
    for step in range(count):
        candidate = item((start + step) % count)
        if candidate not in taken:
            return candidate
    return None
