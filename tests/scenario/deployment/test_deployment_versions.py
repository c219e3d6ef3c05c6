"""Replicas of two versions at once, as while a Deployment is rolled: the leader changes between them under traffic."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from deployment_city import BACKENDS, City, Member, follows, new_city
from deployment_world import until

from fairlead.api.meta import JSONObject
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.model.keys import LoadBalancerKey
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_versions import environment_of

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]

#: The first version that leaves kinds of a newer one as they are: 0.1 must not run next to this one.
PREVIOUS = "0b75a5a"
#: So long nothing may be written into a load balancer that nothing has changed.
QUIET_S = 10.0


@pytest.mark.req("W-10", "K-28", "K-31", "I-5", "I-8")
async def test_two_versions_at_once_lead_in_turn_and_fight_over_nothing(directory: Path, tmp_path: Path) -> None:
    async with new_city(directory, first_environment=environment_of(PREVIOUS, tmp_path)) as city:
        old, new = city.members
        world = city.world
        async with echoes(*((address, 8080, name) for address, name in BACKENDS.items())), world.pod(city.namespace):
            await world.programmed(city.key)
            port = await world.proxy_port(city.key)
            traffic = Traffic(host="127.0.0.1", port=port, kept=2)
            await until(traffic.is_answered, what="the load balancer answers")
            traffic.start()
            assert await old.leads()
            await unchanged(city, city.key)

            # The new one leads, and the old one comes back as a standby.
            await hand_over(old, new)
            await follows(city, traffic, "10.66.0.2")
            await old.hub.start_ready()
            await unchanged(city, city.key)

            # The old one leads again what the new one has written.
            await hand_over(new, old)
            await follows(city, traffic, "10.66.0.3")
            await new.hub.start_ready()
            await unchanged(city, city.key)

            # The roll ends: all are new.
            await old.hub.terminate()
            old.hub.environment.clear()
            await old.hub.start_ready()
            await wait_until(new.leads, "the new one leads")
            await unchanged(city, city.key)
            await traffic.stop()
            assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
            assert await world.proxy_port(city.key) == port


async def hand_over(leader: Member, other: Member) -> None:
    """End the leader without a chance to hand its lease back, and wait until the other one leads."""
    await leader.hub.kill()
    await wait_until(other.leads, f"{other.name} leads")


async def unchanged(city: City, key: LoadBalancerKey) -> None:
    """Wait until the load balancer is left alone, and see that it is for ``QUIET_S``."""

    async def written() -> JSONObject:
        return json.loads(await city.world.admin.raw("GET", TCP_LOAD_BALANCERS.path(key.namespace, key.name)))

    last: JSONObject = {}

    async def settled() -> bool:
        nonlocal last
        before, last = last, await written()
        await asyncio.sleep(3)
        return last == before

    await city.world.programmed(key)
    await wait_until(settled, "what is written of the load balancer stays")
    await asyncio.sleep(QUIET_S)
    assert await written() == last
