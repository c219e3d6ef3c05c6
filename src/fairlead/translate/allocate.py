"""The address or proxy port that a load balancer gets: deterministic, spread by hash, and never taken from another.

The first choice depends on the key alone, so that an object that is deleted and written again most often gets the
address that it had, and two hubs that decide at the same time decide the same. A choice once recorded is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container
from typing import TypeVar

from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.translate.address_ranges import AddressRanges

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
