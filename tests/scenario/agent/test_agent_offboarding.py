"""An agent whose tenant is removed: it exports no more, and takes each address from its Service when that is gone."""

from __future__ import annotations

import pytest
from agent_world import HUB_NAMESPACE, World, until, writes

from fairlead.api.kubernetes import LEASES
from fairlead.api.names import AGENT_LEASE, ANNOTATION_ADDRESS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import ANNOTATION_LEAVING, ANNOTATION_SERVICES_INFORMED

NODE_PORT = {"kubernetes.io/service.class": "kubelb"}


async def mark(world: World) -> None:
    patch = {"metadata": {"annotations": {ANNOTATION_LEAVING: "true"}}}
    await world.hub.merge_patch(LEASES, HUB_NAMESPACE, AGENT_LEASE, patch)


async def informed(world: World) -> bool:
    lease = await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)
    return lease.annotation(ANNOTATION_SERVICES_INFORMED) == "true"


@pytest.mark.req("X-5")
async def test_addresses_go_when_their_load_balancers_are_gone_and_the_services_say_why(world: World):
    await world.service()
    await world.service("np", kind="NodePort", annotations=NODE_PORT)
    agent = await world.start(heartbeat_s=0.05)
    for name in ("web", "np"):
        await world.answer("192.0.2.1", f"shop.{name}")
    await world.until_shown("192.0.2.1")
    await mark(world)
    await until(lambda: agent.offboarding.leaving, what="the agent has heard")
    await world.event("TenantRemoved", "web")
    await world.event("TenantRemoved", "np")
    assert any("Tenant east is being removed at the hub" in each for each in agent.readiness())
    before = writes(agent)
    await world.service("late")
    await world.settled(agent)
    assert await world.find("shop.late") is None
    assert writes(agent) == before, "nothing is exported any more"
    await world.until_shown("192.0.2.1")
    assert not await informed(world)
    for name in ("web", "np"):
        await world.hub.delete(TCP_LOAD_BALANCERS, HUB_NAMESPACE, f"shop.{name}")
        await world.gone(f"shop.{name}")
    await world.until_shown()

    async def unannotated() -> bool:
        return not (await world.get_service("np")).annotation(ANNOTATION_ADDRESS)

    await until(unannotated)
    await until(lambda: informed(world), what="the hub is answered")
    assert await world.find() is None, "it is not made again"


@pytest.mark.req("X-5")
async def test_an_agent_that_starts_while_its_tenant_leaves_exports_nothing(world: World):
    await world.service()
    first = await world.start(heartbeat_s=0.05)
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.stop(first)
    await mark(world)
    await world.hub.delete(TCP_LOAD_BALANCERS, HUB_NAMESPACE, "shop.web")
    await world.gone()
    await world.start(exporting=False, heartbeat_s=0.05)
    await until(lambda: informed(world), what="the hub is answered")
    await world.until_shown()
    assert await world.find() is None


@pytest.mark.req("X-5", "CORE-07")
async def test_an_agent_whose_tenant_no_longer_leaves_exports_again(world: World):
    agent = await world.start(heartbeat_s=0.05)
    await mark(world)
    await until(lambda: agent.offboarding.leaving, what="the agent has heard")
    await world.service()
    await world.event("TenantRemoved", "web")
    # The Tenant is created again: so is its namespace, without the Lease of before.
    await world.hub.delete(LEASES, HUB_NAMESPACE, AGENT_LEASE)
    await until(lambda: world.find("shop.web"), what="the Service is exported")
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    assert not any("being removed" in problem for problem in agent.readiness())
