"""The content of a zone, the marks that say whose it is, and the single records that a batch of changes edits.

    wanted   nothing there                       record and mark are added
    wanted   others' marked values there (A..)   ours is added, with the TTL of the set
    wanted   a value without a mark of ours      rejected: it is not ours (a TXT is added to texts of others)
    wanted   that very text without a mark       rejected: removing ours later would remove theirs
    wanted   a CNAME where others have records   rejected, whatever their type; ours are exchanged in the same update
    wanted   an address where others have        rejected: the server answers for the name's addresses by that record
             ALIAS or LUA (PowerDNS)
    wanted   ours, of a load balancer that does  withdrawn with its mark while another address can be relied on:
             not serve; other hubs share the     a healthy one of ours, or one of a hub that is judged reliable
             name (A, AAAA)
    wanted   a healthy address of ours, and      theirs are withdrawn with their marks
             those of a hub with expired lease
    removed  marked by us                        the mark goes; the value with the last mark of it
    removed  not marked by us                    nothing

A value of ours whose mark was deleted is ours while the ledger has it. Marks are written before their values, and
deleted after them, so that a change that is made in part leaves no value without an owner.

Marks are TXT records:

    fairlead-a.www.example.com TXT "heritage=fairlead,fairlead/owner=hub-1,fairlead/for=5d2c…,fairlead/value=192.0.2.1"
    a-www.example.com          TXT "heritage=external-dns,external-dns/owner=prod,…"       (external-dns's registry)

A mark of ours is about one value, so that several hubs may each have values of one name. Names are in lower case
without a final dot, values are text in one canonical form. In: changes, and the sets that ``reads`` names as they are
now. Out: edits, and a sentence for each rejected change. Pure. Never: an edit of a record that neither a mark nor the
ledger says is ours, or the name of a tenant in a zone.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fairlead.api.hostname import is_within
from fairlead.api.names import short_hash


class PeerHubs(NamedTuple):
    """The ownerIds of other hubs: those that can be relied on, and those whose lease has expired, with its texts.

    A hub in neither is unknown: no address is withdrawn because of such a hub, and none of its addresses.
    """

    reliable: frozenset[str] = frozenset()
    expired: Mapping[str, frozenset[str]] = MappingProxyType({})

    def leases(self, zone: str) -> set[RRKey]:
        """Return the sets with the leases that have expired."""
        return {lease_key(owner, zone) for owner in self.expired}

    def confirmed(self, zone: str, there: RRSets) -> PeerHubs:
        """Return the hubs without those whose lease is not in ``there`` as it was when it expired."""
        same = {
            owner: texts
            for owner, texts in self.expired.items()
            if there.get(lease_key(owner, zone), EMPTY).values == texts
        }
        return self._replace(expired=same)


class RecordChange(msgspec.Struct, frozen=True):
    """One value of one name that is wanted, or to be removed.

    ``ours`` are the values of the name that the ledger has, each with its type; ``unhealthy`` those of the set whose
    load balancer does not serve, as marks name them. ``hubs`` are the others; None when no other hub shares the name.
    """

    host: str
    type: str
    value: str
    ttl: int
    holder: Holder
    wanted: bool
    zone: str
    ours: frozenset[Value] = frozenset()
    unhealthy: frozenset[str] = frozenset()
    hubs: PeerHubs | None = None
    prefix: str = ""
    suffix: str = ""

    @property
    def registered(self) -> bool:
        """Return whether the ledger has it."""
        return (self.type, self.value) in self.ours

    @property
    def is_shared(self) -> bool:
        """Return whether other hubs may have addresses of the set."""
        return self.hubs is not None and self.type in (A, AAAA)

    @property
    def is_unhealthy(self) -> bool:
        """Return whether another address of the set is preferred to this one."""
        return self.is_shared and self.mark.value in self.unhealthy

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
    # An unhealthy address is planned by what is left once all others are added and removed.
    for index, change in sorted(enumerate(changes), key=lambda row: row[1].wanted and row[1].is_unhealthy):
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
        #: The sets that lose values because of what was read, each with the sets that must still be as they were read:
        #: itself, since it keeps an answer or a value its mark, and the leases of hubs whose values it loses.
        self._withdrawn: dict[RRKey, set[RRKey]] = {}

    def add(self, change: RecordChange) -> str:
        """Add a value with its mark; returns why that must not be done, empty when it was."""
        marks = self._marks(change.host, change.type)
        if sentence := self._refusal(change, marks) or self._exchange(change):
            return sentence
        if change.is_unhealthy and self._has_reliable(change):
            self._withdraw(change, {change.mark})
            return ""
        if change.is_shared and change.hubs is not None and not change.is_unhealthy:
            marks = self._marks(change.host, change.type)
            gone = {mark for mark in marks if mark.holder.owner in change.hubs.expired}
            self._withdraw(change, gone, keep=change.value)
        marks = self._marks(change.host, change.type)
        now = self._now.get(change.key, EMPTY)
        foreign = bool(self._foreign(change, marks))
        others = any(mark.holder != change.holder for mark in marks) or foreign
        ttl = now.ttl if others and now.values else change.ttl
        if change.is_shared and not foreign:
            ttl = min(ttl, change.ttl)  # hubs agree on the shortest one
        self._now[change.key] = RRSet(now.values | {change.value}, ttl)
        key = mark_key(change.host, change.type)
        texts = self._now.get(key, EMPTY)
        self._now[key] = RRSet(texts.values | {mark_text(change.mark)}, texts.ttl if texts.values else change.ttl)
        return ""

    def remove(self, change: RecordChange) -> None:
        """Remove a value when it is ours, and no other owner has it too."""
        marks = self._marks(change.host, change.type)
        mine = change.mark
        self._drop_marks(change, {mine})
        key = mark_key(change.host, change.type)
        if any(mark.value == mine.value and mark != mine for mark in marks):
            # Its other owners may remove it at the same time, and each would leave it to the other.
            self._as_read(key, {key})
        elif mine in marks or change.registered:
            self._drop_values(change.key, {change.value})
            # Another hub may mark the value at the same time, without adding it again.
            self._as_read(change.key, {key})

    def edits(self) -> tuple[Edit, ...]:
        """Return what differs from what there was: deletions, then additions."""
        gone: list[Edit] = []
        new: list[Edit] = []
        for key, now in sorted(self._now.items()):
            before = self._there.get(key, EMPTY)
            as_read = frozenset(self._withdrawn.get(key, ()))
            gone += [Edit(key, value, 0, False, as_read) for value in sorted(before.values - now.values)]
            same_ttl = now.ttl == before.ttl
            values = now.values - before.values if same_ttl or not before.values else now.values
            new += [Edit(key, value, now.ttl, True) for value in sorted(values)]
        return (*sorted(gone, key=is_mark), *sorted(new, key=is_mark, reverse=True))

    # --- inside -----------------------------------------------------------------------------------------------

    def _has_reliable(self, change: RecordChange) -> bool:
        """Return whether the set has another value that clients may be sent to."""
        values = set(map(marked, self._now.get(change.key, EMPTY).values))
        reliable = change.hubs.reliable if change.hubs is not None else ()
        return any(
            mark.value in values
            and (mark.value not in change.unhealthy if mark.holder == change.holder else mark.holder.owner in reliable)
            for mark in self._marks(change.host, change.type) - {change.mark}
        )

    def _withdraw(self, change: RecordChange, marks: set[Mark], *, keep: str = "") -> None:
        """Drop ``marks``, and the values of the set that no other mark names."""
        if not marks:
            return
        left = {mark.value for mark in self._marks(change.host, change.type) - marks}
        values = self._now.get(change.key, EMPTY).values - {keep}
        gone = {mark.value for mark in marks} - left
        self._drop_marks(change, marks)
        self._drop_values(change.key, {value for value in values if marked(value) in gone})
        owners = {mark.holder.owner for mark in marks - {change.mark}}
        leases = {lease_key(owner, change.zone) for owner in owners}
        key = mark_key(change.host, change.type)
        self._as_read(change.key, {change.key, *leases})
        self._as_read(key, {key, *leases})

    def _as_read(self, key: RRKey, sets: set[RRKey]) -> None:
        self._withdrawn.setdefault(key, set()).update(sets)

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
                f"{change.host} has {what} of type {change.type} that Fairlead did not create, and keeps it. "
                "Delete it, or choose another host"
            )
        return ""

    def _exchange(self, change: RecordChange) -> str:
        """Drop our records that the record excludes, unless others have such records; returns which those are."""
        types = {CNAME}
        if change.type == CNAME:
            types |= {key.type for key in self._now if key.name == change.host}
        elif change.type in (A, AAAA):
            types |= COMPUTED
        ours = {type_: self._excluded(change, type_) for type_ in sorted(types)}
        for type_, (values, mine) in ours.items():
            if any(marked(value) not in {mark.value for mark in mine} for value in values):
                why = "computes the addresses of the name" if type_ in COMPUTED else "allows no other records"
                if change.type == CNAME:
                    why = "excludes a CNAME"
                return (
                    f"{change.host} has a record of type {type_} of another owner, which {why}. Delete it, or choose "
                    "another host"
                )
        for type_, (values, mine) in ours.items():
            if values:
                key = RRKey(change.host, type_)
                self._drop_values(key, values)
                self._as_read(key, {mark_key(change.host, type_)})
                at = replace(change, type=type_)
                self._drop_marks(at, {mark for mark in mine if mark.value != marked(change.value) or type_ != CNAME})
        return ""

    def _excluded(self, change: RecordChange, type_: str) -> tuple[frozenset[str], set[Mark]]:
        """Return the values of a type that exclude ``change``, and the marks of those that only its holder has."""
        values = self._now.get(RRKey(change.host, type_), EMPTY).values
        marks = self._marks(change.host, type_)
        theirs = {mark.value for mark in marks if mark.holder != change.holder}
        recorded = {Mark(change.holder, marked(value)) for of_type, value in change.ours if of_type == type_}
        mine = {mark for mark in marks | recorded if mark.holder == change.holder and mark.value not in theirs}
        return (values - {change.value} if type_ == change.type else values), mine

    def _foreign(self, change: RecordChange, marks: set[Mark]) -> set[str]:
        """Return the values of the set that neither a mark nor the ledger says are Fairlead's."""
        ours = {mark.value for mark in marks}
        values = self._now.get(change.key, EMPTY).values
        return {value for value in values if marked(value) not in ours and (change.type, value) not in change.ours}

    def _texts(self, keys: Iterable[RRKey]) -> list[str]:
        return [text for key in keys for text in self._now.get(key, EMPTY).values]

    def _marks(self, host: str, type_: str) -> set[Mark]:
        return set(filter(None, map(mark_from_text, self._texts([mark_key(host, type_)]))))

    def _drop_marks(self, change: RecordChange, marks: set[Mark]) -> None:
        self._drop_values(mark_key(change.host, change.type), set(map(mark_text, marks)))

    def _drop_values(self, key: RRKey, values: set[str] | frozenset[str]) -> None:
        now = self._now.get(key, EMPTY)
        self._now[key] = RRSet(now.values - values, now.ttl)


_PREFIX = "fairlead-"
#: The longest label that is put before a host.
PREFIX_LENGTH = len(f"{_PREFIX}cname.")
_HERITAGE = "heritage=fairlead"
_THEIR_HERITAGE = "heritage=external-dns"
_LONGEST_VALUE = 100


#: A record of a name: its type and value.
Value = tuple[str, str]


class Holder(NamedTuple):
    """The holder of a value: the hub (ownerId of the zone), and which of its objects, as a digest."""

    owner: str
    object: str


class Mark(NamedTuple):
    """One value that one object of one hub has."""

    holder: Holder
    value: str


def mark_key(host: str, type_: str) -> RRKey:
    """Return where the marks of the records of ``host`` with this type are."""
    return RRKey(f"{_PREFIX}{type_.lower()}.{host}", TXT)


def lease_key(owner: str, zone: str) -> RRKey:
    """Return the set that has the lease of a hub; an ownerId may have characters that a label cannot have."""
    return RRKey(f"{_PREFIX}hub-{short_hash(owner, size_bytes=8)}.{zone}", TXT)


def host_of_marks(key: RRKey) -> str | None:
    """Return the name whose addresses have their marks in this set; None for any other set."""
    label, _, host = key.name.partition(".")
    return host if key.type == TXT and label in (f"{_PREFIX}a", f"{_PREFIX}aaaa") else None


def marked(value: str) -> str:
    """Return ``value`` as marks name it; a long one by its digest."""
    if len(value) <= _LONGEST_VALUE and not set(value) & {",", '"', "\\"} and value.isascii():
        return value
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:40]}"


def mark_text(mark: Mark) -> str:
    """Return the text of a mark."""
    fields = (f"owner={mark.holder.owner}", f"for={mark.holder.object}", f"value={mark.value}")
    return ",".join((_HERITAGE, *(f"fairlead/{field}" for field in fields)))


def mark_from_text(text: str) -> Mark | None:
    """Return the mark that ``text`` is, None when it is another text."""
    heritage, *fields = text.strip('"').split(",")
    if heritage != _HERITAGE:
        return None
    values = dict(field.removeprefix("fairlead/").split("=", 1) for field in fields if "=" in field)
    if not {"owner", "for", "value"} <= values.keys():
        return None
    return Mark(Holder(values["owner"], values["for"]), values["value"])


def host_of(edit: Edit) -> str:
    """Return the name that an edit is about; a mark is about the name below its first label."""
    return edit.key.name.partition(".")[2] if is_mark(edit) else edit.key.name


def is_mark(edit: Edit) -> bool:
    """Return whether the record is a mark."""
    return edit.key.type == TXT and mark_from_text(edit.value) is not None


def external_marks(host: str, type_: str, zone: str, *, prefix: str = "", suffix: str = "") -> tuple[RRKey, ...]:
    """Return where external-dns marks what it has of ``host``: its present format, and its former one."""
    label, dot, rest = host.partition(".")
    with_type = (f"{prefix}{type_.lower()}-{label}{suffix}{dot}{rest}", f"{prefix}{label}{suffix}{dot}{rest}")
    return tuple(RRKey(name, TXT) for name in with_type if is_within(name, zone))


def is_external_mark(text: str) -> bool:
    """Return whether ``text`` is a mark of external-dns."""
    return text.strip('"').startswith(_THEIR_HERITAGE)


A, AAAA, CNAME, TXT = "A", "AAAA", "CNAME", "TXT"
#: Asks for all sets of a name.
ANY = "ANY"
#: The types that a Hostname may have, in the order in which they are planned.
TYPES = (A, AAAA, CNAME, TXT)
#: Types of PowerDNS from which it computes the addresses of a name.
COMPUTED = frozenset({"ALIAS", "LUA"})


class RRKey(NamedTuple):
    """A set of records: its name and its type."""

    name: str
    type: str


class RRSet(msgspec.Struct, frozen=True):
    """The values of one set, and the TTL (seconds) that they share."""

    values: frozenset[str] = frozenset()
    ttl: int = 0


RRSets = Mapping[RRKey, RRSet]
EMPTY = RRSet()


class Edit(NamedTuple):
    """One record that is added, or deleted; ``ttl`` counts for additions.

    ``as_read``: only while these sets are exactly as they were read, so that no answer is emptied by two hubs, and no
    address withdrawn whose hub has renewed its lease meanwhile.
    """

    key: RRKey
    value: str
    ttl: int
    add: bool
    as_read: frozenset[RRKey] = frozenset()


def canonical_name(name: str) -> str:
    """Return ``name`` in lower case and without its final dot."""
    return name.lower().removesuffix(".")


def canonical_value(type_: str, value: str) -> str:
    """Return ``value`` of a record as this provider writes it everywhere."""
    if type_ in (A, AAAA):
        return str(ipaddress.ip_address(value))
    return canonical_name(value) if type_ == CNAME else value
