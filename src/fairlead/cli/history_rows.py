"""Format the history of a load balancer: when, what happened, the calls that followed, their answers, and why.

In: entries as the hub keeps them. Out: the lines of ``fairlead explain --history``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from fairlead.model.history import HistoryEntry, HistoryKind, HistoryRow
from fairlead.status.formatting import columns, reason_text

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
        yield when, kind, _what(row), str(row.answer), _why(row) + times
    if entry.kind is HistoryKind.FAILED:
        yield when, kind, "-", "-", entry.text + times


def _what(row: HistoryRow) -> str:
    """Return the action and its backends: the names that are stored, and how many there are besides."""
    if not row.targets:
        return f"{row.action} the load balancer itself" if row.count == 1 else f"{row.action} {row.count}"
    more = row.count - len(row.targets)
    return f"{row.action} {', '.join(row.targets)}" + (f" and {more} more" if more > 0 else "")


def _why(row: HistoryRow) -> str:
    reason, _, guard = row.reason.partition(", ")
    why = reason_text(reason) + (f"; {guard}" if guard else "")
    return f"{why}: {row.message}" if row.message else why


def _time(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at is not None else "-"
