"""Detects changes of a zone by others, so that its names are read back before their turn.

    the serial of the zone moved further than our own updates   every name of it is asked for once
    a server that answers later than it is written              names that it does not answer yet are asked for

In: the servers of zones, what they hold, how each name was answered last. Out: names whose answer differs from that.
One question for each zone every few seconds; a sweep takes at most a tenth of the time. Never: an update, or a decision
about a name: that is the readback's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import structlog

from fairlead.errors import FairleadError, Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.zones.answers import OUTSIDE_ZONE, Answering
from fairlead.providers.zones.plan import EMPTY, RRKey, RRSets
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import Clock

#: How often a zone is asked for its serial, in seconds.
FOLLOW_S = 3.0
_AT_ONCE = 256
#: Names that are not answered yet and asked for in one turn.
_PENDING = 256
_REST = 9.0
_SERIALS = 1 << 32

log = structlog.get_logger(__name__)


class Followed(msgspec.Struct, frozen=True):
    """One name: its records, and whether all of them were answered when it was last read back; None: never read."""

    key: LoadBalancerKey
    records: frozenset[tuple[RRKey, str]]
    complete: bool | None


def is_complete(records: Iterable[tuple[RRKey, str]], there: RRSets) -> bool:
    """Return whether every record is answered."""
    return all(value in there.get(key, EMPTY).values for key, value in records)


def moved_by_others(before: int, now: int, ours: int) -> bool:
    """Return whether a serial moved further than ``ours`` updates did (serials wrap around, RFC 1982)."""
    return (now - before) % _SERIALS > ours


class ZoneFollower:
    """Follows the zones of one provider."""

    def __init__(
        self,
        *,
        clock: Clock,
        servers: Callable[[], Mapping[ServerSettings, Answering]],
        names: Callable[[ServerSettings], Iterable[Followed]],
        notify: Callable[[LoadBalancerKey], None],
    ) -> None:
        self._clock = clock
        self._servers = servers
        self._names = names
        self._notify = notify
        self._serials: dict[ServerSettings, int] = {}
        self._updates: dict[ServerSettings, int] = {}
        self._rest_until_s: dict[ServerSettings, float] = {}

    def began(self, settings: ServerSettings, serial: int) -> None:
        """Follow a zone from this serial on, unless it is followed already."""
        self._serials.setdefault(settings, serial)

    def updated(self, settings: ServerSettings) -> None:
        """Count an update of our own, which moves the serial by one."""
        self._updates[settings] = self._updates.get(settings, 0) + 1

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._clock.sleep(FOLLOW_S)
            for settings, server in self._servers().items():
                try:
                    await self.look(settings, server)
                except FairleadError as error:
                    # Who reads the names back says so; here it is only not known whether something changed.
                    log.debug("zone not followed", zone=settings.zone, error=error.sentence)

    async def look(self, settings: ServerSettings, server: Answering) -> None:
        """Ask one zone, and notify of names that are answered otherwise than before."""
        if self._clock.monotonic() < self._rest_until_s.get(settings, 0.0):
            return
        if not server.immediate:
            pending = islice((name for name in self._names(settings) if name.complete is False), _PENDING)
            await self._ask(server, list(pending))
        ours = self._updates.pop(settings, 0)
        serial = await server.serial()
        before = self._serials.get(settings, serial)
        if moved_by_others(before, serial, ours):
            began_s = self._clock.monotonic()
            for chunk in _chunks(self._names(settings)):
                await self._ask(server, chunk)
            now_s = self._clock.monotonic()
            self._rest_until_s[settings] = now_s + _REST * (now_s - began_s)
        # Only now: what a sweep that failed has missed is swept again.
        self._serials[settings] = serial

    async def _ask(self, server: Answering, names: Sequence[Followed]) -> None:
        keys = {key for name in names for key, _ in name.records}
        try:
            there = await server.answers(keys) if keys else {}
        except Retry as error:
            if error.reason not in OUTSIDE_ZONE:
                raise
            if len(names) == 1:
                self._notify(names[0].key)  # its readback reports the error
                return
            await self._ask(server, names[: len(names) // 2])
            await self._ask(server, names[len(names) // 2 :])
            return
        for name in names:
            if name.records and is_complete(name.records, there) is not name.complete:
                self._notify(name.key)


def _chunks(names: Iterable[Followed]) -> Iterator[list[Followed]]:
    left = iter(list(names))
    while chunk := list(islice(left, _AT_ONCE)):
        yield chunk
