"""How much traffic a load balancer has had: counts since its data plane began to count. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from fairlead.model.keys import LoadBalancerKey


class Totals(msgspec.Struct, frozen=True, gc=False):
    """One load balancer. Counts only grow, until the data plane starts anew; ``active`` is of now.

    ``requests`` are the answers by class of status, 1xx to 5xx; all zero without HTTP. ``p50_ms`` and ``p99_ms`` are of
    the last seconds: for HTTP how long a request took, else how long a backend took to accept; None without traffic.
    """

    connections: int = 0
    active: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    p50_ms: float | None = None
    p99_ms: float | None = None


class TrafficReader(Protocol):
    """Something that can read the counts of a data plane."""

    async def read(self) -> Mapping[LoadBalancerKey, Totals]:
        """Return the load balancers whose counts have changed since the last call; ``Retry`` when it cannot."""
        ...
