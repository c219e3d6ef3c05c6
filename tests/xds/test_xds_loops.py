"""Load balancers whose targets lead back to them, in an Envoy that others share: they take their share of it, no more.

The hub refuses such targets (``translate.member.without_load_balancers``); through a host name, or through something
outside, they can still come about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead.model.change import Action
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import ListenerKey, Protocol, TargetKey, backend_key
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead_demo.worlds.processes import wait_until
from tests.xds.http_world import HttpWorld, config, get, route, to
from tests.xds.world import TIMEOUT_S, Addresses, World, ask, ask_udp, connected, local_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

FILES = 4096


@pytest_asyncio.fixture(loop_scope="session")
async def small(short_dir: Path, addresses: Addresses) -> AsyncIterator[HttpWorld]:
    """A world whose Envoy reckons with few open files."""
    fleet = LocalFleet(data_dir=short_dir, concurrency=1, max_files=FILES)
    fleet.prepare()
    provider = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}")
    world = HttpWorld(provider, addresses)
    await provider.start()
    provider.publish()
    yield world
    await world.close()
    await provider.stop()


async def lead_to_each_other(world: World, first: FrontendSpec, second: FrontendSpec, listener: ListenerKey) -> None:
    port = first.listeners[0].port
    for spec, other in ((first, second), (second, first)):
        await world.change(spec, Action.REGISTER, Target(TargetKey(other.address, port)), listener=listener)


async def is_full(world: World) -> bool:
    """Say whether a load balancer has been refused another connection."""
    socket = local_envoy(world.provider).directory / "admin.sock"
    status, text = await admin_get(socket, "/stats?usedonly&filter=upstream_cx_overflow", timeout_s=TIMEOUT_S)
    assert status == 200, text
    return any(int(line.rpartition(":")[2]) for line in text.splitlines() if line)


def open_files(world: World) -> int:
    running = local_envoy(world.provider).running
    assert running is not None
    return len(list(Path(f"/proc/{running.pid}/fd").iterdir()))


async def others_answer_until_full(world: World) -> None:
    """Ask a load balancer of others until the loop has all that it gets, and then some more times."""
    backend = await world.backend("other")
    other = await world.load_balancer(backend.target)
    async with asyncio.timeout(TIMEOUT_S):
        while not await is_full(world):
            assert await ask(other.address, 8080) == "other"
    for _ in range(20):
        assert await ask(other.address, 8080) == "other"
    assert open_files(world) < FILES


@pytest.mark.req("S-6")
async def test_a_loop_of_connections_leaves_the_others_their_share(small: HttpWorld) -> None:
    world = small.world
    first, second = await world.load_balancer(), await world.load_balancer()
    await lead_to_each_other(world, first, second, first.listeners[0].key)
    _, writer = await asyncio.open_connection(first.address, 8080)
    await others_answer_until_full(world)
    writer.close()
    # It holds no other load balancer up for good: its member repairs it, and it serves.
    backend = await world.backend("repaired")
    for spec, other in ((first, second), (second, first)):
        await world.change(spec, Action.REGISTER, backend.target)
        await world.change(spec, Action.DEREGISTER, Target(TargetKey(other.address, 8080)))

    async def serves() -> bool:
        return await ask(first.address, 8080) == "repaired"

    await wait_until(serves, "it serves again")


async def test_a_loop_of_datagrams_leaves_the_others_their_share(small: HttpWorld) -> None:
    world = small.world
    first, second = (world.spec(Listener(53, Protocol.UDP)) for _ in range(2))
    await world.serve(first)
    await world.serve(second)
    await lead_to_each_other(world, first, second, first.listeners[0].key)
    with pytest.raises(TimeoutError):
        await ask_udp(first.address, 53, timeout_s=0.5)
    await others_answer_until_full(world)


async def test_a_loop_of_requests_leaves_the_others_their_share(small: HttpWorld) -> None:
    l7 = config(route("loop", to("loop")))
    first, second = await small.serve(small.spec(l7)), await small.serve(small.spec(l7))
    await lead_to_each_other(small.world, first, second, backend_key("loop"))
    request = asyncio.create_task(get(first))
    await others_answer_until_full(small.world)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def test_one_load_balancer_carries_what_its_share_allows(small: HttpWorld) -> None:
    world = small.world
    backend = await world.backend("stays", stay=True)
    spec = await world.load_balancer(backend.target)
    share = world.provider.fleet.connections_per_cluster
    assert share > 200
    async with AsyncExitStack() as stack:
        for _ in range(share):
            name, _, _ = await stack.enter_async_context(connected(spec.address, 8080))
            assert name == "stays"
        assert await ask(spec.address, 8080) == ""


async def test_connections_stay_when_the_share_changes(small: HttpWorld) -> None:
    world = small.world
    backend = await world.backend("stays", stay=True)
    spec = await world.load_balancer(backend.target)
    async with connected(spec.address, 8080) as (_, reader, writer):
        fleet = world.provider.fleet
        assert isinstance(fleet, LocalFleet)
        fleet.connections_per_cluster -= 1
        pushed = sum(world.provider.counters.changing_pushes.values())
        await world.provider.ensure(spec)
        await world.programmed(spec)
        assert sum(world.provider.counters.changing_pushes.values()) > pushed
        assert await ask(spec.address, 8080) == "stays"
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
