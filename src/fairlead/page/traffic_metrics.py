"""Traffic figures as metrics, of which there is a bounded number.

In: what each reading adds. Out: series of the ``MOST_NAMED`` load balancers that had traffic first, and one,
``(other)``, for all the rest together; the same of the routes that are counted. One that has had none for an hour gives
its place to another. A counter never goes back: what is added while a load balancer is among the others stays there.
Never: a series for a backend or a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.traffic import Counted, Totals
from fairlead.runtime.clock import Clock

MOST_NAMED = 100
_KEPT_S = 3600.0
_OTHER = "(other)"
_LABELS = ["load_balancer"]
_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_BOUND = f"; at the most {MOST_NAMED} load balancers by name, the rest as one, (other)."
_ROUTES_BOUND = f"; at the most {MOST_NAMED} routes by name, the rest as one, (other)."

K = TypeVar("K")


class _Series:
    """The counters of one load balancer since it got its own series."""

    def __init__(self) -> None:
        self.connections = self.bytes_in = self.bytes_out = 0
        self.requests = [0] * len(_CLASSES)
        self.used_s = 0.0

    def add(self, totals: Totals, now_s: float) -> None:
        """Count what was added."""
        self.connections += totals.connections
        self.bytes_in += totals.bytes_in
        self.bytes_out += totals.bytes_out
        self.requests = [old + new for old, new in zip(self.requests, totals.requests, strict=True)]
        self.used_s = now_s


class _Named(Generic[K]):
    """The series of those that have one of their own, and that of all others."""

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._named: dict[K, _Series] = {}
        self._other = _Series()

    def __iter__(self) -> Iterator[K]:
        return iter(self._named)

    def add(self, added: Iterable[tuple[K, Totals]], now_s: float) -> None:
        """Count what a reading adds; where places are fewer than keys, the busiest of the first reading get them."""
        for key, totals in sorted(added, key=lambda each: (_bytes(each[1]), sum(each[1].requests)), reverse=True):
            (self._named.get(key) or self._place(key, now_s) or self._other).add(totals, now_s)

    def rows(self) -> list[tuple[K | None, _Series]]:
        """Return the series by key; None are the others."""
        return [*self._named.items(), (None, self._other)]

    def _place(self, key: K, now_s: float) -> _Series | None:
        """Assign own series to a key, if the limit allows it."""
        if len(self._named) >= self._most:
            oldest = min(self._named, key=lambda each: self._named[each].used_s)
            if now_s - self._named[oldest].used_s < _KEPT_S:
                return None
            del self._named[oldest]
        series = self._named[key] = _Series()
        return series


class TrafficMetrics(Collector):
    """The metrics of what is served; ``active`` returns how many connections are open."""

    def __init__(self, *, clock: Clock, limit: int = MOST_NAMED) -> None:
        self._clock = clock
        self._load_balancers: _Named[LoadBalancerKey] = _Named(limit)
        self._routes: _Named[Counted] = _Named(limit)
        self.active: Callable[[LoadBalancerKey], int] = lambda _key: 0

    def add(self, added: Mapping[Counted, Totals]) -> None:
        """Count what a reading adds."""
        now_s = self._clock.monotonic()
        self._load_balancers.add(
            ((counted.load_balancer, totals) for counted, totals in added.items() if counted.whole), now_s
        )
        self._routes.add(((counted, totals) for counted, totals in added.items() if counted.route), now_s)

    def collect(self) -> Iterable[Metric]:
        """Return the counters as they are."""
        rows = [(str(key) if key is not None else _OTHER, row) for key, row in self._load_balancers.rows()]
        yield _counter("connections", "Connections that were opened", ((key, row.connections) for key, row in rows))
        yield _counter("received_bytes", "Bytes from clients", ((key, row.bytes_in) for key, row in rows))
        yield _counter("sent_bytes", "Bytes to clients", ((key, row.bytes_out) for key, row in rows))
        family = CounterMetricFamily(
            "fairlead_traffic_requests", f"Answers over HTTP by class of status{_BOUND}", labels=[*_LABELS, "class"]
        )
        for key, row in rows:
            _add_classes(family, [key], row)
        yield family
        family = CounterMetricFamily(
            "fairlead_traffic_route_requests",
            f"Answers to requests of routes that are counted, by class of status{_ROUTES_BOUND}",
            labels=[*_LABELS, "route", "class"],
        )
        for counted, row in self._routes.rows():
            named = [str(counted.load_balancer), counted.route] if counted is not None else [_OTHER, _OTHER]
            _add_classes(family, named, row)
        yield family
        gauge = GaugeMetricFamily(
            "fairlead_traffic_connections_open", "Connections that are open, of those that are named.", labels=_LABELS
        )
        for key in self._load_balancers:
            gauge.add_metric([str(key)], self.active(key))
        yield gauge


def _bytes(totals: Totals) -> int:
    return totals.bytes_in + totals.bytes_out


def _add_classes(family: CounterMetricFamily, labels: list[str], row: _Series) -> None:
    for name, count in zip(_CLASSES, row.requests, strict=True):
        if any(row.requests):
            family.add_metric([*labels, name], count)


def _counter(name: str, text: str, rows: Iterable[tuple[str, int]]) -> Metric:
    family = CounterMetricFamily(f"fairlead_traffic_{name}", f"{text}{_BOUND}", labels=_LABELS)
    for key, count in rows:
        family.add_metric([key], count)
    return family
