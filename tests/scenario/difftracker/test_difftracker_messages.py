"""What users read when a provider refuses their load balancer, and when others have deleted it at the provider."""

from __future__ import annotations

import msgspec
import pytest
from hub_world import EVENT

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.providers.memory import MemoryProvider
from fairlead.sync.execute import PARK_S
from fairlead.testing.builders import HTTP, lb_key, target

EDGE = {"provider": "memory", "drain": "0s", "guard": {"maxRemovalPercent": 100, "minBackends": 0}}
QUOTA = "100 of 100 load balancers are in use; delete one, or ask for a larger quota"


class Giving(MemoryProvider):
    """A provider that finds the addresses of load balancers itself."""

    async def ensure(self, spec):
        return msgspec.structs.replace(await super().ensure(spec), addresses=("192.0.2.77",))

    async def observe(self, key):
        seen = await super().observe(key)
        return None if seen is None else msgspec.structs.replace(seen, addresses=("192.0.2.77",))


@pytest.fixture
async def edge(world):
    provider = Giving(cloud=world.outside)
    world.factories["memory"] = lambda: provider
    await world.start()
    await world.tenant()
    await world.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": EDGE}, manager="kubectl")
    return provider


async def ask(world, *addresses, name="web"):
    await world.lb(name, spec={"className": "edge"})
    await world.slice(name, *addresses)


def at(world, name="web"):
    return {each.address for _, each in world.outside.members(lb_key(name))}


async def events(world, reason):
    return [each for each in await world.user.list(EVENT) if each.reason == reason]


@pytest.mark.req("A-35", "A-37", "A-38")
async def test_a_quota_is_reported_and_used_when_it_has_grown(world, edge):
    edge.faults.refuse_new = QUOTA
    await ask(world, "10.1.0.1")
    await world.said("Programmed", "False")
    await world.until(lambda: edge.calls["ensure"] == 1)
    for number in range(2, 6):
        await world.slice("web", *(f"10.1.0.{each}" for each in range(1, number)))
        await world.quiet(20)
        said = await world.condition("Programmed")
        assert (said.status, said.reason) == ("False", "ProviderFailed")
        assert QUOTA in said.message
    assert edge.calls["ensure"] == 1
    assert edge.calls["apply"] == 0
    edge.faults.refuse_new = ""
    await world.until(lambda: at(world) == {f"10.1.0.{each}" for each in range(1, 5)}, limit_s=PARK_S)
    await world.said("Programmed", "True")


@pytest.mark.req("A-37")
async def test_a_rejection_does_not_stop_the_others(world, edge):
    await ask(world, "10.1.0.1", name="first")
    await world.until(lambda: at(world, "first") == {"10.1.0.1"})
    edge.faults.refuse_new = QUOTA
    await ask(world, "10.1.0.2", name="second")
    await world.until(lambda: edge.calls["ensure"] == 2)
    await world.slice("first", "10.1.0.1", "10.1.0.3")
    await world.until(lambda: at(world, "first") == {"10.1.0.1", "10.1.0.3"})
    await world.said("Programmed", "True", name="first")
    await world.said("Programmed", "False", name="second")


@pytest.mark.req("A-52")
async def test_a_load_balancer_that_others_deleted_is_reported_and_made_again(world, edge):
    await ask(world, "10.1.0.1", "10.1.0.2")
    await world.said("Programmed", "True")
    await world.quiet()
    world.outside.delete(lb_key())
    drifted = await world.said("Drifted", "True")
    assert "deleted outside Fairlead" in drifted.message
    await world.until(lambda: at(world) == {"10.1.0.1", "10.1.0.2"})

    async def fine():
        return await world.condition("Drifted") is None

    await world.until(fine, what="no drift any more")
    assert (await world.condition("Programmed")).status == "True"
    assert [each.type for each in await events(world, "Drifted")] == ["Warning"]
    assert edge.calls["ensure"] == 2


@pytest.mark.req("L-12", "L-13")
async def test_backends_that_were_removed_by_hand_stay_away_and_that_is_reported(world, edge):
    await ask(world, "10.1.0.1", "10.1.0.2")
    await world.said("Programmed", "True")
    await world.quiet()
    world.outside.drift(lb_key(), HTTP, target("10.1.0.2").key, None)
    drifted = await world.said("Drifted", "True")
    assert "kept until fairlead repair" in drifted.message
    await world.quiet(120)
    assert at(world) == {"10.1.0.1"}


async def test_a_load_balancer_that_hides_for_a_moment_is_not_made_again(world, edge):
    await ask(world, "10.1.0.1")
    await world.said("Programmed", "True")
    await world.quiet()
    before = edge.calls["ensure"]
    result = world.outside.load_balancers.pop(lb_key())
    world.outside.changed([lb_key()])
    await world.quiet(2)
    world.outside.load_balancers[lb_key()] = msgspec.structs.replace(result)
    world.outside.changed([lb_key()])
    await world.quiet(180)
    assert edge.calls["ensure"] == before
    assert await world.condition("Drifted") is None
