"""Detects another hub that writes under our ownerId: marks that name us, of values that are not on record here.

    the hub that writes second   finds the marks of the first one before its update
    the one that wrote first     finds a value more when it reads the name back, and then asks for the marks

In: a batch of changes or the records of a name, and what the zone has. Out: the problem of each holder, empty for none.
Nothing is refused: a hub whose API was restored to an earlier state finds such marks, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from fairlead.providers.zones.marks import Holder, mark_from_text, mark_key
from fairlead.providers.zones.moves import Value, row
from fairlead.providers.zones.plan import RecordChange
from fairlead.providers.zones.rrsets import EMPTY, RRSets
from fairlead.providers.zones.settings import NameSettings
from fairlead.providers.zones.zone_server import ZoneServer
from fairlead.runtime.clock import Clock

log = structlog.get_logger(__name__)


#: For how long a name has more values than are on record before that says something, in seconds: an update of our own
#: whose answer was lost is made again within it.
_SURE_AFTER_S = 15.0


class SharedOwners:
    """The names that another hub writes under our ownerId, as far as it has been seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[Holder, str] = {}
        #: Since when a name has more than is on record (monotonic seconds).
        self._since_s: dict[Holder, float] = {}

    def of(self, holder: Holder) -> str:
        """Return the problem of one holder as a sentence, empty for none."""
        return self._said.get(holder, "")

    def note(self, changes: Sequence[RecordChange], there: RRSets) -> None:
        """Look at a batch of changes, with the marks that were there before it."""
        for holder, sentence in shared_owner(changes, there).items():
            before = self._said.pop(holder, "")
            if sentence:
                self._said[holder] = sentence
                if sentence != before:
                    log.warning("the ownerId of a zone is not ours alone", host=changes[0].host, why=sentence)

    async def look(self, settings: NameSettings, held: Collection[Value], kept: set[Value], server: ZoneServer) -> None:
        """Look at a name that was read back; its marks are asked for only when it has more than is on record."""
        holder, types = settings.holder, {type_ for type_, _ in kept - set(held)}
        if not types:
            self.forget(holder)
            return
        now_s = self._clock.monotonic()
        if now_s - self._since_s.setdefault(holder, now_s) < _SURE_AFTER_S:
            return
        there = await server.kept({mark_key(settings.name, type_) for type_ in types})
        self.note([row(settings, type_, value, 0, wanted=True) for type_, value in held if type_ in types], there)

    def forget(self, holder: Holder) -> None:
        """Drop what was seen of a name that is gone, or has what is on record."""
        self._said.pop(holder, None)
        self._since_s.pop(holder, None)


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
