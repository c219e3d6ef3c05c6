"""A member's namespace, its rights, its silence, and its end."""

from __future__ import annotations

import pytest
from aiohttp import web
from yarl import URL

from fairlead.api.kubernetes import NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from fairlead.api.names import ANNOTATION_STOP_SERVING
from fairlead.api.tenant import STALE_AFTER_S, TENANTS
from fairlead.hub.tenants.tenants import CHECK_EVERY_S
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS


@pytest.mark.req("KI-8", "K-1", "K-9")
async def test_each_member_has_a_namespace_and_an_identity_of_its_own(world, hub):
    await world.tenant("west")
    for name in ("east", "west"):
        await world.until(lambda name=name: world.find(ROLE_BINDINGS, f"tenant-{name}", "fairlead-agent"))
        assert await world.find(SERVICE_ACCOUNTS, f"tenant-{name}", "fairlead-agent") is not None
        assert await world.find(ROLES, f"tenant-{name}", "fairlead-agent") is not None
        await world.until(lambda name=name: world.find(CLUSTER_ROLE_BINDINGS, "", f"fairlead-agent-{name}"))


@pytest.mark.req("K-1", "KI-5")
async def test_the_same_name_in_two_members_is_two_load_balancers(world, hub):
    await world.tenant("west")
    for namespace, address in (("tenant-east", "10.1.0.1"), ("tenant-west", "10.2.0.1")):
        await world.lb("shop.web", namespace=namespace)
        await world.slice("shop.web", address, namespace=namespace)
    east = await world.programmed("shop.web", "tenant-east")
    west = await world.programmed("shop.web", "tenant-west")
    assert east != west
    assert world.at_cloud("shop.web", "tenant-east") == {"10.1.0.1:8080"}
    assert world.at_cloud("shop.web", "tenant-west") == {"10.2.0.1:8080"}


async def state(world):
    return (await world.user.get(TENANTS, "", "east")).status.state


@pytest.mark.req("KI-7", "I-1")
async def test_a_silent_member_is_called_stale_then_lost_and_served_on(world, hub):
    await world.heartbeat()
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.until(lambda: is_(world, "Engaged"))
    await world.quiet(50)
    assert await state(world) == "Stale"
    assert "its last state is served" in (await world.said("Stale", "True")).message
    await world.quiet(300)
    assert await state(world) == "Lost"
    assert world.at_cloud() == {"10.1.0.1:8080"}
    hub.cluster.written.clear()
    await world.quiet(30)
    assert hub.written == []
    await world.heartbeat()
    await world.until(lambda: is_(world, "Engaged"))
    await world.quiet()
    assert await world.condition("Stale") is None


async def is_(world, wanted):
    return await state(world) == wanted


async def test_a_lost_member_is_drained_when_its_tenant_says_so(world, hub):
    await world.tenant(drainWhenLost="6m")
    await world.heartbeat()
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.quiet(340)
    assert world.at_cloud() == {"10.1.0.1:8080"}
    await world.quiet(80)
    assert world.at_cloud() == set()


@pytest.mark.req("I-1")
async def test_no_member_is_drained_by_a_time_in_which_the_hub_could_not_hear_its_agent(world, hub):
    """A proxy answered for the API for minutes, and when it was back every member was lost, and drained."""

    async def no_upstream(_request):
        return web.Response(status=503, text="no healthy upstream")

    await world.tenant(drainWhenLost="5m")
    await world.heartbeat()
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.until(lambda: is_(world, "Engaged"))
    await world.quiet()
    proxy = web.ServerRunner(web.Server(no_upstream))
    await proxy.setup()
    try:
        await web.TCPSite(proxy, "127.0.0.1", 0).start()
        direct, hub.cluster._transport._base = (
            hub.cluster._transport._base,
            URL.build(scheme="http", host="127.0.0.1", port=proxy.addresses[0][1]),
        )
        hub.cluster._transport._urls.clear()
        world.server._running().watches.close_all()
        await world.quiet(420)
        assert world.at_cloud() == {"10.1.0.1:8080"}
        hub.cluster._transport._base = direct
        hub.cluster._transport._urls.clear()
        await world.until(lambda: not hub.hub.inventory.leases.problem)
        may_report_until_s = world.clock.monotonic() + STALE_AFTER_S - CHECK_EVERY_S
        await world.until(lambda: not hub.hub.not_ready())
        while world.clock.monotonic() < may_report_until_s:
            assert await state(world) == "Engaged", "its agent has not had the time to report"
            await world.quiet(1)
    finally:
        await proxy.cleanup()


@pytest.mark.req("KI-1")
async def test_the_end_of_a_tenant_is_the_end_of_all_that_is_its(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    patch = {"metadata": {"annotations": {ANNOTATION_STOP_SERVING: "true"}}}
    await world.user.merge_patch(TENANTS, "", "east", patch)
    await world.user.delete(TENANTS, "", "east")
    await world.until(lambda: no(world.find(NAMESPACES, "", "tenant-east")), what="the namespace to go")
    await world.until(lambda: world.cloud.load_balancers == {})
    await world.until(lambda: no(world.find(CLUSTER_ROLE_BINDINGS, "", "fairlead-agent-east")))


async def no(finding):
    return await finding is None
