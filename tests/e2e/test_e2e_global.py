"""One Service over two members: real agents, a real hub and Envoy, real connections."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.meta import JSONObject
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import ask, echoes, http, ready, refused

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.timeout(900)]


def body(name: str, *members: JSONObject, **spec: object) -> JSONObject:
    """Return a GlobalService in the namespace of east."""
    meta = {"name": name, "namespace": "tenant-east"}
    return {"metadata": meta, "spec": {"service": f"default/{name}", "members": list(members), **spec}}


async def served(fleet: Fleet, name: str, shares: str) -> GlobalService:
    """Return the GlobalService once it serves with these shares."""

    async def so() -> bool:
        status = (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", name)).status
        serving = any(each.type == "Serving" and each.status == "True" for each in status.conditions or ())
        return serving and status.shares == shares

    await wait_until(so, f"GlobalService {name} serves {shares}")
    return await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", name)


async def counted(address: str, connections: int = 100) -> Counter[str]:
    """Return how many of so many connections each backend answered."""
    answered: Counter[str] = Counter()
    for _ in range(connections // 20):
        answered.update(await asyncio.gather(*(ask(address, 80) for _ in range(20))))
    return answered


@pytest.mark.req("MC-9", "MC-10", "MC-12", "MC-13")
async def test_two_members_share_one_address_by_weight(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pods, node = [east.new_address() for _ in range(3)], west.new_address()
    service = await west.service("shared", http(80, 5678))
    port = service.spec.ports[0].node_port
    assert port

    async def apply(*members: JSONObject) -> None:
        await fleet.cluster.apply(GLOBAL_SERVICES, body("shared", *members), manager="operator")

    two, weighted = [{"tenant": "east", "weight": 75}, {"tenant": "west", "weight": 25}], "east 75%, west 25%"
    async with echoes((pods[0], 5678, "east"), (node, port, "west")):
        await west.node("shared-node", node)
        await east.endpoints("shared", 5678, *pods)
        async with echoes(*((pod, 5678, "east") for pod in pods[1:])):
            await east.service("shared", http(80, 5678))
            single = Traffic(host=await ready(east, "shared", 80), kept=0)
            single.start()
            await apply(*two)
            address = (await served(fleet, "shared", weighted)).status.address
            answered = await counted(address)
            assert abs(answered["east"] - 75) <= 2
            assert abs(answered["west"] - 25) <= 2
            # From now on under load, until the GlobalService is deleted.
            both = Traffic(host=address, kept=0)
            both.start()
            await apply({**two[0], "drain": True}, two[1])
            await served(fleet, "shared", "east draining, west 100%")
            assert await counted(address, 20) == Counter(west=20)
            # Of no use to clients: the last good version stays.
            await apply({**two[0], "weight": 0}, {**two[1], "weight": 0})
            assert await counted(address, 20) == Counter(west=20)
            await apply({**two[0], "minHealthyPercent": 50}, two[1])
            await served(fleet, "shared", weighted)
            await both.stop()
            await single.stop()
        # Two of three pods of east are dead: all of east is down, and not only these two.
        await served(fleet, "shared", "east down, west 100%")
        assert await counted(address, 20) == Counter(west=20)
        await apply(*two)
        await served(fleet, "shared", weighted)
        again = Traffic(host=await east.address("shared"), kept=0)
        again.start()
        await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "shared")
        await wait_until(lambda: refused(address, 80), "nobody listens at the address of the GlobalService")
        await again.stop()
    for traffic in (single, both, again):
        assert traffic.count.failed == 0, traffic.count.failures
        assert traffic.count.sent > 0
    for member in (east, west):
        await member.delete("shared")
        await fleet.gone(member.name, "default.shared")
