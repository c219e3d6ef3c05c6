"""Hubs that publish addresses of the same names: each keeps a lease in the zone, and follows those of the others.

    fairlead-hub-3f2a….example.com TXT "heritage=fairlead,fairlead/hub=hub-1,fairlead/lease=60,fairlead/expires=…"

In: the ownerIds that marks show. Out: the hubs that can be relied on, and those whose lease has expired. A lease
expires when its text has stayed the same for its duration while this hub could read it, so the clocks of hubs may
differ. A hub that keeps no lease, such as one of an earlier release, can be relied on. Never: a judgement that was not
confirmed within ``JUDGED_S``, or time that counts in which the zone could not be read.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import structlog

from fairlead.api.times import wire_time
from fairlead.model.in_words import whole_number
from fairlead.providers.zones.plan import EMPTY, Edit, PeerHubs, RRKey, RRSets, host_of_marks, lease_key, mark_from_text
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import Clock

_HERITAGE = "heritage=fairlead"
_LONGEST_S = 3600
#: For how long a lease that was read counts, in seconds; a turn takes three, so two may fail.
JUDGED_S = 10.0

log = structlog.get_logger(__name__)

Update = Callable[[ServerSettings, Sequence[Edit], RRSets], Awaitable[bool]]


class LeaseReader(Protocol):
    """The part of a ``ZoneServer`` that has leases."""

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the zone has of ``keys``."""
        ...


class ZoneLease(NamedTuple):
    """The lease of one hub in one zone; ``seconds`` 0: it keeps none."""

    settings: ServerSettings
    owner: str
    seconds: int

    @property
    def key(self) -> RRKey:
        """Return the set that has the lease."""
        return lease_key(self.owner, self.settings.zone)


class _Seen(NamedTuple):
    """The text of a lease, since when it is the same, and when it was read last (monotonic seconds)."""

    text: str
    since_s: float
    read_s: float


def lease_text(lease: ZoneLease, expires: str) -> str:
    """Return the text of a lease; ``expires`` (RFC 3339) is for people, and differs each time."""
    fields = (f"hub={lease.owner}", f"lease={lease.seconds}", f"expires={expires}")
    return ",".join((_HERITAGE, *(f"fairlead/{field}" for field in fields)))


def is_lease(text: str) -> bool:
    """Return whether ``text`` is the lease of a hub."""
    return text.startswith(f"{_HERITAGE},fairlead/hub=")


def lease_seconds(text: str, owner: str) -> int | None:
    """Return the duration in a lease of ``owner``; None when ``text`` is another text."""
    heritage, *fields = text.split(",")
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    if heritage != _HERITAGE or values.get("fairlead/hub") != owner:
        return None
    return whole_number(values.get("fairlead/lease", ""), least=1, most=_LONGEST_S)


class PeerLeases:
    """The leases in the zones of one provider. ``update`` writes a zone, without another update at the same time."""

    def __init__(self, clock: Clock, *, update: Update) -> None:
        self._clock = clock
        self._update = update
        #: When the lease of a hub was written, and for how many seconds.
        self._written: dict[tuple[ServerSettings, str], tuple[float, int]] = {}
        self._seen: dict[tuple[ServerSettings, str], _Seen] = {}
        #: The ownerIds in the marks of each host.
        self._owners: dict[ServerSettings, dict[str, frozenset[str]]] = {}
        #: What was judged last, and when the zone was asked for it.
        self._judged: dict[ServerSettings, tuple[PeerHubs, float]] = {}

    def look(self, settings: ServerSettings, there: RRSets) -> None:
        """Note the owners of the marks in ``there``."""
        by_host: dict[str, set[str]] = {}
        for key, rrset in there.items():
            if (host := host_of_marks(key)) is not None:
                owners = {mark.holder.owner for mark in map(mark_from_text, rrset.values) if mark is not None}
                by_host.setdefault(host, set()).update(owners)
        self._owners.setdefault(settings, {}).update({host: frozenset(owners) for host, owners in by_host.items()})

    def owners_of(self, settings: ServerSettings, host: str) -> frozenset[str]:
        """Return the ownerIds that had addresses of ``host`` when it was read last."""
        return self._owners.get(settings, {}).get(host, frozenset())

    def judged(self, settings: ServerSettings) -> PeerHubs:
        """Return the other hubs of a zone; all are unknown when their leases were not read for ``JUDGED_S``."""
        hubs, asked_s = self._judged.get(settings, (PeerHubs(), -math.inf))
        return hubs if self._clock.monotonic() - asked_s <= JUDGED_S else PeerHubs()

    def forget(self, settings: ServerSettings, host: str) -> None:
        """Drop the owners of a name that this hub no longer has."""
        self._owners.get(settings, {}).pop(host, None)

    def keep(self, zones: Collection[ServerSettings]) -> None:
        """Drop what belongs to zones that are no longer used."""
        for by_zone in (self._owners, self._judged):
            for settings in by_zone.keys() - zones:
                del by_zone[settings]
        for by_hub in (self._written, self._seen):
            for hub in [hub for hub in by_hub if hub[0] not in zones]:
                del by_hub[hub]

    async def turn(self, lease: ZoneLease, server: LeaseReader) -> None:
        """Renew the lease of this hub when it is due, and read those of all others."""
        settings, now_s = lease.settings, self._clock.monotonic()
        others = frozenset[str]().union(*self._owners.get(settings, {}).values()) - {lease.owner}
        keys = {owner: lease_key(owner, settings.zone) for owner in sorted(others) if lease.seconds}
        # An earlier process may have left a lease, so this one looks once even if it keeps none.
        written_s, seconds = self._written.get(lease[:2], (-math.inf, -1))
        is_due = seconds != lease.seconds or now_s - written_s >= (lease.seconds / 3 or math.inf)
        if not is_due and not keys:
            return
        there = await server.read({*keys.values(), lease.key})
        if is_due:
            await self._write(lease, there)
        before, _ = self._judged.get(settings, (PeerHubs(), 0.0))
        texts = {owner: there.get(key, EMPTY).values for owner, key in keys.items()}
        expired = {
            owner: values
            for owner, values in texts.items()
            if self._has_expired(settings, owner, values, asked_s=now_s)
        }
        self._judged[settings] = (PeerHubs(others - expired.keys(), expired), now_s)
        for owner in sorted(expired.keys() ^ before.expired.keys()):
            log.warning("the lease of a hub", zone=settings.zone, hub=owner, expired=owner in expired)

    async def _write(self, lease: ZoneLease, there: RRSets) -> None:
        """Renew the lease, or delete it when this hub keeps none: others would judge an expired one."""
        now_s, expires = self._clock.monotonic(), self._clock.now() + timedelta(seconds=lease.seconds)
        text = lease_text(lease, wire_time(expires)) if lease.seconds else ""
        texts = there.get(lease.key, EMPTY).values
        old = sorted(old for old in texts - {text} if lease_seconds(old, lease.owner) is not None)
        edits = [Edit(lease.key, old_text, 0, False) for old_text in old]
        if text and text not in texts:
            edits.append(Edit(lease.key, text, max(1, lease.seconds // 3), True))
        if not edits or await self._update(lease.settings, edits, there):
            self._written[lease[:2]] = (now_s, lease.seconds)

    def _has_expired(self, settings: ServerSettings, owner: str, texts: Iterable[str], *, asked_s: float) -> bool:
        # An answer may be as old as its question: time counts from one answer to a later question.
        now_s = self._clock.monotonic()
        durations = {text: seconds for text in texts if (seconds := lease_seconds(text, owner)) is not None}
        if not durations:
            self._seen.pop((settings, owner), None)
            return False
        text, duration_s = ";".join(sorted(durations)), max(durations.values())
        before = self._seen.get((settings, owner))
        same = before is not None and before.text == text and now_s - before.read_s <= duration_s / 2
        since_s = before.since_s if same and before is not None else now_s
        self._seen[settings, owner] = _Seen(text, since_s, now_s)
        return asked_s - since_s > duration_s
