"""The leases of hubs that share a zone: what they say, when one has expired, and what is never judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from fairlead.providers.zones.peers import PeerLeases, ZoneLease, lease_key, lease_seconds, lease_text
from fairlead.providers.zones.plan import Edit, Holder, Mark, RRKey, RRSet, RRSets, mark_key, mark_text
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

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        self.reads += 1
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
            await self.leases.turn(lease, self)  # pyright: ignore[reportArgumentType]
        return set(self.leases.expired(ZONE))


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
