"""From a Cluster without an endpoint to one that is served, and from a machine's deletion to its release."""

from __future__ import annotations

import pytest
from capi_world import PRE_DRAIN, PRE_TERMINATE, World, ours_on, until


@pytest.mark.req("C-1", "C-27", "C-32", "C-35", "T-C-04", "T-C-09", "T-C-13")
async def test_a_cluster_gets_its_endpoint_and_its_machines_follow(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb()

    # The endpoint exists before the first machine.
    async def published() -> bool:
        return (await world.get_cluster()).endpoint.given

    await until(published, what="the Cluster has an endpoint")
    address = (await world.get_lb()).status.address
    assert str((await world.get_cluster()).endpoint) == f"{address}:6443"
    await world.until_condition("EndpointPublished", "True")

    for number in (1, 2, 3):
        await world.machine(f"m-{number}", f"10.0.0.{number}")
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443")
    await world.until_states(m_1="active", m_2="active", m_3="active")

    async def counted() -> bool:
        status = (await world.get_lb()).status
        return (status.targets, status.active_targets) == (3, 3)

    await until(counted, what="three active targets")
    machine = await world.get_machine("m-1")
    assert machine is not None
    assert len(ours_on(machine)) == 3
    assert {PRE_DRAIN + "api", PRE_TERMINATE + "api"} <= set(machine.metadata.annotations or ())

    await world.delete_machine("m-2")
    await world.until_free("m-2")
    await world.until_served("10.0.0.1:6443", "10.0.0.3:6443")
    await world.until_states(m_1="active", m_3="active")
