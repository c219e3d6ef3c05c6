"""A GlobalService whose members fall silent: a hub that starts meanwhile, and two hubs that hear different members."""

from __future__ import annotations

import pytest
from hub_world import HubWorld, RunningHub

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalMemberStatus, GlobalService
from fairlead.api.meta import JSONObject
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud
from tests.scenario.hub.hub_world import store

KEY = LoadBalancerKey(GLOBAL_SERVICES.kind, "tenant-east", "web")


async def make(world: HubWorld, *members: str, **spec: object) -> None:
    for number, member in enumerate(members, 1):
        await world.tenant(member)
        await world.heartbeat(f"tenant-{member}")
        await world.lb("shop.web", namespace=f"tenant-{member}")
        await world.slice("shop.web", f"10.{number}.0.1", namespace=f"tenant-{member}")
    body = {
        "metadata": {"name": "web", "namespace": "tenant-east"},
        "spec": {"service": "shop/web", "members": [{"tenant": member} for member in members], **spec},
    }
    await world.user.apply(GLOBAL_SERVICES, body, manager="operator")
    await world.until(lambda: len(at(world.cloud)) == len(members), what="all members to join")


def at(cloud: MemoryCloud) -> set[str]:
    return {str(target) for _, target in cloud.members(KEY)}


async def members(world: HubWorld) -> dict[str, GlobalMemberStatus]:
    obj: GlobalService = await world.user.get(GLOBAL_SERVICES, "tenant-east", "web")
    return {member.tenant: member for member in obj.status.members or ()}


async def beat(world: HubWorld, seconds: float, *names: str) -> None:
    """Let time pass while the agents of these members report."""
    for _ in range(int(seconds / 10)):
        for name in names:
            await world.heartbeat(f"tenant-{name}")
        await world.quiet(1)
        await world.clock.advance(9)


async def shows(world: HubWorld, targets: set[str], **states: str) -> None:
    async def so() -> bool:
        shown = {name: member.state for name, member in (await members(world)).items()}
        return at(world.cloud) == targets and shown == states

    await world.until(so, what=f"{targets} with {states}")


def without_ports(obj: JSONObject) -> None:
    obj["spec"]["ports"] = "none"


@pytest.mark.req("MC-19")
@pytest.mark.parametrize("broken", [None, without_ports], ids=["silent", "unread"])
async def test_a_hub_that_starts_serves_what_is_recorded_of_dark_members(world: HubWorld, hub: RunningHub, broken):
    await make(world, "east", "west", "north")
    await beat(world, 60, "east")
    assert (await members(world))["west"].silent_since
    await world.stop(hub)
    if broken:
        store(world, TCP_LOAD_BALANCERS, "tenant-west", "shop.web", broken)
    # As proxies that are sent all that there is: what the hub does not bring is not there.
    world.cloud.load_balancers.clear()
    await world.start()
    everything = {"10.1.0.1:8080", "10.2.0.1:8080", "10.3.0.1:8080"}
    assert at(world.cloud) == everything
    await beat(world, 60, "east")
    assert at(world.cloud) == everything
    states = await members(world)
    assert {name: member.state for name, member in states.items()} == dict.fromkeys(states, "Serving")
    assert [name for name, member in sorted(states.items()) if member.silent_since] == ["north", "west"]


@pytest.mark.req("MC-18", "MC-19")
async def test_a_silent_member_is_drained_and_dropped_in_time_but_not_when_all_are_silent(
    world: HubWorld, hub: RunningHub
):
    await make(world, "east", "west", drainWhenLost="5m", dropWhenLost="7m")
    both, east = {"10.1.0.1:8080", "10.2.0.1:8080"}, {"10.1.0.1:8080"}
    await beat(world, 270, "east")
    await shows(world, both, east="Serving", west="Serving")
    await beat(world, 60, "east")
    await shows(world, both, east="Serving", west="Draining")
    await beat(world, 120, "east")
    await shows(world, east, east="Serving", west="Dropped")
    # The last one that is heard falls silent, too: what the other one had is better than nothing.
    await beat(world, 450)
    await shows(world, both, east="Serving", west="Serving")
    await world.heartbeat("tenant-east")
    await shows(world, east, east="Serving", west="Dropped")
    await world.heartbeat("tenant-west")
    await shows(world, both, east="Serving", west="Serving")


@pytest.mark.req("MC-20")
async def test_hubs_that_hear_different_members_keep_all_of_them(world: HubWorld, hub: RunningHub):
    world.regional_clouds[""] = other = MemoryCloud(clock=world.clock)
    second = await world.start(identity="hub-1", lead=False)
    await make(world, "east", "west")
    await world.until(lambda: at(other) == at(world.cloud), what="both hubs to have the same")
    hub.cluster.lagging_namespace, second.cluster.lagging_namespace = "tenant-east", "tenant-west"
    await beat(world, 20, "east", "west")
    await world.slice("shop.web", "10.1.0.1", "10.1.0.2", namespace="tenant-east")
    await world.slice("shop.web", "10.2.0.2", namespace="tenant-west")
    await beat(world, 60, "east", "west")
    assert at(world.cloud) == {"10.1.0.1:8080", "10.2.0.2:8080"}, "hub-0 hears west only"
    assert at(other) == {"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"}, "hub-1 hears east only"
    shown = await members(world)
    assert {name: member.state for name, member in shown.items()} == {"east": "Serving", "west": "Serving"}
    assert shown["east"].silent_since, "the leader does not hear it"
    assert second.written == []
    for each in (hub, second):
        each.cluster.caught_up.set()
    for member in ("east", "west"):
        await world.slice("shop.other", "10.9.0.1", namespace=f"tenant-{member}")
    everything = {"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.2:8080"}
    await world.until(lambda: at(world.cloud) == at(other) == everything, what="both hubs to have the same again")
    # Good news is written within half a minute of the bad news before.
    await beat(world, 40, "east", "west")
    assert not any(member.silent_since for member in (await members(world)).values())
    hub.cluster.written.clear()
    await beat(world, 30, "east", "west")
    assert hub.written == second.written == []
