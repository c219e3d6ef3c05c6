"""Parses address ranges, such as 192.0.2.0/24, 192.0.2.10-192.0.2.20 or 2001:db8:1::/64.

In: comma-separated CIDRs, ranges and single addresses of both families. Out: ranges that can be counted, indexed and
asked, or ``BadConfiguration`` that names the field and the part that is wrong. Pure. A range is never listed: one of
IPv6 has more addresses than fit into memory.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from fairlead.api.cidrs import parse_cidr, parse_network
from fairlead.errors import BadConfiguration
from fairlead.model.keys import IPV4, IPV6, Family, IPAddress, family_of

_EXAMPLE = "a CIDR such as 192.0.2.0/24 or 2001:db8:1::/64, or a range such as 192.0.2.10-192.0.2.20"


class AddressRange(msgspec.Struct, frozen=True):
    """The addresses from ``first`` to ``last``, both included, as numbers; ``text`` is how they were written."""

    first: int
    last: int
    text: str
    family: Family = IPV4

    def overlaps(self, other: AddressRange) -> bool:
        """Return whether the two have an address in common."""
        return self.family == other.family and self.first <= other.last and other.first <= self.last

    def address(self, number: int) -> IPAddress:
        """Return the address with this number."""
        return ipaddress.IPv4Address(number) if self.family == IPV4 else ipaddress.IPv6Address(number)


class AddressRanges(msgspec.Struct, frozen=True):
    """Ranges in the order given.

    Network and broadcast addresses of IPv4 CIDRs larger than /31 are left out, and of IPv6 CIDRs larger than /127 the
    first address, which is that of any router.
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
            ranges = [rest for each in ranges for rest in _without(each, avoid.ranges)]
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
        """Return whether every address is one that only its own machine reaches."""
        return all(end.is_loopback for each in self.ranges for end in map(each.address, (each.first, each.last)))

    @property
    def size(self) -> int:
        """Return how many addresses there are."""
        return sum(each.last - each.first + 1 for each in self.ranges)

    @property
    def spans(self) -> list[str]:
        """Return the ranges as "first-last", which ``whole`` reads back as they are."""
        return [f"{each.address(each.first)}-{each.address(each.last)}" for each in self.ranges]

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the families of the ranges, in the order in which they were given."""
        return tuple(dict.fromkeys(each.family for each in self.ranges))

    def of(self, family: Family) -> AddressRanges:
        """Return the ranges of one family."""
        return AddressRanges(tuple(each for each in self.ranges if each.family == family))

    def overlap(self, other: AddressRanges) -> tuple[str, str] | None:
        """Return the first two ranges that have an address in common, ours first, None when there are none."""
        pairs = ((first, second) for first in self.ranges for second in other.ranges)
        return next(((first.text, second.text) for first, second in pairs if first.overlaps(second)), None)

    def __getitem__(self, index: int) -> str:
        for each in self.ranges:
            count = each.last - each.first + 1
            if index < count:
                return str(each.address(each.first + index))
            index -= count
        raise IndexError(index)

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(each.family == family_of(address) and each.first <= int(parsed) <= each.last for each in self.ranges)

    def __str__(self) -> str:
        return ",".join(dict.fromkeys(each.text for each in self.ranges))


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
    """Return what about the CIDRs in ``text`` is accepted, and may not be what was meant."""
    cidrs = (parse_cidr(part) for part in text.split(","))
    return tuple(warning for cidr in cidrs if cidr is not None for warning in cidr.warnings)


def _unusable(address: IPAddress) -> str:
    """Return why an IPv6 address cannot be that of a load balancer; empty when it can."""
    if isinstance(address, ipaddress.IPv4Address):
        return ""
    if address.scope_id or address.is_link_local:
        return "a link-local address, which means something on one link only"
    if address.ipv4_mapped is not None:
        return "an IPv4 address written as IPv6; write it as IPv4"
    return "a multicast address" if address.is_multicast else ""


def _without(whole: AddressRange, avoid: tuple[AddressRange, ...]) -> Iterator[AddressRange]:
    """Yield the parts of ``whole`` that are not excluded."""
    low = whole.first
    for each in sorted(avoid, key=lambda each: each.first):
        if each.family != whole.family or each.last < low or each.first > whole.last:
            continue
        if each.first > low:
            yield msgspec.structs.replace(whole, first=low, last=each.first - 1)
        low = each.last + 1
    if low <= whole.last:
        yield msgspec.structs.replace(whole, first=low)
