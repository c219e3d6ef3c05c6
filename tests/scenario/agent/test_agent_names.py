"""Names, ports and objects of others: Services that could collide at the hub, and one cluster that is both."""

from __future__ import annotations

import pytest
from agent_world import HUB_NAMESPACE, POD, World, new_world, writes

from fairlead.api.kubernetes import SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS


@pytest.mark.req("KI-4")
@pytest.mark.req("KI-3")
@pytest.mark.req("E-2")
@pytest.mark.req("E-8")
async def test_udp_and_tcp_on_one_port(world: World):
    ports = [{"name": "dns", "port": 53, "protocol": "TCP"}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}]
    await world.service(ports=ports)
    await world.start()
    spec = (await world.load_balancer()).spec
    assert [(p.port, p.protocol, p.name) for p in spec.ports] == [(53, "TCP", "dns"), (53, "UDP", "dns-udp")]
    assert all(p.node_port for p in spec.ports)


@pytest.mark.req("KI-5")
@pytest.mark.req("B32")
@pytest.mark.req("E-5")
@pytest.mark.req("W-13")
async def test_names_that_could_collide(world: World):
    from agent_world import ensure_namespaces

    await ensure_namespaces(world.member, "a", "a-b", "n" * 63)
    await world.service("b-c", namespace="a")
    await world.service("c", namespace="a-b")
    await world.service("s" * 63, namespace="n" * 63, annotations=POD)
    await world.slice("10.1.0.1", name="e" * 200, service="s" * 63, namespace="n" * 63)
    agent = await world.start()
    assert set(await world.load_balancers()) == {"a.b-c", "a-b.c", f"{'n' * 63}.{'s' * 63}"}
    await world.delete_service("b-c", "a")
    await world.gone("a.b-c")
    await world.settled(agent)
    assert not (await world.find("a-b.c")).deleting


@pytest.mark.req("KI-12")
async def test_hub_and_member_are_one_cluster():
    async with new_world(same_cluster=True) as world:
        await world.node("n1", "10.0.0.1")
        await world.service()
        await world.service("pods", annotations=POD)
        await world.slice("10.1.0.1", service="pods")
        # What the hub makes in its cluster for its proxies: a Service of ours.
        labels = {"app.kubernetes.io/managed-by": "fairlead"}
        await world.service("envoy", namespace=HUB_NAMESPACE, labels=labels)
        agent = await world.start()
        assert set(await world.load_balancers()) == {"shop.web", "shop.pods"}
        before = writes(agent)
        await world.answer("192.0.2.1")
        await world.until_shown("192.0.2.1")
        await world.settled(agent)
        assert writes(agent) == before
        assert await world.addresses("shop.pods") == ["10.1.0.1"]


@pytest.mark.req("I-4")
@pytest.mark.req("B25")
async def test_what_others_made_at_the_hub_stays(world: World):
    spec = {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}
    for name in ("by-hand", "shop.web"):
        await world.hub.create(
            TCP_LOAD_BALANCERS, {"metadata": {"name": name, "namespace": HUB_NAMESPACE}, "spec": spec}
        )
    await world.service()
    agent = await world.start()
    assert "was not made for this Service" in await world.event("Conflicted")
    await world.delete_service()
    await world.settled(agent)
    load_balancers = await world.load_balancers()
    assert set(load_balancers) == {"by-hand", "shop.web"}
    assert not any(load_balancer.deleting for load_balancer in load_balancers.values())


@pytest.mark.req("I-6")
@pytest.mark.req("KI-6")
async def test_a_recreated_service_keeps_its_hub_object_and_address(world: World):
    await world.service()
    agent = await world.start()
    first = await world.load_balancer()
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.stop(agent)
    await world.delete_service()
    await world.service()
    await world.start()
    second = await world.load_balancer()
    service = await world.get_service()
    assert second.metadata.uid == first.metadata.uid
    assert second.spec.origin.uid == service.metadata.uid != first.spec.origin.uid
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")


@pytest.mark.req("W-25")
@pytest.mark.req("KI-1")
async def test_no_finalizer_on_the_user_s_service(world: World):
    await world.service()
    await world.start()
    await world.load_balancer()
    assert not (await world.member.get(SERVICES, "shop", "web")).metadata.finalizers


@pytest.mark.req("X-2")
async def test_a_service_whose_endpoints_come_a_moment_later_is_not_said_to_have_none(world: World):
    await world.service()
    await world.start()
    await serving(world, "False", "NoTargets")
    await serving(world, "True", "Serving")
    await world.event("EnsuredLoadBalancer")
    assert "NoTargets" not in [reason for _, reason, _ in await world.events()]
    await serving(world, "False", "NoTargets")
    assert "and no target: connections fail" in await world.event("NoTargets")


async def serving(world: World, status: str, reason: str) -> None:
    """Answer with an address that is programmed, and with this condition Serving."""
    await world.answer()
    obj = await world.load_balancer()
    condition = {
        "observedGeneration": obj.metadata.generation,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "message": "",
    }
    conditions = [
        {"type": "Programmed", "status": "True", "reason": "Programmed", **condition},
        {"type": "Serving", "status": status, "reason": reason, **condition},
    ]
    await world.hub.merge_patch(
        TCP_LOAD_BALANCERS,
        "tenant-east",
        "shop.web",
        {"status": {"conditions": conditions}},
        subresource="status",
        manager="fairlead-hub",
    )
