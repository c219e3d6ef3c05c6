"""Why is each backend where it is, since when, and what does it wait for?

In: what a preview found. Out: the rows that ``-o json`` prints, and the same as lines for people.

    record, plan, guard, pause, drift and read-back of one place  ──►  one row, one list of what it waits for
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.backendrecord import BackendRecord
from fairlead.cli.plan_rows import held_words
from fairlead.cli.status_view import age_text
from fairlead.cli.words import columns, reason_words
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.change import Action
from fairlead.model.keys import ListenerKey, TargetKey

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed
    from fairlead.hub.intents.intent import Exclusion

Place = tuple[ListenerKey, TargetKey]


class ConditionRow(msgspec.Struct, frozen=True):
    """One condition, as the hub wrote it last."""

    type: str
    status: str
    reason: str
    message: str
    since: str


class BackendRow(msgspec.Struct, frozen=True):
    """One backend; ``healthy`` None when nobody checks, ``waits_for`` empty when nothing is to be done about it."""

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


def explained(one: Previewed, *, now: datetime, leading: bool) -> Explained:
    """Explain one load balancer."""
    records = {(listener_of(each), target_of(each).key): each for each in one.records}
    wanted = _wanted(one)
    places = sorted({*records, *wanted})
    rows = [_row(one, place, records.get(place), now=now, leading=leading) for place in places]
    return Explained(
        str(one.key), one.class_name, one.provider, _conditions(one), rows, list(one.exclusions), list(_notes(one))
    )


def lines_of(one: Explained, *, now: datetime) -> list[str]:
    """Return the explanation for people."""
    class_name = f"class {one.class_name}" if one.class_name else "its object is gone"
    lines = [f"{one.load_balancer}: {class_name}, provider {one.provider or 'unknown'}"]
    lines += columns([(each.type, each.status, _ago(each.since, now), _why(each)) for each in one.conditions])
    lines.append("Backends:" if one.backends else "Backends: none")
    heads = columns([_head(row, now) for row in one.backends])
    for row, head in zip(one.backends, heads, strict=True):
        lines.append(head)
        lines += [f"      waits: {text}" for text in row.waits_for]
    if one.exclusions:
        lines.append("Left out:")
        lines += columns([(each.what, f"{each.why} ({each.owner})") for each in one.exclusions])
    lines += [f"Note: {text}" for text in one.notes]
    return lines


def _conditions(one: Previewed) -> list[ConditionRow]:
    told = {
        each.type: ConditionRow(each.type, each.status, each.reason, each.message, each.last_transition_time or "")
        for each in one.conditions
    }
    for each in one.translation.conditions if one.translation is not None else ():
        # What the hub has not said yet, because it does not run or has only just been asked.
        status = "True" if each.status else "False"
        known = told.get(each.type)
        if known is None or known.status != status:
            told[each.type] = ConditionRow(each.type, status, each.reason, each.message, "")
    return list(told.values())


def _wanted(one: Previewed) -> set[Place]:
    if one.translation is None or one.translation.desired is None:
        return set()
    targets = one.translation.desired.targets
    return {(listener, key) for listener, found in targets.items() for key in found}


def _row(one: Previewed, place: Place, record: BackendRecord | None, *, now: datetime, leading: bool) -> BackendRow:
    listener, key = place
    desired = one.translation.desired if one.translation is not None else None
    target = desired.targets.get(listener, {}).get(key) if desired is not None else None
    seen = {(each.listener, each.key): each for each in (one.observed.targets or ())} if one.observed else {}
    found = seen.get(place)
    if record is not None:
        known = target_of(record)
        state, since, reason = record.status.state or "Pending", record.status.since or "", record.status.reason
        if record.deleting:
            state = "Deregistering"
    else:
        known, since, reason = target, "", ""
        state = _without_record(one, draining=target is not None and target.draining)
    source = "/".join(known.source.split("/")[:3]).replace("//", "/") if known is not None else ""
    return BackendRow(
        str(listener), str(key), source, state, since, reason,
        list(wish.owners) if (wish := target or known) is not None else [],
        found.healthy if found is not None else None,
        list(_waits(one, place, record, now=now, leading=leading)),
    )  # fmt: skip


def _without_record(one: Previewed, *, draining: bool) -> str:
    if not one.served:
        return "NotRegistered"
    programmed = any(each.type == "Programmed" and each.status == "True" for each in one.conditions)
    return "Draining" if draining else "Served" if programmed else "Pending"


def _waits(
    one: Previewed, place: Place, record: BackendRecord | None, *, now: datetime, leading: bool
) -> Iterator[str]:
    plan = one.plan
    for row in plan.held:
        if (row.change.listener, row.change.key) == place:
            words = held_words(one, row.reason, row.message)
            yield f"{row.change.action} ({row.change.reason}) is held, {row.reason}: {words}"
    next_up = [change for change in plan.changes if (change.listener, change.key) == place]
    status = record.status if record is not None else None
    first = plan.frontend is not None and plan.frontend.action is Action.ENSURE
    when = "is next" + (", once a hub leads" if not leading else "")
    when += ", after the load balancer itself" if first else ""
    for change in next_up:
        yield f"{change.action} {when}, {reason_words(change.reason)}"
    if status is not None and status.message:
        refused = any(each.reason == "Quarantined" for each in one.conditions)
        again = "; tried again every 5 minutes, and at once when it is changed" if refused else "; it is tried again"
        yield f"its provider says: {status.message}{again if status.state == 'Failed' else ''}"
    if status is not None and record is not None and not next_up and not record.deleting:
        if status.state == "Draining":
            yield _draining(one, status.since, now)
        elif status.state == "Pending" and not status.message:
            yield "an answer of its provider"
    if record is not None and record.deleting:
        yield "its provider to let go; then its record goes, too"
    if place in one.drift.missing:
        yield "nothing, though it is not there: somebody removed it (ensurePolicy Always would register it again)"
    if place in one.drift.changed:
        yield "nothing, though somebody changed it there: fairlead drift"
    if record is None and not one.served and not next_up and _draining_wish(one, place):
        yield "to be ready: what is not ready, or going, is not registered"


def _draining_wish(one: Previewed, place: Place) -> bool:
    desired = one.translation.desired if one.translation is not None else None
    target = desired.targets.get(place[0], {}).get(place[1]) if desired is not None else None
    return target is not None and target.draining


def _draining(one: Previewed, since: str | None, now: datetime) -> str:
    desired = one.translation.desired if one.translation is not None else None
    began = _time(since)
    if desired is None or began is None:
        return "its connections to end"
    ends = began + timedelta(seconds=desired.drain_s)
    left_s = max(0.0, (ends - now).total_seconds())
    return f"its connections to end, until {ends:%H:%M:%S} UTC at the latest (in {age_text(left_s)}); then Deregister"


def _notes(one: Previewed) -> Iterator[str]:
    if one.gone:
        yield "its object is gone; what is on record is deregistered as soon as its provider can be reached"
    if one.drift.vanished:
        yield one.drift.sentence
    if one.unread:
        yield f"not read back: {one.unread}"
    if one.served:
        yield "the hub's own proxies serve it, from memory: there are no records"


def _head(row: BackendRow, now: datetime) -> tuple[str, str, str, str, str]:
    health = {True: ", healthy", False: ", unhealthy", None: ""}[row.healthy]
    told = row.reason if row.state == "Registered" else reason_words(row.reason)
    why = f"{told}; " if row.reason else ""
    wanted = f"for {', '.join(row.owners)}" if row.owners else "for its Service"
    named = f"{row.source} " if row.source else ""
    return row.listener, row.address, row.state + health, _ago(row.since, now), f"{named}{why}{wanted}"


def _why(one: ConditionRow) -> str:
    reason = "" if one.reason == one.type else one.reason
    return ": ".join(filter(None, (reason, one.message)))


def _ago(since: str, now: datetime) -> str:
    when = _time(since)
    return age_text(max(0.0, (now - when).total_seconds())) if when is not None else "-"


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
