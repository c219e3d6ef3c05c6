"""Traffic figures as metrics, of which there is a bounded number.

In: what each reading adds. Out: series of the ``MOST_NAMED`` load balancers that had traffic first, and one,
``(other)``, for all the rest together. One that has had none for an hour gives its place to another. A counter never
goes back: what is added while a load balancer is among the others stays there. Never: a series for a backend
or a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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


class _Series:
    """The counters of one load balancer since it has its place."""

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


class TrafficMetrics(Collector):
    """The metrics of what is served; ``active`` returns how many connections are open."""

    def __init__(self, *, clock: Clock, most: int = MOST_NAMED) -> None:
        self._clock = clock
        self._most = most
        self._named: dict[LoadBalancerKey, _Series] = {}
        self._other = _Series()
        self.active: Callable[[LoadBalancerKey], int] = lambda _key: 0

    def add(self, added: Mapping[Counted, Totals]) -> None:
        """Count what a reading adds."""
        now_s = self._clock.monotonic()
        whole = [(counted.load_balancer, totals) for counted, totals in added.items() if not counted.backend]
        # Where there are fewer places than load balancers, the busiest of the first reading get them.
        for key, totals in sorted(whole, key=lambda each: -(each[1].bytes_in + each[1].bytes_out)):
            (self._named.get(key) or self._place(key, now_s) or self._other).add(totals, now_s)

    def collect(self) -> Iterable[Metric]:
        """Return the counters as they are."""
        rows = [*((str(key), series) for key, series in self._named.items()), (_OTHER, self._other)]
        yield _counter("connections", "Connections that were opened", ((key, row.connections) for key, row in rows))
        yield _counter("received_bytes", "Bytes from clients", ((key, row.bytes_in) for key, row in rows))
        yield _counter("sent_bytes", "Bytes to clients", ((key, row.bytes_out) for key, row in rows))
        family = CounterMetricFamily(
            "fairlead_traffic_requests", f"Answers over HTTP by class of status{_BOUND}", labels=[*_LABELS, "class"]
        )
        for key, row in rows:
            for name, count in zip(_CLASSES, row.requests, strict=True):
                if any(row.requests):
                    family.add_metric([key, name], count)
        yield family
        gauge = GaugeMetricFamily(
            "fairlead_traffic_connections_open", "Connections that are open, of those that are named.", labels=_LABELS
        )
        for key in self._named:
            gauge.add_metric([str(key)], self.active(key))
        yield gauge

    def _place(self, key: LoadBalancerKey, now_s: float) -> _Series | None:
        """Give a load balancer series of its own, if there is a place."""
        if len(self._named) >= self._most:
            oldest = min(self._named, key=lambda each: self._named[each].used_s)
            if now_s - self._named[oldest].used_s < _KEPT_S:
                return None
            del self._named[oldest]
        series = self._named[key] = _Series()
        return series


def _counter(name: str, text: str, rows: Iterable[tuple[str, int]]) -> Metric:
    family = CounterMetricFamily(f"fairlead_traffic_{name}", f"{text}{_BOUND}", labels=_LABELS)
    for key, count in rows:
        family.add_metric([key], count)
    return family
