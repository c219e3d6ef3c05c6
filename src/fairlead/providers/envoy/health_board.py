"""The health of load balancers as the proxies see it, and the stream on which each proxy reports it (HDS).

In: the frontends, the reports of each proxy as raw bytes, the time. Out: ``Health`` of a load balancer, specifiers to
send, and a call of ``on_change`` with the names of clusters whose health looks different. No input or output:
``server`` carries the bytes. A report has every target, so it is split, not decoded: a cluster whose bytes are those of
the last report costs one comparison.

* A specifier has everything, too. The next one waits for a report on the last, so changes meanwhile coalesce. Envoy
  reads it in the thread that takes over configuration, so it waits longer the more targets there are.
* A proxy reports whether or not anything has changed. One that has stopped reporting hangs, or is cut off; its last
  report says nothing about now.
* Envoy reports a new target as healthy until its first check has failed. The board waits until that check has ended.
* A proxy with an older bootstrap opens no stream: what only such proxies serve is not checked, and shown so.

Never: removes a target that is unhealthy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog
from msgspec.structs import replace

from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Health, Seen
from fairlead.providers.envoy.clusters import (
    ClusterCheck,
    GroupChecks,
    TargetPort,
    check_of,
    is_checked,
    specifier_bytes,
)
from fairlead.providers.envoy.frontends import EnvoyFrontend, JudgedHealth
from fairlead.providers.envoy.resources import Schema, fields_of, load_balancer_of

_OLDER = "the proxies were started by an older version and do not report health; restart them"
_NO_BACKEND = "no route has a backend, so there is nothing to check"
_NOT_CHECKED = "health checks are off, or its targets are UDP or DNS names, which the proxies do not check for us"

_log = structlog.get_logger(__name__)


Place = tuple[ListenerKey, TargetKey]
#: What one proxy sees: the name of a cluster and one of its targets -> what is seen of it.
See = Callable[[str, TargetKey], Seen]


class HealthBoard:
    """The checks of all groups, and what their proxies report."""

    def __init__(
        self,
        *,
        schema: Schema,
        find: Callable[[str], tuple[FrontendSpec, ListenerKey, TargetPort] | None] = lambda _name: None,
        groups_of: Callable[[str], Sequence[str] | None] = lambda _name: None,
        published: Callable[[], bool] = lambda: True,
        on_change: Callable[[Iterable[str]], None] = lambda _names: None,
    ) -> None:
        #: What proxies see that report to other replicas of the hub, by group.
        self.elsewhere: Callable[[str], Sequence[See]] = lambda _group: ()
        self._schema = schema
        self._find = find
        #: The groups that have a cluster; None: whichever asks.
        self._groups_of = groups_of
        self._published = published
        self._on_change = on_change
        self._groups: dict[str, GroupChecks] = {}
        self._streams: dict[str, list[HealthStream]] = {}
        #: The clusters of each load balancer that proxies may see otherwise than when its health was asked for last.
        self._moved: dict[LoadBalancerKey, set[str]] = {}

    def touch(self, group: str, names: Iterable[str]) -> None:
        """Have these clusters checked, and judged, as they are now."""
        changed = frozenset(names)
        self._checks(group).touch(changed)
        self._move(changed)

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that is gone."""
        self._moved.pop(key, None)

    @property
    def streams(self) -> Mapping[str, Sequence[HealthStream]]:
        """Return the streams of our own proxies by group."""
        return self._streams

    def targets(self, group: str, name: str) -> frozenset[TargetKey]:
        """Return the targets of a cluster that are checked now."""
        check = self._checks(group).current().get(name)
        return check.targets if check is not None else frozenset()

    def publish(self) -> None:
        """Wake the streams: all checks are now known."""
        for streams in self._streams.values():
            for stream in streams:
                stream.wake()

    def open(self, group: str, node_id: str) -> HealthStream:
        """Start asking a proxy."""
        stream = HealthStream(checks=self._checks(group), schema=self._schema, node_id=node_id)
        self._streams.setdefault(group, []).append(stream)
        _log.info("proxy reports health", proxy=node_id, group=group)
        return stream

    def close(self, group: str, stream: HealthStream) -> None:
        """Forget a proxy and its reports."""
        self._streams[group].remove(stream)
        self._on_change(stream.close())

    def report(self, group: str, stream: HealthStream, raw: bytes, *, now: float) -> None:
        """Process a proxy's report; raise ``ValueError`` for an unreadable one."""
        del group
        if changed := stream.on_report(raw, now=now):
            self._on_change(changed)

    def fall_silent(self, stream: HealthStream) -> None:
        """Note that a proxy has stopped reporting: its view is no longer known."""
        _log.warning("proxy has stopped to report health", proxy=stream.node_id)
        self._on_change(stream.fall_silent())

    def health(self, frontend: EnvoyFrontend, *, expected: bool) -> Health:
        """Return what the proxies see of one load balancer; ``expected``: at least one of them will report.

        Only listeners with other targets, or with a changed report, since the last call are judged again.
        """
        streams, elsewhere = self._of(frontend)
        judged = self._judged(frontend, streams, expected=expected or bool(elsewhere))
        if elsewhere:
            judged.basis = None  # what others report is not compared
        silent = (Seen.WAITING,) if expected else (Seen.UNCHECKED,)
        proxies = [*(stream.seen for stream in streams), *elsewhere]
        for key in judged.take_moved(frontend):
            port = frontend.ports[key]
            checked = is_checked(frontend.spec, key, port)
            unchecked = (Seen.UNCHECKED,) * max(1, len(proxies))
            judged.put(
                key,
                {
                    target.key: (tuple(see(port.name, target.key) for see in proxies) or silent)
                    if checked
                    else unchecked
                    for target in port.targets.targets()
                    if not target.draining and target.weight
                },
                checked=checked,
            )
        if not judged.listeners:
            return Health(message=_NO_BACKEND)
        older = bool(judged.checked) and not proxies and not expected
        health = judged.tally.health(not_checked=_OLDER if older else _NOT_CHECKED)
        return _with_members(health, frontend) if frontend.spec.shares is not None else health

    def _judged(self, frontend: EnvoyFrontend, streams: Sequence[HealthStream], *, expected: bool) -> JudgedHealth:
        """Return what is known of one load balancer, with the listeners whose view may be another one by now."""
        for stream in streams:
            self._move(stream.take_moved())
        names = self._moved.pop(frontend.spec.key, ())
        basis = (
            frontend.serving,
            frontend.spec.health_check is None,
            tuple((stream, stream.silent) for stream in streams),
            expected,
        )
        if frontend.judged.basis != basis:
            frontend.judged = JudgedHealth(basis=basis)
        frontend.judged.moved.update(place[1] for name in names if (place := self._find(name)) is not None)
        return frontend.judged

    def _move(self, names: Iterable[str]) -> None:
        """Note that the proxies' view of these clusters may have changed, if a load balancer has them."""
        for name in names:
            if (key := load_balancer_of(name)) is not None and self._find(name) is not None:
                self._moved.setdefault(key, set()).add(name)

    def seen_of(self, frontend: EnvoyFrontend, listener: ListenerKey, target: TargetKey) -> Seen:
        """Return what the proxies that report see of one target; healthy when each of them sees it so.

        WAITING also for a target that is not registered, or drains: no proxy has it to serve it.
        """
        port = frontend.ports.get(listener)
        if port is None or all(registered.draining for registered in port.targets.among((target,))):
            return Seen.WAITING
        if not is_checked(frontend.spec, listener, port):
            return Seen.UNCHECKED
        own, others = self._of(frontend)
        sees = (*(stream.seen for stream in own), *others)
        views = {see(port.name, target) for see in sees} - {Seen.SILENT}
        return next((seen for seen in (Seen.UNHEALTHY, Seen.WAITING, Seen.HEALTHY) if seen in views), Seen.SILENT)

    def unhealthy(self, frontend: EnvoyFrontend) -> dict[Place, float | None]:
        """Return the targets of one load balancer that a proxy sees unhealthy, and since when.

        None for one that only proxies of other replicas see so, which do not report that.
        """
        own, others = self._of(frontend)
        seen: dict[Place, float | None] = {}
        for listener, port in frontend.ports.items():
            if not is_checked(frontend.spec, listener, port):
                continue
            since: dict[TargetKey, float] = {}
            for stream in own:
                for key, at_s in stream.unhealthy_since(port.name).items():
                    since[key] = min(at_s, since.get(key, at_s))
            for target in port.targets.targets():
                if target.key in since or any(see(port.name, target.key) is Seen.UNHEALTHY for see in others):
                    seen[listener, target.key] = since.get(target.key)
        return seen

    def _of(self, frontend: EnvoyFrontend) -> tuple[Sequence[HealthStream], Sequence[See]]:
        """Return the streams of the proxies of one load balancer, and what proxies of other replicas see."""
        streams = [stream for group in frontend.groups for stream in self._streams.get(group, ())]
        return streams, [see for group in frontend.groups for see in self.elsewhere(group)]

    def _checks(self, group: str) -> GroupChecks:
        checks = self._groups.get(group)
        if checks is None:
            checks = self._groups[group] = GroupChecks(partial(self._check, group), published=self._published)
        return checks

    def _check(self, group: str, name: str, pace: int) -> ClusterCheck | None:
        place, groups = self._find(name), self._groups_of(name)
        if groups is not None:
            if group not in groups:
                return None
            for other in groups:
                if other != group and (encoded := self._checks(other).encoded(name, pace)) is not None:
                    return encoded
        return check_of(self._schema, *place, pace) if place is not None else None


def _with_members(health: Health, frontend: EnvoyFrontend) -> Health:
    """Return ``health`` with the counts of each member that shares the load balancer."""
    locality_of = {target.key: target.locality for port in frontend.ports.values() for target in port.targets.targets()}
    return replace(health, members=frontend.judged.tally.members(locality_of))


#: Between two reports while new targets wait for their first check; for every further 1,500 targets as much again, up
#: to the longest: a report has all targets, and costs Envoy's main thread more than their checks.
REPORT_S = 0.5
_LONGEST_REPORT_S = 2.0
_TARGETS_PER_STEP = 1_500
#: While nothing changes: Envoy needs about 7 us for each target of a report, less than a hundredth of its time.
_QUIET_PER_TARGET_S, _LONGEST_QUIET_S = 1e-3, 5.0
#: How long after new targets reports come as often as the first results need.
_QUICK_S = 30.0
#: A proxy takes its time to begin the checks of many new targets, and the specifier some on its way.
_ON_ITS_WAY_S = 0.25
_FIRST_CHECKS_PER_S = 4_000
#: Envoy's main thread takes about 10 us for each target of a specifier (100 ms for 10,000), a thirtieth of its time.
_PAUSE_PER_TARGET_S = 300e-6
_LONGEST_PAUSE_S = 15.0

#: A proxy that misses so many reports is silent; not before the shortest time, since taking over many load balancers
#: at once keeps Envoy from reporting.
_MISSED = 3
_SHORTEST_SILENCE_S = 10.0

_RESPONSE, _CLUSTERS = 2, 2


class HealthStream:
    """The health of one group as one proxy sees it."""

    def __init__(self, *, checks: GroupChecks, schema: Schema, node_id: str) -> None:
        self.node_id = node_id
        self._checks = checks
        self._schema = schema
        self._dirty: set[str] = set(checks.current())
        self._may_send = True
        self._next_s = 0.0
        #: When reports may come less often again; infinite once they do.
        self._quick_until_s = math.inf
        self._report_s = REPORT_S
        self._asked: dict[str, frozenset[TargetKey]] = {}
        #: Clusters with targets whose first check may not have ended, and when it has.
        self._fresh: dict[str, tuple[float, frozenset[TargetKey]]] = {}
        self._report = b""
        self._raw: dict[str, bytes] = {}
        self._seen: dict[str, Mapping[TargetKey, bool]] = {}
        #: Since when targets are reported unhealthy; clusters without such a one have no entry.
        self._unhealthy: dict[str, dict[TargetKey, float]] = {}
        #: When it reported last; None before the first time, when it may still be busy with its configuration.
        self._heard_s: float | None = None
        #: Whether the proxy has stopped reporting.
        self.silent = False
        #: Grows with whatever ``seen`` may answer differently after.
        self.revision = 0
        #: The clusters whose view may have changed since ``take_moved``.
        self._moved: set[str] = set()
        self.wake = lambda: None
        checks.readers.append(self)

    def close(self) -> frozenset[str]:
        """Forget the stream; returns the names of clusters that it has reported."""
        self._checks.readers.remove(self)
        return frozenset(self._raw)

    def take_moved(self) -> set[str]:
        """Return the clusters whose view may have changed since the last call; not that it has fallen silent."""
        moved, self._moved = self._moved, set()
        return moved

    def mark(self, names: Iterable[str]) -> None:
        """Include these names in the next specifier as they are then."""
        self._dirty.update(names)
        self.wake()

    def pump(self, *, now: float) -> bytes | None:
        """Return the next specifier; None if nothing has changed or the last one has not been answered."""
        if not self._is_due(now) or not self._may_send or not self._checks.published():
            return None
        checks = self._checks.current()
        dirty, self._dirty = self._dirty, set()
        if not checks and not self._asked:
            return None
        new = {name: check.targets - self._asked.get(name, frozenset()) for name, check in _of(checks, dirty)}
        allowance_s = _ON_ITS_WAY_S + sum(map(len, new.values())) / _FIRST_CHECKS_PER_S
        for name in dirty:
            self._ask(name, checks.get(name), new.get(name, frozenset()), now + allowance_s)
        self._moved |= dirty
        self._may_send = False
        self._next_s = now + min(_LONGEST_PAUSE_S, self._checks.targets * _PAUSE_PER_TARGET_S)
        self.revision += bool(dirty)
        # Decide how often the proxy reports after the next specifier; ``quick``: it has new targets.
        quick = any(new.values())
        quick_s, quiet_s = (report_interval_s(self._checks.targets, quick=hurry) for hurry in (True, False))
        if quick:
            self._quick_until_s = now + _QUICK_S
        is_quick = now < self._quick_until_s < math.inf
        if not is_quick or quick_s == quiet_s:
            self._quick_until_s = math.inf
        self._report_s = quick_s if is_quick else quiet_s
        return specifier_bytes(self._schema, checks.values(), interval_s=self._report_s)

    def _is_due(self, now: float) -> bool:
        """Return whether there is anything to ask for that the last specifier does not."""
        return bool(self._dirty) or self._quick_until_s <= now

    def is_overdue(self, *, now: float, acknowledged_s: float = 0.0) -> bool:
        """Return whether a report is overdue; ``acknowledged_s`` is when the proxy last accepted configuration."""
        if self._heard_s is None or self.silent or not self._asked:
            return False
        longest_s = max(_SHORTEST_SILENCE_S, _MISSED * self._report_s)
        return now - max(self._heard_s, acknowledged_s) >= longest_s

    def hear(self, *, now: float) -> None:
        """Restart the proxy's silence timer, because its last report has not been read yet."""
        if self._heard_s is not None:
            self._heard_s = now

    def fall_silent(self) -> set[str]:
        """Treat the proxy's view as unknown until it reports again; return the names of all clusters that it checks."""
        self.silent = True
        self.revision += 1
        return set(self._asked)

    def on_report(self, raw: bytes, *, now: float) -> set[str]:
        """Take in a report; returns the names of clusters with a changed view.

        Raises:
            ValueError: it is not a report.
        """
        self._heard_s = now
        changed = {name for name, (until, _) in self._fresh.items() if until <= now}
        for name in changed:
            del self._fresh[name]
        if raw != self._report:
            changed |= self._take(raw, now)
            self._report = raw
        if self.silent:
            self.silent = False
            changed |= self._asked.keys()
            self.wake()
        self._may_send = now >= self._next_s
        self.revision += bool(changed)
        self._moved |= changed
        if self._is_due(now) and self._may_send:
            self.wake()
        return changed

    def summary(self) -> dict[str, tuple[frozenset[TargetKey], list[TargetKey], list[TargetKey]]]:
        """Return for each cluster that is checked its targets, those seen unhealthy, and those that are waited for."""
        if self.silent:
            return {name: (targets, [], list(targets)) for name, targets in self._asked.items()}
        return {name: (targets, *self._exceptions(name, targets)) for name, targets in self._asked.items()}

    def _exceptions(self, name: str, targets: frozenset[TargetKey]) -> tuple[list[TargetKey], list[TargetKey]]:
        seen = {target: self.seen(name, target) for target in targets}
        return (
            [target for target, state in seen.items() if state is Seen.UNHEALTHY],
            [target for target, state in seen.items() if state is Seen.WAITING],
        )

    def seen(self, name: str, target: TargetKey) -> Seen:
        """Return the proxy's view of a target of a checked cluster."""
        if self.silent:
            return Seen.SILENT
        healthy = self._seen.get(name, {}).get(target)
        if healthy is None or target not in self._asked.get(name, ()):
            return Seen.WAITING
        if not healthy:
            return Seen.UNHEALTHY
        fresh = self._fresh.get(name)
        return Seen.WAITING if fresh is not None and target in fresh[1] else Seen.HEALTHY

    def unhealthy_since(self, name: str) -> Mapping[TargetKey, float]:
        """Return the targets of a cluster that are reported unhealthy, with the time of the first such report."""
        return self._unhealthy.get(name, {})

    def _ask(self, name: str, check: ClusterCheck | None, new: frozenset[TargetKey], sent_s: float) -> None:
        if check is None:
            for known in (self._asked, self._fresh, self._raw, self._seen, self._unhealthy):
                known.pop(name, None)
            return
        self._asked[name] = check.targets
        if new:
            _, before = self._fresh.get(name, (0.0, frozenset[TargetKey]()))
            self._fresh[name] = sent_s + check.first_check_s, before | new

    def _take(self, raw: bytes, now: float) -> set[str]:
        changed: set[str] = set()
        for response in fields_of(raw, _RESPONSE):
            for cluster in fields_of(response, _CLUSTERS):
                name = next((bytes(value).decode() for value in fields_of(cluster, 1)), "")
                if name not in self._asked or self._raw.get(name) == cluster:
                    continue
                self._raw[name] = cluster
                shown = self._shown(name)
                seen = self._seen[name] = self._schema.read_cluster_health(cluster)
                before = self._unhealthy.pop(name, {})
                if down := {target: before.get(target, now) for target, healthy in seen.items() if not healthy}:
                    self._unhealthy[name] = down
                if self._shown(name) != shown:
                    changed.add(name)
        return changed

    def _shown(self, name: str) -> dict[TargetKey, bool]:
        """Return the targets of a cluster that ``seen`` shows as healthy or unhealthy."""
        _, fresh = self._fresh.get(name, (0.0, frozenset[TargetKey]()))
        asked, seen = self._asked[name], self._seen.get(name, {})
        return {key: healthy for key, healthy in seen.items() if key in asked and not (healthy and key in fresh)}


def report_interval_s(targets: int, *, quick: bool) -> float:
    """Return how often a proxy is to report so many targets; ``quick``: some of them are new."""
    quick_s = min(_LONGEST_REPORT_S, REPORT_S * (1 + targets // _TARGETS_PER_STEP))
    return quick_s if quick else max(quick_s, min(_LONGEST_QUIET_S, targets * _QUIET_PER_TARGET_S))


def _of(checks: Mapping[str, ClusterCheck], names: Iterable[str]) -> Iterable[tuple[str, ClusterCheck]]:
    return ((name, check) for name in names if (check := checks.get(name)) is not None)
