"""A Tenant that is deleted: served on until it may go, then drained, then gone; the hub may be killed meanwhile."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hub_world import EVENT

from fairlead.api.kubernetes import LEASES, NAMESPACES, ROLES
from fairlead.api.meta import AnyResource, condition_of
from fairlead.api.names import AGENT_LEASE, ANNOTATION_STOP_SERVING, LABEL_DO_NOT_DELETE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import ANNOTATION_LEAVING, ANNOTATION_SERVICES_INFORMED, TENANTS
from fairlead.errors import NotFound
from fairlead.testing.builders import NAMESPACE

EAST = ("", "east")


async def serve(world):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    return await world.programmed()


async def delete(world):
    await world.user.delete(TENANTS, *EAST)


async def allow(world):
    patch = {"metadata": {"annotations": {ANNOTATION_STOP_SERVING: "true"}}}
    await world.user.merge_patch(TENANTS, *EAST, patch)


async def ready(world):
    tenant = await world.find(TENANTS, *EAST)
    return condition_of(tenant.status.conditions, "Ready") if tenant is not None else None


async def said(world, reason):
    condition = await ready(world)
    return condition if condition is not None and condition.reason == reason else None


async def gone(world, resource: AnyResource = TENANTS, key=EAST):
    return await world.find(resource, *key) is None


async def events(world):
    return [each for each in await world.user.list(EVENT, "default") if each.involved_object.get("name") == "east"]


@pytest.mark.req("X-5")
async def test_a_tenant_that_serves_is_served_on_and_says_how_to_go_on(world, hub):
    address = await serve(world)
    await delete(world)
    condition = await world.until(lambda: said(world, "InUse"))
    assert condition.status == "False"
    for text in ("1 load balancer", f"{NAMESPACE}/web", "fairlead tenant remove east --stop-serving"):
        assert text in condition.message
    await world.quiet(120)
    assert await world.programmed() == address
    assert world.at_cloud() == {"10.1.0.1:8080"}
    assert [(each.type, each.reason) for each in await events(world)] == [("Warning", "InUse")]
    await world.slice("web", "10.1.0.2")
    await world.until(lambda: world.at_cloud() == {"10.1.0.2:8080"}, what="changes still arrive")
    # The history of the removal is stored within half a minute.
    await world.quiet(60)
    hub.cluster.written.clear()
    await world.quiet(60)
    assert hub.written == [], "waiting writes nothing"


@pytest.mark.req("X-5", "CORE-07")
async def test_a_load_balancer_that_turns_up_late_is_served_and_can_be_deleted(world, hub):
    await world.heartbeat()
    await allow(world)
    await serve(world)
    await delete(world)
    await world.until(lambda: said(world, "Deleting"))

    async def agent_leaves():
        return bool((await world.user.get(LEASES, NAMESPACE, AGENT_LEASE)).annotation(ANNOTATION_LEAVING))

    async def agent_may_create():
        role = await world.user.raw("GET", ROLES.path(NAMESPACE, "fairlead-agent"))
        return b"create" in role.split(b"leases")[0].split(b"rules")[-1]

    await world.until(agent_leaves)
    assert not await agent_may_create()
    patch = {"metadata": {"annotations": {ANNOTATION_STOP_SERVING: None}}}
    await world.user.merge_patch(TENANTS, *EAST, patch)
    await world.until(lambda: said(world, "InUse"))
    await world.until(agent_may_create)
    assert not await agent_leaves()
    hub.cluster.written.clear()
    await world.quiet(120)
    assert not [write for write in hub.written if "lease" in str(write).lower() or "role" in str(write).lower()]


@pytest.mark.req("X-5")
async def test_a_removed_tenant_is_deleted_when_it_serves_nothing(world, hub):
    await serve(world)
    await delete(world)
    await world.until(lambda: said(world, "InUse"))
    await world.delete_lb()
    await world.until(lambda: gone(world))
    await world.until(lambda: gone(world, NAMESPACES, ("", NAMESPACE)))


@pytest.mark.req("X-5")
async def test_with_permission_it_is_drained_then_deleted(world, hub):
    await serve(world)
    await allow(world)
    await delete(world)
    condition = await world.until(lambda: said(world, "Deleting"))
    assert "draining" in condition.message
    role = await world.user.raw("GET", ROLES.path(NAMESPACE, "fairlead-agent"))
    assert b"create" not in role.split(b"leases")[0].split(b"rules")[-1], "its agent makes nothing any more"
    assert await world.get() is not None, "connections that exist go on"
    started_s = world.clock.monotonic()
    await world.until(lambda: gone(world), limit_s=300)
    assert world.clock.monotonic() - started_s >= 20, "not before the drain time of its class"
    assert world.cloud.load_balancers == {}
    await world.until(lambda: gone(world, NAMESPACES, ("", NAMESPACE)))


@pytest.mark.req("X-5", "X-6")
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_drain(world, hub, hours):
    await serve(world)
    await allow(world)
    await delete(world)
    await world.until(lambda: said(world, "Deleting"))
    started_s = world.clock.monotonic()
    world.clock._start += timedelta(hours=hours)
    await world.until(lambda: gone(world), limit_s=300)
    assert world.clock.monotonic() - started_s >= 20


@pytest.mark.req("X-5")
async def test_a_hub_that_is_killed_while_it_drains_goes_on_where_it_was(world, hub):
    await serve(world)
    await allow(world)
    await delete(world)
    await world.until(lambda: said(world, "Deleting"))
    since = (await world.user.get(TENANTS, *EAST)).draining_since
    await world.stop(hub)
    await world.start(identity="hub-0")
    assert (await world.user.get(TENANTS, *EAST)).draining_since == since
    await world.until(lambda: gone(world), limit_s=300)
    assert world.cloud.load_balancers == {}


@pytest.mark.req("X-5", "S-11")
async def test_the_label_do_not_delete_outranks_permission(world, hub):
    await serve(world)
    patch = {"metadata": {"labels": {LABEL_DO_NOT_DELETE: "true"}}}
    await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, "web", patch)
    await allow(world)
    await delete(world)
    condition = await world.until(lambda: said(world, "DoNotDelete"))
    assert f"TCPLoadBalancer {NAMESPACE}/web has the label {LABEL_DO_NOT_DELETE}" in condition.message
    await world.quiet(60)
    assert world.at_cloud() == {"10.1.0.1:8080"}
    assert not (await world.user.get(NAMESPACES, "", NAMESPACE)).deleting, "nothing hangs half deleted"
    await world.user.merge_patch(
        TCP_LOAD_BALANCERS, NAMESPACE, "web", {"metadata": {"labels": {LABEL_DO_NOT_DELETE: None}}}
    )
    await world.until(lambda: gone(world), limit_s=300)


@pytest.mark.req("X-5")
async def test_removal_waits_until_services_are_informed(world, hub):
    await world.heartbeat()
    await delete(world)

    async def marked():
        return (await world.user.get(LEASES, NAMESPACE, AGENT_LEASE)).annotation(ANNOTATION_LEAVING)

    await world.until(marked)
    for _ in range(4):
        await world.heartbeat()
        await world.quiet(5)
    assert "updates the Services" in (await said(world, "Deleting")).message
    patch = {"metadata": {"annotations": {ANNOTATION_SERVICES_INFORMED: "true"}}}
    await world.user.merge_patch(LEASES, NAMESPACE, AGENT_LEASE, patch)
    await world.until(lambda: gone(world), limit_s=10)


@pytest.mark.req("X-5")
async def test_an_agent_that_does_not_answer_is_waited_for_a_minute_only(world, hub):
    await world.heartbeat()
    await delete(world)

    async def beating():
        if await world.find(LEASES, NAMESPACE, AGENT_LEASE) is not None:
            with suppress(NotFound):
                await world.heartbeat()
        return await gone(world)

    await world.until(beating, limit_s=90)


@pytest.mark.req("X-5")
async def test_a_namespace_that_is_not_the_tenants_is_not_touched(world, hub):
    await world.user.apply(NAMESPACES, {"metadata": {"name": "shop"}}, manager="kubectl")
    await world.user.apply(TENANTS, {"metadata": {"name": "thief"}, "spec": {"namespace": "shop"}}, manager="kubectl")
    await world.lb(namespace="shop")
    await world.quiet()
    await world.user.delete(TENANTS, "", "thief")
    await world.until(lambda: gone(world, TENANTS, ("", "thief")))
    assert not (await world.user.get(NAMESPACES, "", "shop")).deleting
    assert await world.get(namespace="shop") is not None
