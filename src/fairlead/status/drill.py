"""Drills for people: previews, reports as Markdown, and the history.

In: GlobalServices, the Drill, earlier Drills. Out: rows and sentences. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fairlead.api.drill import Drill, DrilledMember, DrillPhase, DrillSpec
from fairlead.api.globalservice import GlobalService
from fairlead.runtime.logs import legible
from fairlead.status.formatting import columns
from fairlead.translate.drill import name_of, without
from fairlead.translate.global_service import first_tier


class MemberPreview(NamedTuple):
    """One member of one GlobalService during a drill; shares in percent, rates a second.

    ``peak`` is the highest rate that an earlier drill has measured, ``expected`` the rate that would follow from the
    highest one of all members together; None where no drill has measured any.
    """

    tenant: str
    tier: int
    now: str
    after: float
    max_share: int
    peak: float | None
    expected: float | None


class ServicePreview(NamedTuple):
    """What a drill would do to one GlobalService."""

    name: str
    members: tuple[MemberPreview, ...]
    notes: tuple[str, ...]


def preview_of(spec: DrillSpec, services: Iterable[GlobalService], drills: Sequence[Drill]) -> list[ServicePreview]:
    """Return what a drill would do to the GlobalServices that it concerns."""
    return [_service(spec, obj, drills) for obj in services]


def _service(spec: DrillSpec, obj: GlobalService, drills: Sequence[Drill]) -> ServicePreview:
    left = without(obj, spec.member)
    tier, later = first_tier(left)
    whole = sum(member.weight for member in tier)
    after = {member.tenant: 100 * member.weight / whole for member in tier}
    service = name_of(obj)
    peaks: dict[str, float] = {}
    phases = (
        phase
        for drill in drills
        for measured in drill.status.services
        if measured.name == service
        for phase in measured.phases
    )
    for phase in phases:
        counted = {"": _events(phase), **{member.tenant: _events(member) for member in phase.members}}
        for name, events in counted.items():
            peaks[name] = max(peaks.get(name, 0.0), events / max(1, phase.seconds))
    total = peaks.get("")
    entries = {member.tenant: member for member in obj.spec.members}
    members = tuple(
        MemberPreview(
            status.tenant,
            status.tier,
            status.share,
            after.get(status.tenant, 0.0),
            entries[status.tenant].max_share,
            peaks.get(status.tenant),
            total * after.get(status.tenant, 0.0) / 100 if total is not None else None,
        )
        for status in obj.status.members or ()
        if status.tenant in entries
    )
    return ServicePreview(name_of(obj), members, tuple(_notes(spec, obj, has_later=bool(later))))


def _notes(spec: DrillSpec, obj: GlobalService, *, has_later: bool) -> Iterator[str]:
    if not has_later:
        yield f"No later priority: if the other members fail, {spec.member} serves again at once."
    yield f"Existing connections to {spec.member} are kept."
    if obj.spec.session_affinity == "ClientIP":
        yield f"New connections of clients with a session at {spec.member} go to other members."
    names = ", ".join(obj.spec.hostnames)
    keep = f"{names} keep address" if names else "the address stays"
    yield f"No DNS record changes: {keep} {obj.status.address}."


def _events(figures: DrillPhase | DrilledMember) -> int:
    """Return the requests, or the connections where nothing counts requests."""
    return figures.requests or figures.connections


def preview_lines(previews: Iterable[ServicePreview]) -> list[str]:
    """Return the lines of a preview."""
    lines: list[str] = []
    for service in previews:
        rows = [("MEMBER", "TIER", "NOW", "DURING", "MAX SHARE", "PEAK", "EXPECTED")]
        rows += [
            (
                member.tenant,
                str(member.tier),
                member.now,
                f"{member.after:.0f}%",
                f"{member.max_share}%",
                _rate(member.peak),
                _rate(member.expected),
            )
            for member in service.members
        ]
        lines += [f"GlobalService {service.name}", *columns(rows), *(f"  {note}" for note in service.notes)]
    return lines


def _rate(per_s: float | None) -> str:
    return f"{per_s:.1f}/s" if per_s is not None else "not measured"


def report_of(drill: Drill) -> str:
    """Return the report of a drill as Markdown."""
    spec, status = drill.spec, drill.status
    lines = [f"# Drill {drill.metadata.name}: {status.state or 'not begun'}", ""]
    if status.ends_at:
        how = "took no new connections" if spec.mode == "Drain" else "counted as unhealthy"
        until = f"until {status.ended_at}" if status.ended_at else f"and does so until {status.ends_at}"
        lines += [f"Member {spec.member} {how} from {status.started_at or status.starts_at} {until}.", ""]
    if status.message:
        lines += [f"{status.message[:1].upper()}{status.message[1:]}.", ""]
    rows = [
        (service.name, who, phase.phase, str(phase.seconds), *_cells(figures))
        for service in status.services
        for phase in service.phases
        for who, figures in (("all", phase), *((member.tenant, member) for member in phase.members))
    ]
    if rows:
        titles = ("GlobalService", "Member", "Phase", "Seconds", "Connections", "Requests", "Errors", "p99")
        lines += [_row(titles), _row(["---"] * len(titles)), *map(_row, rows), ""]
    return "\n".join(lines)


def _cells(figures: DrillPhase | DrilledMember) -> tuple[str, ...]:
    return (str(figures.connections), str(figures.requests), str(figures.errors), figures.p99)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(legible(cell).replace('|', '/') for cell in cells)} |"


def history_lines(drills: Iterable[Drill]) -> list[str]:
    """Return a line for each drill, in their order, below the titles."""
    rows = [("DRILL", "MEMBER", "SERVICE", "MODE", "STATE", "BEGAN", "ERRORS", "MESSAGE")]
    for drill in drills:
        spec, status = drill.spec, drill.status
        phases = [phase for service in status.services for phase in service.phases if phase.phase == "Drilling"]
        errors = f"{sum(phase.errors for phase in phases)} of {sum(map(_events, phases))}" if phases else "-"
        began = status.started_at or status.starts_at or drill.metadata.creation_timestamp or "-"
        name, service = drill.metadata.name, spec.service or "all"
        rows.append((name, spec.member, service, spec.mode, status.state or "-", began, errors, status.message))
    return columns(rows, indent="")
