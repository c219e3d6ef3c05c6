"""Members that share a load balancer, as a real Envoy divides new connections among them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest
from aiohttp import WSMsgType

from fairlead.model.change import Action
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Listener, Locality, Shares, Spillover, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import Protocol, backend_key
from fairlead.model.observed import Counted
from fairlead.providers.envoy.traffic import EnvoyTraffic
from fairlead_demo.worlds.processes import wait_until
from tests.xds.http_world import HttpWorld, config, get, route, to, web_socket
from tests.xds.world import TIMEOUT_S, Backend, World, ask, ask_udp, connected, health, local_envoy

pytestmark = [pytest.mark.asyncio(loop_scope="session")]

CHECK = HealthCheck(interval_s=0.05, timeout_s=5, unhealthy_threshold=2, healthy_threshold=1)
TIER_0 = (Locality("west", 60), Locality("east", 30), Locality("north", 10))
#: Connections that are opened at the same time.
IN_FLIGHT = 20
BACKUP = Locality("backup", 100, tier=1)


def at(backend: Backend, member: str, **fields: object) -> Target:
    return msgspec.structs.replace(backend.target, locality=member, **fields)


async def members(world: World, **counts: int) -> dict[str, list[Backend]]:
    return {name: [await world.backend(name) for _ in range(count)] for name, count in counts.items()}


def targets(backends: Mapping[str, list[Backend]]) -> list[Target]:
    return [at(backend, name) for name, listed in backends.items() for backend in listed]


async def counted(spec: FrontendSpec, connections: int = 400) -> Counter[str]:
    """Return how many of so many connections each member answered; one that none answers counts as "": closed."""
    answered: Counter[str] = Counter()
    for _ in range(connections // IN_FLIGHT):
        answered.update(await asyncio.gather(*(ask(spec.address, 8080) for _ in range(IN_FLIGHT))))
    return answered


def percent(answered: Counter[str]) -> dict[str, float]:
    return {name: 100 * count / answered.total() for name, count in answered.items()}


async def set_alive(world: World, spec: FrontendSpec, backends: Mapping[str, list[Backend]], dead: list[str]) -> None:
    """Stop the backends that ``dead`` names, as west/0, start all others, and wait until Envoy has seen it."""
    for name, listed in backends.items():
        for number, backend in enumerate(listed):
            await backend.stop()
            if f"{name}/{number}" not in dead:
                await backend.start(backend.address)
    alive = sum(map(len, backends.values())) - len(dead)
    reason = ConditionReason.SERVING if alive else ConditionReason.NO_HEALTHY_TARGETS
    await health(world, spec.key, reason, healthy=alive)
    # The cluster of connections has checks of its own, as often as those that were just reported.
    name = f"cluster.{spec.key}/TCP/8080.membership_healthy"

    async def checked() -> bool:
        _, text = await local_envoy(world.provider).admin(f"/stats?filter=^{name}$")
        return text.split() == [f"{name}:", str(alive)]

    await wait_until(checked, "the cluster of connections has seen it")


WEST, EAST, NORTH = (["west/0", "west/1"], ["east/0", "east/1"], ["north/0", "north/1"])
STRICT = [
    (["west/0"], {"west": 60, "east": 30, "north": 10}),
    (WEST, {"east": 75, "north": 25}),
    ([*WEST, "east/0"], {"east": 75, "north": 25}),
    ([*WEST, *EAST], {"north": 100}),
    ([*WEST, *EAST, *NORTH], {"backup": 100}),
]
PROPORTIONAL = [
    (["west/0"], {"west": 51, "east": 37, "north": 12}),
    (WEST, {"east": 69, "north": 23, "backup": 8}),
    ([*WEST, "east/0"], {"east": 47, "north": 23, "backup": 30}),
    ([*WEST, *EAST], {"north": 47, "backup": 53}),
    ([*WEST, *EAST, *NORTH], {"backup": 100}),
]


@pytest.mark.req("MC-12", "MC-11")
@pytest.mark.parametrize(("spillover", "rows"), [(Spillover.STRICT, STRICT), (Spillover.PROPORTIONAL, PROPORTIONAL)])
async def test_dead_endpoints_shift_connections_as_spillover_says(world: World, spillover, rows):
    backends = await members(world, west=2, east=2, north=2, backup=1)
    spec = world.spec(health_check=CHECK, shares=Shares((BACKUP, *TIER_0), spillover))
    await world.serve(spec, *targets(backends))
    for dead, expected in rows:
        await set_alive(world, spec, backends, dead)
        seen = percent(await counted(spec))
        assert seen.keys() == expected.keys(), (dead, seen)
        # Which tier serves a connection is drawn by lot: the standard deviation of 400 is 2.5 %.
        assert all(abs(seen[name] - share) <= 9 for name, share in expected.items()), (dead, seen)


@pytest.mark.req("MC-10")
async def test_a_weight_is_of_the_member_and_not_of_its_pods(world: World):
    backends = await members(world, west=1, east=12)
    spec = world.spec(shares=Shares((Locality("east", 50), Locality("west", 50))))
    await world.serve(spec, *targets(backends))
    answered = await counted(spec)
    assert abs(answered["west"] - answered["east"]) <= 4


@pytest.mark.req("MC-25")
async def test_a_dark_member_gets_no_connection_whatever_its_checks_say(world: World):
    backends = await members(world, west=2, east=1)
    shares = Shares((Locality("east", 50), Locality("west", 50)))
    spec = world.spec(health_check=CHECK, shares=shares)
    await world.serve(spec, *targets(backends))
    dark = Shares((Locality("east", 50), Locality("west", 50, dark=True)))
    for changed, expected in ((dark, {"east"}), (shares, {"east", "west"})):
        spec = msgspec.structs.replace(spec, shares=changed)
        await world.provider.ensure(spec)
        await world.programmed(spec)
        assert set(await counted(spec, 100)) == expected


@pytest.mark.req("MC-10", "MC-13")
async def test_a_change_of_weight_moves_new_connections_and_cuts_none(world: World):
    backends = {"west": [await world.backend("west", stay=True)], "east": [await world.backend("east", stay=True)]}
    spec = world.spec(shares=Shares((Locality("east", 0), Locality("west", 100))))
    await world.serve(spec, *targets(backends))
    reader, writer = await asyncio.open_connection(spec.address, 8080)
    assert await reader.readline() == b"west\n"
    for west, east in ((50, 50), (0, 100)):
        spec = msgspec.structs.replace(spec, shares=Shares((Locality("east", east), Locality("west", west))))
        await world.provider.ensure(spec)
        await world.programmed(spec)
        asked = [await asyncio.open_connection(spec.address, 8080) for _ in range(20)]
        names = Counter([(await reader.readline()).decode().strip() for reader, _ in asked])
        for _, other in asked:
            other.close()
        assert names == Counter({name: 20 * part // 100 for name, part in (("west", west), ("east", east)) if part})
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    writer.close()


@pytest.mark.req("MC-13")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
async def test_connections_of_a_drained_member_end_after_its_time(world: World):
    """The load balancer that the member's Service has of its own, at the same proxy, keeps its connections."""
    west, east = await world.backend("west", stay=True), await world.backend("east", stay=True)
    own = world.spec(drain_s=0.1)
    await world.serve(own, west.target)
    both = Shares((Locality("east", 50), Locality("west", 50)))
    spec = world.spec(shares=both, drain_s=0.5)
    await world.serve(spec, at(west, "west"), at(east, "east"))
    opened = [await asyncio.open_connection(spec.address, 8080) for _ in range(2)]
    readers = {(await reader.readline()).decode().strip(): (reader, writer) for reader, writer in opened}
    assert readers.keys() == {"west", "east"}
    reader, writer = await asyncio.open_connection(own.address, 8080)
    assert await reader.readline() == b"west\n"
    drained = msgspec.structs.replace(spec, shares=Shares((Locality("east", 50), Locality("west", 0))))
    await world.provider.ensure(drained)
    await world.change(drained, Action.UPDATE, at(west, "west", draining=True))
    await world.programmed(drained)
    assert await counted_names(drained, 10) == Counter(east=10)
    cut, _ = readers["west"]
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(cut.read(), TIMEOUT_S) == b""
    for kept, answers in ((reader, writer), readers["east"]):
        answers.write(b"still here\n")
        assert await kept.readline() == b"still here\n"
    for _, answers in (*readers.values(), (reader, writer)):
        answers.close()
    # A member that is used again keeps its connections.
    await world.provider.ensure(spec)
    await world.change(spec, Action.UPDATE, at(west, "west"))
    await world.programmed(spec)
    assert (await counted_names(spec, 10)).keys() == {"east", "west"}


async def counted_names(spec: FrontendSpec, connections: int) -> Counter[str]:
    """Return which backends answer so many connections, of those that stay open otherwise."""
    answered = Counter[str]()
    for _ in range(connections):
        async with connected(spec.address, 8080) as (name, _, _):
            answered[name] += 1
    return answered


@pytest.mark.req("MC-13")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
async def test_web_sockets_of_a_drained_member_end_after_its_time(http: HttpWorld):
    west, east = await http.echo("west"), await http.echo("east")
    at_members = [msgspec.structs.replace(echo.target, locality=echo.name) for echo in (west, east)]

    def shares(weight: int) -> Mapping[str, Shares]:
        return {"web": Shares((Locality("east", 100 - weight), Locality("west", weight)), drain_s=0.5)}

    spec = msgspec.structs.replace(http.spec(config(route("r", to("web")))), backend_shares=shares(100))
    await http.serve(spec, {"web": at_members})
    async with web_socket(spec) as socket:
        await socket.send_str("hello")
        assert (await socket.receive()).data == "west: hello"
        drained = msgspec.structs.replace(spec, backend_shares=shares(0))
        await http.provider.ensure(drained)
        leaving = msgspec.structs.replace(at_members[0], draining=True)
        await http.world.change(drained, Action.UPDATE, leaving, listener=backend_key("web"))
        await http.programmed(drained)
        assert await requested(drained, 20) == Counter(east=20)
        assert (await socket.receive(TIMEOUT_S)).type in {WSMsgType.CLOSED, WSMsgType.ERROR}


@pytest.mark.req("MC-11")
async def test_udp_flows_go_to_the_first_tier_with_an_endpoint(world: World):
    west, east = await world.udp_backend("west"), await world.udp_backend("east")
    spec = world.spec(Listener(8080, Protocol.UDP), shares=Shares((Locality("east", 1, tier=1), Locality("west", 1))))
    west_target, east_target = (
        msgspec.structs.replace(backend.target, locality=backend.name) for backend in (west, east)
    )
    await world.serve(spec, west_target, east_target)
    assert await ask_udp(spec.address, 8080) == "west"
    await world.change(spec, Action.DEREGISTER, west_target)
    assert await ask_udp(spec.address, 8080) == "east"


@pytest.mark.req("MC-11")
async def test_a_refused_connection_is_tried_at_another_member(world: World):
    """Without health checks nothing else keeps connections from the member that refuses."""
    backends = await members(world, west=1, east=1)
    spec = world.spec(shares=Shares((Locality("east", 50), Locality("west", 50))))
    await world.serve(spec, *targets(backends))
    await backends["west"][0].stop()
    # A retry may choose the same member again while others choose, until its endpoint is ejected: those in flight.
    assert (await counted(spec, 100))[""] <= IN_FLIGHT
    assert await counted(spec, 100) == Counter(east=100)


async def requested(spec: FrontendSpec, requests: int = 200) -> Counter[str]:
    """Return how many of so many requests each backend answered; other answers count as their status."""
    answered: Counter[str] = Counter()
    for _ in range(requests // IN_FLIGHT):
        answers = await asyncio.gather(*(get(spec) for _ in range(IN_FLIGHT)))
        answered.update(answer.backend for answer in answers)
    return answered


def with_shares(spec: FrontendSpec, *localities: Locality) -> FrontendSpec:
    return msgspec.structs.replace(spec, backend_shares={"web": Shares(localities)} if localities else {})


@pytest.mark.req("MC-10", "MC-11")
async def test_requests_are_shared_by_member_and_retried_at_another(http: HttpWorld):
    """Without health checks nothing else keeps requests from the member that refuses."""
    echoes = {name: await http.echo(name) for name in ("west", "east", "north", "backup")}
    at_members = [msgspec.structs.replace(echo.target, locality=name) for name, echo in echoes.items()]
    spec = with_shares(http.spec(config(route("r", to("web")))), BACKUP, *TIER_0)
    await http.serve(spec, {"web": at_members})
    seen = percent(await requested(spec))
    assert seen.keys() == {"west", "east", "north"}
    assert all(abs(seen[locality.name] - locality.weight) <= 2 for locality in TIER_0), seen
    await echoes["west"].stop()
    assert set(await requested(spec)) == {"east", "north"}
    await echoes["east"].stop()
    await echoes["north"].stop()
    only_backup = with_shares(spec, BACKUP, *(msgspec.structs.replace(each, weight=0) for each in TIER_0))
    await http.provider.ensure(only_backup)
    await http.programmed(only_backup)
    assert await requested(only_backup, 40) == Counter(backup=40)


@pytest.mark.req("MC-9")
async def test_a_backend_becomes_shared_and_single_again_under_load(http: HttpWorld):
    west, east = await http.echo("west"), await http.echo("east")
    alone = await http.serve(http.spec(config(route("r", to("web"))), health_check=CHECK), {"web": [west.target]})
    answered, stopping = Counter[str](), asyncio.Event()

    async def load() -> None:
        while not stopping.is_set():
            answered[(await get(alone)).backend] += 1

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    key, shared = backend_key("web"), with_shares(alone, Locality("east", 50), Locality("west", 50))
    members = [msgspec.structs.replace(echo.target, locality=echo.name) for echo in (west, east)]
    await http.provider.ensure(shared)
    await http.programmed(shared)
    await http.world.change(shared, Action.UPDATE, members[0], listener=key)
    await http.world.change(shared, Action.REGISTER, members[1], listener=key)
    await http.programmed(shared)
    while answered["east"] < 20:
        answered[(await get(alone)).backend] += 1
    await http.provider.ensure(alone)
    await http.world.change(alone, Action.UPDATE, west.target, listener=key)
    await http.world.change(alone, Action.DEREGISTER, members[1], listener=key)
    await http.programmed(alone)
    stopping.set()
    await asyncio.gather(*tasks)
    assert set(answered) == {"west", "east"}, answered
    assert await requested(alone, 20) == Counter(west=20)


@pytest.mark.req("MC-13", "MC-14")
async def test_failed_connections_and_those_of_each_member_are_counted(world: World):
    backends = {"west": [await world.backend("west", stay=True)]}
    plain = world.spec(shares=Shares((Locality("west", 1),)))
    spec = msgspec.structs.replace(plain, key=plain.key._replace(kind="GlobalService"))
    world._keys.append(spec.key)
    await world.serve(spec, *targets(backends))
    traffic = EnvoyTraffic(local_envoy(world.provider).admin, name="Envoy")
    traffic.targets_of = lambda: [spec.key]
    target = Counted(spec.key, target=backends["west"][0].target.key)
    async with connected(spec.address, 8080) as (name, _, _):
        assert name == "west"
        (reading,) = await traffic.read()
        assert reading.totals[target].active == 1
    await backends["west"][0].stop()
    assert await counted(spec, 20) == Counter({"": 20})
    (reading,) = await traffic.read()
    assert reading.totals[Counted(spec.key)].failed >= 20
    assert reading.totals[target].active == 0
