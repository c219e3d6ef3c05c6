"""From what data planes have counted since they began to what was added since the last reading.

In: readings. Out: sums over all processes that serve a load balancer. Pure. A process that is read for the first time
gives a base and adds nothing: what it had before is not of now. One that starts anew counts from zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.model.traffic import Counted, Reading, Totals, added, summed


class Figure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One load balancer, or a backend of one, each second over the last interval; ``active`` connections are of now.

    ``requests`` are the answers by class, 1xx to 5xx; empty without HTTP.
    """

    id: str
    connections: float = 0.0
    active: int = 0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    requests: tuple[float, ...] = ()
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def busy(self) -> bool:
        """Return whether anything happens, or is open: what is idle is not listed."""
        return any((self.connections, self.active, self.bytes_in, self.bytes_out, *self.requests))


class TrafficRates:
    """The last counts of all data planes."""

    def __init__(self) -> None:
        self._counts: dict[Counted, dict[str, Totals]] = {}
        self._sources: set[str] = set()

    def take(self, readings: Sequence[Reading]) -> dict[Counted, Totals]:
        """Return what was added since the last call to each that has changed; times and ``active`` are of now."""
        read = {each.source for each in readings if not each.problem}
        for ended in self._sources - read:
            for counted in list(self._counts):
                self._forget(counted, ended)
        for reading in readings:
            for counted in reading.gone:
                self._forget(counted, reading.source)
        grown: dict[Counted, list[Totals]] = {}
        for reading in readings:
            base = Totals() if reading.source in self._sources else None
            for counted, totals in reading.totals.items():
                by_source = self._counts.setdefault(counted, {})
                before = by_source.get(reading.source, base)
                by_source[reading.source] = totals
                if before is not None:
                    grown.setdefault(counted, []).append(added(before, totals))
        self._sources = read
        return {
            counted: msgspec.structs.replace(summed(parts), active=self.active(counted))
            for counted, parts in grown.items()
        }

    def _forget(self, counted: Counted, source: str) -> None:
        by_source = self._counts.get(counted, {})
        by_source.pop(source, None)
        if not by_source:
            self._counts.pop(counted, None)

    def active(self, counted: Counted) -> int:
        """Return how many connections are open."""
        return sum(totals.active for totals in self._counts.get(counted, {}).values())

    def is_http(self, counted: Counted) -> bool:
        """Return whether it has ever given an answer of HTTP."""
        return any(any(totals.requests) for totals in self._counts.get(counted, {}).values())


def figure_of(counted: Counted, grown: Totals, seconds: float, *, http: bool) -> Figure:
    """Return the rates of what was added in so many seconds; ``http``: it has given answers, now or before."""

    def rate(number: int) -> float:
        return round(number / seconds, 2)

    return Figure(
        str(counted),
        rate(grown.connections),
        grown.active,
        rate(grown.bytes_in),
        rate(grown.bytes_out),
        tuple(map(rate, grown.requests)) if http else (),
        grown.p50_ms,
        grown.p99_ms,
    )
