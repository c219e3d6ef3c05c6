"""Two hubs as processes, an Envoy as its Deployment starts it, and what may happen to the hub that leads.

Traffic flows meanwhile, and no request of it may fail; the other replica takes over, and changes nothing at Envoy.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from deployment_city import BACKENDS, City, Member, follows, new_city
from deployment_world import World, until

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import echoes

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
async def city(directory: Path) -> AsyncIterator[City]:
    async with new_city(directory) as city:
        yield city


async def killed(member: Member) -> None:
    await member.hub.kill()


async def suspended(member: Member) -> None:
    os.kill(member.hub.pid, signal.SIGSTOP)


async def cut_from_the_api(member: Member) -> None:
    member.api.close_way()


async def cut_from_envoys(member: Member) -> None:
    member.xds.close_way()


async def cut_from_both(member: Member) -> None:
    member.api.close_way()
    member.xds.close_way()


@pytest.mark.req("W-10", "K-28", "K-31", "I-5", "I-8")
@pytest.mark.parametrize("fault", [killed, suspended, cut_from_the_api, cut_from_envoys, cut_from_both])
async def test_a_leader_that_fails_costs_no_request(city: City, fault: Callable[[Member], Awaitable[None]]) -> None:
    first, second = city.members
    world = city.world
    async with echoes(*((address, 8080, name) for address, name in BACKENDS.items())), world.pod(city.namespace):
        await world.programmed(city.key)
        port = await world.proxy_port(city.key)
        traffic = Traffic(host="127.0.0.1", port=port, kept=0)
        await until(traffic.is_answered, what="the load balancer answers")
        traffic.start()
        before = await city.holder()

        await fault(first)
        if fault is not cut_from_envoys:

            async def taken_over() -> bool:
                return await city.holder() not in ("", before) and await second.leads()

            await wait_until(taken_over, "the second replica leads")
        await follows(city, traffic, "10.66.0.2")
        await traffic.stop()
        assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
        assert (await world.lb(city.key)).status.allocation.ports[0].proxy_port == port


@pytest.mark.req("K-28", "K-31", "I-8")
async def test_an_envoy_that_starts_without_a_leader_is_served_the_same(city: City) -> None:
    first, second = city.members
    world = city.world
    async with echoes(*((address, 8080, name) for address, name in BACKENDS.items())):
        async with world.pod(city.namespace):
            await world.programmed(city.key)
            served = await versions(world, city.key)
        # The one that leads dies, and the other one cannot take the lease.
        second.api.close_way()
        await first.hub.kill()
        holder = await city.holder()
        async with world.pod(city.namespace, "late") as pod:
            traffic = Traffic(host="127.0.0.1", port=await world.proxy_port(city.key), kept=0)
            await wait_until(traffic.is_answered, "the late Envoy serves")
            status, page = await admin_get(pod.admin, "/listeners")
            assert status == 200
            assert city.key.name in page
        assert await city.holder() == holder
        assert not await second.leads()
        second.api.open_way()
        await wait_until(second.leads, "the second leads once it reaches the API")
        async with world.pod(city.namespace, "later"):
            await world.programmed(city.key)
        assert await versions(world, city.key) == served


async def versions(world: World, key: LoadBalancerKey) -> tuple[object, ...]:
    """Return what was recorded of a load balancer."""
    status = (await world.lb(key)).status
    return status.address, status.allocation, status.accepted
