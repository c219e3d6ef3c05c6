"""A gradual change of weights: where it is, its next step, and when it stops.

    weights of the spec differ from those in force    begins where it is: 0 % moved
    its time has come, and no stop condition holds     moves ``step`` percent of all connections more
    all connected proxies have the weights             the time of the step begins
    not all of them have the weights                   waits
    all is moved, and the proxies have it              Done: the weights of the spec are in force; with ``stopOn``
                                                       only when the time of the last step has passed without errors
    a member that gains is not serving                 waits
    more errors than ``stopOn`` in the steps judged    Stopped: back to before them, until another is requested
    the spec has other weights meanwhile               continues to those, from where it is
    the spec has other priorities or drains meanwhile  continues, from where it is

Shares are those of the members that divide connections: of one priority, and not drained.

In: the spec, the status on record, errors. Out: the next status, the weights in force. Pure. A step is in force once it
is on record, so a hub that dies continues where another one was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.api.globalservice import (
    GlobalServiceSpec,
    GlobalServiceStatus,
    GlobalShift,
    GlobalShiftStatus,
    ShiftedMember,
)
from fairlead.api.times import parsed_time, seconds_from_duration, wire_time
from fairlead.model.observed import Totals

#: Fewer answers say nothing of a share of errors.
LEAST_ANSWERS = 20
#: Weights in force are parts of this.
_WHOLE = 1000


class Errors(NamedTuple):
    """The answers or connections since the last step, and how many of them were errors: ``what``, in words."""

    answers: int = 0
    errors: int = 0
    what: str = "answers were 5xx"


def begun(spec: GlobalServiceSpec, status: GlobalServiceStatus) -> GlobalShiftStatus:
    """Return the shift to the weights of ``spec``, as it continues or begins; of no member when they apply at once."""
    if spec.shift is None:
        return GlobalShiftStatus()
    targets, known = _weights(spec), status.shift
    continues = known.request == spec.shift.request and _targets(known) == targets
    groups = {member.tenant: (member.priority, member.drain) for member in spec.members}
    if continues and groups == {member.tenant: _group(member) for member in known.members}:
        return known
    if known.members:
        before = weights_in_force(known)
    elif status.accepted is not None:
        before = _weights(status.accepted)
    else:
        before = targets
    members = tuple(
        ShiftedMember(name, before.get(name, 0), weight, *groups[name]) for name, weight in sorted(targets.items())
    )
    if continues:
        # Only which members share connections has changed.
        return replace(known, members=members, moved=0)
    begins = GlobalShiftStatus("Shifting", members, request=spec.shift.request)
    return replace(begins, state="Done") if not _farthest(begins) else begins


def shifted(spec: GlobalServiceSpec, status: GlobalServiceStatus) -> GlobalServiceSpec:
    """Return ``spec`` with the weights in force."""
    shift = begun(spec, status)
    if not shift.members or shift.state == "Done":
        return spec
    weights = weights_in_force(shift)
    members = [replace(member, weight=weights[member.tenant]) for member in spec.members]
    return replace(spec, members=members)


def weights_in_force(shift: GlobalShiftStatus) -> dict[str, int]:
    """Return the weight of each member at this step; parts of 1000 of its tier until all is moved."""
    farthest = _farthest(shift)
    if shift.state == "Done" or not farthest:
        return _targets(shift)
    part, shares, weights = min(1.0, shift.moved / farthest), _shares(shift), dict[str, int]()
    for member in shift.members:
        start, target = shares[member.tenant]
        parts = _WHOLE / 100 * (start + (target - start) * part)
        if member.drained:
            # What it gets once it is used again.
            others = sum(other.target for other in shift.members if _group(other) == (member.tier, False))
            parts = min(_WHOLE, _WHOLE * member.target / others) if others else _WHOLE
        weights[member.tenant] = round(parts)
    return weights


def gaining(shift: GlobalShiftStatus) -> set[str]:
    """Return the members whose share of connections grows."""
    drained = {member.tenant for member in shift.members if member.drained}
    return {name for name, (start, target) in _shares(shift).items() if target > start} - drained


def step_before(wanted: GlobalShift, shift: GlobalShiftStatus) -> int:
    """Return the percent that was moved before the last step."""
    return max(0, (shift.moved - 1) // wanted.step * wanted.step)


def next_step(
    wanted: GlobalShift,
    shift: GlobalShiftStatus,
    *,
    now: datetime,
    errors: Errors,
    waits: str = "",
    unapplied: str = "",
    back_to: int | None = None,
) -> GlobalShiftStatus:
    """Return ``shift`` as it is from now on.

    ``waits``: why it must not move on, empty when it may. ``unapplied``: why the proxies do not have the weights in
    force yet, empty when they have. ``back_to``: the percent before the steps that ``errors``
    are of, None for that before the last step.
    """
    if shift.state != "Shifting":
        return shift
    if (problem := stop_reason(wanted.stop_on, errors)) and (shift.stepped_at or shift.moved):
        back = step_before(wanted, shift) if back_to is None else back_to
        return replace(shift, state="Stopped", moved=back, message=problem)
    whole = -int(-_farthest(shift) // 1)
    all_moved = shift.moved >= whole
    if is_unapplied(shift) and not unapplied:
        # With a stop condition, the errors after the last step count as well.
        done = all_moved and not wanted.stop_on
        return replace(shift, state="Done" if done else "Shifting", stepped_at=wire_time(now), message="")
    if wait_s(wanted, shift, now=now) > 0:
        return shift
    if waits := unapplied or waits:
        return replace(shift, message=waits)
    if all_moved:
        return replace(shift, state="Done", message="")
    return replace(shift, moved=min(shift.moved + wanted.step, whole), stepped_at="", message="")


def is_unapplied(shift: GlobalShiftStatus) -> bool:
    """Return whether proxies may still lack the weights of the last step."""
    return shift.state == "Shifting" and bool(shift.moved) and not shift.stepped_at


def wait_s(wanted: GlobalShift, shift: GlobalShiftStatus, *, now: datetime) -> float:
    """Return in how many seconds its next step is due."""
    last = parsed_time(shift.stepped_at)
    if last is None:
        return 0.0
    # A clock that went back must not hold the shift for longer than a step takes.
    every_s = seconds_from_duration(wanted.every)
    return min(every_s, every_s - (now - last).total_seconds())


def errors_in(counted: Collection[Totals], stop_on: str) -> Errors:
    """Return the requests or the connections in ``counted``, whichever have the larger share of errors.

    Of what has answers with a status, 5xx counts these; of all else, as with failed, the connections.
    """
    answers = [totals.requests for totals in counted] if stop_on.startswith("5xx") else []
    connections = [totals for totals in counted if not any(totals.requests)]
    parts = (
        Errors(sum(map(sum, answers)), sum(by_class[4] for by_class in answers)),
        Errors(
            sum(totals.connections for totals in connections),
            sum(totals.failed for totals in connections),
            "connections failed",
        ),
    )
    return max(parts, key=lambda part: (part.answers >= LEAST_ANSWERS and part.errors / part.answers, part.answers))


def unmeasured(counted: Collection[Totals], stop_on: str) -> str:
    """Return why ``stop_on`` says nothing of this traffic, empty when it does, or while there is too little."""
    requests, connections = sum(sum(totals.requests) for totals in counted), errors_in(counted, "failed").answers
    if not stop_on.startswith("failed") or not requests >= LEAST_ANSWERS > connections:
        return ""
    counts = f"{requests} requests of routes and {connections} other connections were counted"
    return f"{counts}, and {stop_on} is of connections; use {stop_on.replace('failed', '5xx')}"


def stop_reason(
    stop_on: str, errors: Errors, *, subject: str = "the last step", field: str = "spec.shift.stopOn"
) -> str:
    """Return why ``errors`` end a shift, or another ``subject``, empty when they do not."""
    match = re.fullmatch(r"(?:5xx|failed)>([0-9.]+)%", stop_on)
    if match is None or errors.answers < LEAST_ANSWERS:
        return ""
    percent = 100 * errors.errors / errors.answers
    if percent <= float(match[1]):
        return ""
    return f"{percent:.1f} % of {errors.answers} {errors.what} since {subject}, and {field} is {stop_on}"


def in_words(shift: GlobalShiftStatus) -> str:
    """Return how far a shift is, for a column; empty when none is under way or stopped."""
    if not shift.members or shift.state == "Done":
        return ""
    all_stay = not _farthest(shift)
    shares = {name: end for name, (start, end) in _shares(shift).items() if end != start or all_stay}
    ends = ", ".join(f"{name} {share:.0f}%" for name, share in shares.items())
    if shift.state == "Stopped":
        return f"shift to {ends} stopped: {shift.message}"
    return f"shifting to {ends}: {shift.moved} of {_farthest(shift):.0f} % moved" + (
        f"; {shift.message}" if shift.message else ""
    )


def _weights(spec: GlobalServiceSpec) -> dict[str, int]:
    return {member.tenant: member.weight for member in spec.members}


def _targets(shift: GlobalShiftStatus) -> dict[str, int]:
    return {member.tenant: member.target for member in shift.members}


def _group(member: ShiftedMember) -> tuple[int, bool]:
    """Return what members have in common that divide connections among each other."""
    return member.tier, member.drained


def _shares(shift: GlobalShiftStatus) -> Mapping[str, tuple[float, float]]:
    """Return the first and the last share of each member in percent, of the connections of its tier."""
    shares: dict[str, tuple[float, float]] = {}
    for member in shift.members:
        group = [other for other in shift.members if _group(other) == _group(member)]
        starts = sum(other.start for other in group)
        target = 100 * member.target / (sum(other.target for other in group) or 1)
        shares[member.tenant] = (100 * member.start / starts if starts else target, target)
    return shares


def _farthest(shift: GlobalShiftStatus) -> float:
    """Return the largest change of a share in percent."""
    drained = {member.tenant for member in shift.members if member.drained}
    changes = (abs(target - start) for name, (start, target) in _shares(shift).items() if name not in drained)
    return round(max(changes, default=0.0), 6)
