"""Build the rows of ``fairlead explain``: the state of each backend, since when, and what it waits for.

In: a load balancer as previewed. Out: the rows that ``-o json`` prints.

    record, plan, guard, pause, drift and read-back of one backend  ──►  one row, one list of what it waits for
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.conditions import condition_of, is_taken_over
from fairlead.cli.explain_waits import Backend, Place, waits_for
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.change import Action
from fairlead.model.desired import Target
from fairlead.model.health import NAMED
from fairlead.model.observed import Seen, unhealthy_name
from fairlead.status.plan_rows import source_of

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed
    from fairlead.hub.intents.intent import Exclusion


class ConditionRow(msgspec.Struct, frozen=True):
    """One condition, as the hub wrote it last."""

    type: str
    status: str
    reason: str
    message: str
    since: str


class BackendRow(msgspec.Struct, frozen=True):
    """One backend; ``healthy`` is None without a health check, ``waits_for`` is empty when it is settled."""

    listener: str
    address: str
    source: str
    state: str
    since: str
    reason: str
    owners: list[str]
    healthy: bool | None
    waits_for: list[str] = msgspec.field(name="waitsFor")


class Explained(msgspec.Struct, frozen=True):
    """One load balancer."""

    load_balancer: str = msgspec.field(name="loadBalancer")
    class_name: str = msgspec.field(name="className")
    provider: str
    conditions: list[ConditionRow]
    backends: list[BackendRow]
    exclusions: list[Exclusion] = msgspec.field(name="leftOut")
    notes: list[str]


def explained(lb: Previewed, *, now: datetime, leading: bool) -> Explained:
    """Explain one load balancer; ``leading``: whether a hub leads."""
    records = {(listener_of(record), target_of(record).key): record for record in lb.records}
    # A backend that is held may be on no record, and is wanted no more: it is served all the same.
    held = {(row.change.listener, row.change.key): row.change.target for row in lb.plan.held}
    targets = _desired_targets(lb)
    backends = [
        Backend(
            lb=lb,
            place=place,
            target=targets.get(place) or held.get(place),
            record=records.get(place),
            now=now,
            leading=leading,
        )
        for place in sorted({*records, *targets, *held})
    ]
    return Explained(
        str(lb.key),
        lb.class_name,
        lb.provider,
        _conditions(lb),
        [_row(backend) for backend in backends],
        list(lb.exclusions),
        list(_notes(lb)),
    )


def _conditions(lb: Previewed) -> list[ConditionRow]:
    rows = {
        condition.type: ConditionRow(
            condition.type, condition.status, condition.reason, condition.message, condition.last_transition_time or ""
        )
        for condition in lb.conditions
    }
    for condition in lb.translation.conditions if lb.translation is not None else ():
        # What the hub has not written yet, because it does not run or the object has only just changed.
        status = {True: "True", False: "False", None: "Unknown"}[condition.status]
        written = rows.get(condition.type)
        if written is None or written.status != status:
            rows[condition.type] = ConditionRow(condition.type, status, condition.reason, condition.message, "")
    return list(rows.values())


def _desired_targets(lb: Previewed) -> dict[Place, Target]:
    if lb.translation is None or lb.translation.desired is None:
        return {}
    by_listener = lb.translation.desired.targets
    return {(listener, key): target for listener, targets in by_listener.items() for key, target in targets.items()}


def _row(backend: Backend) -> BackendRow:
    lb, record, (listener, key) = backend.lb, backend.record, backend.place
    observed = {(target.listener, target.key): target for target in (lb.observed.targets or ())} if lb.observed else {}
    entry = observed.get(backend.place)
    if record is not None:
        target = target_of(record)
        state, since, reason = record.status.state or "Pending", record.status.since or "", record.status.reason
        if record.deleting:
            state = "Deregistering"
    else:
        target, since, reason = backend.target, "", ""
        state = _state_without_record(backend)
    owned = backend.target or target
    return BackendRow(
        listener=str(listener),
        address=str(key),
        source=source_of(target) if target is not None else "",
        state=state,
        since=since,
        reason=reason,
        owners=list(owned.owners) if owned is not None else [],
        healthy=False if state == Seen.UNHEALTHY else entry.healthy if entry is not None else None,
        waits_for=waits_for(backend),
    )


def _state_without_record(backend: Backend) -> str:
    held = (row.change for row in backend.lb.plan.held)
    if not backend.lb.served or any(
        change.action is Action.REGISTER and (change.listener, change.key) == backend.place for change in held
    ):
        return "NotRegistered"
    if backend.target is not None and backend.target.draining:
        return "Draining"
    if unhealthy_name(*backend.place) in backend.lb.unhealthy:
        return Seen.UNHEALTHY.value
    return "Served" if is_taken_over(condition_of(backend.lb.conditions, "Programmed")) else "Pending"


def _notes(lb: Previewed) -> Iterator[str]:
    if lb.gone:
        yield "its object is gone; what is on record is deregistered as soon as its provider can be reached"
    if lb.drift.gone:
        yield lb.drift.sentence
    if lb.unread and lb.unread != lb.unread_references:
        yield f"not read back: {lb.unread}"
    for part in lb.refused:
        # The first routes are in the message of Programmed.
        if not any(part.name in condition.message for condition in lb.conditions):
            yield f"{part.title} is not served: {part.reason}"
    if lb.unread_references:
        yield (
            "what this user cannot read is not judged here, so ResolvedRefs is as the hub wrote it last: "
            f"{lb.unread_references}"
        )
    if lb.served and len(lb.unhealthy) >= NAMED:
        yield f"of targets whose health checks fail the first {NAMED} are named; others may be unhealthy, too"
    if lb.more_held:
        yield f"{lb.more_held} more changes are held"
