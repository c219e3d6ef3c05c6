"""Several Envoys of one machine share its load balancers: each serves its own, and outlives the hub."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from tests.programmed import wait_proxies
from tests.xds.world import Addresses, World, ask

COUNT = 2


def provider_of(directory: Path, *, envoys: int = COUNT) -> tuple[EnvoyProvider, LocalFleet]:
    fleet = LocalFleet(data_dir=directory, concurrency=1, envoys=envoys)
    fleet.prepare()
    return EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}"), fleet


async def one_for_each(world: World, fleet: LocalFleet) -> dict[str, tuple[FrontendSpec, str]]:
    """Make load balancers until each Envoy has one; returns spec and answer by group."""
    made: dict[str, tuple[FrontendSpec, str]] = {}
    while len(made) < COUNT:
        backend = await world.backend(f"backend-{len(made)}")
        spec = await world.load_balancer(backend.target)
        made[fleet.groups_of(spec)[0]] = spec, backend.name
    return made


async def answers(made: dict[str, tuple[FrontendSpec, str]]) -> bool:
    return [await ask(spec.address, 8080) for spec, _ in made.values()] == [name for _, name in made.values()]


async def test_a_dead_envoy_affects_only_its_own_load_balancers(short_dir: Path, addresses: Addresses) -> None:
    provider, fleet = provider_of(short_dir)
    world = World(provider, addresses)
    await provider.start()
    provider.publish()
    try:
        made = await one_for_each(world, fleet)
        assert await answers(made)
        assert {proxy.group for proxy in provider.proxies()} == set(fleet.envoys)
        victim, survivor = fleet.envoys
        running = fleet.envoys[victim].running
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        await wait_proxies(lambda: len(provider.proxies()) < COUNT)
        spec, name = made[survivor]
        observed = await provider.observe(spec.key)
        assert observed is not None
        assert observed.programmed
        observed = await provider.observe(made[victim][0].key)
        assert observed is not None
        assert not observed.programmed
        assert await ask(spec.address, 8080) == name
        await world.programmed(made[victim][0])
        assert await answers(made)
        assert [fleet.envoys[group].restarts for group in (victim, survivor)] == [1, 0]
    finally:
        await world.close()
        await provider.stop()
    assert not any(envoy.running for envoy in fleet.envoys.values())


@pytest.mark.req("I-8")
async def test_the_next_hub_adopts_all_of_them_and_no_other_number(short_dir: Path, addresses: Addresses) -> None:
    provider, fleet = provider_of(short_dir)
    world = World(provider, addresses)
    await provider.start()
    provider.publish()
    made = await one_for_each(world, fleet)
    running = {group: envoy.running for group, envoy in fleet.envoys.items()}
    await provider.close()
    assert await answers(made)
    for other in (1, COUNT + 1):
        with pytest.raises(BadConfiguration, match=f"--envoys: .* fairlead standalone --stop --data-dir {short_dir}"):
            provider_of(short_dir, envoys=other)
    heir, its = provider_of(short_dir)
    try:
        await heir.start()
        assert {group: envoy.running for group, envoy in its.envoys.items()} == running
        assert all(envoy.adopted for envoy in its.envoys.values())
        assert await answers(made)
    finally:
        await world.close()
        await heir.stop()
    # Once none runs, any number may begin.
    again, _ = provider_of(short_dir, envoys=1)
    await again.close()
