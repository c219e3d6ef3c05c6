"""Which addresses does an operator's text mean, such as 192.0.2.0/24 or 192.0.2.10-192.0.2.20?

In: comma-separated CIDRs, ranges and single addresses. Out: ranges that can be counted, indexed and asked, or
``BadConfiguration`` that names the field and the part that is wrong. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from fairlead.errors import BadConfiguration

_EXAMPLE = "an IPv4 CIDR such as 192.0.2.0/24, or a range such as 192.0.2.10-192.0.2.20"


class AddressRange(msgspec.Struct, frozen=True):
    """The IPv4 addresses from ``first`` to ``last``, both included, as numbers; ``text`` is how they were written."""

    first: int
    last: int
    text: str

    def overlaps(self, other: AddressRange) -> bool:
        """Say whether the two have an address in common."""
        return self.first <= other.last and other.first <= self.last


class AddressRanges(msgspec.Struct, frozen=True):
    """Ranges in the order given. Network and broadcast addresses of CIDRs larger than /31 are left out."""

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
        """Parse ``text`` with the network and broadcast addresses of its CIDRs; they may overlap, and it may be empty.

        Raises:
            BadConfiguration: the sentence names the first part that is wrong.
        """
        parts = filter(None, (piece.strip() for piece in text.split(",")))
        return cls(tuple(_parse(part, field, edges=True) for part in parts))

    @property
    def loopback(self) -> bool:
        """Say whether every address is one that only its own machine reaches."""
        ends = [end for each in self.ranges for end in (each.first, each.last)]
        return all(ipaddress.IPv4Address(end).is_loopback for end in ends)

    def overlap(self, other: AddressRanges) -> tuple[str, str] | None:
        """Return the first two ranges that have an address in common, ours first, None when there are none."""
        pairs = ((ours, theirs) for ours in self.ranges for theirs in other.ranges)
        return next(((ours.text, theirs.text) for ours, theirs in pairs if ours.overlaps(theirs)), None)

    def __len__(self) -> int:
        return sum(each.last - each.first + 1 for each in self.ranges)

    def __getitem__(self, index: int) -> str:
        for each in self.ranges:
            count = each.last - each.first + 1
            if index < count:
                return str(ipaddress.IPv4Address(each.first + index))
            index -= count
        raise IndexError(index)

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        try:
            number = int(ipaddress.IPv4Address(address))
        except ValueError:
            return False
        return any(each.first <= number <= each.last for each in self.ranges)

    def __str__(self) -> str:
        return ",".join(dict.fromkeys(each.text for each in self.ranges))


def _parse(part: str, field: str, *, edges: bool = False) -> AddressRange:
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    try:
        if dash:
            ends = ipaddress.ip_address(first), ipaddress.ip_address(last)
        else:
            network = ipaddress.ip_network(part, strict=False)
            ends = network.network_address, network.broadcast_address
    except ValueError as error:
        raise BadConfiguration(f"{field}: {part!r} is not {_EXAMPLE}", detail=str(error)) from None
    if any(end.version != 4 for end in ends):
        raise BadConfiguration(f"{field}: {part!r} is IPv6; only IPv4 is served (give {_EXAMPLE})")
    low, high = map(int, ends)
    if high < low:
        raise BadConfiguration(f"{field}: {part!r} ends before it begins; write the lower address first")
    if not dash and not edges and high - low > 1:
        low, high = low + 1, high - 1
    return AddressRange(low, high, part if dash else str(ipaddress.ip_network(part, strict=False)))


def _without(whole: AddressRange, avoid: tuple[AddressRange, ...]) -> Iterator[AddressRange]:
    """Yield what is left of ``whole``."""
    low = whole.first
    for each in sorted(avoid, key=lambda each: each.first):
        if each.last < low or each.first > whole.last:
            continue
        if each.first > low:
            yield AddressRange(low, each.first - 1, whole.text)
        low = each.last + 1
    if low <= whole.last:
        yield AddressRange(low, whole.last, whole.text)
