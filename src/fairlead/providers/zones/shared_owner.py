"""Does another hub write under our ownerId? Marks that name us, of values that are not on record here, say so.

In: a batch of changes, and the sets that it reads as they were before it. Out: the problem of each holder, empty for
none. Nothing is refused: a hub whose API was restored to an earlier state finds such marks, too. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.providers.zones.marks import Holder, mark_from_text, mark_key
from fairlead.providers.zones.plan import RecordChange
from fairlead.providers.zones.rrsets import EMPTY, RRSets


def shared_owner(changes: Sequence[RecordChange], there: RRSets) -> dict[Holder, str]:
    """Return the problem of each holder in ``changes`` as a sentence, empty for none."""
    wanted = {(each.holder, each.key): each for each in changes if each.wanted}
    unknown: dict[Holder, list[str]] = {each.holder: [] for each in changes}
    for (holder, key), change in wanted.items():
        ours = change.ours | {each.mark.value for each in changes if (each.holder, each.key) == (holder, key)}
        marks = map(mark_from_text, there.get(mark_key(*key), EMPTY).values)
        values = {mark.value for mark in marks if mark is not None and mark.holder == holder}
        unknown[holder] += [f"{key.type} {value}" for value in sorted(values - ours)]
    return {holder: _sentence(holder, values) for holder, values in unknown.items()}


def _sentence(holder: Holder, values: Sequence[str]) -> str:
    if not values:
        return ""
    return (
        f"{', '.join(values[:3])} is marked with ownerId {holder.owner} and is not on record here: another hub has the "
        "same ownerId, and each would remove what the other one has written; set spec.ownerId of the DNSZone of one of "
        "them. If this hub's API was restored to an earlier state, delete the record by hand"
    )
