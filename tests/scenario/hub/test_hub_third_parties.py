"""A provider that hangs or makes mistakes: the load balancers of all others are served as if it were not there."""

from __future__ import annotations

import asyncio

import pytest
from hub_world import HubWorld

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.testing.builders import NAMESPACE, lb_key


class Silent(MemoryProvider):
    """Does what it is asked to, and never answers what it is asked about while it is ``silent``."""

    silent = True

    async def observe(self, key):
        if self.silent:
            await asyncio.get_running_loop().create_future()
        return await super().observe(key)


class Mistaken(MemoryProvider):
    """Makes a mistake about one load balancer when it is reminded of what there was before."""

    async def ensure(self, spec):
        self.restored.setdefault(spec.key, "ensured")
        return await super().ensure(spec)

    def restore(self, spec, info):
        if spec.key.name == "web-1":
            raise ZeroDivisionError("a provider's own mistake")
        self.restored[spec.key] = info

    def __init__(self, *, cloud):
        super().__init__(cloud=cloud)
        self.restored = {}


async def edge_class(world: HubWorld, name: str = "edge", provider: str = "memory") -> None:
    guard = {"maxRemovalPercent": 100, "minBackends": 0}
    spec = {"provider": provider, "drain": "0s", "guard": guard, "parameters": {"address": "198.51.100.1"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")


@pytest.mark.req("T-3", "A-16")
async def test_load_balancers_that_move_to_a_provider_that_hangs_hold_up_no_others(world: HubWorld):
    """Two workers reconcile here, and three load balancers move: not one worker may wait for the provider."""
    silent = Silent(cloud=MemoryCloud(clock=world.clock))
    world.factories["silent"] = lambda: silent
    await world.start()
    await world.tenant()
    await edge_class(world, "slow", "silent")
    names = [f"web-{number}" for number in range(3)]
    for name in names:
        await world.lb(name)
        await world.slice(name, "10.1.0.1")
    old = {name: await world.programmed(name) for name in names}
    for name in names:
        await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, name, {"spec": {"className": "slow"}})
    await world.until(lambda: all(lb_key(name) in silent.cloud.load_balancers for name in names))
    await world.quiet(5)
    await world.lb("other")
    await world.slice("other", "10.1.0.9")
    assert await world.programmed("other")
    for name in names:
        status = (await world.get(name)).status
        assert (status.address, status.serving_provider) == (old[name], "envoy"), "it has not been seen"
    silent.silent = False

    async def moved():
        return all([(await world.get(name)).status.serving_provider == "silent" for name in names])

    await world.until(moved, what="the moves, once the provider answers", limit_s=300)


@pytest.mark.req("T-4", "I-7")
async def test_an_error_at_a_take_over_does_not_stop_other_load_balancers(world: HubWorld):
    made: list[Mistaken] = []

    def make() -> Mistaken:
        made.append(Mistaken(cloud=world.outside))
        return made[-1]

    world.factories["memory"] = make
    first = await world.start()
    await world.tenant()
    await edge_class(world)
    for number in range(3):
        await world.lb(f"web-{number}", spec={"className": "edge"})
        await world.slice(f"web-{number}", "10.1.0.1")
    for number in range(3):
        await world.programmed(f"web-{number}")
    await world.stop(first)
    second = await world.start(identity="hub-1")
    await world.until(lambda: second.hub.leading)
    for number in range(3):
        await world.slice(f"web-{number}", "10.1.0.1", "10.1.0.2")
    await world.until(
        lambda: all(len(world.outside.members(lb_key(f"web-{number}"))) == 2 for number in range(3)),
        what="every load balancer has its new backend",
    )
    assert not second.task.done()
    assert made[-1].restored[lb_key("web-0")] != "ensured"
    assert made[-1].restored[lb_key("web-1")] == "ensured", "what it was not reminded of it is asked for again"


@pytest.mark.req("A-18")
async def test_what_users_write_and_what_endpoints_do_take_one_path_in_one_order(world: HubWorld):
    """Specs and slices change at once, again and again: one call at a time, and additions before removals."""
    hub = await world.start()
    hub.provider.latency_s = 0.4
    await world.tenant()
    await world.lb(ports=[{"port": 80}])
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    for number in range(2, 12):
        await world.lb(ports=[{"port": 80}, {"port": 8000 + number}])
        await world.slice("web", f"10.1.0.{number}", f"10.1.0.{number + 1}")
    await world.until(
        lambda: {str(at) for _, at in world.cloud.members(lb_key())} == {"10.1.0.11:8080", "10.1.0.12:8080"},
        what="the last word of both",
    )
    assert hub.provider.overlaps == []
    spec = world.cloud.load_balancers[lb_key()].spec
    assert [listener.port for listener in spec.listeners] == [80, 8011]
    kinds = [{change.action.value for change in call.changes} for call in hub.provider.calls if call.changes]
    assert all(len(each & {"Register", "Deregister"}) <= 1 for each in kinds), "no call mixes additions and removals"
