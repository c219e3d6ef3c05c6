"""Runs Drills: measures traffic before, during and after, and ends them; begins those of DrillSchedules.

    Drill, GlobalServices ──► next status ──► written ──► GlobalServices are decided again
    DrillSchedule ──► a Drill with a name that follows from its time

Each step is a write of the Drill's status, and takes effect once it is recorded. Every replica compares the recorded
end with the time of the API server, so a drill ends without its command and without a write of a hub. A hub that
starts during a phase measures the rest of it. One drill runs at a time.

The figures are counted by proxies for each target while a drill watches it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog

from fairlead.api.drill import (
    DRILL_SCHEDULES,
    DRILLS,
    Drill,
    DrilledMember,
    DrillPhase,
    DrillPhaseName,
    DrillSchedule,
    DrillScheduleStatus,
    DrillSpec,
    DrillStatus,
)
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.meta import JSONObject, ObjectKey
from fairlead.api.names import LABEL_DRILL_SCHEDULE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, NotFound
from fairlead.hub.intents.intent import Controller, IntentContext
from fairlead.hub.intents.shift import ErrorCounts
from fairlead.hub.inventory import IntentObjects, first_broken
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import remains_of
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import Overlay, replace_status, write_status
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Counted, Totals, added
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.drill import (
    ENDED,
    UNDER_WAY,
    concerned,
    due_s,
    due_time,
    left_s,
    name_of,
    next_status,
    no_other,
    refusal_of,
)
from fairlead.translate.shift import Errors, stop_reason

_log = structlog.get_logger(__name__)
#: How often errors and members that cannot serve are checked.
_LOOK_S = 1.0
#: With stopOn, a drill ends when errors have been unknown for this long.
_UNKNOWN_S = 30.0
#: The number of GlobalServices of a drill that are measured: each of their targets is counted.
_MEASURED = 64
#: How often schedules are checked.
_SCHEDULE_S = 20.0
#: The traffic of one member; of the whole GlobalService with an empty name.
_Totals = Mapping[str, Totals]


class _Measured(msgspec.Struct):
    """The traffic of one drill since its present phase began, by GlobalService.

    ``reading``: the number of the last reading. The first reading of a phase is the baseline of its figures.
    """

    phase: str = ""
    reading: int = -1
    since_s: float = 0.0
    until_s: float = 0.0
    base: dict[LoadBalancerKey, _Totals] = {}
    now: dict[LoadBalancerKey, _Totals] = {}
    #: What is watched for it, and the subjects of this phase: an endpoint that is gone has had its connections.
    watches: set[Hashable] = set()
    subjects: dict[Hashable, set[Counted]] = {}
    #: Since when the errors for stopOn are unknown; None while they are known.
    unknown_s: float | None = None


class DrillObjects:
    """The Drills and DrillSchedules of a hub."""

    def __init__(self, context: IntentContext) -> None:
        cluster = context.cluster
        self.drills: WatchCache[Drill] = WatchCache(
            cluster,
            DRILLS,
            indexes={"service": _drilled_services, "schedule": lambda drill: [drill.label(LABEL_DRILL_SCHEDULE)]},
        )
        self.schedules: WatchCache[DrillSchedule] = WatchCache(cluster, DRILL_SCHEDULES)
        #: With the writes of this hub.
        self.present: Overlay[Drill] = Overlay(self.drills)
        self.now: Callable[[], datetime] = cluster.server_clock.now

    def all(self) -> Iterable[Drill]:
        """Return all Drills, as they were written last."""
        return [newest for obj in self.drills.values() if (newest := self.present.get("", obj.metadata.name))]

    def of(self, obj: GlobalService) -> tuple[Drill | None, float | None]:
        """Return the drill that currently takes a member of ``obj`` out of service, and its remaining seconds."""
        now = self.now()
        for drill in self.present.by_index("service", name_of(obj)):
            if left := left_s(drill, now):
                return drill, left
        return None, None


def _drilled_services(drill: Drill) -> list[str]:
    return [service.name for service in drill.status.services] if drill.status.state == "Drilling" else []


class Drills:
    """All drills of one hub.

    ``targets`` returns the targets of each member of a GlobalService, ``routes`` the route backends that it serves, and
    ``judge`` evaluates the health of its members again.
    """

    def __init__(
        self,
        context: IntentContext,
        objects: IntentObjects[GlobalService],
        drills: DrillObjects,
        *,
        targets: Callable[[LoadBalancerKey], Mapping[str, frozenset[TargetKey]]],
        routes: Callable[[LoadBalancerKey], Iterable[Counted]],
        judge: Callable[[LoadBalancerKey], None],
    ) -> None:
        self._context = context
        self._objects = objects
        self._drills = drills
        self._targets = targets
        self._routes = routes
        self._judge = judge
        self._errors = ErrorCounts(context, routes, since="beginning of the drill", field="spec.stopOn")
        self._queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)
        self._schedule_queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)
        self._measured: dict[str, _Measured] = {}

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers of Drills and DrillSchedules."""
        return (
            Controller("drill", self._queue, self.reconcile),
            Controller("drillschedule", self._schedule_queue, self.begin_scheduled),
        )

    def watch(self) -> None:
        """Reconcile GlobalServices when a drill takes a member out of service, or returns it."""
        self._drills.drills.on_change(self._changed)
        self._drills.schedules.on_change(self._schedule_changed)

    def lead(self) -> None:
        """Continue all drills."""
        for drill in self._drills.drills.values():
            self._queue.add(drill.metadata.name)
        for schedule in self._drills.schedules.values():
            self._schedule_queue.add(schedule.metadata.name)

    def _changed(self, old: Drill | None, new: Drill | None) -> None:
        version = new or old
        if version is None:
            return
        self._queue.add(version.metadata.name)
        before, after = (_in_force(drill) for drill in (old, new))
        if before != after:
            self._wake(version, {*before, *after})

    def _schedule_changed(self, _old: DrillSchedule | None, new: DrillSchedule | None) -> None:
        if new is not None:
            self._schedule_queue.add(new.metadata.name)

    def _wake(self, drill: Drill, names: Iterable[str]) -> None:
        keys = [LoadBalancerKey(GLOBAL_SERVICES.kind, *name.split("/")) for name in names]
        self._context.inventory.wake(keys, f"drill {drill.metadata.name} of member {drill.spec.member}")
        for key in keys:
            self._judge(key)

    # --- one drill ----------------------------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> float | None:
        """Take the next step of a drill; return the seconds until it is due again, None at the end."""
        drill = self._drills.present.get("", name)
        decides = drill is not None and self._context.inventory.decides_in(drill.spec.region)
        if drill is None or drill.deleting or drill.status.state in ENDED or not decides:
            self._forget(name)
            return None
        if not self._context.leading():
            self._forget(name)
            return None
        status, measured = drill.status, self._measured.get(name)
        begins = measured is not None and measured.phase == status.state and not measured.base
        if status.state in UNDER_WAY and (begins or due_s(drill, self._drills.now()) <= 0):
            # The figures of a phase begin and end with a reading of their own.
            await self._context.watched.read()
        now, services = self._drills.now(), self._services(drill)
        if status.state in UNDER_WAY:
            self._measure(drill, services)
        refusal = ""
        if status.state in {"", "Before"}:
            refusal = (
                self._unread(drill.spec)
                or refusal_of(
                    drill,
                    services,
                    tenants=self._context.inventory.tenants.values(),
                    drills=self._drills.all(),
                    schedules=self._drills.schedules.values(),
                    now=now,
                )
                or self._unable(drill, services)
            )
            if status.state == "Before" and not refusal:
                # The traffic is checked against stopOn before the member is taken out.
                refusal = next(filter(None, self._errors_of(drill, services, status.starts_at)), "")
        after = next_status(
            drill,
            now=now,
            refusal=refusal,
            stop=self._why_stop(drill, services) if status.state == "Drilling" else "",
            services=[name_of(obj) for obj in services],
            problem=self._context.watched.problem(),
        )
        if after.state != status.state:
            drill = await self._write(drill, self._with_figures(drill, after))
            self._announce(drill, services)
            if drill.status.state in ENDED:
                self._forget(name)
                return None
            self._measure(drill, services)
        return max(0.05, min(_LOOK_S, due_s(drill, self._drills.now())))

    def _services(self, drill: Drill) -> list[GlobalService]:
        """Return the GlobalServices of a drill: the recorded ones, or before it begins those that it would affect."""
        served = [obj for obj in self._objects.served() if self._context.inventory.decides(self._objects.key(obj))]
        if drill.status.state not in UNDER_WAY:
            return concerned(drill.spec, served)
        names = {service.name for service in drill.status.services}
        members = (obj for obj in served if any(entry.tenant == drill.spec.member for entry in obj.spec.members))
        return sorted((obj for obj in members if name_of(obj) in names), key=name_of)

    def _unread(self, spec: DrillSpec) -> str:
        """Return the first unreadable object that may forbid a drill; empty if there is none."""
        tenants, drills, schedules = self._context.inventory.tenants, self._drills.drills, self._drills.schedules

        def may_run(key: ObjectKey, why: str) -> bool:
            remains = remains_of(why, Drill)
            newest = remains.obj if remains.has("status.state") else drills.get(*key)
            return newest is None or newest.status.state not in ENDED

        def may_block(why: str) -> bool:
            remains = remains_of(why, DrillSchedule)
            drilled = remains.obj.spec.drill if remains.obj is not None and remains.has("spec.drill.member") else None
            return drilled is None or drilled.member == spec.member

        unread: tuple[tuple[AnyCache, list[ObjectKey]], ...] = (
            (tenants, [key for key in tenants.broken if key.name in {"", spec.member}]),
            (drills, [key for key, why in drills.broken.items() if may_run(key, why)]),
            (schedules, [key for key, why in schedules.broken.items() if may_block(why)]),
        )
        problems = (
            f"{cache.resource.full_name}: {cache.problem}"
            if cache.problem
            else first_broken(cache.resource.kind, cache, sorted(keys))
            for cache, keys in unread
        )
        return next(filter(None, problems), "")

    def _unable(self, drill: Drill, services: Iterable[GlobalService]) -> str:
        """Return the feature that a drill needs and a GlobalService's class lacks; empty if there is none."""
        for obj in services:
            capabilities = self._context.providers.capabilities.get(obj.status.serving_provider)
            subject = f"GlobalService {name_of(obj)}"
            if drill.spec.mode == "Dark" and capabilities is not None and not capabilities.localities:
                return f"{subject}: spec.mode: its class cannot report endpoints as unhealthy; use mode Drain"
            if problem := self._errors.unable(obj, drill.spec.stop_on):
                return f"{subject}: {problem}"
        return ""

    def _why_stop(self, drill: Drill, services: Sequence[GlobalService]) -> str:
        """Return why a drill must end early; empty if there is no reason."""
        spec, measured = drill.spec, self._measured[drill.metadata.name]
        if spec.stop:
            return "stopped by spec.stop"
        if not services:
            return f"no GlobalService of the drill lists member {spec.member} any longer"
        if problem := next(filter(None, (no_other(obj, spec.member) for obj in services)), ""):
            return problem
        problem, unknown = self._errors_of(drill, services, drill.status.ends_at)
        if problem:
            return problem
        now_s = self._context.clock.monotonic()
        measured.unknown_s = None if not unknown else now_s if measured.unknown_s is None else measured.unknown_s
        return unknown if measured.unknown_s is not None and now_s - measured.unknown_s >= _UNKNOWN_S else ""

    def _errors_of(self, drill: Drill, services: Iterable[GlobalService], moment: str) -> tuple[str, str]:
        """Return the errors since ``moment`` that exceed stopOn, and why others are unknown; empty for none."""
        name, stop_on = drill.metadata.name, drill.spec.stop_on
        unknown = ""
        for obj in services:
            watch = (name, self._objects.key(obj), "errors of stopOn")
            self._measured[name].watches.add(watch)
            errors, waits = self._errors.errors(watch, obj, stop_on, moment)
            if problem := stop_reason(stop_on, errors or Errors(), subject="the drill began", field="spec.stopOn"):
                return f"GlobalService {name_of(obj)}: {problem}", ""
            if waits:
                unknown = f"GlobalService {name_of(obj)}: {waits}"
        return "", unknown

    def _announce(self, drill: Drill, services: Sequence[GlobalService]) -> None:
        """Report changes in the log, as Events, and to the GlobalServices."""
        status, spec = drill.status, drill.spec
        _log.info("drill", drill=drill.metadata.name, member=spec.member, state=status.state, message=status.message)
        if status.state in {"Drilling", "After"}:
            self._wake(drill, (service.name for service in status.services))
        reason = _REASONS.get(status.state)
        if reason is None:
            return
        text = f"drill {drill.metadata.name} of member {spec.member} ({spec.mode})"
        if reason is ConditionReason.DRILL_STARTED:
            text += f" is under way until {status.ends_at}"
        elif status.message:
            text += f": {status.message}"
        warning = reason not in {ConditionReason.DRILL_STARTED, ConditionReason.DRILL_PASSED}
        events = self._context.events
        events.emit_about(DRILLS, drill, warning=warning, reason=reason, message=text)
        for obj in services[:_MEASURED] if reason is not ConditionReason.DRILL_REFUSED else ():
            events.emit_about(GLOBAL_SERVICES, obj, warning=warning, reason=reason, message=text)

    async def _write(self, drill: Drill, status: DrillStatus) -> Drill:
        status = msgspec.structs.replace(status, observed_generation=drill.metadata.generation)
        check_leads(self._context.leading, f"Drill {drill.metadata.name}")
        try:
            # Only on top of the version that it is based on: a hub that lags must not restart the time of a drill.
            answer = await replace_status(self._context.cluster, DRILLS, drill, status, manager=MANAGER_HUB)
        except NotFound:
            return msgspec.structs.replace(drill, status=status)  # the watch is about to show it
        return self._drills.present.written(answer, before=drill)

    # --- figures ------------------------------------------------------------------------------------------------------

    def _measure(self, drill: Drill, services: Iterable[GlobalService]) -> None:
        """Count the traffic of the present phase until now."""
        name, watched = drill.metadata.name, self._context.watched
        measured = self._measured.setdefault(name, _Measured())
        if begins := measured.phase != drill.status.state:
            measured.phase, measured.base, measured.now, measured.unknown_s = drill.status.state, {}, {}, None
            measured.subjects = {}
            for watch in measured.watches:
                watched.drop_times(watch)
        elif measured.reading == watched.readings:
            watched.ask()
            return
        measured.reading = watched.readings
        for obj in list(services)[:_MEASURED]:
            key = self._objects.key(obj)
            whole = {Counted(key), *self._routes(key)}
            parts = {"": whole} | {
                member: {subject._replace(target=target) for subject in whole for target in targets}
                for member, targets in self._targets(key).items()
            }
            totals: dict[str, Totals] = {}
            for part, subjects in parts.items():
                watch = (name, key, part)
                measured.watches.add(watch)
                measured.subjects.setdefault(watch, set()).update(subjects)
                if (counted := watched.of(watch, measured.subjects[watch])) is not None:
                    totals[part] = counted
            # The last reading counted traffic before this phase.
            if begins or len(totals) < len(parts):
                continue
            measured.until_s = self._context.clock.monotonic()
            if not measured.base:
                measured.since_s = measured.until_s
            measured.base.setdefault(key, totals)
            measured.now[key] = totals

    def _with_figures(self, drill: Drill, status: DrillStatus) -> DrillStatus:
        """Return ``status`` with the figures of the phase that has ended."""
        measured, phase = self._measured.get(drill.metadata.name), _phase(drill.status.state)
        if measured is None or phase is None or measured.phase != phase:
            return status
        seconds = round(measured.until_s - measured.since_s)
        figures = {
            f"{key.namespace}/{key.name}": _figures(phase, seconds, measured.base[key], totals)
            for key, totals in measured.now.items()
        }
        services = tuple(
            msgspec.structs.replace(service, phases=(*service.phases, figures[service.name]))
            if service.name in figures
            else service
            for service in status.services
        )
        return msgspec.structs.replace(status, services=services)

    def _forget(self, name: str) -> None:
        """Stop watching counters for a drill."""
        measured = self._measured.pop(name, None)
        for watch in measured.watches if measured is not None else ():
            self._errors.forget(watch)

    # --- schedules ----------------------------------------------------------------------------------------------------

    async def begin_scheduled(self, name: str) -> float | None:
        """Begin the drill of a schedule when it is due; return the seconds until the next look, None without one."""
        schedule = self._drills.schedules.get("", name)
        if schedule is None or schedule.deleting or not self._context.leading():
            return None
        spec, now = schedule.spec, self._drills.now()
        if not self._context.inventory.decides_in(spec.drill.region if spec.drill is not None else ""):
            return None
        message = "" if spec.drill is not None or not spec.schedule else "spec.drill: a schedule needs a drill"
        try:
            due, next_time = due_time(schedule, now)
        except ValueError as error:
            due, next_time, message = None, None, str(error)
        status = msgspec.structs.replace(
            schedule.status,
            next_schedule_time=wire_time(next_time) if next_time and not spec.suspend and not message else "",
            message=message,
            observed_generation=schedule.metadata.generation,
        )
        if due is not None and spec.drill is not None and not spec.suspend:
            drill = f"{name}-{due:%Y%m%d%H%M}"
            body: JSONObject = {
                "metadata": {"name": drill, "labels": {LABEL_DRILL_SCHEDULE: name}},
                "spec": msgspec.to_builtins(spec.drill),
            }
            check_leads(self._context.leading, f"DrillSchedule {name}")
            with suppress(AlreadyExists):  # by a hub that ended before it could say so
                await self._context.cluster.create(DRILLS, body)
            status = msgspec.structs.replace(status, last_schedule_time=wire_time(due), last_drill=drill)
        await self._write_schedule(schedule, status)
        await self._prune(name, spec.history_limit)
        return _SCHEDULE_S if spec.schedule and not message and not spec.suspend else None

    async def _write_schedule(self, schedule: DrillSchedule, status: DrillScheduleStatus) -> None:
        try:
            await write_status(
                self._context.cluster, DRILL_SCHEDULES, schedule, schedule.status, status, manager=MANAGER_HUB
            )
        except NotFound:
            return  # the watch is about to show it

    async def _prune(self, schedule: str, limit: int) -> None:
        """Delete the oldest ended drills of a schedule that has more than ``limit``."""
        ended = [
            drill
            for drill in self._drills.drills.by_index("schedule", schedule)
            if drill.status.state in ENDED and not drill.deleting
        ]
        ended.sort(key=lambda drill: drill.metadata.name)
        for drill in ended[: max(0, len(ended) - limit)]:
            await self._context.cluster.delete(DRILLS, "", drill.metadata.name, uid=drill.metadata.uid)


_REASONS = {
    "Drilling": ConditionReason.DRILL_STARTED,
    "Passed": ConditionReason.DRILL_PASSED,
    "Failed": ConditionReason.DRILL_FAILED,
    "Inconclusive": ConditionReason.DRILL_INCONCLUSIVE,
    "Refused": ConditionReason.DRILL_REFUSED,
}


def _in_force(drill: Drill | None) -> list[str]:
    """Return the GlobalServices that a drill may take a member out of."""
    if drill is None or drill.deleting or drill.spec.stop:
        return []
    return _drilled_services(drill)


def _phase(state: str) -> DrillPhaseName | None:
    match state:
        case "Before" | "Drilling" | "After":
            return state
        case _:
            return None


def _figures(phase: DrillPhaseName, seconds: int, base: _Totals, now: _Totals) -> DrillPhase:
    grown = {part: added(base.get(part, Totals()), totals) for part, totals in now.items()}
    whole = grown.pop("")
    members = tuple(
        DrilledMember(
            tenant=name,
            connections=totals.connections,
            requests=sum(totals.requests),
            errors=totals.requests[4] + totals.failed,
            p99=_time(totals),
        )
        for name, totals in sorted(grown.items())
    )
    return DrillPhase(
        phase,
        seconds,
        connections=whole.connections,
        requests=sum(whole.requests),
        errors=whole.requests[4] + whole.failed,
        p99=_time(whole),
        members=members,
    )


def _time(totals: Totals) -> str:
    return f"{totals.p99_ms:.1f}ms" if totals.p99_ms is not None else ""
