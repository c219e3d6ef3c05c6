"""The leases of hubs that share a zone: what they say, when one has expired, and what is never judged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from fairlead.errors import Retry
from fairlead.providers.zones.peers import JUDGED_S, PeerLeases, ZoneLease, lease_seconds, lease_text
from fairlead.providers.zones.plan import (
    Edit,
    Holder,
    Mark,
    PeerHubs,
    RRKey,
    RRSet,
    RRSets,
    lease_key,
    mark_key,
    mark_text,
)
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import VirtualClock

ZONE = ServerSettings("example.test", "192.0.2.53", 53)
OURS = ZoneLease(ZONE, "east", 30)
MARKS = {mark_key("www.example.test", "A"): RRSet(frozenset({mark_text(Mark(Holder("west", "00"), "192.0.2.2"))}), 60)}


class Server:
    """A zone in memory, with a second hub that renews its lease while it lives."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.records: dict[RRKey, RRSet] = {}
        self.leases = PeerLeases(self.clock, update=self.update)
        self.reads = self.updates = 0
        self.west: int | None = None
        self.fails = False
        self.slow_s = 0.0

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        self.reads += 1
        if self.fails:
            raise Retry("the server does not answer")
        await self.clock.sleep(self.slow_s) if self.slow_s else None
        return {key: self.records[key] for key in keys if key in self.records}

    async def update(self, _settings: ServerSettings, edits: Sequence[Edit], _there: RRSets) -> bool:
        self.updates += 1
        for edit in edits:
            values = self.records.get(edit.key, RRSet()).values
            self.records[edit.key] = RRSet(values | {edit.value} if edit.add else values - {edit.value}, 10)
        return True

    async def turns(self, seconds: float, *, lease: ZoneLease = OURS, every_s: float = 3) -> set[str]:
        """Let time pass, and return the hubs whose lease has expired."""
        for _ in range(int(seconds / every_s)):
            if self.west is not None:
                self.west += 1
                text = lease_text(ZoneLease(ZONE, "west", 30), f"renewal {self.west}")
                self.records[lease_key("west", "example.test")] = RRSet(frozenset({text}), 10)
            await self.clock.advance(every_s)
            await self.leases.turn(lease, self)
        return set(self.leases.judged(ZONE).expired)


@pytest.mark.req("MC-22")
def test_a_lease_says_whose_it_is_and_how_long_it_lasts():
    text = lease_text(OURS, "2030-01-01T00:00:30Z")
    assert text == "heritage=fairlead,fairlead/hub=east,fairlead/lease=30,fairlead/expires=2030-01-01T00:00:30Z"
    assert lease_seconds(text, "east") == 30
    assert lease_seconds(text, "west") is None, "whoever has the lease's name by chance"
    for other in ("", "v=spf1 -all", "heritage=fairlead,fairlead/hub=east,fairlead/lease=soon", *text.split(",")):
        assert lease_seconds(other, "east") is None
    assert lease_key("East_1.a", "example.test").name.removesuffix(".example.test").startswith("fairlead-hub-")


@pytest.mark.req("MC-22")
async def test_a_lease_is_renewed_three_times_in_its_duration():
    server = Server()
    await server.turns(60)
    assert server.updates == 5
    assert len(server.records[OURS.key].values) == 1


@pytest.mark.req("MC-22")
async def test_a_lease_expires_by_the_clock_of_its_reader_and_comes_back():
    server = Server()
    server.leases.look(ZONE, MARKS)
    assert server.leases.owners_of(ZONE, "www.example.test") == {"west"}
    server.west = 0
    assert await server.turns(90) == set()
    server.west = None
    assert await server.turns(30) == set()
    assert await server.turns(6) == {"west"}
    server.west = 100
    assert await server.turns(3) == set()


@pytest.mark.req("MC-22")
async def test_a_hub_without_a_lease_or_read_too_seldom_never_expires():
    server = Server()
    server.leases.look(ZONE, MARKS)
    assert await server.turns(120) == set()
    server.west = 0
    await server.turns(3)
    server.west = None
    assert await server.turns(200, every_s=20) == set()


@pytest.mark.req("MC-22")
async def test_a_hub_that_shares_no_names_asks_once_and_removes_its_lease():
    server = Server()
    await server.turns(30)
    await server.turns(30, lease=OURS._replace(seconds=0))
    assert server.records[OURS.key].values == frozenset()
    reads = server.reads
    server.leases.look(ZONE, MARKS)
    assert await server.turns(60, lease=OURS._replace(seconds=0)) == set()
    assert server.reads == reads


@pytest.mark.req("MC-22")
async def test_a_hub_that_shares_no_names_removes_the_lease_of_an_earlier_process():
    server = Server()
    await server.turns(30)
    server.leases = PeerLeases(server.clock, update=server.update)
    await server.turns(6, lease=OURS._replace(seconds=0))
    assert server.records[OURS.key].values == frozenset()


@pytest.mark.req("MC-22")
async def test_a_judgement_ends_when_leases_cannot_be_read():
    server = Server()
    server.leases.look(ZONE, MARKS)
    assert server.leases.judged(ZONE) == PeerHubs(), "not read yet"
    server.west = 0
    await server.turns(6)
    assert server.leases.judged(ZONE).reliable == {"west"}
    server.fails = True
    await server.clock.advance(JUDGED_S - 1)
    assert server.leases.judged(ZONE).reliable == {"west"}
    with pytest.raises(Retry):
        await server.leases.turn(OURS, server)
    await server.clock.advance(2)
    assert server.leases.judged(ZONE) == PeerHubs()
    server.fails, server.west = False, None
    assert await server.turns(60) == {"west"}
    await server.clock.advance(JUDGED_S + 1)
    assert server.leases.judged(ZONE) == PeerHubs(), "an expired hub is unknown, too"


@pytest.mark.req("MC-22")
async def test_a_slow_answer_makes_no_lease_older():
    server = Server()
    server.leases.look(ZONE, MARKS)
    server.west = 0
    await server.turns(6)
    server.west = None
    await server.turns(27)
    server.slow_s = 8.0
    turn = asyncio.create_task(server.leases.turn(OURS, server))
    await server.clock.advance(8)
    await turn
    assert server.leases.judged(ZONE).expired == {}, "the answer may be as old as the question"


@pytest.mark.req("MC-22")
async def test_names_and_zones_that_are_gone_are_forgotten():
    server = Server()
    server.leases.look(ZONE, MARKS)
    server.west = 0
    await server.turns(6)
    server.leases.forget(ZONE, "www.example.test")
    assert server.leases.owners_of(ZONE, "www.example.test") == set()
    server.leases.keep({ZONE})
    assert server.leases.judged(ZONE).reliable == {"west"}
    server.leases.keep(set())
    assert not any(vars(server.leases)[name] for name in ("_owners", "_judged", "_written", "_seen"))
