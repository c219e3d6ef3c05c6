"""Which Services of a member get a load balancer at the hub, and which events say why not."""

from __future__ import annotations

import pytest
from agent_world import HUB_NAMESPACE, KUBELB, POD, World, until

from fairlead.api.kubernetes import LEASES
from fairlead.api.names import AGENT_LEASE, ANNOTATION_REFUSED


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
    assert "stays in effect" in await world.event("Invalid")
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


async def test_what_is_refused_is_at_the_hub_before_the_next_heartbeat_is_due_and_gone_again(world: World):
    await world.start()
    await world.service(kind="ClusterIP", clusterIP="None", annotations=KUBELB)
    await world.event("UnsupportedService")

    async def refused() -> str:
        return (await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)).annotation(ANNOTATION_REFUSED)

    await until(refused)
    await world.delete_service()

    async def no_more() -> bool:
        return not await refused()

    await until(no_more)
