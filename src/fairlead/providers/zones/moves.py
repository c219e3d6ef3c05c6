"""Moves a name from one zone into another at the same kind of server.

    record     the ledger has where it is to be, beside where it is (``place_of``), before anything is written
    copy       what is ours in the former zone is added to the new one, with its marks, and read back
    withdraw   the same is taken from the former zone, and nothing else; then it is on record in the new one alone

In: settings of both. Out: rows to add, edits to make. A former zone that has been delegated does not answer for the
name any more: what the ledger knows is taken from it by value, which needs no answer. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from fairlead.model.observed import UNFINISHED
from fairlead.providers.zones.marks import Mark, mark_from_text, mark_key, mark_text, marked
from fairlead.providers.zones.plan import RecordChange
from fairlead.providers.zones.rrsets import EMPTY, TXT, TYPES, Edit, RRKey, RRSets, canonical_name
from fairlead.providers.zones.settings import NameSettings

Value = tuple[str, str]
_TTL = 60


def place_of(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return what is on record of where a name is: all that is needed to find its zone again."""
    return {name: value for name, value in parameters.items() if name != "host"}


def former_parameters(parameters: Mapping[str, str], place: Mapping[str, str]) -> dict[str, str] | None:
    """Return the parameters of the zone that a name is in by ``place``; None when it is where ``parameters`` say."""
    zone = canonical_name(place.get("zone", ""))
    if not zone or zone == canonical_name(parameters.get("zone", "")):
        return None
    place = {name: value for name, value in place.items() if name != UNFINISHED}
    if "server" not in place:  # written before the server was on record
        return {**parameters, "zone": zone}
    return {"ownerId": parameters.get("ownerId", ""), **place, "host": parameters.get("host", "")}


def unfinished(parameters: Mapping[str, str], place: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the parameters of zones that a name was on its way to when it was wanted elsewhere; it may be in them."""
    zone = canonical_name(parameters.get("zone", ""))
    asked: list[dict[str, str]] = json.loads(place.get(UNFINISHED, "[]"))
    return [each for each in asked if canonical_name(each.get("zone", "")) != zone]


def is_elsewhere(before: NameSettings, now: NameSettings) -> bool:
    """Return whether ``now`` is another zone, and not another server or key of the same."""
    return before.server.zone != now.server.zone


def zone_reads(name: str) -> set[RRKey]:
    """Return all sets that a name may have, and their marks."""
    return {key for type_ in TYPES for key in (RRKey(name, type_), mark_key(name, type_))}


def values_of(there: RRSets, name: str) -> list[Value]:
    """Return all values of a name, without its marks, ordered."""
    return sorted((key.type, value) for key, rrset in there.items() if key.name == name for value in rrset.values)


def ours_in(there: RRSets, settings: NameSettings) -> set[Value]:
    """Return the values whose marks say that they are this name's."""
    ours: set[Value] = set()
    for type_ in TYPES:
        marks = set(map(mark_from_text, there.get(mark_key(settings.name, type_), EMPTY).values))
        values = there.get(RRKey(settings.name, type_), EMPTY).values
        ours |= {(type_, value) for value in values if Mark(settings.holder, marked(value)) in marks}
    return ours


def row(settings: NameSettings, type_: str, value: str, ttl: int, *, wanted: bool, known: bool = False) -> RecordChange:
    """Return one change of a name in its zone."""
    return RecordChange(
        settings.name,
        type_,
        value,
        ttl,
        settings.holder,
        wanted,
        settings.server.zone,
        known=known,
        prefix=settings.prefix,
        suffix=settings.suffix,
    )


def copies(values: Iterable[Value], there: RRSets, settings: NameSettings) -> list[RecordChange]:
    """Return the rows that add ``values`` to the new zone, each with the TTL that it has in the former one."""
    return [
        row(settings, type_, value, there.get(RRKey(settings.name, type_), EMPTY).ttl or _TTL, wanted=True)
        for type_, value in sorted(values)
    ]


def blind_removal(values: Collection[Value], settings: NameSettings) -> list[Edit]:
    """Return the edits that take ``values`` with their marks from a zone that does not answer for the name."""
    edits: list[Edit] = []
    for type_, value in sorted(values):
        mark = mark_text(Mark(settings.holder, marked(value)))
        edits += [
            Edit(RRKey(settings.name, type_), value, 0, False),
            Edit(RRKey(mark_key(settings.name, type_).name, TXT), mark, 0, False),
        ]
    return edits
