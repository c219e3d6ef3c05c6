"""How much traffic does each load balancer of an Envoy have?

    /stats, only what was ever used, only our names ──► lines ──those that differ from the last time──► counts

In: the admin interface. Out: counts by load balancer. What is idle costs Envoy a line at the most, and us a comparison
of one: a line is parsed only when it has changed. Never: all statistics of Envoy, of which there are hundreds for each.
Source: https://www.envoyproxy.io/docs/envoy/latest/operations/admin#get--stats
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import quote

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.traffic import Totals

_FILTER = (
    r"^(tcp|http)\.[A-Za-z]+/.*\.downstream_(cx_total|cx_active|cx_[rt]x_bytes_total|rq_[1-5]xx|rq_time)$"
    r"|^udp\.[A-Za-z]+/.*\.downstream_sess_(total|active|[rt]x_bytes)$"
    r"|^cluster\.(TCPLoadBalancer|LoadBalancer)/.*\.upstream_cx_(active|connect_ms)$"
)
PATH = f"/stats?usedonly&filter={quote(_FILTER)}"
#: Which count a statistic is.
_COUNTS = {
    "downstream_cx_total": "connections",
    "downstream_sess_total": "connections",
    "downstream_cx_active": "active",
    "downstream_sess_active": "active",
    "upstream_cx_active": "active",
    "downstream_cx_rx_bytes_total": "bytes_in",
    "downstream_sess_rx_bytes": "bytes_in",
    "downstream_cx_tx_bytes_total": "bytes_out",
    "downstream_sess_tx_bytes": "bytes_out",
}
_CLASSES = tuple(f"downstream_rq_{number}xx" for number in range(1, 6))
_TIMES = frozenset({"downstream_rq_time", "upstream_cx_connect_ms"})
#: The first value in brackets is of the last interval, the second of all time.
_QUANTILE = re.compile(r"\bP(50|99)\(([0-9.]+|nan),")


class TrafficCounts:
    """The counts of one Envoy, text by text."""

    def __init__(self) -> None:
        self._lines: frozenset[str] = frozenset()
        #: By load balancer, by name of the statistic.
        self._values: dict[LoadBalancerKey, dict[str, int]] = {}
        self._times: dict[LoadBalancerKey, dict[str, tuple[float | None, float | None]]] = {}

    def take(self, text: str) -> Mapping[LoadBalancerKey, Totals]:
        """Read what ``/stats`` printed; returns the load balancers of which something has changed."""
        lines = frozenset(text.splitlines())
        touched = {key for line in lines - self._lines if (key := self._line(line)) is not None}
        self._lines = lines
        return {key: self._totals(key) for key in touched}

    def _line(self, line: str) -> LoadBalancerKey | None:
        name, separator, value = line.partition(": ")
        _, _, rest = name.partition(".")
        prefix, _, statistic = rest.rpartition(".")
        parts = prefix.split("/", 3)
        if not separator or len(parts) < 4:
            return None
        key = LoadBalancerKey(*parts[:3])
        if statistic in _TIMES:
            by_quantile = {number: _milliseconds(text) for number, text in _QUANTILE.findall(value)}
            self._times.setdefault(key, {})[name] = by_quantile.get("50"), by_quantile.get("99")
        elif value.isdigit():
            self._values.setdefault(key, {})[name] = int(value)
        return key

    def _totals(self, key: LoadBalancerKey) -> Totals:
        sums: dict[str, int] = {}
        classes = [0] * 5
        for name, value in self._values.get(key, {}).items():
            statistic = name.rpartition(".")[2]
            if statistic in _CLASSES:
                classes[_CLASSES.index(statistic)] += value
            elif (count := _COUNTS.get(statistic)) is not None:
                sums[count] = sums.get(count, 0) + value
        times = self._times.get(key, {}).values()
        return Totals(
            **sums,
            requests=(classes[0], classes[1], classes[2], classes[3], classes[4]),
            p50_ms=_slowest(p50 for p50, _ in times),
            p99_ms=_slowest(p99 for _, p99 in times),
        )


class EnvoyTraffic:
    """Reads the counts of one Envoy. ``get`` asks its admin interface: HTTP status, text."""

    def __init__(self, get: Callable[[str], Awaitable[tuple[int, str]]]) -> None:
        self._get = get
        self._counts = TrafficCounts()

    async def read(self) -> Mapping[LoadBalancerKey, Totals]:
        """Return the load balancers whose counts have changed since the last call."""
        status, text = await self._get(PATH)
        if status != 200:
            raise Retry("the proxy of this machine does not answer a question for its statistics", detail=text[:200])
        return self._counts.take(text)


def _milliseconds(text: str) -> float | None:
    return None if text == "nan" else float(text)


def _slowest(times: Iterable[float | None]) -> float | None:
    """Return the longest, that of the port that matters; None when no port had traffic."""
    return max((time for time in times if time is not None), default=None)
