"""The address or proxy port that a load balancer gets: deterministic, spread by hash, and never taken from another.

The first choice depends on the key alone, so that an object that is deleted and written again most often gets the
address that it had, and two hubs that decide at the same time decide the same. A choice once recorded is kept.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Container, Iterator
from typing import TypeVar

import msgspec

from fairlead.errors import BadConfiguration
from fairlead.model.keys import ListenerKey, LoadBalancerKey

T = TypeVar("T")

#: Ports of shared proxies; below the kernel's ephemeral range (32768..), above well-known services.
PROXY_PORTS = range(10_000, 32_000)


class AddressPool(msgspec.Struct, frozen=True):
    """IPv4 ranges, in the order given. Network and broadcast addresses of ranges larger than /31 are left out."""

    ranges: tuple[ipaddress.IPv4Network, ...]

    @classmethod
    def parse(cls, text: str) -> AddressPool:
        """Parse comma-separated CIDRs; ``BadConfiguration`` names the first that is wrong."""
        ranges: list[ipaddress.IPv4Network] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            try:
                network = ipaddress.ip_network(part, strict=False)
            except ValueError as error:
                raise BadConfiguration(
                    f"--address-pool: {part!r} is not an IPv4 CIDR such as 192.0.2.0/24", detail=str(error)
                ) from None
            if network.version != 4:
                raise BadConfiguration(f"--address-pool: {part!r} is IPv6; only IPv4 is served (give an IPv4 CIDR)")
            if any(network.overlaps(other) for other in ranges):
                raise BadConfiguration(f"--address-pool: {part!r} overlaps another range of the pool")
            ranges.append(network)
        if not ranges:
            raise BadConfiguration("--address-pool: is empty; give an IPv4 CIDR such as 192.0.2.0/24")
        return cls(tuple(ranges))

    def __len__(self) -> int:
        return sum(_usable(network) for network in self.ranges)

    def __getitem__(self, index: int) -> str:
        for network in self.ranges:
            count = _usable(network)
            if index < count:
                return str(network.network_address + index + (0 if network.prefixlen >= 31 else 1))
            index -= count
        raise IndexError(index)

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        try:
            ip = ipaddress.IPv4Address(address)
        except ValueError:
            return False
        for network in self.ranges:
            if ip in network:
                edge = network.prefixlen < 31 and ip in (network.network_address, network.broadcast_address)
                return not edge
        return False

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges))


def allocate_address(key: LoadBalancerKey, pool: AddressPool, taken: Container[str]) -> str | None:
    """Return a free address for ``key``; None when the pool is exhausted."""
    return _probe(str(key), len(pool), pool.__getitem__, taken)


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


def _usable(network: ipaddress.IPv4Network) -> int:
    return network.num_addresses if network.prefixlen >= 31 else network.num_addresses - 2
