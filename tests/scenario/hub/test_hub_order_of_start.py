"""Nothing reaches the data plane, or the API, before the hub may: every key first, and the lease at every write."""

from __future__ import annotations

import asyncio

import pytest
from hub_world import POOL, HubWorld, RunningHub

from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import lb_key


@pytest.mark.req("T-survivors", "I-10")
async def test_the_data_plane_is_updated_only_once_every_key_was_looked_at(world: HubWorld):
    first = await world.start()
    await world.tenant()
    await world.lb("served")
    await world.slice("served", "10.1.0.1")
    await world.programmed("served")
    await world.stop(first)
    await world.lb("new")
    hub = RunningHub(world, identity="hub-1", pool=POOL, refuse_writes=False, refuse_preparing=False)
    world.hubs.append(hub)
    taken, may_go_on, get = 0, asyncio.Event(), hub.hub._queue.get

    async def late() -> LoadBalancerKey:
        """Hand out one key, and the others once the test says so: a hub with very many is at it for a while."""
        nonlocal taken
        taken += 1
        if taken > 1:
            await may_go_on.wait()
        return await get()

    hub.hub._queue.get = late
    await world.quiet(30)
    assert len(hub.hub.providers["envoy"].tracker) < 2
    assert not hub.provider.published, "a half view would take away what is served"
    may_go_on.set()
    await world.until(lambda: hub.provider.published)
    assert set(hub.hub.providers["envoy"].tracker) == {lb_key("served"), lb_key("new")}


@pytest.mark.req("T-survivors", "I-5")
async def test_a_hub_that_was_suspended_past_its_lease_does_not_write_on_its_own_belief(world: HubWorld):
    hub = await world.start()
    assert hub.hub._may_write()
    world.clock.jump(60)
    assert hub.hub.leading, "nothing has run since: it does not know yet"
    assert not hub.hub._may_write()
