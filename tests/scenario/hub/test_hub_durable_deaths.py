"""The hub is killed at every write of a move."""

from __future__ import annotations

import asyncio

import pytest
from durable_moves import Moves
from hub_world import HubWorld, RunningHub, new_world

from fairlead.testing.builders import lb_key, target


class Death:
    """Kills a hub at its n-th write of anything but Events and leases: before it arrives, or before its answer does."""

    def __init__(self, hub: RunningHub, number: int, *, arrives: bool) -> None:
        self.left = number
        self.died = asyncio.Event()
        for method in ("apply", "create", "merge_patch", "delete"):
            setattr(hub.cluster, method, self._dying(getattr(hub.cluster, method), arrives=arrives))

    def _dying(self, write, *, arrives: bool):
        async def dying(resource, *rest, **text):
            if resource.kind in ("Event", "Lease"):
                return await write(resource, *rest, **text)
            self.left -= 1
            if self.left > 0:
                return await write(resource, *rest, **text)
            if self.left == 0 and arrives:
                await write(resource, *rest, **text)
            self.died.set()
            return await asyncio.Event().wait()

        return dying


async def move_with_a_death(world: HubWorld, first: str, then: str, number: int, *, arrives: bool) -> bool:
    """Move with a hub that dies at its n-th write; False when it did not write so often."""
    moves = Moves(world)
    hub = await world.start()
    await world.tenant()
    old = await moves.serve(first)
    moves.cloud(first).add_foreign(lb_key("theirs"), "by-hand", target("200"))
    death = Death(hub, number, arrives=arrives)
    await moves.ask(then)

    async def over() -> bool:
        return death.died.is_set() or await moves.is_at(then)

    await moves.follow(over, what="it is moved, or the hub is dead")
    died = death.died.is_set()
    await world.stop(hub)
    # What a hub serves itself is what the next one serves; of all others the next one finds what this one left.
    world.cloud.load_balancers.clear()
    await world.start()
    await moves.moved(then)
    load_balancer = await world.get()
    assert moves.watcher.addresses == [old, load_balancer.status.address]
    assert {str(at) for _, at in moves.cloud(then).members(lb_key())} == {"10.1.0.1:8080", "10.1.0.2:8080"}
    assert moves.cloud(first).foreign(lb_key("theirs")) == {"by-hand": target("200")}
    if "envoy" not in (first, then):
        moves.never_without()
    return died


@pytest.mark.slow
@pytest.mark.req("I-2", "I-3", "I-4", "I-6")
@pytest.mark.parametrize(
    ("first", "then", "arrives", "step"),
    [
        pytest.param("edge", "rack", False, 1, marks=pytest.mark.thorough),
        ("edge", "rack", True, 2),
        pytest.param("envoy", "edge", True, 2, marks=pytest.mark.thorough),
        ("edge", "envoy", False, 2),
    ],
)
async def test_the_hub_killed_at_every_write_of_a_move(first, then, arrives, step):
    deaths = 0
    for number in range(1, 60, step):
        async with new_world() as world:
            died = await move_with_a_death(world, first, then, number, arrives=arrives)
        if not died:
            break
        deaths += 1
    assert deaths >= 4
    print(f"{first} to {then}: killed at {deaths} writes")
