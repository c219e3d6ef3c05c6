"""Observations that a provider reports, the health that follows, and traffic since its data plane began to count.

Values only; never the basis of a removal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple, Protocol, cast, runtime_checkable

import msgspec

from fairlead.model.condition import ConditionReason
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey

#: In ``info`` that is given back: JSON, the parameters of what was asked for before, when something else was asked for
#: before there was an answer. For providers that keep what they have where they were last asked to.
UNFINISHED = "unfinished"


class Ensured(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``ensure``: addresses (IP or host names, ordered) when there are any yet.

    ``info`` is the provider's own identity of the load balancer; what is not None is to be stored, and given back to
    ``restore`` by the next process.
    """

    addresses: tuple[str, ...] = ()
    message: str = ""
    info: Mapping[str, str] | None = None
    #: As in ``Observed``: in which life of the provider it was ensured; what is registered later is lost with it.
    epoch: str = ""


class ObservedTarget(msgspec.Struct, frozen=True, gc=False):
    """One target of ours as it was read back; ``healthy`` None means that it is not checked, or not yet."""

    listener: ListenerKey
    key: TargetKey
    weight: int = 1
    draining: bool = False
    healthy: bool | None = None


class Seen(StrEnum):
    """One target as one proxy sees it."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    #: It is checked, and the first check has not ended yet.
    WAITING = "Waiting"
    UNCHECKED = "Unchecked"
    #: The proxy has stopped to report: what it saw last says nothing of now.
    SILENT = "Silent"

    # As of ``Protocol``: that of each of thousands of targets is looked for.
    __hash__ = str.__hash__


class MemberSeen(NamedTuple):
    """The targets of one locality: ``healthy`` of ``known`` at the proxy that sees most of them healthy.

    ``blind`` of ``proxies`` see none of them healthy.
    """

    name: str
    healthy: int
    known: int
    blind: int = 0
    proxies: int = 0


class Health(msgspec.Struct, frozen=True, gc=False):
    """The health of the targets of one load balancer as the data plane sees it; ``fairlead.model.observed`` makes it.

    ``serving`` None: not known, for ``reason``. ``total`` counts the targets in rotation with a known health,
    ``unknown`` the rest; ``healthy`` those that every reporting proxy sees healthy. ``unhealthy`` names the first of
    the others, ordered, by ``unhealthy_name``. ``failing`` has backends without a healthy target, while others serve.
    """

    serving: bool | None = None
    reason: ConditionReason = ConditionReason.NOT_CHECKED
    message: str = ""
    total: int = 0
    healthy: int = 0
    unhealthy: tuple[str, ...] = ()
    unknown: int = 0
    failing: frozenset[str] = frozenset()
    #: Of targets with localities, ordered by name.
    members: tuple[MemberSeen, ...] = ()

    @property
    def checked(self) -> bool:
        """Return whether any target is checked, and known."""
        return bool(self.healthy or self.unhealthy)


def unhealthy_name(listener: ListenerKey, key: TargetKey) -> str:
    """Return the name of an unhealthy target in a status, as 10.0.0.1:8080 (TCP/80).

    One address has many ports, and each listener or backend checks its targets itself.
    """
    return f"{key} ({listener})"


class RefusedPart(NamedTuple):
    """A part of a load balancer that is not served, while the rest is.

    ``kind`` is route, rule, listener, backend, certificate, answer, maintenance or annotation; ``reason`` is a
    sentence. A rule has the ``name`` of its route, and the reason says which one it is.
    """

    kind: str
    name: str
    reason: str


class DrainFigures(msgspec.Struct, frozen=True, gc=False):
    """The targets of one load balancer that drain, and the connections that they still have.

    ``since_s``: when the first of them began to drain, as the time of the clock in seconds.
    """

    targets: int
    connections: int
    since_s: float

    def plus(self, other: DrainFigures) -> DrainFigures:
        """Return the figures of both."""
        return DrainFigures(
            self.targets + other.targets, self.connections + other.connections, min(self.since_s, other.since_s)
        )


class Observed(msgspec.Struct, frozen=True, gc=False):
    """The state of one load balancer as it was read back from its provider.

    ``programmed`` means that every proxy that serves it has acknowledged its newest state. ``proxies`` and
    ``acknowledged`` count them. ``rejected`` is the data plane's own complaint, empty when there is none.
    """

    addresses: tuple[str, ...] = ()
    programmed: bool = False
    proxies: int = 0
    acknowledged: int = 0
    rejected: str = ""
    #: What of an L7 load balancer is left out, ordered; everything else is served.
    refused: tuple[RefusedPart, ...] = ()
    message: str = ""
    #: How clients and connections reach the targets, where users need to know that; shown once it is programmed.
    data_path: str = ""
    #: Ours only, ordered by (listener, key); None when this provider cannot list them.
    targets: tuple[ObservedTarget, ...] | None = None
    #: Names of targets that are not ours, ordered; reported, never touched.
    foreign: tuple[str, ...] = ()
    #: None: to be taken from ``targets``.
    health: Health | None = None
    #: None: no target drains, or nothing is known of its connections.
    draining: DrainFigures | None = None
    #: Another value than before: the provider restarted and may have lost our targets; register them again.
    epoch: str = ""


#: So many unhealthy targets are named in a status; the count has them all.
NAMED = 50

#: What each reporting proxy sees of each target, the proxies always in the same order.
Views = Mapping[ListenerKey, Mapping[TargetKey, Sequence[Seen]]]


class _State(StrEnum):
    """The state of one listener as one proxy sees it."""

    SERVING = "Serving"
    NONE = "None"
    WAITING = "Waiting"
    UNCHECKED = "Unchecked"
    SILENT = "Silent"

    __hash__ = str.__hash__


def health_of(views: Views, *, not_checked: str = "") -> Health:
    """Return the health from ``views``, one for each listener; ``not_checked``: why there are no health checks."""
    return HealthTally(views).health(not_checked=not_checked)


class HealthTally:
    """The views of one load balancer, and the health that follows; a changed listener costs its own targets.

    A port needs a healthy target behind it. Backends, which routes choose, do not serve only when none of them has one.
    A target behind several listeners counts once, and is healthy when it is so behind all of them. Each listener has
    its own health checks, so an unhealthy target is named with the listener. A target that waits for its first check is
    not counted yet, and one that is not checked never.
    """

    def __init__(self, views: Views | None = None) -> None:
        self._views: dict[ListenerKey, Mapping[TargetKey, Sequence[Seen]]] = {}
        self._ports = 0
        self._empty: set[ListenerKey] = set()
        #: What is seen of each target, by listener.
        self._seen: dict[TargetKey, dict[ListenerKey, Sequence[Seen]]] = {}
        self._known = self._healthy = 0
        self._unhealthy: dict[ListenerKey, list[str]] = {}
        #: The state of each listener with targets by proxy, and how many listeners have each state at a proxy.
        self._states: dict[ListenerKey, tuple[_State, ...]] = {}
        self._by_proxy: tuple[Counter[_State], ...] = ()
        #: Those behind which at least one proxy sees no healthy target.
        self._failing: set[ListenerKey] = set()
        for listener, targets in (views or {}).items():
            self.put(listener, targets)

    def __len__(self) -> int:
        return len(self._views)

    def put(self, listener: ListenerKey, targets: Mapping[TargetKey, Sequence[Seen]]) -> None:
        """Replace what is seen of the targets of a listener; all are seen by the same number of proxies."""
        if self._views.get(listener) == targets:
            return
        self.drop(listener)
        self._views[listener] = targets
        self._ports += not listener.backend
        if not targets:
            self._empty.add(listener)
            return
        states = tuple(map(_best, zip(*targets.values(), strict=True)))
        if not self._states:
            self._by_proxy = tuple(Counter[_State]() for _ in states)
        self._states[listener] = states
        for counts, state in zip(self._by_proxy, states, strict=True):
            counts[state] += 1
        if _State.NONE in states:
            self._failing.add(listener)
        for key, seen in targets.items():
            self._count(key, -1)
            self._seen.setdefault(key, {})[listener] = seen
            self._count(key, 1)
            if Seen.UNHEALTHY in seen:
                self._unhealthy.setdefault(listener, []).append(unhealthy_name(listener, key))

    def drop(self, listener: ListenerKey) -> None:
        """Forget a listener."""
        targets = self._views.pop(listener, None)
        if targets is None:
            return
        self._ports -= not listener.backend
        self._empty.discard(listener)
        self._failing.discard(listener)
        self._unhealthy.pop(listener, None)
        for counts, state in zip(self._by_proxy, self._states.pop(listener, ()), strict=False):
            counts[state] -= 1
        for key in targets:
            self._count(key, -1)
            at = self._seen[key]
            del at[listener]
            if at:
                self._count(key, 1)
            else:
                del self._seen[key]

    def health(self, *, not_checked: str = "") -> Health:
        """Return the health; ``not_checked``: why there are no health checks."""
        empty = [str(listener) for listener in sorted(self._empty)]
        if len(empty) == len(self._views):
            return Health(serving=False, reason=ConditionReason.NO_TARGETS, message="no target")
        total, healthy = self._known, self._healthy
        unhealthy = nsmallest(NAMED, chain.from_iterable(self._unhealthy.values()))
        counts = Health(total=total, healthy=healthy, unhealthy=tuple(unhealthy), unknown=len(self._seen) - total)

        def health(serving: bool | None, reason: ConditionReason, message: str) -> Health:
            return msgspec.structs.replace(counts, serving=serving, reason=reason, message=message)

        routed = not self._ports
        if empty and not routed:
            return health(False, ConditionReason.NO_TARGETS, f"{', '.join(empty)} has no target")
        by_proxy = [{state for state, count in states.items() if count} for states in self._by_proxy]
        if routed:
            by_proxy = [{_best_of(states)} for states in by_proxy]
        failed = [states for states in by_proxy if _State.NONE in states]
        if failed and len(failed) == len(by_proxy):
            return health(False, ConditionReason.NO_HEALTHY_TARGETS, self._without())
        if failed:
            message = f"{len(failed)} of {len(by_proxy)} proxies see no healthy target"
            return health(False, ConditionReason.UNREACHABLE_FROM_SOME_PROXIES, message)
        seen = set[_State]().union(*by_proxy)
        if _State.SILENT in seen:
            silent = sum(_State.SILENT in states for states in by_proxy)
            reporters = f"{silent} of {len(by_proxy)} proxies" if len(by_proxy) > 1 else "the only proxy"
            message = f"{reporters} stopped reporting the health of targets: hung, or cut off from the hub"
            return health(None, ConditionReason.PROXIES_SILENT, message)
        if _State.WAITING in seen:
            message = "no proxy has reported the health of targets yet"
            return health(None, ConditionReason.WAITING_FOR_FIRST_CHECK, message)
        down = [*empty, *map(str, self._failing)] if routed else []
        failing = f"requests to backends without a healthy target fail: {', '.join(sorted(down)[:NAMED])}"
        counts = msgspec.structs.replace(counts, failing=frozenset(down))
        if seen == {_State.UNCHECKED}:
            why = not_checked or "nothing checks the health of targets"
            if down:
                return health(None, ConditionReason.SOME_BACKENDS_UNHEALTHY, f"{failing}; of the others {why}")
            return health(None, ConditionReason.NOT_CHECKED, why)
        summary = f"{healthy} of {total} targets are healthy" if healthy < total else "all targets are healthy"
        if down:
            return health(True, ConditionReason.SOME_BACKENDS_UNHEALTHY, f"{summary}; {failing}")
        return health(True, ConditionReason.SERVING, summary)

    def members(self, locality_of: Mapping[TargetKey, str]) -> tuple[MemberSeen, ...]:
        """Return what is seen of each locality, ordered by name.

        A target is healthy at a proxy when it is so behind all listeners there.
        """
        known = Counter[str]()
        healthy: dict[str, dict[int, int]] = {}
        for key, at in self._seen.items():
            locality = locality_of.get(key)
            if not locality or not _is_known(set(chain.from_iterable(at.values()))):
                continue
            known[locality] += 1
            counts = healthy.setdefault(locality, {})
            for proxy, seen in enumerate(zip(*at.values(), strict=False)):
                if Seen.UNHEALTHY in seen or Seen.HEALTHY in seen:
                    counts[proxy] = counts.get(proxy, 0) + (Seen.UNHEALTHY not in seen)
        return tuple(
            MemberSeen(
                name,
                max(counts.values(), default=0),
                known[name],
                sum(not count for count in counts.values()),
                len(counts),
            )
            for name, counts in sorted(healthy.items())
        )

    def _count(self, key: TargetKey, by: int) -> None:
        """Add a target to the counts as it is seen now, or take it away again."""
        if (at := self._seen.get(key)) is None:
            return
        seen = set(chain.from_iterable(at.values()))
        if _is_known(seen):
            self._known += by
            self._healthy += by * (Seen.HEALTHY in seen and Seen.UNHEALTHY not in seen)

    def _without(self) -> str:
        """Return which listeners are without a healthy target, as the first proxy sees them."""
        bad = [str(listener) for listener, states in self._states.items() if states[0] is _State.NONE]
        if len(bad) < len(self._states):
            return f"no target of {', '.join(sorted(bad))} is healthy"
        return "the only target is not healthy" if self._known == 1 else f"none of {self._known} targets is healthy"


def health_of_targets(targets: Iterable[ObservedTarget], listeners: Iterable[ListenerKey] = ()) -> Health:
    """Return the health of the targets that one load balancer reports; ``listeners`` are all that it should have."""
    views: dict[ListenerKey, dict[TargetKey, Sequence[Seen]]] = {listener: {} for listener in listeners}
    for target in targets:
        by_key = views.setdefault(target.listener, {})
        if not target.draining and target.weight:
            by_key[target.key] = (_SEEN[target.healthy],)
    return health_of(views)


def with_health(observed: Observed, listeners: Iterable[ListenerKey] = ()) -> Observed:
    """Return ``observed`` with the health that follows from its targets, when it has none of its own."""
    if observed.health is not None or observed.targets is None:
        return observed
    return msgspec.structs.replace(observed, health=health_of_targets(observed.targets, listeners))


_SEEN = {True: Seen.HEALTHY, False: Seen.UNHEALTHY, None: Seen.UNCHECKED}
#: What is seen of a listener by its best target, and of backends by the best of them: the first that applies.
_BEST = (
    (Seen.HEALTHY, _State.SERVING),
    (Seen.SILENT, _State.SILENT),
    (Seen.WAITING, _State.WAITING),
    (Seen.UNCHECKED, _State.UNCHECKED),
    (Seen.UNHEALTHY, _State.NONE),
)


def _best(seen: Sequence[Seen]) -> _State:
    return next(state for kind, state in _BEST if kind in seen)


def _best_of(states: Collection[_State]) -> _State:
    return next(state for _, state in _BEST if state in states)


def _is_known(seen: set[Seen]) -> bool:
    return Seen.UNHEALTHY in seen or (Seen.HEALTHY in seen and seen.isdisjoint((Seen.WAITING, Seen.SILENT)))


class Counted(NamedTuple):
    """The subject of counters: a load balancer, or a backend or route of an HTTP load balancer.

    ``target``: one target of them, where members share the load balancer.
    """

    load_balancer: LoadBalancerKey
    backend: str = ""
    route: str = ""
    target: TargetKey | None = None

    @property
    def whole(self) -> bool:
        """Return whether they are of the load balancer as a whole."""
        return not self.backend and not self.route and self.target is None

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
    #: Connections for which no target was found, or that none accepted; of GlobalServices and of backends without HTTP.
    failed: int = 0


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
        sum(part.failed for part in listed),
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
        grown(before.failed, now.failed),
    )


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What one process of a data plane has counted: of what differs from the last reading.

    ``problem``: why it could not be read, in a sentence; empty when it was. ``gone``: what it counts no more.
    ``grown`` is what was added since the last reading, where the reader knows better than the difference of the totals;
    None at its first reading. ``uptime_s`` is the age of the process, None where that is not known.
    """

    source: str
    totals: Mapping[Counted, Totals] = msgspec.field(default_factory=dict[Counted, Totals])
    problem: str = ""
    gone: frozenset[Counted] = frozenset()
    grown: Mapping[Counted, Totals] | None = None
    uptime_s: int | None = None


class TrafficReader(Protocol):
    """Reads the counters of data planes."""

    async def read(self) -> Sequence[Reading]:
        """Return a reading for each process that there is; one that does not answer says so in its own."""
        ...


@runtime_checkable
class ReadsTargets(Protocol):
    """A reader that reads the targets of some load balancers one by one."""

    targets_of: Callable[[], Iterable[LoadBalancerKey]]


@runtime_checkable
class CountsTraffic(Protocol):
    """A provider whose data planes count."""

    @property
    def traffic(self) -> TrafficReader:
        """Return the reader of the data planes' counters."""
        ...
