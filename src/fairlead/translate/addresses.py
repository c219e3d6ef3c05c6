"""Address ranges such as 192.0.2.0/24 or 2001:db8:1::/64, pools of ranges, and the choice of free addresses.

In: comma-separated CIDRs, ranges and single addresses of both families, and AddressPools. Out: ranges that can be
counted, indexed and searched, or ``BadConfiguration`` that names the field and the invalid part; the pools of a region
with conditions; a free address or port for a key. Pools that name tenants or classes come before pools for all; then
older pools come first. Pure. A range is never expanded: an IPv6 range does not fit into memory. The search for a key
begins at its hash, so the same key usually gets the same address again.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.api.addresspool import AddressPool, Reservation
from fairlead.api.annotations import parse_cidr, parse_network
from fairlead.api.names import hub_name
from fairlead.errors import BadConfiguration
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import IPV4, IPV6, Family, IPAddress, ListenerKey, LoadBalancerKey, family_of

_EXAMPLE = "a CIDR such as 192.0.2.0/24 or 2001:db8:1::/64, or a range such as 192.0.2.10-192.0.2.20"


class AddressRange(msgspec.Struct, frozen=True):
    """The addresses from ``first`` to ``last`` inclusive, as numbers; ``text`` is the source text."""

    first: int
    last: int
    text: str
    family: Family = IPV4

    def overlaps(self, other: AddressRange) -> bool:
        """Return whether the ranges share an address."""
        return self.family == other.family and self.first <= other.last and other.first <= self.last

    def address(self, number: int) -> IPAddress:
        """Return the address with this number."""
        return ipaddress.IPv4Address(number) if self.family == IPV4 else ipaddress.IPv6Address(number)


class AddressRanges(msgspec.Struct, frozen=True):
    """Ranges in the given order.

    The network and broadcast addresses of IPv4 CIDRs larger than /31 are excluded. So is the first address of IPv6
    CIDRs larger than /127, the anycast address of routers.
    """

    ranges: tuple[AddressRange, ...]

    @classmethod
    def parse(cls, text: str, *, field: str = "--address-pool", avoid: AddressRanges | None = None) -> AddressRanges:
        """Parse ``text``, without the addresses of ``avoid``; ``field`` is named in errors.

        Raises:
            BadConfiguration: the sentence names the first part that is wrong.
        """
        ranges: list[AddressRange] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            parsed = _parse(part, field)
            if any(parsed.overlaps(other) for other in ranges):
                raise BadConfiguration(f"{field}: {part!r} overlaps another range of the pool")
            ranges.append(parsed)
        if not ranges:
            raise BadConfiguration(f"{field}: is empty; give {_EXAMPLE}")
        if avoid is not None:
            ranges = [rest for address_range in ranges for rest in _without(address_range, avoid.ranges)]
            if not ranges:
                raise BadConfiguration(f"{field}: nothing is left of {text} without {avoid}; avoid less")
        return cls(tuple(ranges))

    @classmethod
    def whole(cls, text: str, *, field: str) -> AddressRanges:
        """Parse ``text`` with the first and last addresses of its CIDRs; they may overlap, and it may be empty.

        Raises:
            BadConfiguration: the sentence names the first part that is wrong.
        """
        parts = filter(None, (piece.strip() for piece in text.split(",")))
        return cls(tuple(_parse(part, field, edges=True) for part in parts))

    @property
    def loopback(self) -> bool:
        """Return whether all addresses are loopback addresses."""
        return all(
            end.is_loopback
            for address_range in self.ranges
            for end in map(address_range.address, (address_range.first, address_range.last))
        )

    @property
    def size(self) -> int:
        """Return how many addresses there are."""
        return sum(address_range.last - address_range.first + 1 for address_range in self.ranges)

    @property
    def spans(self) -> list[str]:
        """Return the ranges as "first-last", which ``whole`` parses unchanged."""
        return [
            f"{address_range.address(address_range.first)}-{address_range.address(address_range.last)}"
            for address_range in self.ranges
        ]

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the families of the ranges, in their order."""
        return tuple(dict.fromkeys(address_range.family for address_range in self.ranges))

    def of(self, family: Family) -> AddressRanges:
        """Return the ranges of one family."""
        return AddressRanges(tuple(address_range for address_range in self.ranges if address_range.family == family))

    def overlap(self, other: AddressRanges) -> tuple[str, str] | None:
        """Return the first two ranges that overlap, ours first; None if none do."""
        pairs = ((first, second) for first in self.ranges for second in other.ranges)
        return next(((first.text, second.text) for first, second in pairs if first.overlaps(second)), None)

    def __getitem__(self, index: int) -> str:
        for address_range in self.ranges:
            count = address_range.last - address_range.first + 1
            if index < count:
                return str(address_range.address(address_range.first + index))
            index -= count
        raise IndexError(index)

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(
            address_range.family == family_of(address) and address_range.first <= int(parsed) <= address_range.last
            for address_range in self.ranges
        )

    def __str__(self) -> str:
        return ",".join(dict.fromkeys(address_range.text for address_range in self.ranges))


def _parse(part: str, field: str, *, edges: bool = False) -> AddressRange:
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    text = part
    try:
        if dash:
            ends = ipaddress.ip_address(first), ipaddress.ip_address(last)
        else:
            network = parse_network(part)
            if network is None:
                raise ValueError(part)
            ends, text = (network.network_address, network.broadcast_address), str(network)
    except ValueError as error:
        raise BadConfiguration(f"{field}: {part!r} is not {_EXAMPLE}", detail=str(error)) from None
    if ends[0].version != ends[1].version:
        raise BadConfiguration(f"{field}: {part!r} begins with one family and ends with another; give {_EXAMPLE}")
    if problem := _unusable(ends[0]) or _unusable(ends[1]):
        raise BadConfiguration(f"{field}: {part!r} has {problem}; give {_EXAMPLE}")
    low, high = map(int, ends)
    if high < low:
        raise BadConfiguration(f"{field}: {part!r} ends before it begins; write the lower address first")
    if not dash and not edges and high - low > 1:
        low, high = low + 1, high - (ends[0].version == 4)
    return AddressRange(low, high, text, IPV4 if ends[0].version == 4 else IPV6)


def warnings_of(text: str) -> tuple[str, ...]:
    """Return warnings about CIDRs in ``text`` that are valid, but probably not intended."""
    cidrs = (parse_cidr(part) for part in text.split(","))
    return tuple(warning for cidr in cidrs if cidr is not None for warning in cidr.warnings)


def _unusable(address: IPAddress) -> str:
    """Return why an IPv6 address cannot be assigned to a load balancer; empty if it can."""
    if address.version == 4:
        return ""
    if address.scope_id or address.is_link_local:
        return "a link-local address, which means something on one link only"
    if address.ipv4_mapped is not None:
        return "an IPv4 address written as IPv6; write it as IPv4"
    return "a multicast address" if address.is_multicast else ""


def _without(whole: AddressRange, avoid: tuple[AddressRange, ...]) -> Iterator[AddressRange]:
    """Yield the parts of ``whole`` that are not excluded."""
    low = whole.first
    for excluded in sorted(avoid, key=attrgetter("first")):
        if excluded.family != whole.family or excluded.last < low or excluded.first > whole.last:
            continue
        if excluded.first > low:
            yield replace(whole, first=low, last=excluded.first - 1)
        low = excluded.last + 1
    if low <= whole.last:
        yield replace(whole, first=low)


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
            for address, reservation in self.reservations.items()
            if reservation.load_balancer and reservation.tenant == claimant.tenant and _is_for(reservation, claimant)
        ]


class Pools(msgspec.Struct, frozen=True):
    """All usable pools, in the order in which they are tried.

    ``held`` are pools whose spec is invalid, with their last valid ranges; they assign no address. ``incomplete`` names
    an AddressPool that is invalid or unreadable, ``unknown_ranges`` one whose ranges are unknown.
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
        """Return the pools from which ``claimant`` may get an address."""
        return [pool for pool in self.pools if pool.serves(claimant)]

    def __contains__(self, address: object) -> bool:
        return any(address in pool.ranges for pool in self.pools)

    def __len__(self) -> int:
        return len(self.pools)

    def __str__(self) -> str:
        return "; ".join(describe(pool) for pool in self.pools)


def describe(pool: Pool) -> str:
    """Return the name of a pool for messages, such as "AddressPool edge (192.0.2.0/24)"."""
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

    An object that overlaps an older one, or --address-pool, is not used. An object with an invalid spec assigns no
    address and reserves its last valid ranges (``status.acceptedAddresses``), so that a typo moves no address to
    another pool. ``unread`` has unreadable objects by the reason, with their last ranges, or None if the ranges are
    unknown.
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
    """Return an invalid pool with its last valid ranges; None if it was never valid."""
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
    for index, reservation in enumerate(spec.reservations or ()):
        field = f"spec.reservations[{index}]"
        try:
            address = str(ipaddress.ip_address(reservation.address))
        except ValueError:
            raise BadConfiguration(f"{field}.address: {reservation.address!r} is not an IP address") from None
        if address not in ranges:
            raise BadConfiguration(f"{field}.address: {address} is not in spec.addresses; add it there, or remove this")
        if not reservation.tenant and "/" not in reservation.load_balancer:
            raise BadConfiguration(
                f"{field}: names neither a tenant nor a load balancer as namespace/name; say who {address} is for"
            )
        reservations[address] = reservation
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
    """Return a free port on the group's shared proxies; None if all are taken."""
    return _probe(f"{key} {listener}", len(PROXY_PORTS), PROXY_PORTS.__getitem__, taken)


def _probe(seed: str, count: int, item: Callable[[int], T], taken: Container[T]) -> T | None:
    """Return the first free item of ``count``, starting at the hash of ``seed``; None if all are taken."""
    start = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
    for step in range(count):
        candidate = item((start + step) % count)
        if candidate not in taken:
            return candidate
    return None
