"""One Service over two members: real agents, a real hub and Envoy, real connections."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.meta import JSONObject
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import wait_until
from tests.e2e.e2e_backends import ask, echoes, http, ready

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


@pytest.mark.req("MC-9", "MC-10", "MC-13")
async def test_two_members_share_one_address_by_weight(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pods, node = [east.new_address() for _ in range(3)], west.new_address()
    service = await west.service("shared", http(80, 5678))
    port = service.spec.ports[0].node_port
    assert port
    async with echoes(*((pod, 5678, "east") for pod in pods), (node, port, "west")):
        await west.node("shared-node", node)
        await east.endpoints("shared", 5678, *pods)
        await east.service("shared", http(80, 5678))
        await ready(east, "shared", 80)
        members: list[JSONObject] = [{"tenant": "east", "weight": 75}, {"tenant": "west", "weight": 25}]
        await fleet.cluster.apply(GLOBAL_SERVICES, body("shared", *members), manager="operator")
        address = (await served(fleet, "shared", "east 75%, west 25%")).status.address
        answered = await counted(address)
        assert abs(answered["east"] - 75) <= 2
        assert abs(answered["west"] - 25) <= 2
        members[0]["drain"] = True
        await fleet.cluster.apply(GLOBAL_SERVICES, body("shared", *members), manager="operator")
        await served(fleet, "shared", "east draining, west 100%")
        assert await counted(address, 20) == Counter(west=20)
        # The load balancer of a single member is there all the time.
        assert await ask(await east.address("shared"), 80) == "east"
    await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "shared")
    for member in (east, west):
        await member.delete("shared")
        await fleet.gone(member.name, "default.shared")
