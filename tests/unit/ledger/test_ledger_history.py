"""The stored history: what fits, what is written when, and what an error does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fairlead.errors import Invalid, NotFound, Unreachable
from fairlead.ledger.history import (
    FLUSH_S,
    KEEP_DELETED_DAYS,
    MAX_BYTES_SERVED,
    MOST_WRITES,
    HistoryMap,
    HistoryStore,
    entries_of,
    map_name,
    newest,
)
from fairlead.model.change import HistoryEntry, HistoryKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.history import History
from fairlead.testing.builders import lb_key

KEY = lb_key()
AT = datetime(2030, 1, 1, tzinfo=UTC)


class Maps:
    """ConfigMaps in memory; ``errors`` are raised by the next writes."""

    def __init__(self):
        self.maps: dict[str, HistoryMap] = {}
        self.errors: list[Exception] = []
        self.writes = 0

    async def list(self, _resource, _namespace, *, label_selector):
        assert label_selector == "fairlead.dev/history"
        return list(self.maps.values())

    async def get(self, _resource, _namespace, name):
        if name not in self.maps:
            raise NotFound("there is none")
        return self.maps[name]

    async def delete(self, _resource, _namespace, name, *, uid=""):
        return self.maps.pop(name, None) is not None

    async def create(self, resource, obj):
        if self.errors:
            raise self.errors.pop(0)
        self.writes += 1
        made = msgspec.convert(obj, resource.type)
        self.maps[made.metadata.name] = made
        return made

    async def merge_patch(self, resource, namespace, name, patch, *, manager):
        meta = {"namespace": namespace, "name": name}
        return await self.create(resource, {"metadata": meta, "data": patch["data"]})


class World:
    def __init__(self, maps):
        self.clock = VirtualClock(start=AT)
        self.history = History(now=self.clock.now)
        self.maps = maps
        self.leads = True
        self.deleted: set[LoadBalancerKey] = set()
        self.store = HistoryStore(
            cluster=maps,
            history=self.history,
            clock=self.clock,
            leading=lambda: self.leads,
            is_durable=lambda name: name == "webhook",
            exists=lambda key: key not in self.deleted,
        )

    def fail(self, text="no answer", *, key=KEY, provider="webhook"):
        self.history.note(key, HistoryKind.FAILED, text, provider=provider)

    def stored(self, key=KEY):
        stored = self.maps.maps.get(map_name(key))
        text = stored.data["history"] if stored is not None else "[]"
        return [entry.text for entry in msgspec.json.decode(text, type=list[HistoryEntry])]


@pytest.fixture
def world():
    return World(Maps())


def entries(count, kind=HistoryKind.FAILED):
    return [HistoryEntry(number, AT + timedelta(seconds=number), kind, f"{kind} {number}") for number in range(count)]


def test_what_fits_are_the_newest_and_failures_before_routine():
    routine, failures = entries(20, HistoryKind.WOKEN), entries(20)
    size = len(msgspec.json.encode(failures[-1])) + 1
    text = newest([*routine, *failures], max_bytes=2 + 22 * size)
    assert len(text) <= 2 + 22 * size
    kept = msgspec.json.decode(text, type=list[HistoryEntry])
    assert [entry.sequence for entry in kept] == sorted(entry.sequence for entry in kept)
    assert [entry for entry in kept if entry.kind is HistoryKind.FAILED] == failures
    assert {entry.text for entry in kept} - {entry.text for entry in failures} == {"Woken 18", "Woken 19"}
    assert newest(failures, max_bytes=10) == newest([]) == "[]"


async def test_a_flush_writes_each_load_balancer_once_and_nothing_twice(world):
    world.history.note(KEY, HistoryKind.WOKEN, "created")
    world.fail()
    world.fail("refused")
    await world.store.flush()
    await world.store.flush()
    assert (world.maps.writes, world.stored()) == (1, ["created", "no answer", "refused"])


async def test_what_memory_never_knew_or_has_forgotten_is_kept(world):
    world.fail("first")
    await world.store.flush()
    later = World(world.maps)
    later.clock.jump(60)
    later.fail("second")
    await later.store.flush()
    assert later.stored() == ["first", "second"]


async def test_a_flush_is_bounded_and_goes_on_where_it_stopped(world):
    for number in range(MOST_WRITES + 1):
        world.fail(key=lb_key(f"lb-{number}"))
    await world.store.flush()
    assert world.maps.writes == MOST_WRITES
    await world.store.flush()
    assert world.maps.writes == MOST_WRITES + 1


async def test_an_api_that_does_not_answer_is_asked_again_for_all_of_them(world):
    for name in ("a", "b"):
        world.fail(key=lb_key(name))
    world.maps.errors = [Unreachable("503")]
    with pytest.raises(Unreachable):
        await world.store.flush()
    await world.store.flush()
    assert world.maps.writes == 2


async def test_a_rejected_object_does_not_stop_the_others(world):
    for name in ("a", "b"):
        world.fail(key=lb_key(name))
    world.maps.errors = [Invalid("too long")]
    await world.store.flush()
    assert (world.stored(lb_key("a")), world.stored(lb_key("b"))) == ([], ["no answer"])


async def test_a_replica_that_does_not_lead_writes_nothing(world):
    world.fail()
    world.leads = False
    await world.store.flush()
    assert world.maps.writes == 0
    world.leads = True
    await world.store.flush()
    assert world.stored() == ["no answer"], "it leads again"


@pytest.mark.req("X-9")
async def test_the_hubs_own_load_balancers_are_stored_shorter_and_last(world):
    for number in range(40):
        world.fail(f"{number} " + "x" * 500, provider="envoy", key=lb_key("served"))
    for number in range(MOST_WRITES):
        world.fail(key=lb_key(f"lb-{number}"))
    await world.store.flush()
    assert world.stored(lb_key("served")) == []
    await world.store.flush()
    data = world.maps.maps[map_name(lb_key("served"))].data["history"]
    assert 500 < len(data) <= MAX_BYTES_SERVED
    later = World(world.maps)
    task = asyncio.create_task(later.store.run())
    await later.clock.advance(1)
    assert later.history.of(lb_key("served"))[-1].text.startswith("39 ")
    task.cancel()
    await asyncio.wait([task])


async def test_of_too_many_the_oldest_are_deleted(world, monkeypatch):
    monkeypatch.setattr("fairlead.ledger.history.MOST_MAPS", 2)
    for number in range(4):
        world.clock.jump(1)
        world.fail(key=lb_key(f"lb-{number}"))
        await world.store.flush()
    assert set(world.maps.maps) == {map_name(lb_key(f"lb-{number}")) for number in (2, 3)}


async def test_the_history_of_deleted_load_balancers_is_bounded(world, monkeypatch):
    monkeypatch.setattr("fairlead.ledger.history.MOST_DELETED", 2)
    keys = [lb_key(f"lb-{number}") for number in range(5)]
    for key in keys:
        world.fail(key=key)
        await world.store.flush()
        world.clock.jump(1)
    world.deleted = set(keys[:4])
    await world.store.flush()
    assert [key for key in keys if world.stored(key)] == keys[2:], "the last two, and the one that exists"
    world.clock.jump(timedelta(days=KEEP_DELETED_DAYS).total_seconds())
    await world.store.flush()
    assert [key for key in keys if world.stored(key)] == keys[4:]
    # Created and deleted between two flushes: only the last ones are written at all.
    writes, keys = world.maps.writes, [lb_key(f"new-{number}") for number in range(5)]
    for key in keys:
        world.fail(key=key)
    world.deleted = set(keys)
    await world.store.flush()
    assert world.maps.writes == writes + 2
    assert [key for key in keys if world.stored(key)] == keys[3:]


async def test_the_writer_runs_until_the_term_ends_and_flushes(world):
    world.fail("before")
    await world.store.flush()
    later = World(world.maps)
    task = asyncio.create_task(later.store.run())
    await later.clock.advance(1)
    assert [entry.text for entry in later.history.of(KEY)] == ["before"]
    later.fail("in time")
    await later.clock.advance(FLUSH_S)
    assert later.stored() == ["before", "in time"]
    later.fail("last")
    task.cancel()
    await asyncio.wait([task])
    assert later.stored() == ["before", "in time", "last"]


async def test_an_orderly_end_writes_all_that_is_left_however_much_it_is(world):
    task = asyncio.create_task(world.store.run())
    await world.clock.advance(1)
    for number in range(3 * MOST_WRITES):
        world.fail(key=lb_key(f"lb-{number}"))
    task.cancel()
    await asyncio.wait([task])
    assert world.maps.writes == 3 * MOST_WRITES


async def test_an_end_in_the_middle_of_a_write_loses_nothing(world):
    world.fail(key=lb_key("a"))
    world.fail(key=lb_key("b"))
    task = asyncio.create_task(world.store.run())
    await world.clock.advance(1)
    world.maps.errors = [asyncio.CancelledError()]
    await world.clock.advance(FLUSH_S)
    await asyncio.wait([task])
    assert (world.stored(lb_key("a")), world.stored(lb_key("b"))) == (["no answer"], ["no answer"])


async def test_stored_history_is_found_by_its_label():
    world = World(Maps())
    world.fail()
    await world.store.flush()
    (stored,) = world.maps.maps.values()
    assert stored.metadata.labels == {"app.kubernetes.io/managed-by": "fairlead", "fairlead.dev/history": ""}


@pytest.mark.req("CORE-19")
async def test_entries_that_cannot_be_read_are_passed_over_and_the_others_kept(world):
    good = msgspec.to_builtins(entries(1)[0])
    odd = [{**good, "at": "2026-01-02T00:00:00"}, {**good, "kind": "Unheard"}, 7, {**good, "lastAt": "yesterday"}]
    stored = HistoryMap(data={"history": msgspec.json.encode([*odd, good]).decode()})
    assert entries_of(stored) == entries(1)
    for text in ("[" * 100_000, "null", "\ud800", "{}"):
        assert entries_of(HistoryMap(data={"history": text})) == []
