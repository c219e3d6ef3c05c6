"""``fairlead audit``: who changed which load balancer, when, and what.

In: the stored histories of a hub or, with ``--hub-url``, the memory of a running hub, which shows to a token what that
token may list. Out: a table, CSV with a line for each field, or a document.
Never: a user that the API server has not stored, unless marked as claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.names import LABEL_HISTORY, SYSTEM_NAMESPACE
from fairlead.api.times import parsed_time, wire_time
from fairlead.cli.hub_reader import connect_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import csv_text, emit, say
from fairlead.cli.selection import Selection, resolve_one
from fairlead.cli.top import ask_hub
from fairlead.cli.usage import since_of
from fairlead.cli.verbs import UsageOutput
from fairlead.errors import BadConfiguration, Forbidden
from fairlead.hub.inspect.audit import ManagedObject, managed, manager_of
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HISTORY_MAPS, entries_of, key_of
from fairlead.model.change import HistoryEntry, HistoryKind, Revision
from fairlead.page.web import AuditedLoadBalancer
from fairlead.status.formatting import columns

_HEAD = ("TIME (UTC)", "USER", "MANAGER", "LOAD BALANCER", "CHANGE")
_CSV = ("time", "load_balancer", "part", "operation", "count", "user", "claimed", "manager", "field", "old", "new")


class FieldRow(msgspec.Struct, frozen=True):
    """One field; ``old`` and ``new`` are empty for none."""

    field: str
    old: str
    new: str


class AuditRow(msgspec.Struct, frozen=True, rename="camel"):
    """One change; ``user`` is empty where it is unknown, ``count`` how often it happened in turns."""

    time: str
    load_balancer: str
    part: str
    operation: str
    user: str
    claimed: bool
    manager: str
    fields: list[FieldRow]
    more_fields: int = 0
    count: int = 1


async def show_audit(
    api: HubApi,
    selection: Selection,
    output: UsageOutput,
    *,
    since: str,
    user: str,
    hub_url: str,
    token_file: Path | None,
) -> None:
    """Print the changes that are selected, oldest first."""
    start = since_of(since, datetime.now(UTC))
    key, audited = "", list[AuditedLoadBalancer]()
    if selection.ref is not None or not hub_url:
        async with connect_hub(api) as cluster:
            start = since_of(since, cluster.server_clock.now())
            if selection.ref is not None:
                matching = await resolve_one(cluster, selection.ref)
                key = f"{matching.kind}/{matching.namespace}/{matching.name}"
            audited = [] if hub_url else await _stored(cluster, key, selection.namespace)
    if hub_url:
        answer = await ask_hub(hub_url, "/page/audit", token_file, list[AuditedLoadBalancer], what="the changes")
        if answer is None:
            raise BadConfiguration(f"--hub-url: the hub at {hub_url} does not record changes; upgrade the hub")
        audited = answer
    rows = [
        row
        for lb in audited
        if key in ("", lb.load_balancer)
        if selection.ref is not None or selection.namespace in ("", lb.load_balancer.split("/")[1])
        for row in rows_of(lb)
        if (parsed_time(row.time) or start) >= start and user in ("", row.user, row.manager)
    ]
    rows.sort(key=lambda row: row.time)
    if output is UsageOutput.CSV:
        say(csv_text([_CSV, *csv_rows(rows)]))
        return
    names = dict.fromkeys(row.load_balancer for row in rows)
    value = {"since": wire_time(start), "changes": rows}
    emit(Output(output.value), value, lines=lambda: lines_of(rows, start), names=lambda: names)


async def _stored(cluster: Cluster, only: str, namespace: str) -> list[AuditedLoadBalancer]:
    """Return the stored changes, with the creations that are not stored yet of ``only``, or of a namespace."""
    try:
        maps = await cluster.list(HISTORY_MAPS, SYSTEM_NAMESPACE, label_selector=LABEL_HISTORY)
    except Forbidden as error:
        raise Forbidden(
            f"{error.sentence} The stored changes are for administrators. The hub's page shows your own: "
            "fairlead audit --hub-url URL --token-file FILE",
            detail=error.detail,
        ) from error
    kinds = {kind.kind for kind in INTENT_KINDS}
    changes = {str(key_of(stored)): entries_of(stored) for stored in maps if key_of(stored).kind in kinds}
    kind, _, rest = only.partition("/")
    namespace = rest.partition("/")[0] or namespace
    for resource in INTENT_KINDS:
        for obj in await cluster.list(managed(resource), namespace) if kind in ("", resource.kind) else ():
            entries = changes.setdefault(f"{resource.kind}/{obj.metadata.namespace}/{obj.metadata.name}", [])
            # The hub stores a creation only with a later entry.
            if not _is_creation_known(entries):
                entries.append(_creation_of(obj))
    return [AuditedLoadBalancer(key, entries) for key, entries in changes.items()]


def _creation_of(obj: ManagedObject) -> HistoryEntry:
    """Return the creation of an object as far as the object shows it: without the user."""
    revision = Revision("Created", manager=manager_of(obj.metadata.managed_fields, ()).manager)
    at = parsed_time(obj.metadata.creation_timestamp or "") or datetime.fromtimestamp(0, UTC)
    return HistoryEntry(0, at, HistoryKind.CHANGED, revision.sentence, revision=revision)


def _is_creation_known(entries: Iterable[HistoryEntry]) -> bool:
    """Return whether the entries have the creation of the object that is there now."""
    revisions = (revision for entry in entries if (revision := entry.revision) is not None and not revision.part)
    lives = [revision.operation for revision in revisions if revision.operation in ("Created", "Deleted")]
    return lives[-1:] == ["Created"]


def rows_of(lb: AuditedLoadBalancer) -> Iterator[AuditRow]:
    """Yield the changes of one load balancer."""
    for entry in lb.changes:
        if (revision := entry.revision) is not None:
            yield AuditRow(
                wire_time(_last(entry)), lb.load_balancer, revision.part, revision.operation, revision.user,
                revision.claimed, revision.manager, [FieldRow(*field) for field in revision.fields], revision.more,
                entry.count,
            )  # fmt: skip


def _last(entry: HistoryEntry) -> datetime:
    return entry.last_at or entry.at


def csv_rows(rows: Iterable[AuditRow]) -> Iterator[Sequence[object]]:
    """Yield a row for each field, and one for a change without fields."""
    for row in rows:
        for field in row.fields or [FieldRow("", "", "")]:
            yield (
                row.time, row.load_balancer, row.part, row.operation, row.count, row.user, row.claimed, row.manager,
                field.field, field.old, field.new,
            )  # fmt: skip


def lines_of(rows: Sequence[AuditRow], start: datetime) -> list[str]:
    """Return the table, a line for each field."""
    if not rows:
        return [f"No change since {wire_time(start)} is recorded."]
    table: list[tuple[str, ...]] = [_HEAD]
    for row in rows:
        changes = [f"{field.field}: {field.old or '-'} -> {field.new or '-'}" for field in row.fields]
        changes += [f"and {row.more_fields} more fields"] if row.more_fields else []
        what = " ".join(filter(None, (row.operation, row.part, f"({row.count} times)" if row.count > 1 else "")))
        user = f"{row.user or '-'}{' (claimed)' if row.claimed else ''}"
        first, *others = changes or [""]
        table.append(
            (row.time[:19].replace("T", " "), user, row.manager or "-", row.load_balancer, f"{what} {first}".rstrip())
        )
        table += [("", "", "", "", change) for change in others]
    return columns(table, indent="")
