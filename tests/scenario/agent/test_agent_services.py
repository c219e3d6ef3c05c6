"""Which Services are exported, and what the member's Services show: the three scenarios and their negatives."""

from __future__ import annotations

import pytest
from agent_world import HUB_NAMESPACE, World, new_world, until, writes

from fairlead.api.kubernetes import SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

KUBELB = {"kubernetes.io/service.class": "kubelb"}
POD = {"fairlead.dev/target": "Pod"}


@pytest.mark.req("K-7")
@pytest.mark.req("K-5")
@pytest.mark.req("K-8")
@pytest.mark.req("K-13")
@pytest.mark.req("K-15")
@pytest.mark.req("K-23")
@pytest.mark.req("K-24")
@pytest.mark.req("K-25")
@pytest.mark.req("K-26")
@pytest.mark.req("E-1")
@pytest.mark.req("E-4")
async def test_scenario_3_from_creation_to_deletion(world: World):
    await world.service()
    agent = await world.start()
    load_balancer = await world.load_balancer()
    assert load_balancer.spec.targets == "Node"
    assert load_balancer.spec.ports[0].node_port >= 30000
    assert load_balancer.spec.origin.uid == (await world.get_service()).metadata.uid
    assert await world.nodes() == (["10.0.0.1", "10.0.0.2"], "")
    assert await world.shown() == []
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    ingress = (await world.get_service()).status.load_balancer.ingress[0]
    assert (ingress.ip_mode, [(p.port, p.protocol) for p in ingress.ports]) == ("Proxy", [(80, "TCP")])
    assert "192.0.2.1" in await world.event("EnsuredLoadBalancer")
    await world.answer("192.0.2.2")
    await world.until_shown("192.0.2.2")
    await world.answer("")
    await world.until_shown()
    await world.delete_service()
    await world.gone()
    assert agent.readiness() == []


@pytest.mark.req("K-13")
@pytest.mark.req("K-19")
@pytest.mark.req("K-20")
@pytest.mark.req("KI-2")
async def test_scenario_1_a_node_port_with_the_annotation(world: World):
    await world.service(kind="NodePort")
    agent = await world.start()
    assert await world.load_balancers() == {}
    await world.service(kind="NodePort", annotations=KUBELB)
    load_balancer = await world.load_balancer()
    service = await world.get_service()
    assert load_balancer.spec.ports[0].node_port == service.spec.ports[0].node_port
    await world.answer("192.0.2.1")

    async def noted() -> bool:
        return (await world.get_service()).annotation("fairlead.dev/address") == "192.0.2.1"

    await until(noted)
    assert await world.shown() == []
    await world.service(kind="NodePort", annotations={})
    await world.gone()

    async def taken_away() -> bool:
        return (await world.get_service()).annotation("fairlead.dev/address", "none") == "none"

    await until(taken_away)
    await world.settled(agent)
    assert await world.load_balancers() == {}


@pytest.mark.req("K-21")
@pytest.mark.req("K-22")
@pytest.mark.req("K-27")
@pytest.mark.req("B04")
@pytest.mark.req("I-1")
@pytest.mark.req("W-9")
async def test_scenario_2_the_cloud_s_own_load_balancer_is_the_target(world: World):
    await world.service("plain")
    await world.cloud_status({"ip": "203.0.113.9"}, name="plain")
    await world.service()
    agent = await world.start(cloud_load_balancer="present")
    assert await world.load_balancers() == {}
    await world.service(annotations=KUBELB)
    await world.settled(agent)
    assert await world.load_balancers() == {}, "the cloud has no address yet"
    await world.cloud_status({"ip": "203.0.113.7"})
    load_balancer = await world.load_balancer()
    assert load_balancer.spec.targets == "Address"
    await world.settled(agent)
    (slice_,) = (await world.slices()).values()
    assert slice_.endpoints[0].addresses == ["203.0.113.7"]
    assert [(p.name, p.port) for p in slice_.ports] == [("http", 80)]
    await world.answer("192.0.2.1")

    async def noted() -> bool:
        return (await world.get_service()).annotation("fairlead.dev/address") == "192.0.2.1"

    await until(noted)
    assert await world.shown() == ["203.0.113.7"]
    await world.cloud_status()
    await world.settled(agent)
    assert await world.addresses() == ["203.0.113.7"], "the address is missing for a moment: the last one stays"
    await world.cloud_status({"hostname": "lb.cloud.example"})

    async def by_name() -> bool:
        return await world.addresses() == ["lb.cloud.example"]

    await until(by_name)
    await world.service(annotations={})
    await world.gone()
    await world.settled(agent)
    assert await world.shown() == ["lb.cloud.example"]
    assert await world.shown("plain") == ["203.0.113.9"]
    assert (await world.get_service("plain")).metadata.annotations in (None, {})


CLASSES = [
    # class, cloud, exported
    ("fairlead.dev/edge", "present", True),
    ("fairlead.dev/edge", "absent", True),
    ("metallb.io/metallb", "absent", False),
    ("metallb.io/metallb", "present", False),
]


@pytest.mark.req("K-27")
@pytest.mark.req("B30")
@pytest.mark.parametrize(("class_name", "cloud", "exported"), CLASSES)
async def test_the_class_decides_whose_it_is(world: World, class_name: str, cloud: str, exported: bool):
    await world.service(loadBalancerClass=class_name, annotations=KUBELB)
    await world.start(cloud_load_balancer=cloud)
    load_balancers = await world.load_balancers()
    assert bool(load_balancers) == exported
    if exported:
        assert load_balancers["shop.web"].spec.class_name == "edge"
        await world.answer("192.0.2.1")
        await world.until_shown("192.0.2.1")


@pytest.mark.req("E-7")
@pytest.mark.req("KI-10")
@pytest.mark.req("KI-11")
@pytest.mark.req("K-20")
async def test_what_is_not_exported_and_which_events_say_so(world: World):
    await world.service("plain", kind="ClusterIP")
    await world.service("np", kind="NodePort")
    await world.service("headless", kind="ClusterIP", clusterIP="None")
    await world.service("asks", kind="ClusterIP", annotations=KUBELB)
    await world.service("asks-headless", kind="ClusterIP", clusterIP="None", annotations=KUBELB)
    await world.service("asks-name", kind="ExternalName", externalName="example.com", annotations=KUBELB)
    await world.service("typo", kind="NodePort", annotations={"kubernetes.io/service.class": "kubelbb"})
    await world.start()
    assert await world.load_balancers() == {}
    assert "change spec.type" in await world.event("UnsupportedService", "asks")
    assert "second Service" in await world.event("UnsupportedService", "asks-headless")
    assert "DNS name" in await world.event("UnsupportedService", "asks-name")
    assert "Did you mean 'kubelb'" in await world.event("UnknownAnnotation", "typo")
    for name in ("plain", "np", "headless"):
        assert await world.events(name) == []


@pytest.mark.req("K-14")
@pytest.mark.req("I-1")
@pytest.mark.req("I-7")
async def test_without_node_ports_what_is_there_stays_and_an_event_says_why(world: World):
    await world.service("new", allocateLoadBalancerNodePorts=False)
    await world.service("pods", allocateLoadBalancerNodePorts=False, annotations=POD)
    await world.service()
    agent = await world.start()
    assert set(await world.load_balancers()) == {"shop.pods", "shop.web"}
    assert "fairlead.dev/target: Pod" in await world.event("NodePortMissing", "new")
    await world.service(annotations={"fairlead.dev/proxy-protocol": "v3"})
    assert "stays as it is" in await world.event("Invalid")
    await world.settled(agent)
    assert (await world.load_balancer()).spec.proxy_protocol == ""
    await world.service(loadBalancerSourceRanges=["10.0.0.0/8"])

    async def applied() -> bool:
        return (await world.load_balancer()).spec.load_balancer_source_ranges == ["10.0.0.0/8"]

    await until(applied)


@pytest.mark.req("B24")
@pytest.mark.req("KI-2")
@pytest.mark.req("B20")
@pytest.mark.req("W-12")
async def test_load_balancer_to_cluster_ip_and_back(world: World):
    await world.service()
    agent = await world.start()
    await world.load_balancer()
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.service(kind="ClusterIP")
    first = await until(world.find)
    await until(lambda: is_deleting(world))
    # Back again while the hub is still tearing down: nothing is applied to what is going.
    await world.service()
    await world.settled(agent)
    assert (await world.find()).deleting
    await world.release()
    second = await world.load_balancer()
    assert second.metadata.uid != first.metadata.uid
    await world.answer("192.0.2.2")
    await world.until_shown("192.0.2.2")
    assert (await world.get_service()).metadata.finalizers is None


@pytest.mark.req("W-12")
@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param({"kind": "NodePort"}, id="NodePort"),
        pytest.param({"kind": "ClusterIP"}, id="ClusterIP"),
    ],
)
async def test_whatever_makes_it_not_ours_gives_all_of_it_back(world: World, leaves: dict[str, str]):
    await world.service()
    agent = await world.start()
    await world.load_balancer()
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.service(**leaves)
    await until(lambda: is_deleting(world))
    await world.release()
    await world.settled(agent)
    assert await world.find() is None
    after = await world.get_service()
    assert (after.status.load_balancer.ingress, after.metadata.finalizers) == (None, None)


async def is_deleting(world: World) -> bool:
    load_balancer = await world.find()
    return load_balancer is not None and load_balancer.deleting


@pytest.mark.req("K-27")
@pytest.mark.req("K-22")
@pytest.mark.req("B30")
@pytest.mark.req("I-4")
async def test_a_status_that_another_controller_owns_is_not_fought_over(world: World):
    await world.service()
    await world.cloud_status({"ip": "203.0.113.7"})
    agent = await world.start()
    await world.answer("192.0.2.1")
    assert "--cloud-load-balancer=present" in await world.event("StatusOwnedByAnother")
    await world.settled(agent)
    assert await world.shown() == ["203.0.113.7"]
    await world.service(kind="ClusterIP")
    await world.gone()


@pytest.mark.req("KI-10")
async def test_what_the_hub_refuses_is_an_event_once(world: World):
    await world.service()
    agent = await world.start()
    await world.answer("", status="False", reason="PortConflict", message="port 80 is taken")
    assert await world.event("PortConflict") == "port 80 is taken"
    await world.answer("", status="False", reason="PortConflict", message="port 80 is taken")
    await world.settled(agent)
    assert len([event for event in await world.events() if event[1] == "PortConflict"]) == 1


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
async def test_a_service_made_anew_keeps_its_hub_object_and_address(world: World):
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
    assert "no target yet" in await world.event("NoTargets")


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
