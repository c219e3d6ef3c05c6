"""Records of a name whose server makes updates in part, or loses them, and records that a hub shares with others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import permutations

import pytest
from msgspec.structs import replace

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, RECORD_UNHEALTHY, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.plan import EMPTY, Edit, RRKey, RRSet, RRSets, Value, mark_from_text, mark_key
from fairlead.providers.zones.provider import DNSProvider
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.testing.contract import additions, removals

NAME = RRKey("www.example.test", "A")
PARAMETERS = {"zone": "example.test", "host": NAME.name, "ownerId": "east", "server": "192.0.2.53"}
KEY = LoadBalancerKey("Hostname", "fairlead-system", "www")
SPEC = FrontendSpec(KEY, "", (), health_check=None, parameters={**PARAMETERS, "peerLeaseSeconds": "30"})
TARGETS = [TargetKey("192.0.2.1", RECORD_PORT)]


class SlowZone:
    """A zone in memory whose updates wait for ``go``; after ``limit`` edits of one, its server no longer answers."""

    immediate = True

    def __init__(self) -> None:
        self.records: dict[RRKey, RRSet] = {}
        self.limit: int | None = None
        self.go = asyncio.Event()
        self.answers_given: list[frozenset[str]] = []

    async def check(self) -> int:
        return 1

    serial = check

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        return {key: self.records[key] for key in keys if key in self.records}

    answers = kept = read

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        del there
        await self.go.wait()
        for edit in edits[: self.limit]:
            values = self.records.get(edit.key, EMPTY).values
            self.records[edit.key] = RRSet(values | {edit.value} if edit.add else values - {edit.value}, 30)
        self.answers_given.append(self.records.get(NAME, EMPTY).values)
        if self.limit is not None:
            raise Retry("The server does not answer.", reason="DNSTimeout")
        return True

    def content(self, *, marks: bool) -> set[Value]:
        """Return the values, or those that marks name, each with its type."""
        texts = [(key, text, mark_from_text(text)) for key, rrset in self.records.items() for text in rrset.values]
        if not marks:
            return {(key.type, text) for key, text, mark in texts if mark is None}
        names = {mark_key(NAME.name, type_): type_ for type_ in ("A", "AAAA", "CNAME")}
        return {(names[key], mark.value) for key, _, mark in texts if mark is not None}

    async def close(self) -> None:
        """Keep what there is."""


ADDRESS, OTHER, ADDRESS_6 = ("A", "192.0.2.1"), ("A", "192.0.2.2"), ("AAAA", "2001:db8::1")
ALIAS, OTHER_ALIAS = ("CNAME", "a.example.net"), ("CNAME", "b.example.net")
#: Records that one name may have, in turn.
MOVES = list(permutations([{ADDRESS}, {OTHER}, {ADDRESS, ADDRESS_6}, {ALIAS}, {OTHER_ALIAS}, set[Value]()], 2))


async def name() -> tuple[SlowZone, DNSProvider]:
    """Return a zone in which every update is made at once, and the provider of one hub that shares no names."""
    zone = SlowZone()
    zone.go.set()
    provider = DNSProvider(make=lambda _settings: zone, own=frozenset(), clock=VirtualClock())
    await provider.ensure(replace(SPEC, parameters=PARAMETERS))
    return zone, provider


async def change(provider: DNSProvider, action: Action, values: set[Value]) -> list[Outcome]:
    rows = [
        TargetChange(KEY, backend_key(type_), Target(TargetKey(value, RECORD_PORT)), action, Reason.NEW)
        for type_, value in sorted(values)
    ]
    return list(await provider.apply(rows)) if rows else []


async def move(provider: DNSProvider, before: set[Value], after: set[Value]) -> None:
    """Have ``after`` instead of ``before``, as the engine does: an error of the server stops neither step."""
    for action, values in ((Action.REGISTER, after), (Action.DEREGISTER, before - after)):
        with suppress(Retry):
            assert set(await change(provider, action, values)) <= {DONE}


@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_an_update_that_was_made_in_part_is_completed_or_taken_back(limit: int):
    for before, after in MOVES:
        for wanted in (after, before):
            zone, provider = await name()
            await move(provider, set(), before)
            zone.limit = limit
            await move(provider, before, after)
            zone.limit = None
            await move(provider, before | after, wanted)
            assert zone.content(marks=False) == zone.content(marks=True) == wanted
            await provider.delete(KEY)
            assert zone.content(marks=False) == zone.content(marks=True) == set()


@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize("lost", ["marks", "values"])
async def test_a_name_whose_marks_or_values_were_deleted_by_hand_changes_and_ends(lost: str):
    for before, after in MOVES:
        zone, provider = await name()
        await move(provider, set(), before)
        zone.records = {
            key: rrset for key, rrset in zone.records.items() if (key.name == NAME.name) == (lost == "marks")
        }
        await move(provider, before, after)
        assert zone.content(marks=False) >= after - before
        assert zone.content(marks=False) <= after
        await provider.delete(KEY)
        assert zone.content(marks=False) == zone.content(marks=True) == set()


@pytest.mark.req("EDGE-14")
async def test_a_record_that_stays_after_its_removal_was_accepted_is_removed_again():
    zone, provider = await name()
    await move(provider, set(), {ADDRESS})
    there, zone.update = zone.update, accept
    (outcome,) = await change(provider, Action.DEREGISTER, {ADDRESS})
    assert outcome.status is OutcomeStatus.RETRY
    assert "keeps A 192.0.2.1" in outcome.message
    zone.update = there
    assert await change(provider, Action.DEREGISTER, {ADDRESS}) == [DONE]
    assert zone.content(marks=True) == set()


async def accept(edits: Sequence[Edit], there: RRSets) -> bool:
    """Accept an update, and change nothing."""
    del edits, there
    return True


@pytest.mark.req("MC-22")
async def test_a_record_that_is_being_removed_is_not_added_again():
    clock, zone = VirtualClock(), SlowZone()
    provider = DNSProvider(make=lambda _settings: zone, own=frozenset(), clock=clock, leases=True)
    zone.go.set()
    await provider.ensure(SPEC)
    assert await provider.apply(additions(SPEC, TARGETS)) == [DONE]
    work = asyncio.create_task(provider.work())
    await clock.advance(3)
    # Another hub has withdrawn the address, which this one will add again.
    clock.jump(2)
    zone.records[NAME] = EMPTY
    await provider.observe(SPEC.key)
    zone.go.clear()
    removal = asyncio.create_task(provider.apply(removals(SPEC, TARGETS)))
    await settle()
    await clock.advance(6)
    zone.go.set()
    assert await removal == [DONE]
    await clock.advance(6)
    assert zone.records[NAME].values == frozenset()
    work.cancel()
    await asyncio.wait((work,))
    await provider.close()


def of_hub(owner: str) -> FrontendSpec:
    return replace(SPEC, parameters={**SPEC.parameters, "ownerId": owner})


@pytest.fixture
def shared() -> tuple[VirtualClock, SlowZone, list[DNSProvider]]:
    """Return a zone in which every update is made at once, and the providers of two hubs."""
    clock, zone = VirtualClock(), SlowZone()
    zone.go.set()
    hubs = [DNSProvider(make=lambda _settings: zone, own=frozenset(), clock=clock, leases=True) for _ in range(2)]
    return clock, zone, hubs


@pytest.mark.req("MC-22")
async def test_the_last_address_that_serves_is_not_removed_before_another_returns(shared):
    _, zone, (hub, _) = shared
    await hub.ensure(SPEC)
    sick = [TargetKey("192.0.2.2", RECORD_PORT)]
    unhealthy = [
        replace(row, target=replace(row.target, parameters=(RECORD_UNHEALTHY,))) for row in additions(SPEC, sick)
    ]
    assert await hub.apply([*additions(SPEC, TARGETS), *unhealthy]) == [DONE, DONE]
    assert zone.records[NAME].values == {"192.0.2.1"}
    zone.answers_given.clear()
    assert await hub.apply(removals(SPEC, TARGETS)) == [DONE]
    assert zone.answers_given == [{"192.0.2.2"}]
    # The same in one batch.
    assert await hub.apply([*additions(SPEC, TARGETS), *unhealthy]) == [DONE, DONE]
    assert await hub.apply([*unhealthy, *removals(SPEC, TARGETS)]) == [DONE, DONE]
    assert all(zone.answers_given)


@pytest.mark.req("MC-21")
async def test_a_hub_marks_an_address_again_that_another_hub_has_too(shared):
    clock, zone, hubs = shared
    for hub, owner in zip(hubs, ("east", "west"), strict=True):
        await hub.ensure(of_hub(owner))
        assert await hub.apply(additions(of_hub(owner), TARGETS)) == [DONE]
    marks = mark_key(*NAME)
    east = {text for text in zone.records[marks].values if "owner=east" in text}
    # The lease of east had expired, so west has dropped its mark.
    zone.records[marks] = replace(zone.records[marks], values=zone.records[marks].values - east)
    clock.jump(2)
    await hubs[0].observe(KEY)
    work = asyncio.create_task(hubs[0].work())
    await clock.advance(3)
    assert east < zone.records[marks].values
    work.cancel()
    await asyncio.wait((work,))
