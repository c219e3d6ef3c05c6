"""A drill, step by step: a member of GlobalServices is out of service for a time, and the traffic is measured.

    state      the member         until
    ---------  -----------------  -----------------------------------------------------------------------------
    ""         serves             the hub sees the Drill: Before; Refused if that is not possible, or too late
    Before     serves             startsAt: Drilling; Refused as above
    Drilling   is out of service  endsAt; earlier by spec.stop, spec.stopOn, or when no other member can serve
    After      serves             as long as Before: Passed; Failed if it ended early; Inconclusive if no traffic
                                   was measured while the member was out of service

The times are recorded before they apply, and each replica compares them with its clock, so a hub that dies at any step
leaves nothing to undo. A member is out of service only while a Drill says so, and its end has not passed.

In: the Drill, GlobalServices, other Drills, schedules. Out: the next status, or why there is no drill. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from fairlead.api.drill import Drill, DrilledService, DrillSchedule, DrillSpec, DrillState, DrillStatus
from fairlead.api.globalservice import GlobalMember, GlobalMemberStatus, GlobalService, GlobalServiceSpec
from fairlead.api.tenant import Tenant
from fairlead.api.times import parsed_time, seconds_from_duration, wire_time
from fairlead.translate.global_service import share_problem, with_served_tiers
from fairlead.translate.shift import in_words, shifted

#: Maximum time for which traffic is measured before and after, in seconds.
_MEASURED_S = 30.0
_SHORTEST_S, _LONGEST_S = 5.0, 86_400.0
#: States of a member that gets connections, and of one that would.
SERVING = frozenset({"Serving", "UnreachableFromSomeProxies"})
_ABLE = SERVING | {"Standby"}
UNDER_WAY = frozenset({"Before", "Drilling", "After"})
ENDED = frozenset({"Passed", "Failed", "Inconclusive", "Refused"})
#: How late a drill may begin if no hub ran at its time, in seconds.
_LATE = timedelta(minutes=10)


def measured_s(spec: DrillSpec) -> float:
    """Return how long traffic is measured before and after."""
    return min(_MEASURED_S, seconds_from_duration(spec.duration))


def left_s(drill: Drill, now: datetime) -> float:
    """Return the seconds for which the member stays out of service; 0: it serves."""
    ends = parsed_time(drill.status.ends_at)
    if drill.status.state != "Drilling" or drill.deleting or drill.spec.stop or ends is None:
        return 0.0
    return max(0.0, (ends - now).total_seconds())


def due_s(drill: Drill, now: datetime) -> float:
    """Return the seconds until the state changes by time alone; 0 if it is due."""
    status = drill.status
    text = {"Before": status.starts_at, "Drilling": status.ends_at, "After": status.ended_at}.get(status.state, "")
    moment = parsed_time(text)
    if moment is None:
        return 0.0
    if status.state == "After":
        moment += timedelta(seconds=measured_s(drill.spec))
    return max(0.0, (moment - now).total_seconds())


def next_status(
    drill: Drill, *, now: datetime, refusal: str, stop: str, services: Collection[str], problem: str = ""
) -> DrillStatus:
    """Return the next status.

    ``refusal``: why the drill must not begin; ``stop``: why it must not continue; empty for no reason. ``services`` are
    the GlobalServices that it concerns. ``problem``: why proxies do not report figures, empty for no reason.
    """
    status, spec = drill.status, drill.spec
    state, due = status.state, due_s(drill, now) <= 0

    def replaced(**fields: object) -> DrillStatus:
        return replace(status, **fields)

    if state == "" or (state == "Before" and (due or spec.stop)):
        planned = parsed_time(status.starts_at or drill.metadata.creation_timestamp)
        if planned is not None and now - planned > _LATE:
            refusal = refusal or f"no hub began the drill within {_LATE.seconds // 60} minutes; create another Drill"
        if spec.stop or refusal:
            message = refusal or "spec.stop was set before the drill began"
            return replaced(state="Refused", message=message, ended_at=wire_time(now))
        if state == "":
            starts = wire_time(now + timedelta(seconds=measured_s(spec)))
            drilled = tuple(DrilledService(name) for name in sorted(services))
            return replaced(state="Before", starts_at=starts, services=drilled)
        ends = wire_time(now + timedelta(seconds=seconds_from_duration(spec.duration)))
        return replaced(state="Drilling", started_at=wire_time(now), ends_at=ends)
    if state == "Drilling" and (stop or due):
        return replaced(state="After", message="" if due else stop, ended_at=wire_time(now))
    if state == "After" and due:
        result, message = ("Failed", status.message) if status.message else _result(status.services, problem)
        return replaced(state=result, message=message)
    return status


def _result(services: Sequence[DrilledService], problem: str) -> tuple[DrillState, str]:
    """Return the result of a drill that ended on time, and a note on figures that are missing."""
    phases = [phase for service in services for phase in service.phases if phase.phase == "Drilling"]
    if any(phase.connections or phase.requests for phase in phases):
        unmeasured = len(services) - len(phases)
        return "Passed", f"{unmeasured} of {len(services)} GlobalServices were not measured" if unmeasured else ""
    if any(phase.seconds for phase in phases):
        return "Inconclusive", "no client connected during the drill"
    return "Inconclusive", f"no figures of the proxies during the drill: {problem or 'no hub measured long enough'}"


# --- refusals -----------------------------------------------------------------------------------------------------


def concerned(spec: DrillSpec, services: Iterable[GlobalService]) -> list[GlobalService]:
    """Return the GlobalServices from which a drill removes the member, ordered by name."""
    listing = [obj for obj in services if not obj.deleting and _entry(spec, obj.spec) is not None]
    if spec.service:
        named = [obj for obj in listing if name_of(obj) == spec.service]
        listing = named or [obj for obj in listing if obj.spec.service == spec.service]
    elif any(state_of(obj, spec.member) in SERVING for obj in listing):
        # If the member gets no traffic, there is nothing to rehearse.
        listing = [obj for obj in listing if state_of(obj, spec.member) != "Standby"]
    return sorted(listing, key=name_of)


def refusal_of(
    drill: Drill,
    services: Sequence[GlobalService],
    *,
    tenants: Iterable[Tenant],
    drills: Iterable[Drill],
    schedules: Iterable[DrillSchedule],
    now: datetime,
) -> str:
    """Return why a drill must not begin now, empty for no reason; ``services`` are those that it concerns."""
    spec = drill.spec
    try:
        lasts_s = seconds_from_duration(spec.duration)
    except ValueError as error:
        return f"spec.duration: {error}"
    if not _SHORTEST_S <= lasts_s <= _LONGEST_S:
        return f"spec.duration: {spec.duration} is not between 5s and 24h"
    if not any(tenant.metadata.name == spec.member for tenant in tenants):
        return f"spec.member: there is no Tenant {spec.member}; kubectl get tenants lists those there"
    if not services:
        of = f" {spec.service}" if spec.service else ""
        return f"no GlobalService{of} lists member {spec.member}; kubectl get globalservices -A shows their members"
    for other in drills:
        if other.metadata.name != drill.metadata.name and other.status.state in UNDER_WAY and not other.deleting:
            return f"drill {other.metadata.name} of member {other.spec.member} is under way; wait until it has ended"
    if window := blocked(schedules, spec.member, now, now + timedelta(seconds=lasts_s + measured_s(spec))):
        return window
    return next(filter(None, (_problem(spec, obj) for obj in services)), "")


def _problem(spec: DrillSpec, obj: GlobalService) -> str:
    """Return why one GlobalService cannot be without the member now."""
    name, subject = spec.member, f"GlobalService {name_of(obj)}"
    shift = obj.status.shift
    if shift.members and shift.state == "Shifting":
        return f"{subject}: {in_words(shift)}; wait until that has ended"
    if any(condition.type == "Paused" and condition.status == "True" for condition in obj.status.conditions or ()):
        return f"{subject} is paused; fairlead resume ends that"
    member = next((status for status in obj.status.members or () if status.tenant == name), None)
    if member is None:
        return f"{subject} does not show the state of member {name} yet; try again in a moment"
    if member.silent_since:
        return f"{subject}: member {name} is dark already: its agent has been silent since {member.silent_since}"
    if member.state not in _ABLE:
        return f"{subject}: member {name} is out of service already: {member.state}; {member.message}".rstrip("; ")
    if member.state == "Standby":
        return f"{subject}: member {name} gets no connections, so nothing would be rehearsed"
    if why := no_other(obj, name):
        return why
    if problem := share_problem(without(obj, name)):
        return f"{subject}: without {name}, {problem}, or give another member more weight"
    return ""


def no_other(obj: GlobalService, name: str) -> str:
    """Return that no other member can serve ``obj``, empty while one can."""
    if any(_can_serve(obj, status) for status in obj.status.members or () if status.tenant != name):
        return ""
    return f"GlobalService {name_of(obj)}: no member other than {name} can serve"


def without(obj: GlobalService, name: str) -> GlobalServiceSpec:
    """Return the spec in force as if the member, and all that cannot serve, were drained."""
    spec = shifted(with_served_tiers(obj), obj.status)
    able = {status.tenant for status in obj.status.members or () if _can_serve(obj, status)} - {name}
    members = [replace(member, drain=member.tenant not in able) for member in spec.members]
    return replace(spec, members=members)


def _can_serve(obj: GlobalService, status: GlobalMemberStatus) -> bool:
    entry = next((member for member in obj.spec.members if member.tenant == status.tenant), None)
    return entry is not None and bool(entry.weight) and not entry.drain and status.state in _ABLE


def _entry(spec: DrillSpec, service: GlobalServiceSpec) -> GlobalMember | None:
    return next((member for member in service.members if member.tenant == spec.member), None)


def name_of(obj: GlobalService) -> str:
    """Return the namespace/name of a GlobalService."""
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def state_of(obj: GlobalService, member: str) -> str:
    """Return the state of a member, empty when it is not known."""
    return next((status.state for status in obj.status.members or () if status.tenant == member), "")


# --- blocked windows ------------------------------------------------------------------------------------------------

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def blocked(schedules: Iterable[DrillSchedule], member: str, start: datetime, end: datetime) -> str:
    """Return which blocked window a drill of the member would be in, empty for none."""
    for schedule in schedules:
        if schedule.spec.drill is not None and schedule.spec.drill.member != member:
            continue
        for text in schedule.spec.blocked_windows:
            name = f"DrillSchedule {schedule.metadata.name}"
            try:
                zone = zone_of(schedule)
            except ValueError as error:
                return f"{name}: {error}, so that its blocked windows are unknown; correct it"
            where = f"spec.blockedWindows of {name}"
            try:
                overlaps = any(begin < end and start < over for begin, over in _spans(text, start, end, zone))
            except ValueError:
                return f"{where}: {text!r} is not a window such as Mon-Fri 08:00-18:00; correct it"
            if overlaps:
                return f"{where} blocks drills of member {member}: {text} {schedule.spec.time_zone or 'UTC'}"
    return ""


def zone_of(schedule: DrillSchedule) -> tzinfo:
    """Return the time zone of a schedule.

    Raises:
        ValueError: the hub does not know it.
    """
    name = schedule.spec.time_zone
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"spec.timeZone: {name!r} is not a time zone such as Europe/Berlin") from error


def _spans(text: str, start: datetime, end: datetime, zone: tzinfo) -> list[tuple[datetime, datetime]]:
    """Return when a window is, as far as that is near ``start`` and ``end``; in UTC.

    If the clock shows a time twice, or never, the longer window applies.
    """

    def moments(day: date, clock: time) -> list[datetime]:
        return [datetime.combine(day, clock.replace(fold=fold), zone).astimezone(UTC) for fold in (0, 1)]

    first, _, last = text.partition("/")
    if first[:4].isdigit():
        first_date, last_date = (date.fromisoformat(day) for day in (first, last or first))
        if last_date < first_date:
            raise ValueError(text)
        return [(min(moments(first_date, time())), max(moments(last_date + timedelta(days=1), time())))]
    days, _, hours = text.rpartition(" ")
    opens, closes = (time.fromisoformat(part) for part in hours.split("-"))
    from_day, _, to_day = (days or "Mon-Sun").partition("-")
    first_day, last_day = _DAYS.index(from_day), _DAYS.index(to_day or from_day)
    # A range of days may end after Sunday, and a time after midnight.
    weekdays = {(first_day + number) % 7 for number in range((last_day - first_day) % 7 + 1)}
    spans: list[tuple[datetime, datetime]] = []
    for number in range(-1, (end - start).days + 3):
        day = start.astimezone(zone).date() + timedelta(days=number)
        if day.weekday() in weekdays:
            last_day = day + timedelta(days=closes <= opens)
            spans.append((min(moments(day, opens)), max(moments(last_day, closes))))
    return spans


# --- schedules ------------------------------------------------------------------------------------------------------

_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    ("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)


class Times:
    """The times of a schedule with five fields, as those of a CronJob: by the clock of a time zone.

    Raises:
        ValueError: the text is not a schedule.
    """

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        self._zone = zone
        fields = text.split()
        if len(fields) != len(_FIELDS):
            raise ValueError(f"{text!r} does not have five fields such as 0 10 * * 2")
        self._minutes, self._hours, self._days, self._months, self._weekdays = map(_values, fields, _FIELDS)
        # As in cron: if both days are restricted, either one matches.
        self._either = not fields[2].startswith("*") and not fields[4].startswith("*")

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after ``moment``, None when there is none within five years.

        A time that the clock shows twice counts once, the first time; one that it never shows is skipped.
        """
        moment = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        for number in range(5 * 366):
            day = moment.astimezone(self._zone).date() + timedelta(days=number)
            if not self._is_on(day.month, day.day, day.isoweekday() % 7):
                continue
            at = ((hour, minute) for hour in sorted(self._hours) for minute in sorted(self._minutes))
            for hour, minute in at:
                shown = datetime.combine(day, time(hour, minute), self._zone)
                candidate = shown.astimezone(UTC)
                exists = candidate.astimezone(self._zone).replace(fold=0) == shown
                if exists and candidate >= moment:
                    return candidate
        return None

    def _is_on(self, month: int, day: int, weekday: int) -> bool:
        in_month, in_week = day in self._days, weekday in self._weekdays
        return month in self._months and (in_month or in_week if self._either else in_month and in_week)


def _values(text: str, field: tuple[str, int, int, Sequence[str]]) -> set[int]:
    name, lowest, highest, names = field
    values: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\*|(\w+)(?:-(\w+))?)(?:/([1-9][0-9]*))?", part)
        if match is None:
            raise ValueError(f"{part!r} is not a {name}")
        whole, first_text, last_text, step = match.groups()
        first = lowest if whole == "*" else _number(first_text, field)
        # A step without an end continues to the highest value.
        last = _number(last_text, field) if last_text else highest if whole == "*" or step else first
        if not lowest <= first <= last <= highest:
            raise ValueError(f"{part!r} is not a {name} between {lowest} and {highest}")
        values.update(range(first, last + 1, int(step or 1)))
    # Sunday is 0, and 7.
    return {value % 7 for value in values} if names and names[0] == "SUN" else values


def _number(text: str, field: tuple[str, int, int, Sequence[str]]) -> int:
    name, lowest, _, names = field
    if text.upper() in names:
        return names.index(text.upper()) + lowest
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a {name}")
    return int(text)


def due_time(schedule: DrillSchedule, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the time at which a drill is due now, None for none, and the next time.

    A time is due once, and not before the schedule was created. A hub that starts late catches up on the last minutes.

    Raises:
        ValueError: spec.schedule or spec.timeZone is not valid; the text names it.
    """
    if not schedule.spec.schedule:
        return None, None
    zone = zone_of(schedule)
    try:
        times = Times(schedule.spec.schedule, zone)
    except ValueError as error:
        raise ValueError(f"spec.schedule: {error}") from error
    earlier = filter(
        None, (parsed_time(schedule.status.last_schedule_time), parsed_time(schedule.metadata.creation_timestamp))
    )
    since, due = max(now - _LATE, *earlier), None
    while (moment := times.after(since)) is not None and moment <= now:
        since = due = moment
    return due, moment
