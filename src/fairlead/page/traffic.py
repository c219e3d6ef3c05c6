"""The traffic of each load balancer: rates of now and of the last hour, and metrics, from counters that are read.

In: readers of data planes. Out: figures by load balancer and backend, a table of the page, the answer for ``fairlead
top``, and series of metrics. Without a question for ``_LOOKED_S`` nothing is read here; scrapes of the metrics and the
count of usage read once each, and every reading counts for the last hour.
The work follows what is busy: a load balancer without traffic has no figure. A process that is read for the first time
is a base and adds nothing; one that has restarted counts from zero.
Metrics are bounded: the ``MOST_NAMED`` load balancers that had traffic first have their own series, all others share
``(other)``; the same for the routes that are counted. One without traffic for an hour gives its place to another.
A Tenant with ``maxMetricSeries`` has so many of both for itself.
Never: a number of a data plane that could not be read; a series for a backend or a path.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import add
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES, LoadBalancerRoute, RouteKey
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.times import wire_time
from fairlead.hub.inventory import Inventory
from fairlead.kube.cache import WatchCache
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Reading, Totals, TrafficReader, added, summed
from fairlead.page.board import TableSource, VisibleItem
from fairlead.page.tables import RESOURCE_OF
from fairlead.runtime.clock import Clock
from fairlead.status.object_ref import IN_MEMBERS

#: Envoy sums up the times of requests every five seconds.
READ_S = 5.0
_LOOKED_S = 20.0
#: Of the time at the most one part in so many is spent on reading.
_SHARE = 50
#: Scrapes and usage do not wait longer for a data plane; its counts are in the next reading.
_SCRAPE_S = 3.0


class TrafficAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to ``fairlead top``: the figures of what is busy, when they were read, and what could not be read.

    ``backends`` are of those that got HTTP requests; the ``id`` is that of the load balancer, ``#`` and a name.
    ``routes`` are of load balancers that count them; the ``id`` has ``@`` and a name such as ingress/shop/web.
    """

    at: str
    figures: list[Figure]
    problem: str = ""
    backends: list[Figure] = []
    routes: list[Figure] = []


class Traffic(TableSource):
    """The figures of one hub; a source of the board (table ``traffic``).

    ``readers`` returns those that there are now. ``added`` is called with what each reading adds, ``taken`` with all of
    them. ``identity`` returns the identity of the object behind figures, which differs once the object is recreated.
    """

    table = "traffic"
    every_s = 2.0

    def __init__(
        self,
        readers: Callable[[], Sequence[TrafficReader]],
        *,
        clock: Clock,
        now: Callable[[], datetime],
        added: Callable[[Mapping[Counted, Totals]], None] = lambda _added: None,
        taken: Callable[[Sequence[Reading]], None] = lambda _readings: None,
        identity: Callable[[Counted], str] = str,
    ) -> None:
        self._readers = readers
        self._clock = clock
        self._now = now
        self._added = added
        self._taken = taken
        self._rates = TrafficRates()
        self._figures: dict[Counted, Figure] = {}
        self._at_s = float("-inf")
        self._rated_s = float("-inf")
        self._read_at = ""
        self._problem = ""
        self._asked = asyncio.Event()
        self._asked_s = float("-inf")
        self._fresh = asyncio.Condition()
        self._reading = asyncio.Lock()
        self.last_hour = LastHour(identity)

    async def run(self) -> None:
        """Read while there are questions, until cancelled."""
        while True:
            if self._clock.monotonic() - self._asked_s > _LOOKED_S:
                self._asked.clear()
                await self._asked.wait()
            began_s = self._clock.monotonic()
            await self.read()
            took_s = self._clock.monotonic() - began_s
            await self._clock.sleep(max(READ_S, _SHARE * took_s))

    async def read(self) -> None:
        """Read all data planes once."""
        async with self._reading:
            readings = await asyncio.gather(*(reader.read() for reader in self._readers()))
            self._take([reading for of_one_reader in readings for reading in of_one_reader])
        async with self._fresh:
            self._fresh.notify_all()

    async def refresh(self, age_s: float = READ_S) -> None:
        """Read once, unless the last reading is younger than ``age_s``; waits a few seconds at the most."""
        if self._clock.monotonic() - self._at_s >= age_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SCRAPE_S):
                    await self.read()

    def active(self, counted: Counted) -> int:
        """Return how many connections are open."""
        return self._rates.active(counted)

    def problem(self) -> str:
        """Return which proxies the last reading lacks, empty when it has all."""
        return self._problem or ("" if self._rates.sources else "no proxy has reported figures")

    def ask(self) -> None:
        """Request that figures are read during the next seconds."""
        self._asked_s = self._clock.monotonic()
        self._asked.set()

    async def answer(self, timeout_s: float = 3 * READ_S) -> TrafficAnswer:
        """Return the figures; without recent reads, wait until there are rates."""
        self.ask()
        asked_s = self._asked_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._fresh:
                await self._fresh.wait_for(lambda: asked_s - self._rated_s <= READ_S)
        backends = [figure for counted, figure in self._figures.items() if counted.backend]
        routes = [figure for counted, figure in self._figures.items() if counted.route]
        figures = [figure for counted, figure in self._figures.items() if counted.whole]
        return TrafficAnswer(self._read_at, figures, self._problem, backends, routes)

    # --- the board's table --------------------------------------------------------------------------------------

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of what has traffic, and have the figures read."""
        self.ask()
        return list(self._figures)

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the figure of one; None when it is idle."""
        if not isinstance(key, Counted) or (figure := self._figures.get(key)) is None:
            return None
        return VisibleItem(figure, RESOURCE_OF.get(key.load_balancer.kind, ""), key.load_balancer.namespace)

    def _take(self, readings: Sequence[Reading]) -> None:
        now_s = self._clock.monotonic()
        seconds, self._at_s = now_s - self._at_s, now_s
        added = self._rates.take(readings)
        self._taken(readings)
        self._added(added)
        self.last_hour.add(added, now_s, seconds)
        figures: dict[Counted, Figure] = {}
        # Rates over a time in which nothing was read would be averages of long ago.
        if 0 < seconds <= _LOOKED_S:
            self._rated_s = now_s
            for counted, totals in added.items():
                if counted.target is not None:
                    continue
                figure = figure_of(counted, totals, seconds, http=self._rates.is_http(counted))
                if figure.busy:
                    figures[counted] = figure
        for counted, figure in self._figures.items():
            # Connections that stay open without a byte are still there.
            if counted not in added and (active := self._rates.active(counted)):
                figures[counted] = Figure(figure.id, active=active)
        self._figures = figures
        self._problem = "; ".join(dict.fromkeys(reading.problem for reading in readings if reading.problem))
        self._read_at = wire_time(self._now())


#: Minutes of the last hour, and the subjects that it is kept for: 0.7 kB each.
MINUTES = 60
_LONGEST_GAP_S = 90.0
MOST_TRENDS = 10_000
_KINDS = {kind.lower(): kind for kind in IN_MEMBERS}


class Trend(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The last hour of one load balancer or route, a value for each minute, oldest first; None: not read.

    ``load`` are requests each second, connections without HTTP; ``errors`` those answered with 5xx, or that failed.
    """

    http: bool
    load: tuple[float | None, ...]
    errors: tuple[float | None, ...]


class _Hour:
    """The minutes of one object, in two rings; ``last`` is the newest minute in them."""

    def __init__(self, minute: int, identity: str, *, http: bool) -> None:
        self.last, self.identity, self.http = minute, identity, http
        self._load = array("f", bytes(4 * (MINUTES + 1)))
        self._errors = array("f", bytes(4 * (MINUTES + 1)))

    def add(self, minute: int, load: int, errors: int) -> None:
        for missed in range(max(self.last, minute - MINUTES - 1) + 1, minute + 1):
            self._load[missed % (MINUTES + 1)] = self._errors[missed % (MINUTES + 1)] = 0.0
        self.last = max(self.last, minute)
        self._load[minute % (MINUTES + 1)] += load
        self._errors[minute % (MINUTES + 1)] += errors

    def before(self, end: int) -> tuple[list[float], list[float]]:
        """Return load and errors of the minutes before ``end``, oldest first; what came after the last is zero."""
        known = range(end - MINUTES, min(end, self.last + 1))
        zeros = [0.0] * (MINUTES - len(known))
        load, errors = ([ring[minute % (MINUTES + 1)] for minute in known] for ring in (self._load, self._errors))
        return load + zeros, errors + zeros


def space_of(kind: str, namespace: str) -> Counted:
    """Return the subject of the sum over all load balancers of a kind in a namespace."""
    return Counted(LoadBalancerKey(kind, namespace, ""))


def identity_of(inventory: Inventory, counted: Counted) -> str:
    """Return the uid of the object that figures are of, for a sum that of the member; empty for none.

    An object of a member has its own uid there, which outlives the object that the agent publishes for it.
    """
    key = counted.load_balancer
    if not key.name:
        tenant = inventory.tenant_of(key.namespace)
        return tenant.metadata.uid if tenant is not None else ""
    if counted.route:
        kind, _, place = counted.route.partition("/")
        namespace, _, name = place.rpartition("/")
        cache: WatchCache[LoadBalancerRoute] | None = inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
        subject = RouteKey(_KINDS.get(kind, kind), key.namespace, namespace, name)
        obj: Any = next(iter(cache.indexed("subject", subject)), None) if cache is not None else None
    else:
        objects = inventory.intents.get(key.kind)
        obj = objects.cache.get(key.namespace, key.name) if objects is not None else None
    if obj is None:
        return ""
    return getattr(obj.spec, "origin", Origin()).uid or obj.metadata.uid


class LastHour:
    """The traffic of the last hour, by minute; what was idle for all of it is not in it.

    ``identity`` returns the identity of the object behind a subject: a recreated object does not inherit the hour.
    """

    def __init__(self, identity: Callable[[Counted], str] = str) -> None:
        self._identity = identity
        self._read: deque[int] = deque(maxlen=MINUTES + 1)
        self._of: dict[Counted, _Hour] = {}
        self._minute = 0

    def add(self, added: Mapping[Counted, Totals], now_s: float, seconds: float) -> None:
        """Count what a reading adds, which was served in the ``seconds`` before ``now_s``."""
        self._minute = int(now_s // 60)
        # What was served over several minutes is of none of them.
        if not 0 < seconds <= _LONGEST_GAP_S:
            return
        minute = int((now_s - seconds / 2) // 60)
        if not self._read or self._read[-1] < minute:
            self._read.append(minute)
            self._of = {counted: hour for counted, hour in self._of.items() if hour.last >= minute - MINUTES}
        sums: defaultdict[tuple[Counted, bool], list[int]] = defaultdict(lambda: [0, 0])
        for counted, totals in added.items():
            if counted.backend or counted.target is not None:
                continue
            http = any(totals.requests)
            load, errors = (sum(totals.requests), totals.requests[4]) if http else (totals.connections, totals.failed)
            if load or errors:
                self._count(counted, minute, load, errors, http=http)
                if counted.whole:
                    total = sums[space_of(counted.load_balancer.kind, counted.load_balancer.namespace), http]
                    total[0], total[1] = total[0] + load, total[1] + errors
        for (space, http), (load, errors) in sums.items():
            self._count(space, minute, load, errors, http=http)

    def _count(self, counted: Counted, minute: int, load: int, errors: int, *, http: bool) -> None:
        identity = self._identity(counted)
        hour = self._of.get(counted)
        # Sums of namespaces are few, and have to be complete.
        if hour is None and counted.load_balancer.name and len(self._of) >= MOST_TRENDS:
            return
        if hour is None or hour.identity != identity or (http and not hour.http):
            # What was counted until now was of another object, or were connections.
            hour = self._of[counted] = _Hour(minute, identity, http=http)
        if http == hour.http:
            hour.add(minute, load, errors)

    def subjects(self) -> Iterable[Counted]:
        """Return what has had traffic: load balancers, routes, and the sums of namespaces (``space_of``)."""
        return self._of.keys()

    def of(self, subjects: Iterable[Counted]) -> Trend | None:
        """Return the sum of ``subjects``: of requests where there are some, else of connections; None: all idle."""
        hours = [
            hour
            for counted in subjects
            if (hour := self._of.get(counted)) is not None and hour.identity == self._identity(counted)
        ]
        http = any(hour.http for hour in hours)
        hours = [hour for hour in hours if hour.http == http]
        if not hours:
            return None
        load, errors = [0.0] * MINUTES, [0.0] * MINUTES
        for hour in hours:
            # The present minute has not ended.
            more = hour.before(self._minute)
            load, errors = list(map(add, load, more[0])), list(map(add, errors, more[1]))
        read = [minute in self._read for minute in range(self._minute - MINUTES, self._minute)]

        def rates(counts: list[float]) -> tuple[float | None, ...]:
            return tuple(round(count / 60, 2) if known else None for count, known in zip(counts, read, strict=True))

        return Trend(http, rates(load), rates(errors))


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
        #: Those that have answered the last time.
        self.sources: set[str] = set()

    def take(self, readings: Sequence[Reading]) -> dict[Counted, Totals]:
        """Return what was added since the last call to each that has changed; times and ``active`` are of now."""
        read = {reading.source for reading in readings if not reading.problem}
        for ended in self.sources - read:
            for counted in list(self._counts):
                self._forget(counted, ended)
        for reading in readings:
            for counted in reading.gone:
                self._forget(counted, reading.source)
        grown: dict[Counted, list[Totals]] = {}
        for reading in readings:
            base = Totals() if reading.source in self.sources else None
            for counted, totals in reading.totals.items():
                by_source = self._counts.setdefault(counted, {})
                before = by_source.get(reading.source, base)
                by_source[reading.source] = totals
                if before is not None:
                    more = added(before, totals)
                    if reading.grown is not None:
                        more = reading.grown.get(counted, Totals(p50_ms=totals.p50_ms, p99_ms=totals.p99_ms))
                    grown.setdefault(counted, []).append(more)
        self.sources = read
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


MOST_NAMED = 100
_KEPT_S = 3600.0
_OTHER = "(other)"
_LABELS = ["load_balancer"]
_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_OWN = "(and maxMetricSeries of each Tenant) by name, the rest as one, (other)."
_BOUND = f"; at the most {MOST_NAMED} load balancers {_OWN}"
_ROUTES_BOUND = f"; at the most {MOST_NAMED} routes {_OWN}"

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
    """The series of those that have one of their own, and that of all others.

    ``limit_of`` returns who has the places of a key, and how many there are.
    """

    def __init__(self, limit_of: Callable[[K], tuple[str, int]]) -> None:
        self._limit_of = limit_of
        self._named: dict[K, _Series] = {}
        self._other = _Series()

    def __iter__(self) -> Iterator[K]:
        return iter(self._named)

    def add(self, added: Iterable[tuple[K, Totals]], now_s: float) -> None:
        """Count what a reading adds; where places are fewer than keys, the busiest of the first reading get them."""
        taken = Counter(self._limit_of(key)[0] for key in self._named)
        for key, totals in sorted(added, key=lambda entry: (_bytes(entry[1]), sum(entry[1].requests)), reverse=True):
            (self._named.get(key) or self._place(key, taken, now_s) or self._other).add(totals, now_s)

    def rows(self) -> list[tuple[K | None, _Series]]:
        """Return the series by key; None are the others."""
        return [*self._named.items(), (None, self._other)]

    def _place(self, key: K, taken: Counter[str], now_s: float) -> _Series | None:
        """Assign own series to a key, if the limit allows it; ``taken`` counts the places of each owner."""
        owner, most = self._limit_of(key)
        if taken[owner] >= most:
            own = (each for each in self._named if self._limit_of(each)[0] == owner)
            oldest = min(own, key=lambda each: self._named[each].used_s)
            if now_s - self._named[oldest].used_s < _KEPT_S:
                return None
            del self._named[oldest]
            taken[owner] -= 1
        taken[owner] += 1
        series = self._named[key] = _Series()
        return series


class TrafficMetrics(Collector):
    """The metrics of what is served; ``active`` returns how many connections are open.

    ``budget`` returns how many load balancers, and routes, of a namespace have series besides the shared ones.
    """

    def __init__(self, *, clock: Clock, limit: int = MOST_NAMED) -> None:
        self._clock = clock
        self._limit = limit
        self._load_balancers: _Named[LoadBalancerKey] = _Named(self._limit_of)
        self._routes: _Named[Counted] = _Named(lambda counted: self._limit_of(counted.load_balancer))
        self.budget: Callable[[str], int] = lambda _namespace: 0
        self.active: Callable[[Counted], int] = lambda _counted: 0

    def add(self, added: Mapping[Counted, Totals]) -> None:
        """Count what a reading adds."""
        now_s = self._clock.monotonic()
        self._load_balancers.add(
            ((counted.load_balancer, totals) for counted, totals in added.items() if counted.whole), now_s
        )
        self._routes.add(((counted, totals) for counted, totals in added.items() if counted.route), now_s)

    def _limit_of(self, key: LoadBalancerKey) -> tuple[str, int]:
        own = self.budget(key.namespace)
        return (key.namespace, own) if own else ("", self._limit)

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
            gauge.add_metric([str(key)], self.active(Counted(key)))
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
