"""Routes that only Envoy refuses, when it does not say which: the good ones are served, before and after restarts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.model.desired import FrontendSpec
from fairlead.model.http import PathMatch, RequestMatch, Route, Rule
from fairlead.model.observed import Observed
from fairlead.providers.envoy.provider import EnvoyProvider, create
from fairlead.providers.envoy.resources import ResourceType
from tests.programmed import wait_programmed, wait_proxies
from tests.xds.http_world import EchoBackend, HttpWorld, config, get, prefix, route, to, with_config
from tests.xds.world import Addresses, local_envoy

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("unchecked_expressions"),
]

#: RE2's error does not quote the route, so that the refused route has to be searched for.
UNNAMED = r"/\p{NoSuchScript}"


def bad(name: str) -> Route:
    return route(name, Rule(matches=(RequestMatch(path=PathMatch("RegularExpression", UNNAMED)),)))


def risky(name: str) -> Route:
    """A good route that looks no better than the bad ones."""
    return route(name, to("one", matches=(RequestMatch(path=PathMatch("RegularExpression", f"/{name}")),)))


def good(name: str) -> Route:
    return route(name, to("one", matches=(prefix(f"/{name}"),)))


@asynccontextmanager
async def echo(addresses: Addresses) -> AsyncGenerator[EchoBackend]:
    backend = await EchoBackend("one").start(addresses.take())
    try:
        yield backend
    finally:
        await backend.stop()


@asynccontextmanager
async def ended(data_dir: Path) -> AsyncGenerator[None]:
    """Stop the Envoy of a directory afterwards, when its hub has stopped."""
    try:
        yield
    finally:
        await end(data_dir)


@asynccontextmanager
async def hub(data_dir: Path, addresses: Addresses) -> AsyncGenerator[HttpWorld]:
    """A hub that ends as it does at a restart: its Envoy serves on."""
    provider = create(data_dir=data_dir, concurrency=1)
    await provider.start()
    try:
        yield HttpWorld(provider, addresses)
    finally:
        await provider.close()


async def end(data_dir: Path) -> None:
    """End the Envoy of a directory in which no hub runs."""
    provider = create(data_dir=data_dir, concurrency=1)
    await provider.start()
    await provider.stop()


async def serve(world: HttpWorld, spec: FrontendSpec, backend: EchoBackend) -> None:
    """Do what a hub does when it starts: everything is asked for, then sent."""
    from fairlead.model.change import Action
    from fairlead.model.keys import backend_key

    await world.provider.ensure(spec)
    await world.world.change(spec, Action.REGISTER, backend.target, listener=backend_key("one"), wait=False)
    world.provider.publish()


async def settled(provider: EnvoyProvider, spec: FrontendSpec) -> Observed:
    """Wait until the proxy has all that can be served, and nothing waits."""
    return await wait_programmed(provider, spec.key)


async def statuses(spec: FrontendSpec, names: Sequence[str]) -> dict[str, int]:
    return {name: (await get(spec, f"/{name}")).status for name in names}


GOOD = ("b-good", "d-good", "f-good", "g-good")
MIXED = [bad("a-bad"), good("b-good"), bad("c-bad"), risky("d-good"), bad("e-bad"), good("f-good"), risky("g-good")]
BAD = ["a-bad", "c-bad", "e-bad"]


async def test_several_refused_routes_of_a_new_load_balancer_cost_the_others_nothing(
    short_dir: Path, addresses: Addresses
) -> None:
    async with ended(short_dir), echo(addresses) as backend, hub(short_dir, addresses) as world:
        spec = world.spec(config(*MIXED))
        await serve(world, spec, backend)
        status = await settled(world.provider, spec)
        assert [part.name for part in status.refused] == BAD
        assert await statuses(spec, GOOD) == dict.fromkeys(GOOD, 200)


async def test_routes_of_before_a_restart_of_the_hub_are_served_throughout(
    short_dir: Path, addresses: Addresses
) -> None:
    async with ended(short_dir), echo(addresses) as backend:
        async with hub(short_dir, addresses) as world:
            spec = world.spec(config(*MIXED))
            await serve(world, spec, backend)
            before = await settled(world.provider, spec)
            assert await statuses(spec, GOOD) == dict.fromkeys(GOOD, 200)
        seen: set[int] = set()
        done = asyncio.Event()

        async def ask() -> None:
            while not done.is_set():
                seen.update((await statuses(spec, GOOD)).values())

        async with hub(short_dir, addresses) as world, asyncio.TaskGroup() as group:
            group.create_task(ask())
            await serve(world, spec, backend)
            assert await settled(world.provider, spec) == before
            done.set()
            assert world.provider.counters.acks[ResourceType.ROUTES] == 0, "the proxy has had what is served all along"
        assert seen == {200}


async def test_changes_after_a_restart_of_the_hub_are_served(short_dir: Path, addresses: Addresses) -> None:
    async with ended(short_dir), echo(addresses) as backend:
        async with hub(short_dir, addresses) as world:
            spec = world.spec(config(*MIXED))
            await serve(world, spec, backend)
            await settled(world.provider, spec)
        async with hub(short_dir, addresses) as world:
            healed = good("c-bad")
            spec = with_config(spec, config(*(healed if each.name == "c-bad" else each for each in MIXED), good("h")))
            await serve(world, spec, backend)
            status = await settled(world.provider, spec)
            assert [part.name for part in status.refused] == ["a-bad", "e-bad"]
            assert await statuses(spec, [*GOOD, "c-bad", "h"]) == dict.fromkeys([*GOOD, "c-bad", "h"], 200)


async def test_a_restart_of_hub_and_proxy_ends_in_the_same_state(short_dir: Path, addresses: Addresses) -> None:
    async with ended(short_dir), echo(addresses) as backend:
        async with hub(short_dir, addresses) as world:
            spec = world.spec(config(*MIXED))
            await serve(world, spec, backend)
            before = await settled(world.provider, spec)
        await end(short_dir)
        async with hub(short_dir, addresses) as world:
            await serve(world, spec, backend)
            assert await settled(world.provider, spec) == before
            assert await statuses(spec, GOOD) == dict.fromkeys(GOOD, 200)
            running = local_envoy(world.provider).running
            assert running is not None
            os.kill(running.pid, signal.SIGKILL)
            await wait_proxies(lambda: not world.provider.proxies())
            assert await settled(world.provider, spec) == before
            assert await statuses(spec, GOOD) == dict.fromkeys(GOOD, 200)
