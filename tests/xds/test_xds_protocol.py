"""What goes over the wire: order, refusals, restarts, against the real Envoy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.errors import Retry, Terminal
from fairlead.model.change import Action
from fairlead.model.desired import Listener
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.clusters import CLUSTER
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider, create
from fairlead.providers.envoy.resources import ResourceType, encoded_resource, packaged_schema, resource_name
from fairlead.providers.envoy.store import ResourceChange
from tests.programmed import wait_proxies
from tests.xds.world import TIMEOUT_S, Addresses, World, ask, settled, until_closed

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


async def first_answer(address: str, port: int) -> str:
    """Connect as soon as the port is open."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await ask(address, port)
            except ConnectionRefusedError:
                await asyncio.sleep(0)  # let the server run: this is the prober, not a wait


@pytest.mark.req("K-30")
@pytest.mark.parametrize("check", [None, HealthCheck(interval_s=0.2, timeout_s=5)], ids=["plain", "checked"])
async def test_no_first_connection_fails_while_load_balancers_are_added(
    world: World, check: HealthCheck | None
) -> None:
    backend = await world.backend("up")
    answers: list[str] = []
    for _ in range(40 if check is None else 5):
        spec = world.spec(health_check=check)
        probe = asyncio.create_task(first_answer(spec.address, 8080))
        await world.serve(spec, backend.target)
        answers.append(await probe)
    assert set(answers) == {"up"}


async def test_port_of_another_program_is_refused_and_reported_while_others_are_served(world: World) -> None:
    backend, other = await world.backend("good"), await world.backend("other")
    bad = world.spec(Listener(other.port), address=other.address)
    good = [world.spec() for _ in range(3)]
    notified: list[object] = []
    world.provider.on_change(notified.append)
    await asyncio.gather(*(world.serve(spec, backend.target) for spec in good), world.provider.ensure(bad))
    with pytest.raises(Retry, match="refused by the proxy"):
        await world.programmed(bad)
    # A poll that sees the change first takes the notice.
    await wait_proxies(lambda: bad.key in notified)
    observed = await world.provider.observe(bad.key)
    assert observed is not None
    assert not observed.programmed
    assert "address" in observed.rejected.lower()
    assert [await ask(spec.address, 8080) for spec in good] == ["good"] * 3


async def test_bad_cluster_among_many_is_quarantined_and_the_last_good_one_serves(world: World) -> None:
    backend = await world.backend("good")
    specs = [await world.load_balancer(backend.target) for _ in range(20)]
    group = world.provider.store.group("local")
    poisoned = specs[7]
    changes: list[ResourceChange] = []
    for spec in specs:
        name = resource_name(spec.key, spec.listeners[0].key)
        fields: dict[str, object] = {"name": name, "type": "EDS", "connect_timeout": {"seconds": 3}}
        fields["eds_cluster_config"] = {"eds_config": {"ads": {}, "resource_api_version": "V3"}}
        if spec is poisoned:
            fields["connect_timeout"] = {"seconds": -1}
        content = packaged_schema().encode(CLUSTER, fields)
        changes.append(
            ResourceChange(ResourceType.CLUSTER, name, encoded_resource(ResourceType.CLUSTER, name, content))
        )
    group.apply(changes)
    with pytest.raises(Retry, match="refused"):
        await world.programmed(poisoned)
    for spec in specs:
        if spec is not poisoned:
            await world.programmed(spec)
    assert [await ask(spec.address, 8080) for spec in specs] == ["good"] * 20
    # A new version lifts the quarantine.
    await world.provider.ensure(poisoned)
    await world.programmed(poisoned)


async def test_two_load_balancers_cannot_have_one_address_and_port(world: World) -> None:
    spec = await world.load_balancer()
    twin = world.spec(address=spec.address)
    with pytest.raises(Terminal, match="belongs to") as caught:
        await world.provider.ensure(twin)
    assert caught.value.reason == "PortConflict"


async def test_address_moves_from_one_load_balancer_to_another_in_one_step(world: World) -> None:
    first_backend, two = await world.backend("one"), await world.backend("two")
    first = await world.load_balancer(first_backend.target)
    await world.provider.delete(first.key)
    second = world.spec(address=first.address)
    await world.serve(second, two.target)
    assert await ask(second.address, 8080) == "two"


async def test_observers_are_notified_once_and_not_about_targets(world: World) -> None:
    first_backend, two = await world.backend("one"), await world.backend("two")
    notified: list[LoadBalancerKey] = []
    acknowledged: set[LoadBalancerKey] = set()

    def note(key: LoadBalancerKey) -> None:
        notified.append(key)
        if (status := world.provider._observe(key)) is not None and status.programmed:
            acknowledged.add(key)

    world.provider.on_change(note)
    # Unchecked: what the proxy sees of targets is news, what it acknowledges of them is none.
    spec = await world.load_balancer(first_backend.target, health_check=None)
    await wait_proxies(lambda: spec.key in acknowledged)
    del notified[:]
    for _ in range(5):
        await world.change(spec, Action.REGISTER, two.target)
        await world.change(spec, Action.DEREGISTER, two.target)
    assert spec.key not in notified


async def test_proxies_are_listed(world: World) -> None:
    await world.load_balancer()
    await settled(world.provider)
    (proxy,) = world.provider.proxies()
    assert (proxy.group, proxy.state) == ("local", "SYNCED")


@pytest.mark.req("K-31")
@pytest.mark.req("I-8")
async def test_restarted_hub_pushes_nothing_that_has_not_changed(short_dir: Path, addresses: Addresses) -> None:
    first = create(data_dir=short_dir, concurrency=1)
    world = World(first, addresses)
    backend = await world.backend("served")
    await first.start()
    first.publish()
    specs = [await world.load_balancer(backend.target) for _ in range(10)]
    await first.close()
    assert [await ask(spec.address, 8080) for spec in specs] == ["served"] * 10, "no hub, no matter"

    second = create(data_dir=short_dir, concurrency=1)
    world.provider = second
    await second.start()
    try:
        await wait_proxies(second.proxies)
        for spec in specs:
            # The gate is closed: whatever is still missing is not taken for removed.
            assert await ask(spec.address, 8080) == "served"
            await second.ensure(spec)
            await world.change(spec, Action.REGISTER, backend.target, wait=False)
        second.publish()
        for spec in specs:
            await world.programmed(spec)
        await settled(second)
        assert sum(second.counters.changing_pushes.values()) == 0
        assert sum(second.counters.resources.values()) == 0
        other = await world.backend("other")
        await world.change(specs[0], Action.REGISTER, other.target)
        assert second.counters.changing_pushes[ResourceType.ENDPOINTS] == 1
    finally:
        await world.close()
        await second.stop()


@pytest.mark.req("I-8", "W-10")
async def test_a_hub_of_an_older_state_takes_nothing_away_that_agents_may_publish_again(
    short_dir: Path, addresses: Addresses
) -> None:
    """After a restore from a backup, newer resources are served until republished or known to be deleted."""
    first = create(data_dir=short_dir, concurrency=1)
    world = World(first, addresses)
    backend = await world.backend("served")
    await first.start()
    first.publish()
    old, younger, deleted = [await world.load_balancer(backend.target) for _ in range(3)]
    await first.close()

    fleet = LocalFleet(data_dir=short_dir, concurrency=1)
    fleet.prepare()
    # What is unknown is held beyond the end of the test.
    second = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", hold_unknown_s=3600.0)
    world.provider = second
    await second.start()
    try:
        await second.ensure(old)
        await world.change(old, Action.REGISTER, backend.target, wait=False)
        second.publish()
        # Nothing is sent, so nothing is acknowledged.
        await settled(second)
        assert [await ask(spec.address, 8080) for spec in (old, younger, deleted)] == ["served"] * 3
        await second.ensure(younger)
        await world.change(younger, Action.REGISTER, backend.target)
        assert sum(second.counters.changing_pushes.values()) == 0, "the proxy had all of it"
        await second.delete(deleted.key)
        await until_closed(deleted.address, 8080)
        assert [await ask(spec.address, 8080) for spec in (old, younger)] == ["served"] * 2
    finally:
        await world.close()
        await second.stop()
