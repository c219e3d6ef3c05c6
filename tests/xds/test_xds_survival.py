"""Who may die: the hub at any moment (Envoy serves on and is adopted), and Envoy too (it comes back)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from fairlead.errors import BadConfiguration, Terminal
from fairlead.model.desired import Listener
from fairlead.model.health import HealthCheck
from fairlead.providers.envoy.envoy_process import find_running
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider, create
from fairlead.runtime.commands import stop_process
from tests.programmed import wait_programmed, wait_proxies
from tests.xds import hub_process
from tests.xds.http_world import HttpWorld, config, route, to
from tests.xds.world import TIMEOUT_S, Addresses, Backend, World, ask, local_envoy, settled, until_closed

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.req("I-8")
async def test_killed_hub_leaves_envoy_serving_and_the_next_one_adopts_it(
    short_dir: Path, addresses: Addresses
) -> None:
    address = addresses.take()
    fleet = LocalFleet(data_dir=short_dir)
    backend = await Backend("alive").start(addresses.take())
    hub = await asyncio.create_subprocess_exec(
        sys.executable, hub_process.__file__, str(short_dir), address, backend.address, str(backend.port),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert hub.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        while b"ready" not in (line := await hub.stdout.readline()):
            assert line, "the hub has ended"
    running = find_running(short_dir)
    assert running is not None
    with pytest.raises(BadConfiguration, match="another hub"):
        fleet.prepare()
    hub.send_signal(signal.SIGKILL)
    await hub.wait()
    assert await ask(address, 8080) == "alive"

    heir = create(data_dir=short_dir, concurrency=1)
    try:
        await heir.start()
        envoy = local_envoy(heir)
        assert (envoy.adopted, envoy.running) == (True, running)
        await heir.ensure(hub_process.spec(address))
        await World(heir, addresses).change(
            hub_process.spec(address), hub_process.Action.REGISTER, backend.target, wait=False
        )
        heir.publish()
        await wait_programmed(heir, hub_process.KEY)
        assert sum(heir.counters.changing_pushes.values()) == 0
        assert await ask(address, 8080) == "alive"
    finally:
        await heir.stop()
        await backend.stop()
    assert not running.alive()


async def test_dead_envoy_is_started_again_with_everything(short_dir: Path, addresses: Addresses) -> None:
    provider = create(data_dir=short_dir, concurrency=1)
    world = World(provider, addresses)
    await provider.start()
    provider.publish()
    try:
        backend = await world.backend("back")
        spec = await world.load_balancer(backend.target)
        envoy = local_envoy(provider)
        assert envoy.running is not None
        os.kill(envoy.running.pid, signal.SIGKILL)
        await wait_proxies(lambda: not provider.proxies())
        observed = await provider.observe(spec.key)
        assert observed is not None
        assert (observed.programmed, observed.message) == (False, "no proxy is connected")
        await world.programmed(spec)
        assert await ask(spec.address, 8080) == "back"
        assert envoy.restarts == 1
    finally:
        await world.close()
        await provider.stop()


async def test_new_ports_beyond_the_file_limit_are_refused_and_the_others_stay(
    short_dir: Path, addresses: Addresses
) -> None:
    fleet = LocalFleet(data_dir=short_dir, concurrency=2, max_files=40)
    fleet.prepare()
    provider = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}")
    world = World(provider, addresses)
    try:
        for _ in range(10):
            await provider.ensure(world.spec())
        with pytest.raises(Terminal, match="limit of open files") as caught:
            await provider.ensure(world.spec(Listener(1), Listener(2)))
        assert caught.value.reason == "QuotaExceeded"
    finally:
        await world.close()
        await provider.close()


@pytest.mark.req("I-8")
async def test_what_the_next_hub_cannot_read_is_left_as_the_running_envoy_has_it(
    short_dir: Path, addresses: Addresses
) -> None:
    first = create(data_dir=short_dir, concurrency=1)
    world = World(first, addresses)
    await first.start()
    first.publish()
    backend = await world.backend("kept")
    without_slices, unreadable = [await world.load_balancer(backend.target) for _ in range(2)]
    await first.close()
    fleet = LocalFleet(data_dir=short_dir, concurrency=1)
    fleet.prepare()
    heir = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", hold_unknown_s=0.0)

    async def serving() -> list[str]:
        return [await ask(spec.address, 8080) for spec in (without_slices, unreadable)]

    try:
        await heir.start()
        # With another check than before: its cluster is another one, too.
        check = HealthCheck(interval_s=7.0, timeout_s=1.0, unhealthy_threshold=3, healthy_threshold=1)
        await heir.ensure(msgspec.structs.replace(without_slices, health_check=check))
        for spec in (without_slices, unreadable):
            heir.keep(spec.key, unread=True)
        heir.publish()
        status = await wait_programmed(heir, without_slices.key)
        assert status.health is not None
        assert (status.health.serving, status.health.reason) == (None, "Pending")
        assert sum(heir.counters.changing_pushes.values()) == 0
        assert await serving() == ["kept", "kept"]
        heir.keep(without_slices.key, unread=False)
        await heir.delete(unreadable.key)
        # Its cluster, its endpoints, and the listener of the other one.
        await wait_proxies(lambda: sum(heir.counters.changing_pushes.values()) >= 3)
        await settled(heir)
        status = await wait_programmed(heir, without_slices.key)
        assert status.health is not None
        assert status.health.reason == "NoTargets"
        assert await ask(without_slices.address, 8080) == ""
        await until_closed(unreadable.address, 8080)
        heir.keep(without_slices.key, unread=True)
        assert not heir.store.unknown.is_unread(without_slices.key), "it was read before"
    finally:
        await world.close()
        await heir.stop()


async def test_stop_is_final(short_dir: Path) -> None:
    provider = create(data_dir=short_dir, concurrency=1)
    await provider.start()
    running = find_running(short_dir)
    assert running is not None
    await provider.stop()
    assert not running.alive()
    await stop_process(running)
    assert find_running(short_dir) is None


@pytest.mark.req("I-8")
async def test_draining_clusters_of_a_former_hub_are_not_a_change(short_dir: Path, addresses: Addresses) -> None:
    first = create(data_dir=short_dir, concurrency=1)
    http = HttpWorld(first, addresses)
    backend = await http.echo("one")
    await first.start()
    first.publish()
    spec = await http.start(config(route("r", to("one"))), backend)
    await first.delete(spec.key)
    await wait_proxies(lambda: all(session.synced for session in first.server.sessions))
    await first.close()
    heir = create(data_dir=short_dir, concurrency=1)
    try:
        await heir.start()
        heir.publish()
        await wait_proxies(lambda: any(each.synced and each.last_ack_at for each in heir.server.sessions))
        assert sum(heir.counters.changing_pushes.values()) == 0
    finally:
        await heir.stop()
        await backend.stop()
