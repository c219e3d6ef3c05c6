"""A DNS server as a provider of the ledger.

    ensure     checks that the server answers for the zone; a name in another zone is moved
    apply      reads, plans, sends one update for many names, and reads back
    observe    what the authoritative server answers; None when all registered records are gone where they were written
    delete     removes the records that our marks assign to the name, also from zones of unfinished moves

In: the ``Provider`` protocol. Out: records of a zone. One batch at a time for each zone, so that no plan is based on
records that are changing; changes that arrive meanwhile are sent together. Never: a record that neither a mark nor the
ledger assigns to us.

``ZoneFollower`` detects changes of a zone by others, so that its names are read back before their turn:

    the serial of the zone moved further than our own updates   every name of it is asked for once
    a server that answers later than it is written              names that it does not answer yet are asked for

One question for each zone every few seconds; a sweep takes at most a tenth of the time. Never: an update, or a decision
about a name: that is the readback's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import islice

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.api.json_text import read_json
from fairlead.errors import BadConfiguration, FairleadError, Retry, Terminal
from fairlead.model.change import DONE, Outcome, OutcomeStatus, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import Capabilities, RestoredBackend
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, RECORD_UNHEALTHY, LoadBalancerKey, TargetKey, backend_key
from fairlead.model.observed import UNFINISHED, Ensured, Health, Observed, ObservedTarget
from fairlead.providers.readback_watch import LoadBalancerStates
from fairlead.providers.zones.answers import OUTSIDE_ZONE, Answering, RecentAnswers, ZoneServer
from fairlead.providers.zones.connection import UpdateBatcher
from fairlead.providers.zones.peers import JUDGED_S, PeerLeases, ZoneLease
from fairlead.providers.zones.plan import (
    EMPTY,
    TXT,
    TYPES,
    Edit,
    Holder,
    Mark,
    PeerHubs,
    RecordChange,
    RRKey,
    RRSets,
    Value,
    canonical_name,
    canonical_value,
    host_of,
    mark_from_text,
    mark_key,
    mark_text,
    marked,
    plan_records,
    reads,
)
from fairlead.providers.zones.settings import NameSettings, ServerSettings, failure_domain, settings_from_spec
from fairlead.runtime.background import all_done, end, keep_running, watched
from fairlead.runtime.clock import Clock, SystemClock

#: How often a zone is asked for its serial, in seconds.
FOLLOW_S = 3.0
_AT_ONCE = 256
#: Names that are not answered yet and asked for in one turn.
_PENDING = 256
_REST = 9.0
_SERIALS = 1 << 32


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


#: How often a batch is planned again because the zone has changed in between.
_ATTEMPTS = 4
_BATCH = 200

log = structlog.get_logger(__name__)


class DNSProvider:
    """Names in zones.

    ``make`` returns the server of a zone, ``own`` are the parameters of that kind of server; ``texts`` is false where
    it has no TXT records; ``leases`` is true where several hubs can share names.
    """

    def __init__(
        self,
        *,
        make: Callable[[ServerSettings], ZoneServer],
        own: frozenset[str],
        clock: Clock | None = None,
        texts: bool = True,
        leases: bool = False,
    ) -> None:
        self._texts = texts
        self._leases = leases
        self._own = own
        self._names: LoadBalancerStates[NameSettings] = LoadBalancerStates()
        #: The zones of unfinished moves, which may have some of a name's records.
        self._parts: dict[LoadBalancerKey, tuple[NameSettings, ...]] = {}
        #: The records of each name that are registered for certain.
        self._held: dict[LoadBalancerKey, dict[Value, Target]] = {}
        self._servers = ZoneServers(make)
        self._clock = clock or SystemClock()
        self._batcher = UpdateBatcher(self._run, clock=self._clock)
        self._recent = RecentAnswers(self._clock)
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        #: Whether all records of a name were answered when it was read back.
        self._complete: dict[LoadBalancerKey, bool] = {}
        self._shared = SharedOwners(self._clock)
        self._follower = ZoneFollower(
            clock=self._clock, servers=self._in_use, names=self._followed, notify=self._changed
        )
        self._peers = PeerLeases(self._clock, update=self._update_alone)
        #: The records that are being changed, which ``work`` leaves alone.
        self._changing: set[tuple[LoadBalancerKey, Value]] = set()
        #: Shared names whose records are not as they should be.
        self._unsettled: set[LoadBalancerKey] = set()
        #: What was removed of shared names, and until when it may come back (monotonic seconds).
        self._removed: dict[tuple[LoadBalancerKey, Value], tuple[ServerSettings, RecordChange, float]] = {}
        self._following: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Follow what others change; connections are made when they are needed."""
        if self._following is None:
            self._following = keep_running("zones", self._follower.run, clock=self._clock)

    async def close(self) -> None:
        """Close all connections; records stay."""
        await end(self._following)
        self._following = None
        self._recent.close()
        await self._servers.close()

    def restore(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Restore a name of an earlier process."""
        try:
            settings = self._settings(spec)
            given_up = [
                self._settings(replace(spec, parameters=parameters)) for parameters in unfinished(spec.parameters, info)
            ]
            if (former := former_parameters(spec.parameters, info)) is not None:
                given_up.append(settings)
                settings = self._settings(replace(spec, parameters=former))
            self._parts[spec.key] = tuple(given_up)
            self._names.put(spec.key, settings)
        except Terminal as error:
            log.warning("not restored", load_balancer=str(spec.key), why=error.sentence)

    def restore_backends(self, key: LoadBalancerKey, backends: Sequence[RestoredBackend]) -> None:
        """Restore which records of a name are registered."""
        held = self._held.setdefault(key, {})
        held.update(
            {_value(backend.listener.backend, backend.target.key.address): backend.target for backend in backends}
        )

    def release(self, key: LoadBalancerKey) -> None:
        """Drop all that is known of a name."""
        if (settings := self._names.get(key)) is not None:
            self._shared.forget(settings.holder)
            self._peers.forget(settings.server, settings.name)
        self._names.release(key)
        self._parts.pop(key, None)
        self._held.pop(key, None)
        self._complete.pop(key, None)
        self._unsettled.discard(key)

    def failure_domain(self, spec: FrontendSpec) -> str:
        """Return the zone at its server."""
        return failure_domain(spec.parameters)

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return that it publishes names, and balances nothing."""
        return Capabilities(
            protocols=frozenset(),
            publishes_names=True,
            publishes_texts=self._texts,
            ensure_only_asks=True,
            ipv6=True,
            host_name_targets=True,
            max_batch=_BATCH,
            batches_span_load_balancers=True,
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each name whose records were changed."""
        self._notify.append(notify)

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return what is wrong with the parameters of a DNSZone, its zone with them; empty when nothing is."""
        zone = parameters.get("zone", "")
        parameters_of_name = {"ownerId": "any", "host": f"any.{zone}", **parameters}
        spec = FrontendSpec(LoadBalancerKey("DNSZone", "", zone), group="", listeners=(), parameters=parameters_of_name)
        try:
            self._servers.get(self._settings(spec).server)
        except BadConfiguration as error:
            return error.sentence
        return ""

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``BadConfiguration`` for wrong parameters; no server is called."""
        del old
        self._servers.get(self._settings(spec).server)

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Accept all: records come from Hostnames, which are checked."""
        del spec, backend_type, parameters, old_parameters

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Check that the server answers for the zone; a name that is in another zone moves."""
        settings = self._settings(spec)
        self._follower.began(
            settings.server, await self._recent.check(settings.server, self._servers.get(settings.server))
        )
        before = self._names.get(spec.key)
        with self._changed_by([(spec.key, value) for value in self._held.get(spec.key, ())]):
            if before is not None and is_elsewhere(before, settings):
                await self._move(spec.key, before, settings)
            for part in self._parts.get(spec.key, ()):
                if is_elsewhere(part, settings):  # an unfinished move to a zone that is no longer wanted
                    await self._withdraw(spec.key, part, self._held.get(spec.key, ()))
            self._names.put(spec.key, settings)
        self._parts.pop(spec.key, None)
        return Ensured(info=place_of(spec.parameters))

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Change records, one update for all names of a zone; each outcome is what was read back."""
        outcomes: dict[int, Outcome] = {}
        by_server: dict[ServerSettings, list[tuple[int, RecordChange]]] = {}
        for index, change in enumerate(changes):
            settings = self._names.get(change.load_balancer)
            if settings is None:
                outcomes[index] = self._names.outcome_without(change, "has not been ensured yet")
            else:
                key = change.load_balancer
                targets = dict(self._held.get(key, {}))
                targets.update(
                    {
                        _value(other.listener.backend, other.key.address): other.target
                        for other in changes
                        if other.load_balancer == key
                    }
                )
                value = _value(change.listener.backend, change.key.address)
                self._removed.pop((key, value), None)
                wanted = not change.is_removal and not change.target.draining
                row = self._row(key, settings, value, targets, wanted=wanted)
                by_server.setdefault(settings.server, []).append((index, row))
        places = [(row.load_balancer, _value(row.listener.backend, row.key.address)) for row in changes]
        with self._changed_by(places):
            for settings, rows in by_server.items():
                also = self._perhaps_last({changes[index].load_balancer for index, _ in rows})
                done = await self._batcher.change(settings, [*(row for _, row in rows), *also])
                outcomes |= {index: outcome for (index, _), outcome in zip(rows, done[: len(rows)], strict=True)}
                until_s = self._clock.monotonic() + JUDGED_S
                self._removed |= {
                    places[index]: (settings, replace(row, ours=frozenset()), until_s)
                    for index, row in rows
                    if row.hubs is not None and not row.wanted and outcomes[index] == DONE
                }
            self._remember(changes, outcomes)
        return [outcomes[index] for index in range(len(changes))]

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what the authoritative server answers for the name."""
        settings = self._names.get(key)
        if settings is None:
            return None
        held = frozenset(self._held.get(key, ()))
        types = {type_ for type_, _ in held}
        server, keys = self._servers.get(settings.server), {RRKey(settings.name, type_) for type_ in types}
        kept = _values(await self._recent.kept(settings.server, server, keys))
        unmarked: set[Value] = set()
        if settings.lease_s:
            marks = await server.read({mark_key(settings.name, type_) for type_ in types})
            self._peers.look(settings.server, marks)
            unmarked = {value for value in held if mark_of(value, settings) not in _marks(marks, settings, value[0])}
        self._complete[key] = False
        if held and not held & kept and not settings.lease_s:
            return None
        await self._shared.look(settings, held, kept, server)
        answered = kept if server.immediate else _values(await server.answers(keys))
        withdrawn: frozenset[Value] = frozenset()
        if settings.lease_s:
            unhealthy = self._unhealthy(key) - kept
            withdrawn = frozenset(value for value in unhealthy if any(type_ == value[0] for type_, _ in kept))
            # Without its mark, an address that another hub has too would go with the address of that hub.
            if not held - withdrawn <= kept - unmarked:
                self._unsettled.add(key)
        self._complete[key] = held - self._unhealthy(key) <= answered
        return observed_of(held, kept, answered, settings, self._shared.of(settings.holder), withdrawn)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Remove every record that a mark says is this name's."""
        with self._changed_by([(key, value) for value in self._held.get(key, ())]):
            for settings in filter(None, (self._names.get(key), *self._parts.get(key, ()))):
                await self._withdraw(key, settings, self._held.get(key, ()))
            self.release(key)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _move(self, key: LoadBalancerKey, before: NameSettings, settings: NameSettings) -> None:
        """Copy our records of a name to another zone and, once they are answered there, remove them from the first."""
        self._parts[key] = tuple(dict.fromkeys((*self._parts.get(key, ()), settings)))
        held = self._held.get(key, {})
        there = await self._read_whole(before) or {}
        rows = copies(held.keys() | ours_in(there, before), there, settings)
        for outcome in await self._batcher.change(settings.server, rows) if rows else ():
            if outcome != DONE:
                raise Retry(
                    f"{key} stays in zone {before.server.zone}, since zone {settings.server.zone} rejects it: "
                    f"{outcome.message}",
                    reason="DNSZoneChange",
                )
        await self._withdraw(key, before, held)
        log.info("a name has moved", host=before.name, of=before.server.zone, to=settings.server.zone)

    async def _read_whole(self, settings: NameSettings) -> RRSets | None:
        """Return all records of a name; None when the name has been delegated to another zone."""
        server = self._servers.get(settings.server)
        try:
            marks = await server.read({key for key in zone_reads(settings.name) if key.name != settings.name})
            if not any(map(mark_from_text, (text for rrset in marks.values() for text in rrset.values))):
                return {}
            return {**marks, **await server.read({key for key in zone_reads(settings.name) if key not in marks})}
        except Retry as error:
            if error.reason not in ("DNSNotAuthoritative", "DNSDelegated"):
                raise
            await server.check()  # for the zone itself it must answer
            return None

    async def _withdraw(self, key: LoadBalancerKey, settings: NameSettings, held: Collection[Value]) -> None:
        """Remove our records of a name from a zone; ``held``: those to remove if the zone does not answer for it."""
        async with self._batcher.locks.hold((settings.server.name, settings.server.zone)):
            there = await self._read_whole(settings)
            if there is None:
                edits: list[Edit] = []
                for type_, value in sorted(held):
                    mark = mark_text(Mark(settings.holder, marked(value)))
                    edits += [
                        Edit(RRKey(settings.name, type_), value, 0, False),
                        Edit(RRKey(mark_key(settings.name, type_).name, TXT), mark, 0, False),
                    ]
                if edits and not await self._update(settings.server, edits, {}):
                    raise Retry(f"{key}: zone {settings.server.zone} has changed meanwhile; the hub retries")
                return
            ours = frozenset(held if self._names.get(key) == settings else ())
            values = sorted({*ours, *ours_in(there, settings), *marked_in(there, settings)})
            rows = [row(settings, type_, value, 0, wanted=False, ours=ours) for type_, value in values]
            left = [outcome for outcome in await self._run(settings.server, rows) if outcome != DONE] if rows else []
            if left:
                raise Retry(f"{key}: {left[0].message}")

    @contextmanager
    def _changed_by(self, places: Collection[tuple[LoadBalancerKey, Value]]) -> Generator[None]:
        """Keep ``work`` from these records, so that it adds none that is being removed."""
        self._changing.update(places)
        try:
            yield
        finally:
            self._changing.difference_update(places)

    def _settings(self, spec: FrontendSpec) -> NameSettings:
        settings = settings_from_spec(spec, own=self._own)
        if settings.lease_s and not self._leases:
            raise BadConfiguration(
                "peerLeaseSeconds of the DNSZone is not supported by its provider; remove it, or use provider rfc2136 "
                "or powerdns"
            )
        return settings

    def _in_use(self) -> Mapping[ServerSettings, ZoneServer]:
        """Return the servers that a name is written at, or is on its way to."""
        parts = {part.server for parts in self._parts.values() for part in parts}
        return self._servers.in_use(parts | {name.server for name in self._names.values()})

    def _row(
        self,
        key: LoadBalancerKey,
        settings: NameSettings,
        value: Value,
        targets: Mapping[Value, Target],
        *,
        wanted: bool,
    ) -> RecordChange:
        """Return the row of one value; ``targets`` are those of all values of the name."""
        type_, text = value
        ttl = int(dict(targets[value].parameters).get("ttl", _TTL))
        change = row(settings, type_, text, ttl, wanted=wanted, ours=frozenset(self._held.get(key, ())))
        if not settings.lease_s:
            return change
        unhealthy = frozenset(marked(other) for of_type, other in _unhealthy(targets) if of_type == type_)
        return replace(change, unhealthy=unhealthy, hubs=PeerHubs())

    def _perhaps_last(self, keys: Iterable[LoadBalancerKey]) -> list[RecordChange]:
        """Return rows for unhealthy addresses that no caller changes: a change may remove all that is preferred."""
        return [
            self._row(key, settings, value, self._held[key], wanted=True)
            for key in sorted(keys)
            if (settings := self._names.get(key)) is not None
            for value in sorted(self._unhealthy(key))
            if (key, value) not in self._changing
        ]

    def _unhealthy(self, key: LoadBalancerKey) -> frozenset[Value]:
        """Return the registered addresses of a shared name whose load balancers do not serve."""
        settings = self._names.get(key)
        return _unhealthy(self._held.get(key, {})) if settings is not None and settings.lease_s else frozenset()

    async def work(self) -> None:
        """Keep the leases of this hub, and settle shared names, until cancelled."""
        while self._leases:
            await self._clock.sleep(FOLLOW_S)
            zones: dict[tuple[ServerSettings, str], list[tuple[LoadBalancerKey, NameSettings]]] = {}
            for key, name in self._names.items():
                zones.setdefault((name.server, name.holder.owner), []).append((key, name))
            self._peers.keep({settings for settings, _ in zones})
            # One lease of each zone: while a DNSZone changes, its names differ. And all at once: a zone that does not
            # answer must not let the leases in others expire.
            await all_done(
                self._turn(
                    ZoneLease(settings, owner, max(name.lease_s for _, name in names)),
                    [(key, name) for key, name in names if name.lease_s],
                )
                for (settings, owner), names in zones.items()
            )

    async def _turn(self, lease: ZoneLease, names: Iterable[tuple[LoadBalancerKey, NameSettings]]) -> None:
        try:
            await self._peers.turn(lease, self._servers.get(lease.settings))
            if lease.seconds:
                await self._settle(lease, names)
        except FairleadError as error:
            # The readback of its names reports that the zone cannot be used.
            log.debug("leases not followed", zone=lease.settings.zone, error=error.sentence)

    async def _settle(self, lease: ZoneLease, names: Iterable[tuple[LoadBalancerKey, NameSettings]]) -> None:
        """Withdraw, or return, addresses of shared names whose hubs or load balancers have changed.

        Another hub that replaces a whole set may bring back what this hub has just removed: that is removed again.
        """
        now_s = self._clock.monotonic()
        self._removed = {place: removed for place, removed in self._removed.items() if now_s <= removed[2]}
        expired = self._peers.judged(lease.settings).expired
        rows: list[tuple[LoadBalancerKey, RecordChange]] = []
        async with self._batcher.locks.hold((lease.settings.name, lease.settings.zone)):
            for key, name in names:
                owners = self._peers.owners_of(lease.settings, name.name)
                if self._names.get(key) != name:
                    continue  # it moved, or was deleted, while this waited
                if key not in self._unsettled and not self._unhealthy(key) and not owners & expired.keys():
                    continue
                held = self._held.get(key, {})
                values = [value for value in sorted(held) if (key, value) not in self._changing]
                rows += [(key, self._row(key, name, value, held, wanted=True)) for value in values]
            again = [row for settings, row, _ in self._removed.values() if settings == lease.settings]
            if not rows and not again:
                return
            outcomes = await self._batcher.change_alone(lease.settings, [*(change for _, change in rows), *again])
        done = {key for (key, _), outcome in zip(rows, outcomes[: len(rows)], strict=True) if outcome == DONE}
        for key in sorted(done & self._unsettled):
            self._changed(key)
        self._unsettled -= {key for key, _ in rows}

    async def _run(self, settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        """Make the changes of one zone, and read back what came of them."""
        server = self._servers.get(settings)
        for _ in range(_ATTEMPTS):
            there = await server.read(reads(rows) | self._peers.judged(settings).leases(settings.zone))
            self._peers.look(settings, there)
            # Now, since a change may have waited for its turn, and a hub may have renewed its lease.
            hubs = self._peers.judged(settings).confirmed(settings.zone, there)
            planned = plan_records([replace(row, hubs=hubs) if row.hubs is not None else row for row in rows], there)
            self._shared.note(rows, there)
            if not planned.edits:
                return [_outcome(planned.refused.get(index, "")) for index in range(len(rows))]
            if await self._update(settings, planned.edits, there):
                answered = await server.kept(keys := {edit.key for edit in planned.edits})
                edited = {key: answered.get(key, EMPTY) for key in keys}
                self._recent.keep(settings, edited)
                left = await self._left(server, planned.edits, edited)
                now = {**there, **edited}
                return [self._judge(row, planned.refused.get(index, ""), now, left) for index, row in enumerate(rows)]
        raise Retry(
            f"zone {settings.zone} at {settings.name} is being changed by other clients; the hub retries",
            reason="DNSChanging",
        )

    async def _left(
        self, server: ZoneServer, edits: Sequence[Edit], answered: RRSets
    ) -> AbstractSet[tuple[RRKey, str]]:
        """Return the deleted values that the zone still has; a wildcard may answer one that it no longer has."""
        left = {(edit.key, edit.value) for edit in edits if not edit.add and edit.value in answered[edit.key].values}
        if not left:
            return left
        there = await server.read({key for set_key, _ in left for key in (set_key, mark_key(*set_key))})
        return {(key, value) for key, value in left if value in there.get(key, EMPTY).values}

    async def _update(self, settings: ServerSettings, edits: Sequence[Edit], there: RRSets) -> bool:
        """Send ``edits``; False when one of the updates was not done because the zone had changed."""
        done = True
        for batch in _batches(edits, settings.max_records):
            if await self._servers.get(settings).update(batch, there):
                self._follower.updated(settings)
            else:
                done = False
        return done

    async def _update_alone(self, settings: ServerSettings, edits: Sequence[Edit], there: RRSets) -> bool:
        async with self._batcher.locks.hold((settings.name, settings.zone)):
            return await self._update(settings, edits, there)

    def _judge(self, row: RecordChange, refused: str, now: RRSets, left: AbstractSet[tuple[RRKey, str]]) -> Outcome:
        """Return the outcome of a change, by what the server answers after the update, and which records are left."""
        if refused:
            return _outcome(refused)
        if not row.wanted and (row.key, row.value) in left:
            text = (
                f"{row.host}: the server accepted the update, but keeps {row.type} {row.value[:100]}; the hub retries"
            )
            return Outcome(OutcomeStatus.RETRY, text)
        rrset = now.get(row.key, EMPTY)
        if row.wanted and row.value not in rrset.values and not (row.is_unhealthy and rrset.values):
            text = f"{row.host}: the server accepted the update, but returns no {row.type} record; the hub retries"
            return Outcome(OutcomeStatus.RETRY, text)
        return DONE

    def _remember(self, changes: Sequence[TargetChange], outcomes: Mapping[int, Outcome]) -> None:
        keys: set[LoadBalancerKey] = set()
        for index, change in enumerate(changes):
            if outcomes[index] != DONE or change.load_balancer not in self._names:
                continue
            held = self._held.setdefault(change.load_balancer, {})
            value = _value(change.listener.backend, change.key.address)
            if change.is_removal or change.target.draining:
                held.pop(value, None)
            else:
                held[value] = change.target
            keys.add(change.load_balancer)
        for key in keys:
            self._changed(key)

    def _changed(self, key: LoadBalancerKey) -> None:
        for notify in self._notify:
            notify(key)

    def _followed(self, settings: ServerSettings) -> Iterator[Followed]:
        for key, name in self._names.items():
            if name.server == settings:
                values = self._held.get(key, {}).keys() - self._unhealthy(key)
                held = frozenset((RRKey(name.name, type_), value) for type_, value in values)
                yield Followed(key, held, self._complete.get(key))


def _values(rrsets: RRSets) -> set[Value]:
    return {(key.type, value) for key, rrset in rrsets.items() for value in rrset.values}


def _unhealthy(targets: Mapping[Value, Target]) -> frozenset[Value]:
    return frozenset(value for value, target in targets.items() if RECORD_UNHEALTHY in target.parameters)


def _value(type_: str, value: str) -> Value:
    return type_, canonical_value(type_, value)


def _batches(edits: Sequence[Edit], size: int) -> list[list[Edit]]:
    """Return ``edits`` in messages of ``size`` records; what is about one name stays together."""
    batches: list[list[Edit]] = [[]]
    by_host: dict[str, list[Edit]] = {}
    for edit in edits:
        by_host.setdefault(host_of(edit), []).append(edit)
    for together in by_host.values():
        if batches[-1] and len(batches[-1]) + len(together) > size:
            batches.append([])
        batches[-1] += together
    return batches


def _outcome(refused: str) -> Outcome:
    return Outcome(OutcomeStatus.REJECTED, refused) if refused else DONE


class ZoneServers:
    """The servers of one provider; ``make`` returns a new one."""

    def __init__(self, make: Callable[[ServerSettings], ZoneServer]) -> None:
        self._make = make
        self._servers: dict[ServerSettings, ZoneServer] = {}
        self._used: set[ServerSettings] = set()

    def get(self, settings: ServerSettings) -> ZoneServer:
        """Return the server of a zone."""
        if settings not in self._servers:
            self._servers[settings] = self._make(settings)
        return self._servers[settings]

    def in_use(self, used: AbstractSet[ServerSettings]) -> Mapping[ServerSettings, ZoneServer]:
        """Return those of ``used`` that exist; servers that are no longer used are closed."""
        for settings in self._used - used:
            # One that was never in use stays: its first name may just be asking it.
            watched("close of a DNS server", self._servers.pop(settings).close(), zone=settings.zone)
        self._used = {settings for settings in used if settings in self._servers}
        return {settings: self._servers[settings] for settings in self._used}

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            await server.close()


def observed_of(
    held: frozenset[Value],
    kept: set[Value],
    answered: set[Value],
    settings: NameSettings,
    shared: str,
    withdrawn: frozenset[Value] = frozenset(),
) -> Observed:
    """Return the health of one name's records.

    ``held``: those on record; ``kept``: those at the server that takes updates; ``answered``: those that the servers
    answer; ``shared``: why marks of the name are not all on record, else empty; ``withdrawn``: those that are absent
    because their load balancers do not serve, and others do.
    """
    missing = sorted(held - answered - withdrawn)
    # This hub adds missing records of a shared name again, so they do not count as drift.
    present = held if settings.lease_s else held & kept
    targets = sorted(
        (
            ObservedTarget(backend_key(type_), TargetKey(value, RECORD_PORT), healthy=(type_, value) not in withdrawn)
            for type_, value in present
        ),
        key=lambda target: (target.listener, target.key),
    )
    gone = sorted(f"{type_} {value}" for type_, value in withdrawn)
    healthy = len(held) - len(missing) - len(gone)
    text = f"{settings.server.name} answers {healthy} of {len(held)} records"
    if gone:
        text += f"; {', '.join(gone)} withdrawn, since the load balancer does not serve and other addresses do"
    serving = not missing and bool(held - withdrawn)
    reason = ConditionReason.SERVING if serving else ConditionReason.NO_TARGETS
    return Observed(
        programmed=not missing,
        proxies=1,
        acknowledged=int(not missing),
        message="" if not missing else text,
        targets=tuple(targets),
        foreign=tuple(f"{type_} {value}" for type_, value in sorted(answered - held)),
        health=Health(
            serving if held else None,
            ConditionReason.WITHDRAWN if gone and not missing and not serving else reason,
            "; ".join(filter(None, (text if held else "no records", shared))),
            total=len(held),
            healthy=healthy,
            unhealthy=tuple(gone),
        ),
    )


#: For how long a name has more values than are on record before that says something, in seconds: an update of our own
#: whose answer was lost is made again within it.
_SURE_AFTER_S = 15.0


class SharedOwners:
    """The names that another hub writes under our ownerId, as far as it has been seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sentences: dict[Holder, str] = {}
        #: Since when a name has more than is on record (monotonic seconds).
        self._since_s: dict[Holder, float] = {}

    def of(self, holder: Holder) -> str:
        """Return the problem of one holder as a sentence, empty for none."""
        return self._sentences.get(holder, "")

    def note(self, changes: Sequence[RecordChange], there: RRSets) -> None:
        """Look at a batch of changes, with the marks that were there before it."""
        for holder, sentence in shared_owner(changes, there).items():
            before = self._sentences.pop(holder, "")
            if sentence:
                self._sentences[holder] = sentence
                if sentence != before:
                    log.warning("another hub has the ownerId of a zone", host=changes[0].host, why=sentence)

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
        self._sentences.pop(holder, None)
        self._since_s.pop(holder, None)


def shared_owner(changes: Sequence[RecordChange], there: RRSets) -> dict[Holder, str]:
    """Return the problem of each holder in ``changes`` as a sentence, empty for none."""
    wanted = {(row.holder, row.key): row for row in changes if row.wanted}
    unknown: dict[Holder, list[str]] = {row.holder: [] for row in changes}
    for (holder, key), change in wanted.items():
        ours = {marked(value) for type_, value in change.ours if type_ == key.type}
        ours |= {row.mark.value for row in changes if (row.holder, row.key) == (holder, key)}
        marks = map(mark_from_text, there.get(mark_key(*key), EMPTY).values)
        values = {mark.value for mark in marks if mark is not None and mark.holder == holder}
        unknown[holder] += [f"{key.type} {value}" for value in sorted(values - ours)]
    return {holder: _sentence(holder, values) for holder, values in unknown.items()}


def _sentence(holder: Holder, values: Sequence[str]) -> str:
    if not values:
        return ""
    return (
        f"{', '.join(values[:3])} is marked with ownerId {holder.owner} and is not in this hub's records: another "
        "hub has the same ownerId. Set another spec.ownerId in the DNSZone of one of them. If this hub's API was "
        "restored to an earlier state, delete the record by hand"
    )


_TTL = 60


def place_of(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that are recorded, by which the zone of a name is found again."""
    return {name: value for name, value in parameters.items() if name != "host"}


def former_parameters(parameters: Mapping[str, str], place: Mapping[str, str]) -> dict[str, str] | None:
    """Return the parameters of the recorded zone of a name; None when that is the zone of ``parameters``."""
    zone = canonical_name(place.get("zone", ""))
    if not zone or zone == canonical_name(parameters.get("zone", "")):
        return None
    place = {name: value for name, value in place.items() if name != UNFINISHED}
    if "server" not in place:  # written before the server was on record
        return {**parameters, "zone": zone}
    return {"ownerId": parameters.get("ownerId", ""), **place, "host": parameters.get("host", "")}


def unfinished(parameters: Mapping[str, str], place: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the parameters of zones to which a move of the name was given up; it may have records there."""
    zone = canonical_name(parameters.get("zone", ""))
    asked = read_json(place.get(UNFINISHED, "[]"), list[dict[str, str]]) or []
    return [former for former in asked if canonical_name(former.get("zone", "")) != zone]


def is_elsewhere(before: NameSettings, now: NameSettings) -> bool:
    """Return whether ``now`` is another zone, and not another server or key of the same."""
    return before.server.zone != now.server.zone


def zone_reads(name: str) -> set[RRKey]:
    """Return all sets that a name may have, and their marks."""
    return {key for type_ in TYPES for key in (RRKey(name, type_), mark_key(name, type_))}


def ours_in(there: RRSets, settings: NameSettings) -> set[Value]:
    """Return the values whose marks say that they are this name's."""
    ours: set[Value] = set()
    for type_ in TYPES:
        marks = _marks(there, settings, type_)
        values = there.get(RRKey(settings.name, type_), EMPTY).values
        ours |= {(type_, value) for value in values if mark_of((type_, value), settings) in marks}
    return ours


def marked_in(there: RRSets, settings: NameSettings) -> set[Value]:
    """Return the values that this name's marks name, whether they are there or not."""
    pairs = ((type_, mark) for type_ in TYPES for mark in _marks(there, settings, type_))
    return {(type_, mark.value) for type_, mark in pairs if mark is not None and mark.holder == settings.holder}


def mark_of(value: Value, settings: NameSettings) -> Mark:
    """Return the mark of a value as this name's."""
    return Mark(settings.holder, marked(value[1]))


def _marks(there: RRSets, settings: NameSettings, type_: str) -> set[Mark | None]:
    return set(map(mark_from_text, there.get(mark_key(settings.name, type_), EMPTY).values))


def row(
    settings: NameSettings, type_: str, value: str, ttl: int, *, wanted: bool, ours: frozenset[Value] = frozenset()
) -> RecordChange:
    """Return one change of a name in its zone; ``ours`` are the values that the ledger has there."""
    return RecordChange(
        settings.name,
        type_,
        value,
        ttl,
        settings.holder,
        wanted,
        settings.server.zone,
        ours=ours,
        prefix=settings.prefix,
        suffix=settings.suffix,
    )


def copies(values: Iterable[Value], there: RRSets, settings: NameSettings) -> list[RecordChange]:
    """Return the rows that add ``values`` to the new zone, each with the TTL that it has in the former one."""
    return [
        row(settings, type_, value, there.get(RRKey(settings.name, type_), EMPTY).ttl or _TTL, wanted=True)
        for type_, value in sorted(values)
    ]
