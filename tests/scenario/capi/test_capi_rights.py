"""The controller works with exactly the rights in deploy/kubernetes/capi.yaml, from a Cluster to its end."""

from __future__ import annotations

import pytest
from capi_account import signed_in
from capi_world import NAMESPACE, World

from fairlead.api.loadbalancer import LOAD_BALANCERS


@pytest.mark.req("C-56")
async def test_the_rights_of_the_manifest_are_enough_from_the_first_to_the_last(world: World) -> None:
    world.capi_api = await signed_in(world)
    await world.start()
    await world.cluster()
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    await world.machine("m-1", "10.0.0.1")
    await world.machine("m-2", "10.0.0.2")
    await world.until_states(m_1="active", m_2="active")
    await world.delete_machine("m-1")
    await world.until_free("m-1")
    await world.user.delete(LOAD_BALANCERS, NAMESPACE, "api")
    await world.until_gone()
    await world.until_free("m-2")
