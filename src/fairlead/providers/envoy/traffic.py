"""The traffic of each load balancer of an Envoy.

    /stats, only what was ever used, only our names ──► lines ──those that differ from the last time──► counts

In: the admin interface. Out: counts by load balancer, of HTTP by backend, and by route where that is asked for. What
is idle costs Envoy a line at the most, and us a comparison of one: a line is parsed only when it has changed.
A proxy machine reports the counts of its own Envoy to the hub.
Never: all statistics of Envoy; there are hundreds for each.
Source: https://www.envoyproxy.io/docs/envoy/latest/operations/admin#get--stats
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from urllib.parse import quote

import msgspec

from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.machine import CountedTraffic, ProcessTraffic
from fairlead.model.observed import Counted, Reading, Totals, summed
from fairlead.runtime.clock import Clock

_FILTER = (
    r"^(tcp|http)\.[A-Za-z]+/.*\.downstream_(cx_total|cx_active|cx_[rt]x_bytes_total|rq_[1-5]xx|rq_time)$"
    r"|^udp\.[A-Za-z]+/.*\.downstream_sess_(total|active|[rt]x_bytes)$"
    r"|^cluster\.(TCPLoadBalancer|LoadBalancer)/.*\.upstream_cx_(active|connect_ms)$"
    r"|^cluster\.GlobalService/.*\.upstream_cx_(connect_attempts_exceeded|none_healthy|connect_ms)$"
    r"|^cluster\.HTTPLoadBalancer/.*/backend/.*\.upstream_(cx_(total|active|[rt]x_bytes_total|none_healthy"
    r"|connect_attempts_exceeded)|rq_[1-5]xx|rq_time)$"
    r"|^vhost\..*\.route\.HTTPLoadBalancer/.*\.upstream_rq_([1-5]xx|time)$"
    r"|^server\.uptime$"
)
PATH = f"/stats?usedonly&filter={quote(_FILTER)}"


def path_with_targets(keys: Iterable[LoadBalancerKey]) -> str:
    """Return the path that also has each target of these load balancers: Envoy prints them though they are idle."""
    names = "|".join(sorted(re.escape(str(key)) for key in keys))
    pattern = rf"|^cluster\.({names})/.*\.endpoint\..*\.({'|'.join(_OF_TARGETS)})$" if names else ""
    return PATH + quote(pattern)


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
    "upstream_cx_connect_attempts_exceeded": "failed",
    "upstream_cx_none_healthy": "failed",
    "cx_total": "connections",
    "cx_active": "active",
    "cx_connect_fail": "failed",
    # Of a backend; what it receives is what clients send.
    "upstream_cx_total": "connections",
    "upstream_cx_tx_bytes_total": "bytes_in",
    "upstream_cx_rx_bytes_total": "bytes_out",
}
#: Envoy counts the answers of a cluster once more by where the request came from.
_PARTS = (".external", ".internal")
_CLASS = re.compile(r"(?:down|up)stream_rq_([1-5])xx")
#: What Envoy counts of each target; its answers only as good ones, and those with a status of 5xx.
_OF_TARGETS = {"cx_total": "", "cx_active": "", "cx_connect_fail": "", "rq_success": "2", "rq_error": "5"}
_TIMES = frozenset({"downstream_rq_time", "upstream_rq_time", "upstream_cx_connect_ms"})
#: Before the name of a route is that of its virtual host, which has no slash.
_ROUTE = ".route."
#: Before the address of one endpoint, in statistics of clusters that count each.
_ENDPOINT = ".endpoint."
#: The first value in brackets is of the last interval, the second of all time.
_QUANTILE = re.compile(r"\bP(50|99)\(([0-9.]+|nan),")
_UPTIME = "server.uptime"


class TrafficCounts:
    """The counts of one Envoy, text by text."""

    def __init__(self) -> None:
        self._lines: frozenset[str] = frozenset()
        #: By load balancer, by name of the statistic.
        self._values: dict[Counted, dict[str, int]] = {}
        self._times: dict[Counted, dict[str, tuple[float | None, float | None]]] = {}
        #: What was counted before the last text, and is not in it.
        self.gone: frozenset[Counted] = frozenset()
        #: What the last text added to the one before, statistic by statistic; None for the first text. A listener that
        #: is removed takes its counters with it, which lowers the totals of its load balancer.
        self.grown: Mapping[Counted, Totals] | None = None
        #: The age of the process, which Envoy updates every five seconds.
        self.uptime_s = 0

    def take(self, text: str) -> Mapping[Counted, Totals]:
        """Read what ``/stats`` printed; returns the changed load balancers."""
        lines = frozenset(text.splitlines())
        uptime_s = next((int(line.rpartition(" ")[2]) for line in lines if line.startswith(_UPTIME)), 0)
        first, known = not self._lines, set[Counted]()
        if uptime_s < self.uptime_s:
            # Another process: its counters began at zero.
            known = {*self._values, *self._times}
            self._lines, self._values, self._times = frozenset(), {}, {}
        self.uptime_s = uptime_s
        new = lines - self._lines
        names = {line.partition(": ")[0] for line in new}
        dropped = {line.partition(": ")[0] for line in self._lines - lines} - names
        less = {key for name in dropped if (key := self._forget(name)) is not None}
        self._lines = lines
        grown: dict[Counted, dict[str, int]] = {}
        touched = less | {key for line in new if (key := self._line(line, grown)) is not None}
        self.gone = frozenset((less | known) - self._values.keys() - self._times.keys())
        added = {key: self._totals(key, values) for key, values in grown.items()}
        self.grown = None if first else added
        return {key: self._totals(key, self._values.get(key, {})) for key in touched - self.gone}

    def _forget(self, name: str) -> Counted | None:
        """Drop a statistic that Envoy has no more, since its listener is gone; returns what it counted of."""
        if (key := _key_of(name)) is not None:
            for known in (self._values, self._times):
                known.get(key, {}).pop(name, None)
                if not known.get(key):
                    known.pop(key, None)
        return key

    def _line(self, line: str, grown: dict[Counted, dict[str, int]]) -> Counted | None:
        name, _, value = line.partition(": ")
        if (key := _key_of(name)) is None or not value:
            return None
        if name.rpartition(".")[2] in _TIMES:
            by_quantile = {number: _milliseconds(text) for number, text in _QUANTILE.findall(value)}
            self._times.setdefault(key, {})[name] = by_quantile.get("50"), by_quantile.get("99")
        elif value.isdigit():
            values, count = self._values.setdefault(key, {}), int(value)
            before, values[name] = values.get(name, 0), count
            grown.setdefault(key, {})[name] = count - before if count >= before else count
        return key

    def _totals(self, key: Counted, values: Mapping[str, int]) -> Totals:
        sums: dict[str, int] = {}
        classes = [0] * 5
        for name, value in values.items():
            statistic = name.rpartition(".")[2]
            answers = _CLASS.fullmatch(statistic)
            if number := answers[1] if answers is not None else _OF_TARGETS.get(statistic):
                classes[int(number) - 1] += value
            elif (count := _COUNTS.get(statistic)) is not None:
                sums[count] = sums.get(count, 0) + value
        if key.backend and any(classes):
            sums.pop("failed", None)  # requests, which were answered 503
        times = self._times.get(key, {}).values()
        return Totals(
            **sums,
            requests=(classes[0], classes[1], classes[2], classes[3], classes[4]),
            p50_ms=max((p50 for p50, _ in times if p50 is not None), default=None),
            p99_ms=max((p99 for _, p99 in times if p99 is not None), default=None),
        )


class EnvoyTraffic:
    """Reads the counts of one Envoy. ``get`` asks its admin interface: HTTP status, text.

    ``name`` is how a sentence speaks of it. ``targets_of``: the load balancers whose targets are read one by one.
    """

    def __init__(self, get: Callable[[str], Awaitable[tuple[int, str]]], *, name: str) -> None:
        self.targets_of: Callable[[], Iterable[LoadBalancerKey]] = tuple
        self._get = get
        self._name = name
        self._counts = TrafficCounts()

    async def read(self) -> Sequence[Reading]:
        """Return the load balancers whose counts have changed since the last call."""
        status, text = await self._get(path_with_targets(self.targets_of()))
        if status != 200:
            # A reader of figures drops what was before a gap: the next reading has everything, as the first one.
            self._counts = TrafficCounts()
            why = f" (HTTP {status})" if status else ""
            return [Reading(self._name, problem=f"{self._name} does not answer a question for its statistics{why}")]
        counts = self._counts
        totals = counts.take(text)
        return [Reading(self._name, totals, gone=counts.gone, grown=counts.grown, uptime_s=counts.uptime_s)]


#: A machine reports a count once more for so long: a hub that ends may not have stored the last report.
_AGAIN_S = 120.0
#: A report has so many counts, which is half of the largest body that a hub accepts.
_MOST_REPORTED = 4000
#: Processes whose counts are kept while no hub takes them; without one, each restart of Envoy adds one.
_MOST_PROCESSES = 64


class _CountingProcess:
    """One Envoy process of a machine: its counts, which never decrease, and when each changed last."""

    def __init__(self, get: Callable[[str], Awaitable[tuple[int, str]]]) -> None:
        self._traffic = EnvoyTraffic(get, name="Envoy")
        self.uptime_s = 0
        self.counts: dict[Counted, Totals] = {}
        self.changed_s: dict[Counted, float] = {}
        self.sent_s: dict[Counted, float] = {}
        #: Those that no hub has taken yet.
        self.untaken: set[Counted] = set()

    async def read(self, now_s: float) -> None:
        for reading in await self._traffic.read():
            self.uptime_s = reading.uptime_s or self.uptime_s
            for counted, totals in reading.totals.items():
                if counted.route or counted.target is not None:
                    continue
                before = self.counts.get(counted, Totals())
                # A listener that is removed takes its counters with it.
                now = totals if reading.grown is None else summed((before, reading.grown.get(counted, Totals())))
                self.counts[counted] = msgspec.structs.replace(now, active=totals.active)
                self.changed_s[counted] = now_s
                self.untaken.add(counted)


class MachineTraffic:
    """What the Envoys of a machine have counted, as its reports have it; kept until a hub has taken it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._processes: dict[str, _CountingProcess] = {}
        #: What the last report had.
        self._reported: list[tuple[str, Counted]] = []

    async def read(self, process: str, get: Callable[[str], Awaitable[tuple[int, str]]]) -> None:
        """Read the counts of one Envoy process by its admin interface; without an answer they stay as they are."""
        counting = self._processes.get(process)
        if counting is None:
            counting = self._processes[process] = _CountingProcess(get)
        await counting.read(self._clock.monotonic())

    def report(self) -> tuple[ProcessTraffic, ...]:
        """Return the counts that changed lately, that are of open connections, or that no hub has taken yet.

        At most ``_MOST_REPORTED``: those that were not reported for longest.
        """
        now_s = self._clock.monotonic()
        due = (
            (process.sent_s.get(counted, 0.0), name, counted)
            for name, process in self._processes.items()
            for counted, totals in process.counts.items()
            if totals.active or counted in process.untaken or process.changed_s[counted] > now_s - _AGAIN_S
        )
        counts: dict[str, list[CountedTraffic]] = {name: [] for name in self._processes}
        self._reported = [(name, counted) for _, name, counted in nsmallest(_MOST_REPORTED, due)]
        for name, counted in self._reported:
            self._processes[name].sent_s[counted] = now_s
            counts[name].append(_entry(counted, self._processes[name].counts[counted]))
        return tuple(
            ProcessTraffic(process=name, uptime_s=process.uptime_s, counts=tuple(counts[name]))
            for name, process in self._processes.items()
        )

    def taken(self, present: Collection[str]) -> None:
        """Note that a hub has the last report; ``present`` are the processes that still run."""
        for name, counted in self._reported:
            self._processes[name].untaken.discard(counted)
        again_s = self._clock.monotonic() - _AGAIN_S
        for name, process in list(self._processes.items()):
            is_old = all(changed_s <= again_s for changed_s in process.changed_s.values())
            if name not in present and is_old and not process.untaken:
                del self._processes[name]

    def ended(self, present: Collection[str]) -> None:
        """Close the open connections of processes that have ended, and keep at most ``_MOST_PROCESSES`` of these."""
        others = [name for name in self._processes if name not in present]
        for name in others[:-_MOST_PROCESSES]:
            del self._processes[name]
        for name in others[-_MOST_PROCESSES:]:
            counts = self._processes[name].counts
            counts.update({counted: msgspec.structs.replace(totals, active=0) for counted, totals in counts.items()})


def _entry(counted: Counted, totals: Totals) -> CountedTraffic:
    return CountedTraffic(
        load_balancer=str(counted.load_balancer),
        backend=counted.backend,
        connections=totals.connections,
        active=totals.active,
        bytes_in=totals.bytes_in,
        bytes_out=totals.bytes_out,
        requests=totals.requests,
        failed=totals.failed,
    )


class ReportedTraffic:
    """Reads at the hub what machines have reported; ``connected`` returns the machines whose proxy is connected."""

    def __init__(self, connected: Callable[[], Collection[str]]) -> None:
        self._connected = connected
        self._new: dict[tuple[str, str], dict[Counted, Totals]] = {}
        self._uptime_s: dict[tuple[str, str], int] = {}

    def note(self, machine: str, traffic: Sequence[ProcessTraffic]) -> None:
        """Take in the report of a machine."""
        for proxy in traffic:
            source = (machine, proxy.process)
            self._uptime_s[source] = proxy.uptime_s
            counts = self._new.setdefault(source, {})
            for entry in proxy.counts:
                kind, namespace, name = entry.load_balancer.split("/", 2)
                counts[Counted(LoadBalancerKey(kind, namespace, name), entry.backend)] = Totals(
                    connections=entry.connections,
                    active=entry.active,
                    bytes_in=entry.bytes_in,
                    bytes_out=entry.bytes_out,
                    requests=entry.requests,
                    failed=entry.failed,
                )
        reported = {proxy.process for proxy in traffic}
        for source in [source for source in self._new if source[0] == machine and source[1] not in reported]:
            self._forget(source)

    async def read(self) -> Sequence[Reading]:
        """Return what was reported since the last call."""
        connected = self._connected()
        for source in [source for source, counts in self._new.items() if not counts and source[0] not in connected]:
            self._forget(source)
        readings: list[Reading] = []
        for source, counts in self._new.items():
            name = f"Envoy {source[1]} of machine {source[0]}"
            readings.append(Reading(name, counts, uptime_s=self._uptime_s[source]))
            self._new[source] = {}
        return readings

    def _forget(self, source: tuple[str, str]) -> None:
        del self._new[source], self._uptime_s[source]


def _key_of(name: str) -> Counted | None:
    """Return the load balancer, or its backend or route, whose statistic this is; None when it is not one of ours."""
    kind, _, rest = name.partition(".")
    if kind == "vhost":
        # A host name may have that label too.
        host, slash, end = rest.partition("/")
        rest = f"{host.rpartition(_ROUTE)[2]}{slash}{end}"
    rest, _, statistic = rest.rpartition(".")
    target = None
    if kind == "cluster" and statistic in _OF_TARGETS:
        rest, _, endpoint = rest.rpartition(_ENDPOINT)
        if (target := _target_of(endpoint)) is None:
            return None
    parts = rest.split("/", 3)
    if len(parts) < 4:
        return None
    part, _, backend = parts[3].partition("/")
    if kind == "cluster" and backend.endswith(_PARTS):
        return None
    return Counted(
        LoadBalancerKey(*parts[:3]),
        _backend_of(backend) if (kind, part) == ("cluster", "backend") else "",
        backend if (kind, part) == ("vhost", "route") else "",
        target,
    )


def _backend_of(name: str) -> str:
    """Return the backend whose name in a statistic this is: Envoy writes the colon before its port as an underscore."""
    service, _, port = name.rpartition("_")
    return f"{service}:{port}" if service and port.isdigit() else name


def _target_of(endpoint: str) -> TargetKey | None:
    """Return the target whose name in a statistic this is: Envoy writes a colon as an underscore."""
    address, _, port = endpoint.rpartition("_")
    if not address or not port.isdigit():
        return None
    return TargetKey(address[1:-1].replace("_", ":") if address.startswith("[") else address, int(port))


def _milliseconds(text: str) -> float | None:
    return None if text == "nan" else float(text)
