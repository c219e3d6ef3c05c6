"""The result and the report of one run of the worker, and the bounded history of each load balancer.

    Finished          every row of the plan that is not held was executed
    InProgress        the provider is still working: polled at a constant interval
    Failed            a row failed: retried with exponential backoff
    UnexpectedError   a bug raised an exception: retried slowly, and its text is only logged

Status, log and history use the same ``Report``. The history keeps wake-ups, decisions with reasons, answers of the
provider, and changes of the object. Each key has three rings, so that routine entries never evict removals, failures
and holds, and neither of them evicts changes. Repeated entries are counted in place, and the oldest keys are evicted
first. Never: a clock of its own, or a cost for idle load balancers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from heapq import nlargest

import msgspec

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import (
    Action,
    FrontendChange,
    Held,
    HistoryEntry,
    HistoryKind,
    HistoryRow,
    Outcome,
    OutcomeStatus,
    Revision,
    RowAnswer,
    TargetChange,
)
from fairlead.model.keys import LoadBalancerKey


class Finished(msgspec.Struct, frozen=True):
    """All work is done."""


class InProgress(msgspec.Struct, frozen=True):
    """``after_s``: seconds after which the provider wants to be polled again; 0 without a preference."""

    after_s: float = 0.0


class Failed(msgspec.Struct, frozen=True):
    """``message`` and ``reason`` for the status; ``after_s``: minimum pause in seconds that the provider asks for."""

    message: str
    reason: str
    after_s: float = 0.0


class UnexpectedError(msgspec.Struct, frozen=True):
    """``message`` and ``reason`` for the status."""

    message: str = "an internal error of the hub; its log says more"
    reason: str = "InternalError"


Result = Finished | InProgress | Failed | UnexpectedError


def result_of(undone: Outcome | None) -> Result:
    """Return the result of a plan from its first outcome that was not a success; None: all succeeded."""
    if undone is None:
        return Finished()
    if undone.status is OutcomeStatus.RUNNING:
        return InProgress(undone.retry_after_s)
    return Failed(undone.message, undone.status.value, undone.retry_after_s)


def result_of_error(error: Exception) -> Result:
    """Return the result of a plan that ended with ``error``."""
    match error:
        case Retry():
            return Failed(error.sentence, error.reason, error.after_s or 0.0)
        case FairleadError():
            return Failed(error.sentence, error.reason)
        case _:
            return UnexpectedError()


def failure_of(result: Result) -> tuple[str, str]:
    """Return message and reason of a failure; empty strings for other results."""
    match result:
        case Failed() | UnexpectedError():
            return result.message, result.reason
        case Finished() | InProgress():
            return "", ""


class Report(msgspec.Struct, frozen=True):
    """``planned`` are the rows of the plan, and ``done`` the completed ones.

    ``frontend`` is the row for the load balancer itself, and ``frontend_done`` says whether it was executed.
    ``computed_s`` is the processor time of the run in seconds, if known.
    """

    load_balancer: LoadBalancerKey
    done: tuple[TargetChange, ...] = ()
    held: tuple[Held, ...] = ()
    frontend: FrontendChange | None = None
    failure: str = ""
    failure_reason: str = ""
    quarantined: tuple[Held, ...] = ()
    #: The provider whose worker ran; empty when there is only one.
    provider: str = ""
    planned: tuple[TargetChange, ...] = ()
    frontend_done: bool = False
    computed_s: float = 0.0

    @property
    def sentence(self) -> str:
        """Return a summary of the run in one sentence."""
        parts: list[str] = []
        if self.frontend is not None:
            parts.append(f"{self.frontend.action} load balancer ({self.frontend.reason})")
        counts: dict[tuple[Action, str], int] = {}
        for change in self.done:
            counts[change.action, change.reason] = counts.get((change.action, change.reason), 0) + 1
        parts += [f"{action} {count} ({reason})" for (action, reason), count in counts.items()]
        if self.held:
            parts.append(f"hold {len(self.held)} ({self.held[0].reason})")
        if self.quarantined:
            parts.append(f"quarantine {len(self.quarantined)} ({self.quarantined[0].message})")
        if self.failure:
            parts.append(f"failed: {self.failure}")
        return ", ".join(parts) or "nothing to do"


LASTING_PER_KEY = 40


ROUTINE_PER_KEY = 24


REVISIONS_PER_KEY = 40


#: Maximum number of entries of either kind over all keys; about 10 MB.
MOST_ENTRIES = 32_768


#: How many targets a row names; it counts all of them.
NAMED_TARGETS = 8


_LONGEST_TEXT = 512


#: Alternating entries (woken, failed, woken, failed) are also counted in place: a new entry is compared with this many
#: earlier ones.
_TURNS = 4


class _Rings:
    """The newest entries of each key, for the most recently written keys."""

    def __init__(self, *, per_key: int, max_keys: int) -> None:
        self._per_key = per_key
        self._most = max_keys
        self._rings: OrderedDict[LoadBalancerKey, deque[HistoryEntry]] = OrderedDict()
        self.size = 0

    def __iter__(self) -> Iterator[LoadBalancerKey]:
        return iter(self._rings)

    def of(self, key: LoadBalancerKey) -> Iterable[HistoryEntry]:
        return self._rings.get(key, ())

    def add(self, key: LoadBalancerKey, entry: HistoryEntry) -> bool:
        """Keep ``entry``; return False if it only increments the count of an existing entry."""
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = deque(maxlen=self._per_key)
        else:
            self._rings.move_to_end(key)
        for back in range(-1, -min(len(ring), _TURNS) - 1, -1):
            before = ring[back]
            if before.same_as(entry):
                del ring[back]
                times = before.count + entry.count
                ring.append(msgspec.structs.replace(entry, at=before.at, last_at=entry.at, count=times))
                return False
        self.size += len(ring) < self._per_key
        ring.append(entry)
        while self.size > self._most:
            self.size -= len(self._rings.popitem(last=False)[1])
        return True

    def replace(self, key: LoadBalancerKey, entries: Iterable[HistoryEntry]) -> None:
        self.size -= len(self._rings.pop(key, ()))
        for entry in entries:
            self.add(key, entry)


class History:
    """The history of every load balancer of one hub. ``now`` returns the wall-clock time."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        lasting_per_key: int = LASTING_PER_KEY,
        routine_per_key: int = ROUTINE_PER_KEY,
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        self._now = now
        self._lasting = _Rings(per_key=lasting_per_key, max_keys=most_entries)
        self._routine = _Rings(per_key=routine_per_key, max_keys=most_entries)
        self._revisions = _Rings(per_key=REVISIONS_PER_KEY, max_keys=most_entries)
        self._sequence = 0
        self._unsaved: dict[LoadBalancerKey, None] = {}
        #: Called with each entry as it is added.
        self.on_note: Callable[[LoadBalancerKey, HistoryEntry], None] = lambda _key, _entry: None

    def __len__(self) -> int:
        """Return how many entries there are."""
        return self._lasting.size + self._routine.size + self._revisions.size

    def note(
        self,
        key: LoadBalancerKey,
        kind: HistoryKind,
        text: str,
        *,
        provider: str = "",
        rows: tuple[HistoryRow, ...] = (),
        kept: bool = False,
        revision: Revision | None = None,
        at: datetime | None = None,
    ) -> None:
        """Add one entry; ``kept``: keep it as long as a removal, whatever its kind; ``at`` None: now."""
        self._sequence += 1
        text = text[:_LONGEST_TEXT]
        entry = HistoryEntry(
            self._sequence, at or self._now(), kind, text, provider, rows, kept=kept, revision=revision
        )
        rings = self._rings_of(entry)
        # A creation is stored with the next entry, so thousands of objects that never change cost no writes.
        created = revision is not None and revision.operation == "Created"
        if rings.add(key, entry) and rings is not self._routine and not created:
            self._unsaved[key] = None
        self.on_note(key, entry)

    def record(self, report: Report) -> None:
        """Add an entry for one run of the worker, unless it did nothing."""
        rows = _rows(report)
        if not rows and not report.failure:
            return
        if report.failure or report.quarantined:
            kind = HistoryKind.FAILED
        elif all(row.answer is RowAnswer.HELD for row in rows):
            kind = HistoryKind.HELD
        else:
            kind = HistoryKind.APPLIED
        self.note(report.load_balancer, kind, _text(report, rows), provider=report.provider, rows=rows)

    def of(self, key: LoadBalancerKey) -> list[HistoryEntry]:
        """Return the entries of one load balancer, oldest first."""
        entries = (*self._lasting.of(key), *self._routine.of(key), *self._revisions.of(key))
        return sorted(entries, key=lambda entry: entry.sequence)

    def revisions(self) -> Iterator[tuple[LoadBalancerKey, list[HistoryEntry]]]:
        """Yield the changes of the objects of all load balancers, oldest first."""
        for key in self._revisions:
            yield key, list(self._revisions.of(key))

    def _rings_of(self, entry: HistoryEntry) -> _Rings:
        return self._revisions if entry.revision is not None else self._lasting if entry.lasting else self._routine

    def latest(self, most: int) -> list[tuple[LoadBalancerKey, HistoryEntry]]:
        """Return the newest lasting entries of all load balancers, newest first."""
        entries = ((key, entry) for key in self._lasting for entry in self._lasting.of(key))
        return nlargest(most, entries, key=lambda pair: pair[1].last_at or pair[1].at)

    def load(self, key: LoadBalancerKey, stored: Iterable[HistoryEntry]) -> None:
        """Insert stored entries before those in memory, without duplicates."""
        known = self.of(key)
        at = {(entry.at, entry.text) for entry in known}
        missing = [entry for entry in stored if (entry.at, entry.text) not in at]
        if not missing:
            return
        merged = [*missing, *known]
        merged.sort(key=lambda entry: entry.last_at or entry.at)
        entries: list[HistoryEntry] = []
        for entry in merged:
            self._sequence += 1
            entries.append(msgspec.structs.replace(entry, sequence=self._sequence))
        for rings in (self._lasting, self._routine, self._revisions):
            rings.replace(key, (entry for entry in entries if self._rings_of(entry) is rings))

    def take_unsaved(self) -> list[LoadBalancerKey]:
        """Return the keys with a new ``lasting`` entry since the last call, oldest first."""
        unsaved = list(self._unsaved)
        self._unsaved.clear()
        return unsaved

    def mark_unsaved(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Make the next ``take_unsaved`` return ``keys`` again, because storing them failed."""
        self._unsaved.update(dict.fromkeys(keys))


def _text(report: Report, rows: tuple[HistoryRow, ...]) -> str:
    """Return the report's sentence, without operations that the provider is still working on."""
    if report.failure or report.done or report.held or report.quarantined or report.frontend is not None:
        return report.sentence
    return "under way: " + ", ".join(f"{row.action} {row.count} ({row.reason})" for row in rows)


def _rows(report: Report) -> tuple[HistoryRow, ...]:
    """Return the planned rows and their outcomes, by action, reason and answer."""
    groups: dict[tuple[Action, str, RowAnswer, str], list[TargetChange]] = {}

    def put(change: TargetChange, reason: str, answer: RowAnswer, message: str = "") -> None:
        groups.setdefault((change.action, reason, answer, message), []).append(change)

    done = {id(change) for change in report.done}
    for change in report.planned:
        put(change, change.reason, RowAnswer.DONE if id(change) in done else RowAnswer.OPEN)
    for answer, withheld in ((RowAnswer.HELD, report.held), (RowAnswer.QUARANTINED, report.quarantined)):
        for held in withheld:
            put(held.change, _why(held, answer), answer, held.message[:_LONGEST_TEXT])
    rows = [
        HistoryRow(action, reason, answer, len(changes), message, _names(changes))
        for (action, reason, answer, message), changes in groups.items()
    ]
    if (frontend := report.frontend) is not None:
        answer = RowAnswer.DONE if report.frontend_done else RowAnswer.OPEN
        rows.insert(0, HistoryRow(frontend.action, frontend.reason, answer))
    return tuple(rows)


def _why(held: Held, answer: RowAnswer) -> str:
    """Return the reason of a row and, if it is held, the guard that holds it."""
    return f"{held.change.reason}, {held.reason}" if answer is RowAnswer.HELD else held.change.reason


def _names(changes: list[TargetChange]) -> tuple[str, ...]:
    return tuple(_name(change) for change in changes[:NAMED_TARGETS])


def _name(change: TargetChange) -> str:
    kind, _, rest = change.target.source.partition("/")
    # kind/namespace/name/uid
    source = f" {kind}/{rest.rpartition('/')[0]}" if rest else ""
    return f"{change.listener} {change.key}{source}"
