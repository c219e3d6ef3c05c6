"""Drill: a member of GlobalServices is taken out of service for a time, as a rehearsal; and DrillSchedule.

The operator writes the spec, the hub the status. Both are cluster-wide, as a member is.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fairlead.api.crd import AGE, CelRule, Column, Crd
from fairlead.api.globalservice import StopOn
from fairlead.api.loadbalancerclass import Duration
from fairlead.api.meta import LIST_ATOMIC, ONE_LINE, KubeObject, Line63, Resource, Wire, list_by
from fairlead.api.names import GROUP, VERSION

DrillMode = Literal["Drain", "Dark"]
DrillState = Literal["", "Before", "Drilling", "After", "Passed", "Failed", "Inconclusive", "Refused"]
DrillPhaseName = Literal["Before", "Drilling", "After"]

_DAY = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
#: Times of the week such as Mon-Fri 08:00-18:00, or dates such as 2026-12-20/2027-01-03.
BlockedWindow = Annotated[
    str, Meta(max_length=32, pattern=rf"^(({_DAY}(-{_DAY})? )?{_TIME}-{_TIME}|{_DATE}(/{_DATE})?)$")
]


class DrillSpec(Wire, frozen=True, gc=False):
    """The member, and how it is taken out of service.

    Drain sends new connections to other members. Dark reports its endpoints as unhealthy at the proxies. Either way
    the member serves again at once when no other member has a healthy endpoint. The drill ends after duration, and
    before that with stop, or when stopOn applies.
    """

    member: Annotated[str, Meta(min_length=1, max_length=63, extra_json_schema=ONE_LINE)]
    service: Annotated[str, Meta(max_length=317, pattern=r"^([^ /]+/[^ /]+)?$")] = ""
    mode: DrillMode = "Drain"
    duration: Duration = "5m"
    stop_on: StopOn = ""
    region: Line63 = ""
    stop: bool = False


class DrilledMember(Wire, frozen=True, gc=False):
    """The traffic of one member during one phase."""

    tenant: str
    connections: int = 0
    requests: int = 0
    errors: int = 0
    p99: str = ""


class DrillPhase(Wire, frozen=True, gc=False):
    """The traffic of one GlobalService during one phase.

    requests are those of routes, which have a status. errors are answers with a status of 5xx, and connections that
    failed. p99 is the longest that a request took, or a backend to accept a connection, of 99 % of them.
    """

    phase: DrillPhaseName
    seconds: int = 0
    connections: int = 0
    requests: int = 0
    errors: int = 0
    p99: str = ""
    members: Annotated[tuple[DrilledMember, ...], Meta(extra_json_schema=list_by("tenant"))] = ()


class DrilledService(Wire, frozen=True, gc=False):
    """One GlobalService of the drill, as namespace/name, and what was measured of it."""

    name: str
    phases: Annotated[tuple[DrillPhase, ...], Meta(extra_json_schema=list_by("phase"))] = ()


class DrillStatus(Wire, frozen=True, gc=False):
    """How far the drill is, and its report.

    The member is out of service while the state is Drilling and endsAt has not come, whether a hub runs or not. Before
    and After measure the same traffic with it. A drill without measured traffic is Inconclusive, not Passed.
    """

    state: DrillState = ""
    message: str = ""
    starts_at: str = ""
    started_at: str = ""
    ends_at: str = ""
    ended_at: str = ""
    services: Annotated[tuple[DrilledService, ...], Meta(extra_json_schema=list_by("name"))] = ()
    observed_generation: int = 0


class Drill(KubeObject, frozen=True, gc=False):
    """A rehearsal of the failure of one member."""

    spec: DrillSpec = DrillSpec(member="")
    status: DrillStatus = DrillStatus()


class DrillScheduleSpec(Wire, frozen=True, gc=False):
    """When drills begin by themselves, and when no drill may run.

    schedule has five fields as that of a CronJob. blockedWindows hold for all drills of the member, also for those that
    a person begins; without drill, for all members. Both are in timeZone.
    """

    schedule: Annotated[str, Meta(max_length=128, extra_json_schema=ONE_LINE)] = ""
    time_zone: Annotated[str, Meta(max_length=64, pattern=r"^([A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*)?$")] = ""
    drill: DrillSpec | None = None
    suspend: bool = False
    blocked_windows: Annotated[tuple[BlockedWindow, ...], Meta(max_length=64, extra_json_schema=LIST_ATOMIC)] = ()
    history_limit: Annotated[int, Meta(ge=1, le=100)] = 20


class DrillScheduleStatus(Wire, frozen=True, gc=False):
    """The last drill of the schedule, and its next one."""

    last_schedule_time: str = ""
    next_schedule_time: str = ""
    last_drill: str = ""
    message: str = ""
    observed_generation: int = 0


class DrillSchedule(KubeObject, frozen=True, gc=False):
    """Drills that begin by themselves, and times without drills."""

    spec: DrillScheduleSpec = DrillScheduleSpec()
    status: DrillScheduleStatus = DrillScheduleStatus()


DRILLS = Resource(GROUP, VERSION, "Drill", "drills", False, Drill)
DRILL_SCHEDULES = Resource(GROUP, VERSION, "DrillSchedule", "drillschedules", False, DrillSchedule)

DRILL_CRD = Crd(
    DRILLS,
    short_names=("dr",),
    columns=(
        Column("Member", ".spec.member"),
        Column("Service", ".spec.service"),
        Column("Mode", ".spec.mode"),
        Column("State", ".status.state"),
        Column("Ends", ".status.endsAt"),
        Column("Message", ".status.message", priority=1),
        AGE,
    ),
    rules=(
        CelRule("self.member == oldSelf.member", "member is immutable: create another Drill", ".member"),
        CelRule("self.mode == oldSelf.mode", "mode is immutable: create another Drill", ".mode"),
        CelRule(
            "(has(self.service) ? self.service : '') == (has(oldSelf.service) ? oldSelf.service : '')",
            "service is immutable: create another Drill",
        ),
    ),
)

DRILL_SCHEDULE_CRD = Crd(
    DRILL_SCHEDULES,
    short_names=("drs",),
    columns=(
        Column("Member", ".spec.drill.member"),
        Column("Schedule", ".spec.schedule"),
        Column("Suspend", ".spec.suspend", "boolean"),
        Column("Last", ".status.lastScheduleTime", "date"),
        Column("Next", ".status.nextScheduleTime"),
        Column("Last-Drill", ".status.lastDrill"),
        AGE,
    ),
    rules=(
        CelRule(
            "size(self.metadata.name) <= 50",
            "metadata.name becomes part of the names of drills: at most 50 characters",
            whole=True,
        ),
    ),
)
