"""The traffic of a load balancer: counts since its data plane began to count. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

import msgspec

from fairlead.model.keys import LoadBalancerKey


class Counted(NamedTuple):
    """The subject of counters: a load balancer, or a backend or route of an HTTP load balancer."""

    load_balancer: LoadBalancerKey
    backend: str = ""
    route: str = ""

    @property
    def whole(self) -> bool:
        """Return whether they are of the load balancer as a whole."""
        return not self.backend and not self.route

    def __str__(self) -> str:
        """Return the key, of a backend with ``#`` and its name, of a route with ``@`` and its name."""
        backend = f"#{self.backend}" if self.backend else ""
        return f"{self.load_balancer}{backend}{f'@{self.route}' if self.route else ''}"


Classes = tuple[int, int, int, int, int]
NO_ANSWERS: Classes = (0, 0, 0, 0, 0)


class Totals(msgspec.Struct, frozen=True, gc=False):
    """One load balancer. Counts only grow, until the data plane restarts; ``active`` is current.

    ``requests`` are the answers by class of status, 1xx to 5xx; all zero without HTTP. ``p50_ms`` and ``p99_ms`` are of
    the last seconds: for HTTP how long a request took, else how long a backend took to accept; None without traffic.
    """

    connections: int = 0
    active: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: Classes = NO_ANSWERS
    p50_ms: float | None = None
    p99_ms: float | None = None


def summed(parts: Iterable[Totals]) -> Totals:
    """Return the sum of ``parts``; of times the maximum."""
    listed = list(parts)
    return Totals(
        sum(part.connections for part in listed),
        sum(part.active for part in listed),
        sum(part.bytes_in for part in listed),
        sum(part.bytes_out for part in listed),
        cast("Classes", tuple(sum(part.requests[number] for part in listed) for number in range(len(NO_ANSWERS)))),
        max((part.p50_ms for part in listed if part.p50_ms is not None), default=None),
        max((part.p99_ms for part in listed if part.p99_ms is not None), default=None),
    )


def added(before: Totals, now: Totals) -> Totals:
    """Return the difference of two readings; a counter that decreased was reset to zero. Gauges are of ``now``."""

    def grown(old: int, new: int) -> int:
        return new - old if new >= old else new

    return Totals(
        grown(before.connections, now.connections),
        now.active,
        grown(before.bytes_in, now.bytes_in),
        grown(before.bytes_out, now.bytes_out),
        cast("Classes", tuple(map(grown, before.requests, now.requests))),
        now.p50_ms,
        now.p99_ms,
    )


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What one process of a data plane has counted: of what differs from the last reading.

    ``problem``: why it could not be read, in a sentence; empty when it was. ``gone``: what it counts no more.
    """

    source: str
    totals: Mapping[Counted, Totals] = msgspec.field(default_factory=dict[Counted, Totals])
    problem: str = ""
    gone: frozenset[Counted] = frozenset()


class TrafficReader(Protocol):
    """Reads the counters of data planes."""

    async def read(self) -> Sequence[Reading]:
        """Return a reading for each process that there is; one that does not answer says so in its own."""
        ...


@runtime_checkable
class CountsTraffic(Protocol):
    """A provider whose data planes count."""

    @property
    def traffic(self) -> TrafficReader:
        """Return the reader of the data planes' counters."""
        ...
