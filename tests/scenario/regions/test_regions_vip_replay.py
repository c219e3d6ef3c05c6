"""The tests of OpenYurt's VIP layer 2, replayed as far as they reach: regions, our layer 2 and a real hub with a pool.

Which ones have no counterpart here, and why: docs/adr/0030-regions.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest
from regions_world import NAMESPACE, World, until

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import condition_of
from fairlead.api.names import ANNOTATION_REQUESTED_ADDRESS, FINALIZER_LOAD_BALANCER
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.model.contract import AllocationKind
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import ABLE
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.translate.addresses import AddressRanges

#: As many addresses as the range of the original, which ends at 192.168.1.1.
RANGE = "192.168.0.0/24,192.168.1.1/32"


def lb(pool: str) -> str:
    return f"test-{pool}.poolservice.fairlead"


class Cloud:
    """A hub with a provider in memory, whose data path a test can take offline."""

    def __init__(self, provider: FaultyProvider) -> None:
        self._provider = provider

    def online(self, yes: bool) -> None:
        self._provider.script = lambda _: Fault.NONE if yes else Fault.FAIL_BEFORE


@asynccontextmanager
async def a_hub(world: World, *, pool: str = RANGE) -> AsyncGenerator[Cloud]:
    clock = SystemClock()
    provider = FaultyProvider(
        MemoryProvider(cloud=MemoryCloud(clock=clock)),
        clock=clock,
        capabilities=msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS, ipv6=False),
    )
    async with Cluster(world.api, name="hub", qps=10_000) as cluster:
        config = HubConfig(identity="hub", address_pool=AddressRanges.parse(pool), workers=2)
        hub = Hub(cluster=cluster, providers={"envoy": provider}, config=config, clock=clock)
        await hub.prepare()
        await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", {"spec": {"drain": "0s"}}, manager="user")
        task = asyncio.create_task(hub.run(), name="hub")
        await until(lambda: hub.leading, what="the hub leads")
        try:
            yield Cloud(provider)
        finally:
            # Regions go first: later no controller would take their finalizers away.
            await world.clean()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def regions(world: World, *pools: str, asks: str = "", **service: object) -> None:
    """Make a Service in these pools, each with a pod; then start regions."""
    for number, pool in enumerate(pools, start=1):
        await world.pool(pool, app="deploy")
        await world.node(f"n-{pool}", pool, address=f"10.1.{number}.1")
    marks = {ANNOTATION_REQUESTED_ADDRESS: asks} if asks else {}
    await world.service(class_name="fairlead.dev/envoy", annotations=marks, **service)  # type: ignore[arg-type]
    await world.slice(*((f"10.0.{number}.1", f"n-{pool}") for number, pool in enumerate(pools, start=1)))
    await world.start()


async def condition(world: World, pool: str, kind: str = "Programmed") -> tuple[str, str]:
    pool_service = await world.find(f"test-{pool}")
    there = condition_of(pool_service.status.conditions, kind) if pool_service is not None else None
    return (there.status, there.reason) if there is not None else ("", "")


async def until_condition(world: World, pool: str, *wanted: str) -> None:
    async def check() -> bool:
        return await condition(world, pool) == wanted

    await until(check, what=f"{pool} {wanted}")


async def gone(world: World, pool: str) -> None:
    async def check() -> bool:
        return await world.find(f"test-{pool}") is None and lb(pool) not in await world.load_balancers()

    await until(check, what=f"test-{pool} is gone")


@pytest.mark.req("T-O-70", "O-53")
async def test_t_o_70_a_pool_service_that_is_not_there_is_no_error(world: World) -> None:
    running = await world.start()
    queue = running.regions.queues["balancer"]
    queue.add((NAMESPACE, "test-nowhere"))
    await until(lambda: not len(queue) and not queue.processing, what="looked at")
    assert not queue._failures
    assert await world.load_balancers() == {}


@pytest.mark.req("T-O-71", "O-53")
async def test_t_o_71_a_new_one_gets_a_finalizer_and_an_address_of_the_pool(world: World) -> None:
    async with a_hub(world):
        await regions(world, "np1")
        await until_condition(world, "np1", "True", "Programmed")
        load_balancer = await world.get("test-np1")
        assert FINALIZER_LOAD_BALANCER in (load_balancer.metadata.finalizers or ())
        assert load_balancer.status.address in AddressRanges.parse(RANGE)
        assert load_balancer.spec.load_balancer_class == "fairlead.dev/envoy"
        assert load_balancer.metadata.labels == {
            "openyurt.io/pool-name": "np1",
            "openyurt.io/service-name": "test",
            "poolservice.openyurt.io/managed-by": "load-balancer-set-controller",
        }


@pytest.mark.req("T-O-72", "O-53")
async def test_t_o_72_nothing_is_published_while_the_data_path_is_offline(world: World) -> None:
    async with a_hub(world) as cloud:
        cloud.online(False)
        await regions(world, "np1")

        async def recorded() -> str:
            load_balancer = (await world.load_balancers()).get(lb("np1"))
            return load_balancer.status.allocation.address if load_balancer is not None else ""

        address = await until(recorded, what="an address is recorded")

        async def shown_in_status() -> bool:
            status, reason = await condition(world, "np1")
            return status == "False" and reason != "Pending"

        await until(shown_in_status, what="the hub's trouble has been told")
        await world.settled()
        assert (await world.get("test-np1")).status.load_balancer.ingress is None
        assert await world.shown() == []
        cloud.online(True)
        await world.until_shown(address, timeout_s=90)


@pytest.mark.req("T-O-74", "O-53")
async def test_t_o_74_the_address_that_is_asked_for_is_published(world: World) -> None:
    async with a_hub(world):
        await regions(world, "np1", asks="192.168.1.1")
        await world.until_shown("192.168.1.1", timeout_s=90)


@pytest.mark.req("T-O-76", "O-53")
async def test_t_o_76_the_service_shows_the_union_of_what_its_pools_have(world: World) -> None:
    async with a_hub(world):
        await regions(world, "np1", "np2", asks="np1=192.168.0.9, np2=192.168.1.1")
        await world.until_shown("192.168.0.9", "192.168.1.1", timeout_s=90)


@pytest.mark.req("T-O-77", "T-O-78", "O-53")
async def test_t_o_77_78_one_that_never_had_a_usable_address_can_be_deleted(world: World) -> None:
    async with a_hub(world):
        await regions(world, "np1", asks="10.9.9.9")  # of no pool
        await until_condition(world, "np1", "False", "AddressNotUsable")
        await world.delete_service()
        await gone(world, "np1")


@pytest.mark.req("T-O-79", "T-O-80", "O-53")
async def test_t_o_79_80_it_stays_until_the_data_path_has_released_it(world: World) -> None:
    async with a_hub(world) as cloud:
        await regions(world, "np1")
        await until_condition(world, "np1", "True", "Programmed")
        cloud.online(False)
        await world.delete_service()

        async def going() -> bool:
            load_balancer = (await world.load_balancers()).get(lb("np1"))
            return load_balancer is not None and load_balancer.deleting

        await until(going, what="the load balancer is on its way")
        load_balancer = await world.get("test-np1")
        assert load_balancer.deleting
        assert FINALIZER_LOAD_BALANCER in (load_balancer.metadata.finalizers or ())
        cloud.online(True)
        await gone(world, "np1")


@pytest.mark.req("T-O-81", "O-53")
async def test_t_o_81_an_exhausted_pool_is_a_warning_and_what_goes_makes_room(world: World) -> None:
    async with a_hub(world, pool="192.168.1.1/32"):
        await regions(world, "np1")
        await world.until_shown("192.168.1.1", timeout_s=90)
        await world.pool("np2", app="deploy")
        await until_condition(world, "np2", "False", "AddressPoolExhausted")
        assert (await world.event("test-np2", "AddressPoolExhausted")).type == "Warning"
        assert await world.shown() == ["192.168.1.1"], "nobody's address is taken"
        await world.delete_pool("np1")
        await until_condition(world, "np2", "True", "Programmed")
        assert (await world.get("test-np2")).status.address == "192.168.1.1"


@pytest.mark.req("T-O-82")
async def test_t_o_82_another_class_is_not_ours(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service(class_name="elb")
    await world.service("none", class_name=None)
    await world.start()
    assert await world.names() == ["test-np1"]
    assert await world.load_balancers() == {}
    load_balancer = await world.get("test-np1")
    assert (load_balancer.metadata.finalizers, load_balancer.status.conditions) == (None, None)


@pytest.mark.req("T-O-83")
async def test_t_o_83_traffic_stays_in_its_pool_without_a_word_from_the_user(world: World) -> None:
    await regions(world, "np1", "np2")
    assert await world.targets(lb("np1")) == ["10.0.1.1"]
    assert await world.targets(lb("np2")) == ["10.0.2.1"]
    assert "openyurt.io/topologyKeys" not in ((await world.get_service()).metadata.annotations or {})
