"""Whatever has happened, in whatever order, with restarts in between: what is there in the end is what should be."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
from regions_world import NAMESPACE, SELECTOR, World, until

from fairlead.api.kubernetes import NODES, SERVICES
from fairlead.api.poolservice import NODE_POOLS, POOL_SERVICES
from fairlead.errors import AlreadyExists, FairleadError, NotFound

POOLS = ("p1", "p2", "p3")
SERVICES_THERE = ("a", "a-p", "b")
SELECTORS = ("tier=x", "tier in (x,y)", "!tier", "tier!=x", "", "tier in (", "none=here")


class History:
    """Random acts of users and nodes; knows nothing of what should come of them."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.selector = dict.fromkeys(SERVICES_THERE, "")

    async def act(self) -> None:
        pick, world = self.chance.choice, self.world
        pool, name, node = pick(POOLS), pick(SERVICES_THERE), pick(("n1", "n2", "n3"))
        match self.chance.randrange(9):
            case 0 | 1:
                tier = pick(("x", "y", ""))
                with suppress(NotFound):
                    await world.delete_pool(pool)
                await (world.pool(pool, tier=tier) if tier else world.pool(pool))
            case 2:
                await world.delete_pool(pool)
            case 3:
                await world.node(node, pick(POOLS))
            case 4:
                await world.user.delete(NODES, "", node)
            case 5 | 6:
                self.selector[name] = pick(SELECTORS)
                with suppress(AlreadyExists):
                    await world.service(name, selector=self.selector[name])
                with suppress(FairleadError):
                    await world.annotate(name, **{SELECTOR: self.selector[name]})
            case 7:
                await world.delete_service(name)
            case _:
                pods = [
                    (f"10.0.{n}.{self.chance.randrange(3)}", f"n{n}", self.chance.random() < 0.7) for n in (1, 2, 3)
                ]
                await world.slice(*pods, name=f"{name}-1", service=name)


async def as_it_should_be(world: World) -> bool:
    """Say whether there is exactly what should be, by the plainest reading of the rules."""
    pools = {
        node_pool.metadata.name: node_pool.metadata.labels or {}
        for node_pool in await world.user.list(NODE_POOLS)
        if not node_pool.deleting
    }
    where = {node.metadata.name: node.label("region") for node in await world.user.list(NODES)}
    wanted: set[tuple[str, str]] = set()
    unreadable: set[str] = set()
    for service in await world.user.list(SERVICES, NAMESPACE):
        text = service.annotation(SELECTOR)
        if text == "tier in (":
            unreadable.add(service.metadata.name)
        for pool, labels in pools.items():
            tier = labels.get("tier")
            matches = {
                "tier=x": tier == "x",
                "tier in (x,y)": tier in {"x", "y"},
                "!tier": tier is None,
                "tier!=x": tier != "x",
            }.get(text, False)
            if matches and not service.deleting:
                wanted.add((service.metadata.name, pool))
    there: set[tuple[str, str]] = set()
    for pool_service in await world.user.list(POOL_SERVICES, NAMESPACE):
        pair = (pool_service.label("openyurt.io/service-name"), pool_service.spec.nodepool_name)
        assert pair not in there, f"two PoolServices for {pair}"
        if pair[0] not in unreadable:
            there.add(pair)
        backends = json.loads(pool_service.annotation("fairlead.dev/backends"))
        for group in backends.get("groups", ()):
            for endpoint in group["endpoints"]:
                assert where.get(endpoint["node"], pair[1]) == pair[1], f"{endpoint} is not in {pair}"
    return there == wanted


@pytest.mark.slow
@pytest.mark.req("O-5", "O-6", "O-8", "O-14", "O-15", "O-16", "O-39", "W-O-1")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_any_history_ends_as_it_should(world: World, seed: int) -> None:
    history = History(world, seed)
    running = await world.start()
    for step in range(40):
        await history.act()
        if step % 13 == 12:
            await world.stop(running)
            await history.act()
            running = await world.start()
    await until(lambda: as_it_should_be(world), what="as it should be")
    await world.settled()
    assert await as_it_should_be(world)
    await world.stop(running)
    again = await world.start()
    assert again.written() == {}
