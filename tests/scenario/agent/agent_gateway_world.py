"""What tests of Gateways read at the hub and at the member, and the hub's answer."""

from __future__ import annotations

from typing import Any

from agent_l7_objects import gateway_class, install
from agent_world import HUB_NAMESPACE, World, until

from fairlead.agent.identity import gateway_load_balancer_name
from fairlead.api.gateway import GATEWAYS
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.errors import NotFound

USER = "kubectl"


NAME = gateway_load_balancer_name("shop", "web")


async def routes(world: World) -> list[Any]:
    return await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)


async def load_balancer(world: World, name: str = NAME) -> Any:
    try:
        return await world.hub.get(HTTP_LOAD_BALANCERS, HUB_NAMESPACE, name)
    except NotFound:
        return None


async def backends(world: World) -> list[str]:
    shown = await world.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector="fairlead.dev/backend")
    return sorted(each.label("fairlead.dev/backend") for each in shown)


async def served(world: World) -> None:
    await install(world)
    await world.service(kind="ClusterIP")
    await world.slice("10.1.0.1", "10.1.0.2")
    await gateway_class(world)


async def answer(world: World, address: str = "192.0.2.9", name: str = NAME) -> None:
    """Write the status of the HTTPLoadBalancer as the hub does."""
    shown = await load_balancer(world, name)
    generation = shown.metadata.generation
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "observedGeneration": generation,
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        for kind in ("Accepted", "Programmed")
    ]
    ingress = [{"ip": address}]
    status = {
        "address": address,
        "observedGeneration": generation,
        "loadBalancer": {"ingress": ingress},
        "conditions": conditions,
    }
    await world.hub.merge_patch(
        HTTP_LOAD_BALANCERS, HUB_NAMESPACE, name, {"status": status}, subresource="status", manager="fairlead-hub"
    )


def condition(status: Any, kind: str) -> tuple[str, str, int] | None:
    result = [each for each in status.conditions or () if each.type == kind]
    return (result[0].status, result[0].reason, result[0].observed_generation) if result else None


async def programmed(world: World, attached: int, name: str = "web") -> Any:
    """Wait until a Gateway is programmed with this many routes at each listener."""

    async def check() -> Any:
        shown = await world.member.get(GATEWAYS, "shop", name)
        counts = {each.attached_routes for each in shown.status.listeners or ()}
        ready = condition(shown.status, "Programmed") == ("True", "Programmed", shown.metadata.generation)
        return shown if ready and counts == {attached} else None

    return await until(check, what=f"{attached} routes")


async def quiet(agent: Any) -> None:
    """Wait until the L7 half of an agent has nothing left to do."""
    rounds = 0

    async def idle() -> bool:
        nonlocal rounds
        queues = agent.engine.lanes["http"][:2]
        rounds = (
            0 if any(len(queue) or queue.processing for queue in queues) or not agent.gateways.ready else rounds + 1
        )
        return rounds >= 5

    await until(idle, what="quiet")
