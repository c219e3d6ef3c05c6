"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for.

    record, plan, guard, pause, drift and read-back of one backend  ──►  one row, one list of what it waits for

What a backend waits for is one predicate for each cause, tried in order. Of an object of a member the row is what the
member knows: addresses, conditions and Events; the state of each backend is at the hub, which the member's users may
not be able to reach. The history is as stored, and as a running hub has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead.agent.events import ENSURED, NO_TARGETS, NOT_SERVING, SERVING_STOPPED
from fairlead.api.backendgroup import BackendRecord
from fairlead.api.gateway import (
    GATEWAY_CLASSES,
    GATEWAYS,
    GRPC_ROUTES,
    HTTP_ROUTES,
    LISTENER_SETS,
    TCP_ROUTES,
    TLS_ROUTES,
    UDP_ROUTES,
)
from fairlead.api.globalservice import GlobalMemberStatus
from fairlead.api.kinds import LOAD_BALANCER_KINDS
from fairlead.api.kubernetes import ANNOTATION_LEGACY_CLASS, INGRESS_CLASSES, INGRESSES, SERVICES
from fairlead.api.meta import SUMMARIES, AnyResource, KubeObject, Resource, condition_of, is_taken_over
from fairlead.api.multicluster import (
    MULTICLUSTER_VERSIONS,
    SERVICE_EXPORTS,
    SERVICE_IMPORTS,
    ServiceExport,
    ServiceImport,
)
from fairlead.api.names import (
    ANNOTATION_ADDRESS,
    DEFAULT_CLASS,
    GATEWAY_CONTROLLER,
    INGRESS_CONTROLLER,
    LOAD_BALANCER_CLASS_PREFIX,
    MACHINE_PROVIDERS,
    SYSTEM_NAMESPACE,
    did_you_mean,
)
from fairlead.api.times import parsed_time, seconds_from_duration
from fairlead.cli.hub_reader import NO_KINDS, check_kinds, connect_hub, read_machines, take_snapshot
from fairlead.cli.options import HubApi
from fairlead.cli.output import VerbAnswer
from fairlead.cli.selection import Selection, resolve_one
from fairlead.cli.top import ask_hub
from fairlead.errors import FairleadError, Forbidden, NotFound, NotServed
from fairlead.hub.inspect.preview import Previewed
from fairlead.hub.intents.intent import Exclusion
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import RESOLVED, WRITTEN_EVENTS, resolved_message
from fairlead.ledger.history import HISTORY_MAPS, entries_of, map_name
from fairlead.ledger.records import listener_of, target_of
from fairlead.model.change import Action, HistoryEntry, HistoryKind, HistoryRow
from fairlead.model.desired import Target
from fairlead.model.in_words import counted
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import NAMED, Seen, unhealthy_name
from fairlead.standalone.right_cluster import OWN_TENANT, has_own_tenant
from fairlead.status.formatting import age_text, columns, reason_text
from fairlead.status.machines import AnnouncedRow, announced_lines, announced_rows
from fairlead.status.object_ref import IN_MEMBERS, SERVICE, ObjectRef
from fairlead.status.plan_rows import held_message, source_of


async def present_of(selection: Selection, api: HubApi) -> VerbAnswer:
    """Return the present state of the selected objects."""
    ref = selection.ref
    try:
        snapshot = await take_snapshot(api, selection)
    except (NotFound, NotServed) as error:
        # A member has none of the hub's kinds; and a hub may be a member of its own.
        if ref is not None and ref.kind in IN_MEMBERS:
            if (there := await _at_member(ref, api)) is not None:
                return VerbAnswer(there.row, lambda: there.lines, lambda: [ref.path])
            if error.reason == NO_KINDS:
                raise NotFound(ref.not_found) from None
        raise error from None
    own = None
    if ref is not None and ref.kind in IN_MEMBERS:
        own = await _at_member(ref, api, own_hub=True)
    announced = await _announced(api, snapshot.load_balancers)
    rows = [
        explained(lb, now=snapshot.now, leading=snapshot.hub.leading, announced=announced.get(lb.key, ()))
        for lb in snapshot.load_balancers
    ]

    def lines() -> list[str]:
        printed = [line for row in rows for line in lines_of(row, now=snapshot.now)]
        return [
            *(own.lines if own is not None else ()),
            *(printed or [f"No load balancer is of {selection.title} yet."]),
            *([snapshot.warning] if snapshot.warning else []),
        ]

    value = {"hubLeads": snapshot.hub.leading, "loadBalancers": rows} | ({"object": own.row} if own is not None else {})
    return VerbAnswer(value, lines, lambda: [row.load_balancer for row in rows])


async def _announced(api: HubApi, load_balancers: Sequence[Previewed]) -> dict[LoadBalancerKey, list[AnnouncedRow]]:
    """Return which proxy machines announce the addresses of load balancers; nothing where there are no machines."""
    own = {lb.key for lb in load_balancers if lb.provider in MACHINE_PROVIDERS and not lb.gone}
    async with connect_hub(api) as cluster:
        read = await read_machines(cluster)
        if not read.machines or not own:
            return {}
        objects = {
            LoadBalancerKey(kind.kind, *obj.key): obj
            for kind in LOAD_BALANCER_KINDS
            for obj in await cluster.list(kind)
        }
    ours = [obj for key, obj in objects.items() if key in own]
    rows = announced_rows(ours, read.machines, read.announcements, read.groups)
    return {
        key: [row for address, _ in objects[key].status.allocation.places if (row := rows.get(address)) is not None]
        for key in own & objects.keys()
    }


class _MemberObject(NamedTuple):
    """An object as its own cluster knows it: None and a line that says why where that may not be read."""

    row: ServiceRow | RequestsRow | None
    lines: list[str]


async def _at_member(ref: ObjectRef, api: HubApi, *, own_hub: bool = False) -> _MemberObject | None:
    """Explain an object where it is; None where there is none. ``own_hub``: only where the hub is its cluster, too."""
    async with connect_hub(api, name="the member") as cluster:
        try:
            is_own = ref.member in ("", OWN_TENANT) and await has_own_tenant(cluster)
            if own_hub and not is_own:
                return None
            if ref.kind == SERVICE:
                service = await explain_service(cluster, ref, own_hub=is_own)
                return None if service is None else _MemberObject(service, service_lines(service))
            requests = await explain_requests(cluster, ref, own_hub=is_own)
            return None if requests is None else _MemberObject(requests, requests_lines(requests))
        except Forbidden as error:
            if not own_hub:
                raise
            return _MemberObject(None, [f"Note: what {ref.title} itself says could not be read: {error.sentence}"])


async def history_of(ref: ObjectRef, api: HubApi, hub_url: str, token_file: Path | None) -> VerbAnswer:
    """Return what happened to one load balancer."""
    async with connect_hub(api) as cluster:
        try:
            await check_kinds(cluster)
        except NotServed as error:
            events = "; without --history the Events of it in this member are shown" if ref.kind in IN_MEMBERS else ""
            raise NotServed(
                f"The history of {ref.title} is at the hub, and {cluster.server} is not a hub: give the hub's "
                f"--kubeconfig{events}",
                detail=error.sentence,
                reason=NO_KINDS,
            ) from error
        matching = await resolve_one(cluster, ref)
        key = LoadBalancerKey(matching.kind, matching.namespace, matching.name)
        entries = await read_history(cluster, key, hub_url, token_file)

    def lines() -> list[str]:
        more = "A hub that serves /metrics has it in memory: fairlead explain --history --hub-url http://HOST:PORT"
        return [*history_lines(str(key), entries), *([more] if not entries and not hub_url else [])]

    return VerbAnswer({"loadBalancer": str(key), "history": entries}, lines, lambda: [str(key)])


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
    announced: list[AnnouncedRow] = msgspec.field(default_factory=list[AnnouncedRow])
    #: Of a GlobalService, as the hub wrote them last: how far a change of weights is, and the members.
    shift: str = ""
    members: list[GlobalMemberStatus] = msgspec.field(default_factory=list[GlobalMemberStatus])


def explained(lb: Previewed, *, now: datetime, leading: bool, announced: Iterable[AnnouncedRow] = ()) -> Explained:
    """Explain one load balancer; ``leading``: whether a hub leads; ``announced``: by which proxy machines."""
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
        list(announced),
        lb.shift,
        list(lb.members),
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
    if len(backend.lb.unhealthy) >= NAMED:  # the status names no more, and this one may be unhealthy too
        return "Unknown"
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
    yield from (entry.sentence for entry in lb.maintenance)
    if lb.unread_references:
        yield (
            "this user cannot read some references, so ResolvedRefs is shown as the hub wrote it: "
            f"{lb.unread_references}"
        )
    if lb.served and len(lb.unhealthy) >= NAMED:
        yield f"only the first {NAMED} unhealthy targets are named; others may be unhealthy too"
    if lb.more_held:
        yield f"{lb.more_held} more changes are held"
    if (draining := lb.draining) is not None:
        text = f"{counted(draining.targets, 'target')} with {counted(draining.connections, 'connection')}"
        yield f"{text} are draining, the oldest since {draining.since}{_drain_mode(lb)}"


def _drain_mode(lb: Previewed) -> str:
    """Return how the connections of draining targets end; empty where their Services differ, or nothing is known."""
    desired = lb.translation.desired if lb.translation is not None else None
    if desired is None:
        return ""
    spec = desired.spec
    modes = {(spec.drain_s, spec.drain_reset)} if spec.drain_s is not None else set[tuple[float, bool]]()
    for backend in spec.l7.backends if spec.l7 is not None else ():
        if backend.drain:
            modes.add((seconds_from_duration(backend.drain), backend.drain_close == "reset"))
    if len(modes) != 1:
        return ""
    ((seconds, reset),) = modes
    how = "reset" if reset else "closed gracefully"
    return f"; connections of each are {how} {seconds:g} s after it began"


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
    lines += [line for entry in row.announced for line in announced_lines(entry, now)]
    if row.members:
        lines.append(f"Members: {row.shift}" if row.shift else "Members:")
        lines += columns([_member(member, now) for member in row.members])
    lines.append("Backends:" if row.backends else "Backends: none")
    for backend, head in zip(row.backends, columns([_head(backend, now) for backend in row.backends]), strict=True):
        lines.append(head)
        lines += [f"      waits: {text}" for text in backend.waits_for]
    if row.exclusions:
        lines.append("Excluded:")
        lines += columns([(exclusion.what, f"{exclusion.why} ({exclusion.owner})") for exclusion in row.exclusions])
    return lines + [f"Note: {text}" for text in row.notes]


def _member(row: GlobalMemberStatus, now: datetime) -> tuple[str, ...]:
    silent = f"agent silent for {_ago(row.silent_since, now)}" if row.silent_since else ""
    return row.tenant, row.share, f"tier {row.tier}", row.state, row.endpoints, silent, row.message


def _head(row: BackendRow, now: datetime) -> tuple[str, str, str, str, str]:
    health = {True: ", healthy", False: ", unhealthy", None: ""}[row.healthy if row.state != Seen.UNHEALTHY else None]
    reason = row.reason if row.state == "Registered" else reason_text(row.reason)
    why = f"{reason}; " if row.reason else ""
    owners = f"for {', '.join(row.owners)}" if row.owners else ""
    source = f"{row.source} " if row.source else ""
    return row.listener, row.address, row.state + health, _ago(row.since, now), f"{source}{why}{owners}".rstrip("; ")


def _why(condition: ConditionRow) -> str:
    reason = "" if condition.reason == condition.type else condition.reason
    # Ready and Stalled repeat the message of another condition.
    message = "" if condition.type in SUMMARIES else condition.message
    return ": ".join(filter(None, (reason, message)))


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
    path = f"/debug/keys/{key.kind}/{key.namespace}/{key.name}"
    state = await ask_hub(hub_url, path, token_file, _KeyState, what="a history")
    return state.history if state is not None else []


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


#: The time of the conditions that the schemas of Gateway API give an object which no controller has reported on.
_BY_DEFAULT = "1970-01-01T00:00:00Z"


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Address(msgspec.Struct, frozen=True):
    ip: str = ""
    hostname: str = ""
    value: str = ""


class _MemberLoadBalancer(msgspec.Struct, frozen=True):
    ingress: list[_Address] | None = None


class _Listener(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    conditions: list[_Condition] | None = None


class _ParentRef(msgspec.Struct, frozen=True):
    kind: str = "Gateway"
    name: str = ""
    namespace: str | None = None


class _Parent(msgspec.Struct, frozen=True, rename="camel"):
    parent_ref: _ParentRef = _ParentRef()
    conditions: list[_Condition] | None = None


class _MemberStatus(msgspec.Struct, frozen=True, rename="camel"):
    load_balancer: _MemberLoadBalancer = _MemberLoadBalancer()
    addresses: list[_Address] | None = None
    conditions: list[_Condition] | None = None
    parents: list[_Parent] | None = None
    listeners: list[_Listener] | None = None


class _MemberSpec(msgspec.Struct, frozen=True, rename="camel"):
    ingress_class_name: str | None = None
    gateway_class_name: str | None = None
    parent_refs: list[_ParentRef] | None = None
    #: Of a ListenerSet.
    parent_ref: _ParentRef | None = None


class _Object(KubeObject, frozen=True, gc=False):
    """The fields of these kinds that are read; each kind has some of them."""

    spec: _MemberSpec = _MemberSpec()
    status: _MemberStatus = _MemberStatus()


#: Each kind of ``status.object_ref.SHARING``.
KINDS_OF_REQUESTS: tuple[AnyResource, ...] = (
    INGRESSES,
    GATEWAYS,
    LISTENER_SETS,
    HTTP_ROUTES,
    GRPC_ROUTES,
    TLS_ROUTES,
    TCP_ROUTES,
    UDP_ROUTES,
)
_RESOURCES = {
    kind.kind: Resource(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced, _Object)
    for kind in KINDS_OF_REQUESTS
}


class MemberConditionRow(msgspec.Struct, frozen=True):
    """One condition; ``parent`` is the Gateway that says so of a route, or ``listener NAME``; empty: the object's own.

    Of listeners only what is wrong is listed.
    """

    parent: str
    type: str
    status: str
    reason: str
    message: str


class RequestsRow(msgspec.Struct, frozen=True, rename="camel"):
    """One Ingress, Gateway or route of a member; ``of_class`` is the class it names, empty when it names none."""

    object: str
    of_class: str
    addresses: list[str]
    conditions: list[MemberConditionRow]
    events: list[EventRow]
    notes: list[str]


async def explain_requests(cluster: Cluster, ref: ObjectRef, *, own_hub: bool = False) -> RequestsRow | None:
    """Return the object as the member shows it, None without one. ``own_hub``: the member is its own hub."""
    try:
        obj = await cluster.get(_RESOURCES[ref.kind], ref.namespace, ref.name)
    except (NotFound, NotServed):
        return None
    spec, status = obj.spec, obj.status
    of_class = spec.ingress_class_name or spec.gateway_class_name or obj.annotation(ANNOTATION_LEGACY_CLASS) or ""
    listed = [*(status.load_balancer.ingress or ()), *(status.addresses or ())]
    addresses = [text for entry in listed if (text := entry.ip or entry.value or entry.hostname)]
    conditions = [
        MemberConditionRow(parent, condition.type, condition.status, condition.reason, condition.message)
        for parent, some in (
            ("", status.conditions),
            *((parent.parent_ref.name, parent.conditions) for parent in status.parents or ()),
            *((f"listener {listener.name}", _wrong(listener)) for listener in status.listeners or ()),
        )
        for condition in some or ()
        if condition.last_transition_time != _BY_DEFAULT
    ]
    events = await events_of(cluster, ref, obj.metadata.uid)
    here = ObjectRef(ref.kind, ref.namespace, ref.name)
    at_hub = f"fairlead explain {here.argument} --kubeconfig HUB.kubeconfig"
    of_set = [spec.parent_ref] if spec.parent_ref is not None else []
    parents = [
        ObjectRef(reference.kind, reference.namespace or ref.namespace, reference.name)
        for reference in (*(spec.parent_refs or ()), *of_set)
        if reference.kind in (GATEWAYS.kind, LISTENER_SETS.kind)
    ]
    notes: list[str] = []
    if not events and not conditions and not addresses:
        why = await _without_parent(cluster, parents) or await _why_nothing(cluster, ref.kind, of_class)
        notes.append(f"Fairlead has reported nothing: {why}")
    elif not own_hub:
        notes.append(f"load balancer and backends, at the hub: {at_hub}")
    notes += [f"attached to {parent.name} by its reference: fairlead explain {parent.argument}" for parent in parents]
    name = f"{ref.kind} {ref.namespace}/{ref.name}"
    return RequestsRow(name, of_class, addresses, conditions, events, notes)


def _wrong(listener: _Listener) -> list[_Condition]:
    bad = {"Conflicted": "True"}
    return [
        condition for condition in listener.conditions or () if condition.status == bad.get(condition.type, "False")
    ]


async def _without_parent(cluster: Cluster, parents: Iterable[ObjectRef]) -> str:
    """Return which parent does not exist; empty when all do, or it cannot be read."""
    for kind, namespace, name, _ in parents:
        try:
            await cluster.get(_RESOURCES[kind], namespace, name)
        except NotFound:
            there = [obj.metadata.name for obj in await cluster.list(_RESOURCES[kind], namespace)]
            near = did_you_mean(name, there)
            return f"there is no {kind} {name} in namespace {namespace}; correct the reference to its parent.{near}"
        except FairleadError:
            continue
    return ""


async def _why_nothing(cluster: Cluster, kind: str, named: str) -> str:
    """Return why no controller of ours looks at an object, as far as its class says; with the next step."""
    is_ingress = kind == INGRESSES.kind
    resource = INGRESS_CLASSES if is_ingress else GATEWAY_CLASSES
    controller = INGRESS_CONTROLLER if is_ingress else GATEWAY_CONTROLLER
    unknown = "does the class belong to Fairlead, and does an agent run? fairlead doctor"
    if not named:
        return "no class is named; set spec.ingressClassName" if is_ingress else unknown
    try:
        its_class = await cluster.get(resource, "", named)
    except NotFound:
        near = did_you_mean(named, [obj.metadata.name for obj in await cluster.list(resource)])
        return (
            f"there is no {resource.kind} {named} in this cluster; create it, with the controller {controller}.{near}"
        )
    except FairleadError:
        return unknown
    if not its_class.is_ours:
        return f"{resource.kind} {named} is another controller's; name a class with the controller {controller}"
    return "does an agent run? fairlead doctor"


def requests_lines(row: RequestsRow) -> list[str]:
    """Return the lines for people."""
    parts = [f"class {row.of_class}"] if row.of_class else []
    parts += [f"address {', '.join(row.addresses)}"] if row.addresses else []
    lines = [f"{row.object}: {', '.join(parts)}" if parts else row.object]
    own = [(condition.type, condition.status, condition.reason, condition.message) for condition in row.conditions]
    by_parent = any(condition.parent for condition in row.conditions)
    lines += columns(
        [(condition.parent, *cells) for condition, cells in zip(row.conditions, own, strict=True)] if by_parent else own
    )
    lines += columns([(event.when, event.type, event.reason, event.message) for event in row.events])
    return lines + [f"Note: {text}" for text in row.notes]


_OURS = "fairlead"
#: Of these Events the last one holds.
_ABOUT_SERVING = frozenset({ENSURED, SERVING_STOPPED, NOT_SERVING, NO_TARGETS})


class EventRow(msgspec.Struct, frozen=True):
    """One Event of Fairlead's."""

    when: str
    type: str
    reason: str
    message: str


class ServiceRow(msgspec.Struct, frozen=True, rename="camel"):
    """One Service of a member; ``class_name`` is the LoadBalancerClass at the hub, empty when it is not Fairlead's."""

    service: str
    type: str
    class_name: str
    addresses: list[str]
    events: list[EventRow]
    notes: list[str]


async def explain_service(cluster: Cluster, ref: ObjectRef, *, own_hub: bool = False) -> ServiceRow | None:
    """Return the Service as the member shows it, None without one. ``own_hub``: the member is its own hub.

    Raises:
        Forbidden: there is no Service, and whether there is an export or import of this name may not be read.
    """
    shared, unread = await _notes_of_set(cluster, ref)
    try:
        service = await cluster.get(SERVICES, ref.namespace, ref.name)
    except NotFound:
        if unread and not shared:
            raise Forbidden(f"{ref.not_found}; {'; '.join(unread)}") from None
        notes = [*shared, *unread]
        return ServiceRow(f"{ref.namespace}/{ref.name}", "ServiceImport", "", [], [], notes) if notes else None
    ours = await events_of(cluster, ref, service.metadata.uid)
    asked = service.spec.load_balancer_class or ""
    addresses = [address.address for address in service.status.load_balancer.ingress or ()]
    addresses += [text for text in service.annotation(ANNOTATION_ADDRESS).split(",") if text]
    foreign = asked and not asked.startswith(LOAD_BALANCER_CLASS_PREFIX)
    notes: list[str] = []
    if service.spec.type != "LoadBalancer" and not shared:
        notes.append(f"the Service is of type {service.spec.type}; Fairlead serves type LoadBalancer only")
    elif foreign:
        notes.append(f"spec.loadBalancerClass {asked} belongs to another controller")
    elif not addresses:
        # With an address, missing Events say nothing: a cluster deletes them after an hour.
        waits = "no address yet; the last Event says what it waits for"
        silent = "Fairlead has reported nothing: does an agent run for this cluster? At the hub: fairlead status"
        notes.append(waits if ours else silent)
    member = ObjectRef("Service", ref.namespace, ref.name)
    if not own_hub and not foreign:
        at_hub = f"fairlead explain {member.argument} --kubeconfig HUB.kubeconfig"
        notes.append(f"the state of each backend, at the hub: {at_hub}")
    name = "" if foreign else asked.removeprefix(LOAD_BALANCER_CLASS_PREFIX) or DEFAULT_CLASS
    return ServiceRow(
        f"{ref.namespace}/{ref.name}", service.spec.type, name, addresses, ours, [*shared, *unread, *notes]
    )


async def _notes_of_set(cluster: Cluster, ref: ObjectRef) -> tuple[list[str], list[str]]:
    """Return what the member exports of this name, and imports, with all conditions; and what may not be read."""
    notes: list[str] = []
    unread: list[str] = []
    for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS):
        for version in MULTICLUSTER_VERSIONS:
            resource: Resource[ServiceExport] | Resource[ServiceImport]
            resource = msgspec.structs.replace(kind, version=version)
            try:
                obj = await cluster.get(resource, ref.namespace, ref.name)
            except (NotFound, NotServed):
                continue
            except Forbidden as error:
                unread.append(f"whether there is a {kind.kind} is unknown: {error.sentence}")
                break
            what = ["exported to the cluster set"]
            if isinstance(obj, ServiceImport):
                members = ", ".join(each.cluster for each in obj.status.clusters or ()) or "no member"
                what = [f"imported from {members}", *(f"at {address}" for address in obj.spec.ips or ())]
            states = [
                f"{each.type}={each.status} ({each.reason})" + (f": {each.message}" if each.message else "")
                for each in obj.status.conditions or ()
            ]
            notes.append("; ".join([" ".join(what), *states]))
            break
    return notes, unread


async def events_of(cluster: Cluster, ref: ObjectRef, uid: str) -> list[EventRow]:
    """Return Fairlead's Events on an object of a member, oldest first.

    Left out are those of an earlier object of the same name, and Warnings that a later Event has ended.
    """
    events = await cluster.list(WRITTEN_EVENTS, ref.namespace, field_selector=f"involvedObject.name={ref.name}")
    ours = (
        event
        for event in events
        if event.involved_object.kind == ref.kind
        and event.involved_object.uid in ("", uid)
        and (event.source.component or event.reporting_component).startswith(_OURS)
    )
    in_order = sorted(ours, key=lambda event: event.order)
    rows = [EventRow(event.when, event.type, event.reason, event.message) for event in in_order]
    return [
        row
        for number, row in enumerate(rows)
        if row.type != "Warning" or not any(_ends(later, row) for later in rows[number + 1 :])
    ]


def _ends(later: EventRow, warned: EventRow) -> bool:
    """Return whether an Event says that a Warning no longer holds."""
    if later.reason in _ABOUT_SERVING:
        return warned.reason in _ABOUT_SERVING
    return later.reason == RESOLVED and later.message == resolved_message(warned.reason, warned.message)


def service_lines(row: ServiceRow) -> list[str]:
    """Return the lines for people."""
    of_class = f"class {row.class_name}" if row.class_name else "not Fairlead's"
    address = f"address {', '.join(row.addresses)}" if row.addresses else "no address"
    lines = [f"Service {row.service}: type {row.type}, {of_class}, {address}"]
    lines += columns([(event.when, event.type, event.reason, event.message) for event in row.events])
    return lines + [f"Note: {text}" for text in row.notes]
