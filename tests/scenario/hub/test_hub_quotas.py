"""What a member uses of its limits: counted in the status of its Tenant, and above a limit what is new waits."""

from __future__ import annotations

import pytest
from hub_world import HubWorld

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import LABEL_ORIGIN_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS, ClassUsed, SubtenantUsed, TenantUsed
from fairlead.testing.builders import NAMESPACE

PODS = [f"10.1.0.{number}" for number in range(1, 5)]


async def used(world: HubWorld) -> TenantUsed | None:
    tenant = await world.find(TENANTS, "", "east")
    return tenant.status.used if tenant is not None else None


async def uses(world: HubWorld, expected: TenantUsed) -> None:
    async def as_expected() -> bool:
        return await used(world) == expected

    await world.until(as_expected, what=f"the status says {expected}")


async def used_of_classes(world: HubWorld, expected: list[ClassUsed] | None) -> None:
    async def as_expected() -> bool:
        counts = await used(world)
        return counts is not None and counts.classes == expected

    await world.until(as_expected, what=f"the status has the classes {expected}")


@pytest.mark.req("F-31")
async def test_a_burst_is_counted_in_few_writes_and_rest_in_none(world: HubWorld) -> None:
    hub = await world.start()
    await world.tenant()
    await world.quiet()
    hub.cluster.written.clear()
    for number in range(5):
        await world.lb(f"web-{number}", spec={"targets": "Pod"})
        await world.slice(f"web-{number}", *PODS[:2])
    await uses(world, TenantUsed(load_balancers=5, ports=5, addresses=5, targets=10))
    assert hub.written.count("apply/status Tenant east") <= 2
    for number in range(1, 5):
        await world.delete_lb(f"web-{number}")
    await uses(world, TenantUsed(load_balancers=1, ports=1, addresses=1, targets=2))
    await world.quiet(20)
    hub.cluster.written.clear()
    await world.quiet(60)
    assert "apply/status Tenant east" not in hub.written


@pytest.mark.req("F-31")
async def test_a_new_load_balancer_waits_for_targets_and_served_ones_grow(world: HubWorld) -> None:
    hub = await world.start()
    await world.tenant(maxTargets=3)
    await world.lb("web", spec={"targets": "Pod"})
    await world.slice("web", *PODS[:3])
    await world.programmed("web")
    await world.lb("api", spec={"targets": "Pod"})
    await world.slice("api", "10.1.0.9")
    condition = await world.said("Accepted", "False", name="api")
    assert (condition.reason, "spec.maxTargets" in condition.message) == ("QuotaExceeded", True)
    await world.slice("web", *PODS)
    await world.until(lambda: world.at_cloud() == {f"{pod}:8080" for pod in PODS}, what="what is served grows")
    await uses(world, TenantUsed(load_balancers=2, ports=1, addresses=1, targets=4))
    # The alert compares these.
    value, of_targets = (
        hub.hub._telemetry.registry.get_sample_value,
        {"tenant": "east", "subtenant": "", "resource": "targets"},
    )
    assert value("fairlead_hub_tenant_used", of_targets) == 4
    assert value("fairlead_hub_tenant_limit", of_targets) == 3
    await world.stop(hub)
    await world.start()
    await world.quiet()
    assert (await world.said("Accepted", "False", name="api")).reason == "QuotaExceeded"
    await world.slice("web", *PODS[:2])
    await world.programmed("api")


@pytest.mark.req("F-31")
async def test_one_of_several_hubs_counts_a_member(world: HubWorld) -> None:
    hubs = [await world.start(), await world.start(identity="eu", pool="198.51.100.0/28", region="eu")]
    await world.tenant()
    for name, region in (("here", ""), ("there", "eu")):
        await world.lb(name, spec={"region": region} if region else {})
        await world.slice(name, *PODS[:2])
    await world.quiet(20)
    counted = await used(world)
    assert counted is not None
    assert counted.load_balancers == 2
    for hub in hubs:
        hub.cluster.written.clear()
    await world.clock.advance(301)  # both compare all statuses
    await world.quiet()
    assert [write for hub in hubs for write in hub.written if "Tenant" in write] == []


@pytest.mark.req("F-31", "F-33")
async def test_ports_of_a_sub_tenant_and_load_balancers_of_a_class_are_limited(world: HubWorld) -> None:
    await world.start()
    await world.tenant(subtenants=[{"name": "shop", "maxPorts": 2}])
    await world.lb("a", ports=[{"port": 80}, {"port": 81}], labels={LABEL_ORIGIN_NAMESPACE: "shop"})
    await world.lb("b", labels={LABEL_ORIGIN_NAMESPACE: "shop"})
    await world.lb("c", labels={LABEL_ORIGIN_NAMESPACE: "search"})
    for name in ("a", "b", "c"):
        await world.slice(name, "10.1.0.9")
    for name in ("a", "c"):
        await world.programmed(name)
    condition = await world.said("Programmed", "False", name="b")
    assert condition.reason == "QuotaExceeded"
    assert "sub-tenant shop has 2 others of at most 2" in condition.message
    await world.delete_lb("a")
    await world.programmed("b")
    limit = {"spec": {"maxPerTenant": 1}}
    name = (await world.user.get(TCP_LOAD_BALANCERS, NAMESPACE, "b")).spec.class_name
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", name, limit, manager="kubectl")
    await world.lb("d")
    await world.slice("d", "10.1.0.9")
    condition = await world.said("Accepted", "False", name="d")
    assert f"uses 2 load balancers of LoadBalancerClass {name}" in condition.message
    await used_of_classes(world, [ClassUsed(name, 3, 1)])
    await world.programmed("b")
    await world.delete_lb("b")
    await world.delete_lb("c")
    await world.programmed("d")
    await used_of_classes(world, [ClassUsed(name, 1, 1)])
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", name, {"spec": {"maxPerTenant": 0}}, manager="kubectl")
    await used_of_classes(world, None)


@pytest.mark.req("F-31", "F-33")
async def test_a_load_balancer_that_waits_is_served_when_another_one_goes(world: HubWorld) -> None:
    await world.start()
    await world.tenant(subtenants=[{"name": "*", "maxLoadBalancers": 1}])
    labels = {LABEL_ORIGIN_NAMESPACE: "shop"}
    for name in ("a", "b"):
        await world.lb(name, spec={"targets": "Pod"}, labels=labels)
        await world.slice(name, "10.1.0.9")
    await world.programmed("a")
    condition = await world.said("Accepted", "False", name="b")
    assert condition.reason == "QuotaExceeded"
    assert "sub-tenant shop uses 1 load balancer, and spec.subtenants.maxLoadBalancers" in condition.message
    await uses(
        world,
        TenantUsed(
            load_balancers=2,
            ports=1,
            addresses=1,
            targets=1,
            subtenants=[SubtenantUsed("shop", load_balancers=2, targets=1, ports=1)],
        ),
    )
    await world.delete_lb("a")
    await world.programmed("b")
