"""Hubs of one zone at a real BIND and a real PowerDNS: whose addresses of a shared name are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlead.api.meta import JSONObject
from fairlead.errors import BadConfiguration, Retry
from fairlead.model.change import DONE, Action, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import BackendFacts, RestoredBackend
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, RECORD_UNHEALTHY, LoadBalancerKey, TargetKey, backend_key
from fairlead.model.observed import Observed
from fairlead.providers.zones.external_dns import provider as external_dns
from fairlead.providers.zones.peers import lease_key
from fairlead.providers.zones.plan import Holder, Mark, mark_key, mark_text
from fairlead.providers.zones.powerdns import provider as powerdns
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rfc2136 import provider as rfc2136
from fairlead.runtime.clock import VirtualClock
from fairlead_demo.worlds.name_servers import Bind, binary
from tests.worlds.powerdns import PowerDNS, installed

LEASE_S = 30
KEY = LoadBalancerKey("Hostname", "fairlead-system", "www")
Server = Bind | PowerDNS
HOST = "www.example.test"


class Keys:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def entry(self, name: str, entry: str) -> str:
        server = self._server
        if isinstance(server, PowerDNS) and entry == powerdns.SECRET_ENTRY:
            return server.api_key
        return server.secrets[name]


class OneHub:
    """One hub with a clock of its own, on record with what it has registered; ``turn`` lets 3 seconds pass."""

    def __init__(
        self, server: Server, owner: str, *addresses: str, by_api: bool, lease_s: int = LEASE_S, year: int = 2030
    ) -> None:
        self.server, self.owner, self.lease_s = server, owner, lease_s
        #: Whether records are written by the API of PowerDNS, and not by dynamic updates.
        self.by_api = by_api
        self.addresses = addresses
        self.clock = VirtualClock(start=datetime(year, 1, 1, tzinfo=UTC))
        self.down: set[str] = set()
        self.provider = self._make()
        self._work: asyncio.Task[None] | None = None

    def _make(self) -> DNSProvider:
        create = powerdns.create if self.by_api else rfc2136.create
        return create(secrets=Keys(self.server), clock=self.clock)

    @property
    def spec(self) -> FrontendSpec:
        parameters = {"zone": "example.test", "host": HOST, "ownerId": self.owner, "server": self.server.server}
        if self.lease_s:
            parameters["peerLeaseSeconds"] = str(self.lease_s)
        if self.by_api and isinstance(self.server, PowerDNS):
            parameters |= {"url": self.server.url, "credentials": "powerdns"}
        else:
            parameters |= {"keyName": "fairlead", "credentials": "fairlead"}
        return FrontendSpec(KEY, "", (), health_check=None, parameters=parameters)

    def target(self, address: str) -> Target:
        unhealthy = (RECORD_UNHEALTHY,) if address in self.down else ()
        return Target(TargetKey(address, RECORD_PORT), parameters=(*unhealthy, ("ttl", "30")))

    async def start(self) -> None:
        await self.provider.ensure(self.spec)
        await self.apply()
        await self.provider.start()
        self._work = asyncio.create_task(self.provider.work())

    async def apply(self, action: Action = Action.REGISTER) -> None:
        rows = [
            TargetChange(
                KEY, backend_key("AAAA" if ":" in address else "A"), self.target(address), action, Reason.OWNER_DELETED
            )
            for address in self.addresses
        ]
        while True:
            try:
                assert await self.provider.apply(rows) == [DONE] * len(rows)
            except Retry:  # as the worker does: PowerDNS on SQLite refuses two updates at once
                continue
            return

    async def fails(self, *addresses: str) -> None:
        """Have the load balancers of these addresses not serve, and those of all others serve."""
        self.down = set(addresses)
        await self.apply()
        await self.turn()  # by then the leases of hubs that were seen are read

    async def ends(self) -> None:
        """End the process; what it has done stays, and is on record."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))
        await self.provider.close()

    async def starts_again(self) -> None:
        self.provider = self._make()
        self.provider.restore(self.spec, {})
        backends = [RestoredBackend(backend_key("A"), self.target(value), BackendFacts()) for value in self.addresses]
        self.provider.restore_backends(KEY, backends)
        await self.provider.start()
        self._work = asyncio.create_task(self.provider.work())

    async def turn(self) -> None:
        await self.clock.advance(3)
        while self.clock.sleepers < 2:  # noqa: ASYNC110 - both loops wait for their next turn by this clock
            await asyncio.sleep(0.001)

    async def observed(self) -> Observed:
        observed = await self.provider.observe(KEY)
        assert observed is not None
        assert observed.health is not None
        return observed


Make = Callable[..., OneHub]


class World:
    """The server, and the hubs that were started."""

    def __init__(self, server: Server, *, by_api: bool) -> None:
        self.server = server
        self.by_api = by_api
        self.hubs: list[OneHub] = []

    async def hub(self, owner: str, *addresses: str, lease_s: int = LEASE_S, year: int = 2030) -> OneHub:
        hub = OneHub(self.server, owner, *addresses, by_api=self.by_api, lease_s=lease_s, year=year)
        self.hubs.append(hub)
        await hub.start()
        return hub

    async def pass_(self, seconds: float, *hubs: OneHub) -> None:
        """Let time pass at these hubs; the name is answered all the time."""
        for _ in range(int(seconds / 3)):
            for hub in hubs:
                await hub.turn()
                assert await self.answer(), "the answer is empty"

    async def answer(self, type_: str = "A") -> set[str]:
        return await self.server.ask(HOST, type_)

    async def marks(self) -> int:
        return len(await self.server.ask(*mark_key(HOST, "A")))


@asynccontextmanager
async def running(server: Server, *, by_api: bool) -> AsyncGenerator[World]:
    await server.start()
    world = World(server, by_api=by_api)
    yield world
    for hub in world.hubs:
        await hub.ends()
    await server.kill()


with_bind = pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed")
with_powerdns = pytest.mark.skipif(not installed(), reason="PowerDNS is not installed")


@pytest.fixture(
    params=[
        pytest.param((Bind, False), id="bind", marks=with_bind),
        pytest.param((PowerDNS, True), id="powerdns-api", marks=with_powerdns),
        pytest.param((PowerDNS, False), id="powerdns-updates", marks=with_powerdns),
    ]
)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    make, by_api = request.param
    async with running(make(tmp_path / "server"), by_api=by_api) as world:
        yield world


@pytest.mark.req("MC-21")
async def test_the_answer_is_the_union_and_each_hub_removes_its_own(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.2", "192.0.2.3")
    await world.pass_(2 * LEASE_S, east, west)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    assert await world.marks() == 3
    await west.apply(Action.DEREGISTER)
    assert await world.answer() == {"192.0.2.1"}
    assert await world.marks() == 1


@pytest.mark.req("MC-22")
async def test_a_hub_without_proxies_withdraws_its_address_and_returns_it(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.2")
    await east.fails("192.0.2.1")
    assert await world.answer() == {"192.0.2.2"}
    assert await world.marks() == 1
    await world.pass_(2 * LEASE_S, east, west)
    assert await world.answer() == {"192.0.2.2"}
    observed = await east.observed()
    assert observed.programmed
    assert observed.health is not None
    assert observed.health.reason is ConditionReason.WITHDRAWN
    assert observed.health.unhealthy == ("A 192.0.2.1",)
    await east.fails()
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}


@pytest.mark.req("MC-22")
async def test_the_last_address_stays_when_all_fail(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.2")
    await asyncio.gather(east.fails("192.0.2.1"), west.fails("192.0.2.2"))
    await world.pass_(30, east, west)
    assert len(await world.answer()) == 1
    await west.fails()
    await world.pass_(6, east, west)
    assert await world.answer() == {"192.0.2.2"}
    # A hub whose peer has gone for good publishes what it has.
    await east.fails("192.0.2.1")
    await west.apply(Action.DEREGISTER)
    await world.hubs[0].turn()
    await world.pass_(6, east)
    assert await world.answer() == {"192.0.2.1"}


@pytest.mark.req("MC-22")
async def test_the_addresses_of_a_hub_that_ended_are_withdrawn_and_return(world: World):
    # The clocks of hubs may differ: only the age of a lease counts, as its reader sees it.
    east = await world.hub("east", "192.0.2.1", year=2028)
    west = await world.hub("west", "192.0.2.2", year=2032)
    await world.pass_(LEASE_S, east, west)
    await east.ends()
    await world.pass_(LEASE_S - 6, west)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}, "the lease has not expired yet"
    await world.pass_(15, west)
    assert await world.answer() == {"192.0.2.2"}
    assert await world.marks() == 1
    await east.starts_again()
    observed = await east.observed()
    assert not observed.programmed
    await world.pass_(6, east, west)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}
    await world.pass_(2 * LEASE_S, east, west)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}


@pytest.mark.req("MC-22")
async def test_nothing_is_withdrawn_for_a_hub_without_a_healthy_address(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.2")
    await world.pass_(LEASE_S, east, west)
    await east.ends()
    await west.fails("192.0.2.2")
    assert await world.answer() == {"192.0.2.1"}
    await world.pass_(2 * LEASE_S, west)
    # West is known to be down, and east is only silent: clients get both.
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}
    await west.fails()
    await world.pass_(6, west)
    assert await world.answer() == {"192.0.2.2"}


@pytest.mark.req("MC-22")
async def test_each_family_keeps_an_answer(world: World):
    east = await world.hub("east", "192.0.2.1", "2001:db8::1")
    west = await world.hub("west", "192.0.2.2")
    await world.pass_(LEASE_S, east, west)
    await east.fails("192.0.2.1", "2001:db8::1")
    assert await world.answer() == {"192.0.2.2"}
    assert await world.answer("AAAA") == {"2001:db8::1"}, "west has no address of that family"
    await east.ends()
    await world.pass_(2 * LEASE_S, west)
    assert await world.answer("AAAA") == {"2001:db8::1"}


@pytest.mark.req("MC-22")
async def test_two_hubs_announce_one_address_and_one_ends(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.1")
    await world.pass_(LEASE_S, east, west)
    assert await world.marks() == 2
    await east.fails("192.0.2.1")
    assert await world.answer() == {"192.0.2.1"}
    assert await world.marks() == 1
    await east.fails()
    await east.ends()
    await world.pass_(2 * LEASE_S, west)
    assert await world.answer() == {"192.0.2.1"}
    assert await world.marks() == 1


@pytest.mark.req("MC-21")
async def test_a_hub_without_a_lease_is_never_judged(world: World):
    # A hub of 0.2 keeps no lease, and its marks are the same.
    mark = mark_text(Mark(Holder("old", "00"), "192.0.2.9"))
    east = await world.hub("east", "192.0.2.1")
    if isinstance(world.server, Bind):
        add = (("add", HOST, "A", "192.0.2.9"), ("add", mark_key(HOST, "A").name, "TXT", f'"{mark}"'))
        await world.server.write(*add)
    else:
        ours = sorted(await world.server.ask(*mark_key(HOST, "A")))
        await world.server.write(HOST, "A", "192.0.2.1", "192.0.2.9")
        await world.server.write(mark_key(HOST, "A").name, "TXT", *(f'"{text}"' for text in (*ours, mark)))
    west = await world.hub("west", "192.0.2.2", lease_s=0)
    await world.pass_(4 * LEASE_S, east)
    await west.ends()
    await world.pass_(4 * LEASE_S, east)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2", "192.0.2.9"}
    assert await world.server.ask(*lease_key("west", "example.test")) == set()


@pytest.mark.req("MC-22")
async def test_a_hub_that_shares_no_longer_leaves_no_lease_to_expire(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.2")
    await world.pass_(LEASE_S, east, west)
    (text,) = await world.server.ask(*lease_key("west", "example.test"))
    assert f"fairlead/hub=west,fairlead/lease={LEASE_S},fairlead/expires=2030-" in text
    west.lease_s = 0
    await west.provider.ensure(west.spec)
    await world.pass_(2 * LEASE_S, east, west)
    assert await world.server.ask(*lease_key("west", "example.test")) == set()
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}


@pytest.mark.req("MC-22")
async def test_time_without_an_answer_of_the_server_expires_no_lease(world: World):
    east = await world.hub("east", "192.0.2.1")
    west = await world.hub("west", "192.0.2.2")
    await world.pass_(LEASE_S, east, west)
    await world.server.kill()
    for _ in range(LEASE_S):
        await west.turn()
    await world.server.start()
    await world.pass_(LEASE_S - 6, west)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}
    await world.pass_(12, west)
    assert await world.answer() == {"192.0.2.2"}


@pytest.mark.req("MC-21")
async def test_a_provider_that_cannot_share_names_says_so():
    provider = external_dns.create()
    problem = provider.class_problem({"zone": "example.test", "server": "192.0.2.53", "peerLeaseSeconds": "30"})
    assert "peerLeaseSeconds" in problem
    assert "rfc2136" in problem
    parameters = {"zone": "example.test", "host": HOST, "ownerId": "east", "server": "192.0.2.53"}
    spec = FrontendSpec(KEY, "", (), health_check=None, parameters={**parameters, "peerLeaseSeconds": "30"})
    with pytest.raises(BadConfiguration, match="rfc2136"):
        await provider.validate(spec)


@pytest.mark.req("MC-21")
async def test_a_name_of_an_earlier_release_is_shared_without_a_gap(world: World):
    # What 0.2 has written: the same marks, a longer TTL, and no lease.
    east = await world.hub("east", "192.0.2.1", lease_s=0)
    west = await world.hub("west", "192.0.2.2", lease_s=0)
    before = await world.server.ask(*mark_key(HOST, "A"))
    for hub in (east, west):
        await hub.ends()
        hub.lease_s = LEASE_S
        await hub.starts_again()
        await hub.provider.ensure(hub.spec)
        await world.pass_(2 * LEASE_S, east, west) if hub is west else await world.pass_(2 * LEASE_S, east)
    assert await world.answer() == {"192.0.2.1", "192.0.2.2"}
    assert await world.server.ask(*mark_key(HOST, "A")) == before
    assert len(await world.server.ask(*lease_key("west", "example.test"))) == 1


def interleave(monkeypatch: pytest.MonkeyPatch, between: Callable[[], Awaitable[None]]) -> None:
    """Have ``between`` run once, after a hub has read the zone for the last time and before it replaces sets."""
    patch, pending = powerdns.PowerDNSApi.patch, [between]

    async def after_others(api: powerdns.PowerDNSApi, rrsets: list[JSONObject]) -> None:
        if pending:
            await pending.pop()()
        await patch(api, rrsets)

    monkeypatch.setattr(powerdns.PowerDNSApi, "patch", after_others)


@pytest.fixture
async def replaced(tmp_path: Path) -> AsyncIterator[World]:
    """Hubs that write by the API of PowerDNS, which replaces whole sets without a condition."""
    async with running(PowerDNS(tmp_path / "server"), by_api=True) as world:
        yield world


@with_powerdns
@pytest.mark.req("MC-21")
async def test_an_address_that_another_hub_brought_back_is_removed_again(
    replaced: World, monkeypatch: pytest.MonkeyPatch
):
    east = await replaced.hub("east", "192.0.2.1")
    west = await replaced.hub("west", "192.0.2.2", "192.0.2.3")
    await replaced.pass_(6, east, west)
    west.addresses = ("192.0.2.3",)
    interleave(monkeypatch, lambda: west.apply(Action.DEREGISTER))
    east.addresses = ("192.0.2.1", "192.0.2.4")
    await east.apply()
    assert "192.0.2.3" in await replaced.answer(), "the hub in the east has written what it had read"
    await replaced.pass_(6, east, west)
    assert await replaced.answer() == {"192.0.2.1", "192.0.2.2", "192.0.2.4"}
    assert await replaced.marks() == 3
    # An address that is registered again stays.
    await west.apply(Action.DEREGISTER)
    await west.apply()
    await replaced.pass_(12, east, west)
    assert await replaced.answer() == {"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}


@with_powerdns
@pytest.mark.req("MC-22")
async def test_hubs_that_replace_one_set_at_once_lose_no_address_and_leave_an_answer(
    replaced: World, monkeypatch: pytest.MonkeyPatch
):
    east = await replaced.hub("east", "192.0.2.1")
    west = await replaced.hub("west", "192.0.2.2")
    await replaced.pass_(6, east, west)
    west.addresses = ("192.0.2.2", "192.0.2.3")
    interleave(monkeypatch, west.apply)
    east.addresses = ("192.0.2.1", "192.0.2.4")
    await east.apply()
    assert "192.0.2.3" not in await replaced.answer(), "overwritten by the hub in the east"
    await west.observed()  # as the hub does when the zone was changed by others
    await replaced.pass_(12, east, west)
    assert await replaced.answer() == {"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}
    # Both withdraw all that they have, since the other hub has addresses.
    interleave(monkeypatch, lambda: west.fails(*west.addresses))
    await east.fails(*east.addresses)
    for _ in range(10):
        assert await replaced.answer(), "the answer is empty"
        await replaced.pass_(3, east, west)
