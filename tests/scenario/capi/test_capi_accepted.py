"""A load balancer of a Cluster whose spec is refused: what was accepted before is served on, also by the next hub."""

from __future__ import annotations

from typing import Any

import pytest
from capi_world import NAMESPACE, World

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.providers.memory import MemoryCloud
from fairlead.runtime.clock import SystemClock
from tests.scenario.any_api import until


async def refused(world: World) -> None:
    """Have the class set what the load balancer sets itself, and ask for another port then."""
    spec = {"spec": {"parameters": {"timeout": "1s"}}}
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "edge", spec)
    await world.until_condition("Accepted", "False", reason="Invalid")
    listeners = [{"port": 7443, "protocol": "TCP", "targetPort": 6443}]
    await world.user.merge_patch(LOAD_BALANCERS, NAMESPACE, "api", {"spec": {"listeners": listeners}})


def ports(world: World) -> list[int]:
    return sorted(listener.port for each in world.proxies.load_balancers.values() for listener in each.spec.listeners)


@pytest.mark.req("C-22", "C-60")
async def test_accepted_versions_are_served_after_a_restart(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb(parameters={"timeout": "2s"})
    await world.machine("m-1", "10.0.0.1")
    await world.until_states(m_1="active")
    await world.until_served("10.0.0.1:6443")
    # Proxies serve before the status says so.
    await world.until_condition("Programmed", "True")
    address = (await world.get_lb()).status.address
    await refused(world)
    # Its members are followed all the same.
    await world.machine("m-2", "10.0.0.2")
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443")
    assert ports(world) == [6443]
    await world.stop_hub()
    # Proxies of the hub are as empty as it is.
    world.proxies = MemoryCloud(clock=SystemClock())
    await world.start_hub()
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443")
    (served,) = world.proxies.load_balancers.values()
    assert ports(world) == [6443]
    assert (served.spec.address, served.spec.parameters) == (address, {"timeout": "2s"})
    await world.until_condition("Accepted", "False", reason="Invalid")
    # Once it is accepted again, all of it is as it asks.
    mended: dict[str, Any] = {"spec": {"parameters": None}}
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "edge", mended)
    await until(lambda: ports(world) == [7443], what="the other port is served")
    await world.until_condition("Accepted", "True")
