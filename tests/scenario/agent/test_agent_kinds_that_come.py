"""Kinds of Gateway API that are installed while an agent runs: nothing that came meanwhile is forgotten."""

from __future__ import annotations

import pytest
from agent_l7_objects import gateway, gateway_class, http_route, install
from agent_world import HUB_NAMESPACE, World, until

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.errors import Wait


async def at_hub(world: World) -> list[str]:
    return [each.metadata.name for each in await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)]


@pytest.mark.req("K-36", "K-41")
async def test_a_key_that_has_to_wait_for_a_kind_is_enqueued_once_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind may be read within moments: before anything has looked whether all kinds are."""
    await install(world)
    await world.service(kind="ClusterIP")
    await world.slice("10.1.0.1")
    await gateway_class(world)
    await gateway(world)
    await http_route(world)
    agent = await world.start()
    await until(lambda: at_hub(world), what="a route")
    enqueued: list[int] = []
    monkeypatch.setattr(agent.engine._sources["Gateway"], "begin", lambda: enqueued.append(1))
    grants = agent.gateways.grants
    grants.synced = False
    with pytest.raises(Wait):
        await agent.engine._publish(("HTTPRoute", "shop", "web"))
    grants.synced = True

    async def again() -> bool:
        return bool(enqueued)

    await until(again, what="everything is enqueued anew")
    await agent.engine._publish(("HTTPRoute", "shop", "web"))
