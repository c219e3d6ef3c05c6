"""The single records that a batch of changes adds and deletes, and the changes that must not be made.

    wanted   nothing there                      record and mark are added
    wanted   others' marked values there (A..)  ours goes beside them, with the TTL that the set has
    wanted   a value without a mark of ours      refused: it is not ours (a TXT is added to texts of others)
    wanted   that very text without a mark       refused: removing ours later would remove theirs
    wanted   a CNAME where others have records   refused, whatever their type; ours are exchanged in the same update
    removed  marked by us                       mark goes; the value with the last mark of it
    removed  not marked by us                   nothing

In: changes, and the sets that ``reads`` names as they are now. Out: edits, and a sentence for each change that is
refused. Pure. Never: an edit of a record that neither a mark nor the ledger says is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlead.providers.zones.marks import (
    Holder,
    Mark,
    external_marks,
    is_external_mark,
    mark_from_text,
    mark_key,
    mark_text,
    marked,
)
from fairlead.providers.zones.rrsets import CNAME, EMPTY, TXT, TYPES, Edit, RRKey, RRSet, RRSets


class RecordChange(msgspec.Struct, frozen=True):
    """One value of one name that is wanted, or to be removed. ``known``: the ledger has it as registered.

    ``ours`` are all values of its set that the ledger has, as marks name them.
    """

    host: str
    type: str
    value: str
    ttl: int
    holder: Holder
    wanted: bool
    zone: str
    known: bool = False
    ours: frozenset[str] = frozenset()
    prefix: str = ""
    suffix: str = ""

    @property
    def key(self) -> RRKey:
        """Return the set that the record is in."""
        return RRKey(self.host, self.type)

    @property
    def mark(self) -> Mark:
        """Return the mark of the record."""
        return Mark(self.holder, marked(self.value))

    @property
    def external_marks(self) -> tuple[RRKey, ...]:
        """Return where external-dns would mark it."""
        return external_marks(self.host, self.type, self.zone, prefix=self.prefix, suffix=self.suffix)


class Planned(msgspec.Struct, frozen=True):
    """The edits of a batch, deletions first, and why changes are refused, by their index."""

    edits: tuple[Edit, ...]
    refused: dict[int, str]


def reads(changes: Iterable[RecordChange]) -> set[RRKey]:
    """Return the sets that must be known to plan ``changes``."""
    keys: set[RRKey] = set()
    for change in changes:
        types = {change.type}
        if change.wanted:
            types |= set(TYPES) if change.type == CNAME else {CNAME}
            keys |= {*change.external_marks}
        for type_ in types:
            keys |= {RRKey(change.host, type_), mark_key(change.host, type_)}
    return keys


def plan_records(changes: Sequence[RecordChange], there: RRSets) -> Planned:
    """Return what ``changes`` come to in a zone where ``there`` is what they read."""
    state = _Zone(there)
    refused: dict[int, str] = {}
    for index, change in enumerate(changes):
        if not change.wanted:
            state.remove(change)
        elif sentence := state.add(change):
            refused[index] = sentence
    return Planned(state.edits(), refused)


class _Zone:
    """A zone in which changes are made one after the other."""

    def __init__(self, there: RRSets) -> None:
        self._there = there
        self._now = dict(there)

    def add(self, change: RecordChange) -> str:
        """Add a value with its mark; returns why that must not be done, empty when it was."""
        marks = self._marks(change.host, change.type)
        if sentence := self._refusal(change, marks) or self._exchange(change):
            return sentence
        marks = self._marks(change.host, change.type)
        now = self._now.get(change.key, EMPTY)
        others = any(mark.holder != change.holder for mark in marks) or bool(self._foreign(change, marks))
        ttl = now.ttl if others and now.values else change.ttl
        self._now[change.key] = RRSet(now.values | {change.value}, ttl)
        self._put_mark(change, change.mark)
        return ""

    def remove(self, change: RecordChange) -> None:
        """Remove a value when it is ours, and no other owner has it too."""
        marks = self._marks(change.host, change.type)
        mine = change.mark
        self._drop_marks(change, {mine})
        others = any(mark.value == mine.value and mark != mine for mark in marks)
        if (mine in marks or change.known) and not others:
            self._drop_values(change.key, {change.value})

    def edits(self) -> tuple[Edit, ...]:
        """Return what differs from what there was: deletions, then additions."""
        gone: list[Edit] = []
        new: list[Edit] = []
        for key, now in sorted(self._now.items()):
            before = self._there.get(key, EMPTY)
            gone += [Edit(key, value, 0, False) for value in sorted(before.values - now.values)]
            same_ttl = now.ttl == before.ttl
            values = now.values - before.values if same_ttl or not before.values else now.values
            new += [Edit(key, value, now.ttl, True) for value in sorted(values)]
        return (*gone, *new)

    # --- inside -----------------------------------------------------------------------------------------------

    def _refusal(self, change: RecordChange, marks: set[Mark]) -> str:
        if any(map(is_external_mark, self._texts(change.external_marks))):
            return (
                f"{change.host} has a registry mark of external-dns for its {change.type} record, so it is not ours. "
                "Delete it there, or choose another host"
            )
        foreign = self._foreign(change, marks)
        if change.value in foreign if change.type == TXT else foreign:
            what = "this very text" if change.type == TXT else "a record"
            return (
                f"{change.host} has {what} of type {change.type} that Fairlead has not made; it is left as it is. "
                "Delete it, or choose another host"
            )
        return ""

    def _exchange(self, change: RecordChange) -> str:
        """Drop our records that the record excludes, unless others have such records; returns which those are."""
        types = {CNAME}
        if change.type == CNAME:
            types |= {key.type for key in self._now if key.name == change.host}
        ours = {type_: self._excluded(change, type_) for type_ in sorted(types)}
        for type_, (values, mine) in ours.items():
            if any(marked(value) not in {mark.value for mark in mine} for value in values):
                return (
                    f"{change.host} has a record of type {type_} of another owner; a name with a CNAME has no other "
                    "record; delete it, or choose another host"
                )
        for type_, (values, mine) in ours.items():
            if values:
                self._drop_values(RRKey(change.host, type_), values)
                at = msgspec.structs.replace(change, type=type_)
                self._drop_marks(at, {mark for mark in mine if mark.value != marked(change.value) or type_ != CNAME})
        return ""

    def _excluded(self, change: RecordChange, type_: str) -> tuple[frozenset[str], set[Mark]]:
        """Return the values of a type that exclude ``change``, and the marks of those that only its holder has."""
        values = self._now.get(RRKey(change.host, type_), EMPTY).values
        marks = self._marks(change.host, type_)
        theirs = {mark.value for mark in marks if mark.holder != change.holder}
        mine = {mark for mark in marks if mark.holder == change.holder and mark.value not in theirs}
        return (values - {change.value} if type_ == change.type else values), mine

    def _foreign(self, change: RecordChange, marks: set[Mark]) -> set[str]:
        """Return the values of the set that neither a mark nor the ledger says are Fairlead's."""
        ours = {mark.value for mark in marks}
        values = self._now.get(change.key, EMPTY).values
        return {value for value in values if marked(value) not in ours and not (change.known and value == change.value)}

    def _texts(self, keys: Iterable[RRKey]) -> list[str]:
        return [text for key in keys for text in self._now.get(key, EMPTY).values]

    def _marks(self, host: str, type_: str) -> set[Mark]:
        return set(filter(None, map(mark_from_text, self._texts([mark_key(host, type_)]))))

    def _put_mark(self, change: RecordChange, mark: Mark) -> None:
        key = mark_key(change.host, change.type)
        now = self._now.get(key, EMPTY)
        self._now[key] = RRSet(now.values | {mark_text(mark)}, now.ttl if now.values else change.ttl)

    def _drop_marks(self, change: RecordChange, marks: set[Mark]) -> None:
        self._drop_values(mark_key(change.host, change.type), set(map(mark_text, marks)))

    def _drop_values(self, key: RRKey, values: set[str] | frozenset[str]) -> None:
        now = self._now.get(key, EMPTY)
        self._now[key] = RRSet(now.values - values, now.ttl)
