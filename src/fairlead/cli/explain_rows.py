"""The rows and lines of ``fairlead explain``: each backend's state, its history, and what it waits for.

    record, plan, guard, pause, drift and read-back of one backend  ──►  one row, one list of what it waits for

In: a load balancer as previewed; its history as stored, and as a running hub has it. Out: the rows that ``-o json``
prints, and the same as lines for people. What a backend waits for is one predicate for each cause, tried in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.json_text import decode
from fairlead.api.meta import condition_of, is_taken_over
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.times import parsed_time
from fairlead.cli.traffic_rows import token_header
from fairlead.errors import BadConfiguration, NotFound, Unauthorized, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HISTORY_MAPS, entries_of, map_name
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.change import Action, HistoryEntry, HistoryKind, HistoryRow
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import NAMED, Seen, unhealthy_name
from fairlead.status.formatting import age_text, columns, reason_text
from fairlead.status.object_ref import ObjectRef
from fairlead.status.plan_rows import held_message, source_of

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
        ExplainedBackend(
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


def _row(backend: ExplainedBackend) -> BackendRow:
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


def _state_without_record(backend: ExplainedBackend) -> str:
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
        yield "the object was deleted; recorded backends are deregistered as soon as the provider can be reached"
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
            "this user cannot read some references, so ResolvedRefs is shown as the hub wrote it: "
            f"{lb.unread_references}"
        )
    if lb.served and len(lb.unhealthy) >= NAMED:
        yield f"only the first {NAMED} unhealthy targets are named; others may be unhealthy too"
    if lb.more_held:
        yield f"{lb.more_held} more changes are held"


def lines_of(row: Explained, *, now: datetime) -> list[str]:
    """Return the lines of one load balancer."""
    class_name = f"class {row.class_name}" if row.class_name else "object deleted"
    lines = [f"{row.load_balancer}: {class_name}, provider {row.provider or 'unknown'}"]
    lines += columns(
        [
            (condition.type, condition.status, _ago(condition.since, now), _why(condition))
            for condition in row.conditions
        ]
    )
    lines.append("Backends:" if row.backends else "Backends: none")
    for backend, head in zip(row.backends, columns([_head(backend, now) for backend in row.backends]), strict=True):
        lines.append(head)
        lines += [f"      waits: {text}" for text in backend.waits_for]
    if row.exclusions:
        lines.append("Excluded:")
        lines += columns([(exclusion.what, f"{exclusion.why} ({exclusion.owner})") for exclusion in row.exclusions])
    return lines + [f"Note: {text}" for text in row.notes]


def _head(row: BackendRow, now: datetime) -> tuple[str, str, str, str, str]:
    health = {True: ", healthy", False: ", unhealthy", None: ""}[row.healthy if row.state != Seen.UNHEALTHY else None]
    reason = row.reason if row.state == "Registered" else reason_text(row.reason)
    why = f"{reason}; " if row.reason else ""
    owners = f"for {', '.join(row.owners)}" if row.owners else ""
    source = f"{row.source} " if row.source else ""
    return row.listener, row.address, row.state + health, _ago(row.since, now), f"{source}{why}{owners}".rstrip("; ")


def _why(condition: ConditionRow) -> str:
    reason = "" if condition.reason == condition.type else condition.reason
    return ": ".join(filter(None, (reason, condition.message)))


def _ago(since: str, now: datetime) -> str:
    when = parsed_time(since)
    return age_text(max(0.0, (now - when).total_seconds())) if when is not None else "-"


_TIMEOUT_S = 5.0


class _KeyState(msgspec.Struct):
    """The part that is read of a hub's answer at /debug/keys."""

    history: list[HistoryEntry]


async def read_history(
    cluster: Cluster, key: LoadBalancerKey, hub_url: str = "", token_file: Path | None = None
) -> list[HistoryEntry]:
    """Return the stored entries and, with ``hub_url``, those in that hub's memory; oldest first."""
    stored = await _stored(cluster, key)
    return merged(stored, await _in_memory(hub_url, key, token_file)) if hub_url else merged(stored)


async def _stored(cluster: Cluster, key: LoadBalancerKey) -> list[HistoryEntry]:
    try:
        return entries_of(await cluster.get(HISTORY_MAPS, SYSTEM_NAMESPACE, map_name(key)))
    except NotFound:
        return []


async def _in_memory(hub_url: str, key: LoadBalancerKey, token_file: Path | None) -> list[HistoryEntry]:
    import aiohttp

    url = f"{hub_url.rstrip('/')}/debug/keys/{key.kind}/{key.namespace}/{key.name}"
    timeout, headers = aiohttp.ClientTimeout(total=_TIMEOUT_S), await token_header(token_file)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=headers) as response:
            if response.status == 404:
                return []
            if response.status in (401, 403):
                raise Unauthorized(f"{url}: {(await response.text()).strip()}; give it with --token-file")
            if response.status != 200:
                raise Unreachable(f"{url} answers with HTTP {response.status}")
            return decode(await response.read(), _KeyState).history
    except aiohttp.InvalidURL as error:
        raise BadConfiguration(f"--hub-url: {hub_url!r} is not a URL such as http://127.0.0.1:9090") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"No hub answers at {url}; --hub-url is where it was started with --metrics") from error
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"--hub-url: {url} does not serve a history of a hub") from error


_HEAD = ("WHEN (UTC)", "EVENT", "WHAT", "ANSWER", "WHY")


def merged(*histories: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return the entries of several sources without duplicates, oldest first; of two alike the one counted last."""
    by_identity: dict[tuple[datetime, str], HistoryEntry] = {}
    for entry in (entry for history in histories for entry in history):
        known = by_identity.get((entry.at, entry.text))
        if known is None or entry.count >= known.count:
            by_identity[entry.at, entry.text] = entry
    return sorted(by_identity.values(), key=lambda entry: (entry.last_at or entry.at, entry.sequence))


def history_lines(load_balancer: str, entries: Iterable[HistoryEntry]) -> list[str]:
    """Return the table of one load balancer: a line for each entry without calls, and for each call of the others."""
    rows = [row for entry in entries for row in _rows(entry)]
    if not rows:
        return [f"{load_balancer}: no history is stored"]
    return [f"{load_balancer}: history, oldest first", *columns([_HEAD, *rows])]


def _rows(entry: HistoryEntry) -> Iterator[tuple[str, ...]]:
    when, kind = _time(entry.at), str(entry.kind)
    times = f" ({entry.count} times, last at {_time(entry.last_at)})" if entry.last_at is not None else ""
    if not entry.rows:
        yield when, kind, "-", "-", entry.text + times
        return
    for row in entry.rows:
        yield when, kind, _what(row), str(row.answer), _history_rows_why(row) + times
    if entry.kind is HistoryKind.FAILED:
        yield when, kind, "-", "-", entry.text + times


def _what(row: HistoryRow) -> str:
    """Return the action and its backends: the names that are stored, and how many there are besides."""
    if not row.targets:
        return f"{row.action} the load balancer itself" if row.count == 1 else f"{row.action} {row.count}"
    more = row.count - len(row.targets)
    return f"{row.action} {', '.join(row.targets)}" + (f" and {more} more" if more > 0 else "")


def _history_rows_why(row: HistoryRow) -> str:
    reason, _, guard = row.reason.partition(", ")
    why = reason_text(reason) + (f"; {guard}" if guard else "")
    return f"{why}: {row.message}" if row.message else why


def _time(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at is not None else "-"


Place = tuple[ListenerKey, TargetKey]


class ExplainedBackend(msgspec.Struct, frozen=True, kw_only=True):
    """One backend of a load balancer: what is desired, what is recorded, and whether a hub leads ``now``."""

    lb: Previewed
    place: Place
    target: Target | None
    record: BackendRecord | None
    now: datetime
    leading: bool

    @property
    def has_next_change(self) -> bool:
        """Return whether the plan has a row for it that nothing holds."""
        return any((change.listener, change.key) == self.place for change in self.lb.plan.changes)


def waits_for(backend: ExplainedBackend) -> list[str]:
    """Return what ``backend`` waits for, in the order of ``CAUSES``."""
    return [sentence for cause in CAUSES for sentence in cause(backend)]


def _held(backend: ExplainedBackend) -> Iterator[str]:
    for row in backend.lb.plan.held:
        if (row.change.listener, row.change.key) == backend.place:
            message = held_message(backend.lb, row.reason, row.message)
            yield f"{row.change.action} ({row.change.reason}) is held, {row.reason}: {message}"


def _next_change(backend: ExplainedBackend) -> Iterator[str]:
    plan = backend.lb.plan
    when = "is next" + (", once a hub leads" if not backend.leading else "")
    if plan.frontend is not None and plan.frontend.action is Action.ENSURE:
        when += ", after the load balancer itself"
    for change in plan.changes:
        if (change.listener, change.key) == backend.place:
            yield f"{change.action} {when}, {reason_text(change.reason)}"


def _provider_message(backend: ExplainedBackend) -> Iterator[str]:
    status = backend.record.status if backend.record is not None else None
    if status is None or not status.message:
        return
    quarantined = any(condition.reason == "Quarantined" for condition in backend.lb.conditions)
    again = "; retried every 5 minutes, and at once when it changes" if quarantined else "; the hub retries"
    yield f"the provider reports: {status.message}{again if status.state == 'Failed' else ''}"


def _drain(backend: ExplainedBackend) -> Iterator[str]:
    record = backend.record
    if record is None or record.deleting or backend.has_next_change or record.status.state != "Draining":
        return
    translation = backend.lb.translation
    desired, began = translation.desired if translation is not None else None, parsed_time(record.status.since)
    if desired is None or began is None:
        yield "connections to end"
        return
    ends = began + timedelta(seconds=desired.drain_s)
    left = age_text(max(0.0, (ends - backend.now).total_seconds()))
    yield f"connections to end, until {ends:%H:%M:%S} UTC at the latest (in {left}); then Deregister"


def _answer(backend: ExplainedBackend) -> Iterator[str]:
    record = backend.record
    if record is None or record.deleting or backend.has_next_change:
        return
    if record.status.state == "Pending" and not record.status.message:
        yield "an answer of the provider"


def _deregistration(backend: ExplainedBackend) -> Iterator[str]:
    if backend.record is not None and backend.record.deleting:
        yield "the provider to deregister it; then its record is deleted"


def _missing(backend: ExplainedBackend) -> Iterator[str]:
    if backend.place in backend.lb.drift.missing:
        yield f"nothing, but it was removed at the provider: {ObjectRef(*backend.lb.key).repair}"


def _changed(backend: ExplainedBackend) -> Iterator[str]:
    if backend.place in backend.lb.drift.changed:
        yield f"nothing, but it was changed at the provider: {ObjectRef(*backend.lb.key).repair}"


def _readiness(backend: ExplainedBackend) -> Iterator[str]:
    target, recorded = backend.target, backend.record is not None
    if (
        not recorded
        and not backend.lb.served
        and not backend.has_next_change
        and target is not None
        and target.draining
    ):
        yield "readiness; only ready pods are registered"


#: In the order in which they are printed.
CAUSES: tuple[Callable[[ExplainedBackend], Iterator[str]], ...] = (
    _held, _next_change, _provider_message, _drain, _answer, _deregistration, _missing, _changed, _readiness,
)  # fmt: skip
