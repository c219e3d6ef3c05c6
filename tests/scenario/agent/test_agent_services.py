"""Which Services of a member get a load balancer at the hub, and which events say why not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from agent_world import HUB_NAMESPACE, KUBELB, POD, USER, World, until

from fairlead.api.kubernetes import CRDS, LEASES, SECRETS, SERVICES
from fairlead.api.names import AGENT_LEASE, ANNOTATION_REFUSED
from fairlead.errors import NotFound
from fairlead_demo.worlds.certificates import self_signed


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
async def test_services_that_are_not_exported_get_events(world: World):
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


@pytest.mark.req("W-12", "X-43")
@pytest.mark.parametrize(
    "leaves", [pytest.param({"kind": "NodePort"}, id="NodePort"), pytest.param({"kind": "ClusterIP"}, id="ClusterIP")]
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
    assert "192.0.2.1" in await world.event("AddressReleased")


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


async def test_rejections_reach_the_hub_before_the_next_heartbeat(world: World):
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


async def limit_at_hub(world: World, field: str, most: int, *, crd: str = "tcploadbalancers.fairlead.dev") -> None:
    """Have the hub accept fewer items of a field, as a hub of another release may."""
    definition = json.loads(await world.hub.raw("GET", CRDS.path("", crd)))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"][field]["maxItems"] = most
    patch = {"spec": {"versions": definition["spec"]["versions"]}}
    await world.hub.merge_patch(CRDS, "", crd, patch, manager="an-operator")


def numbered_ports(count: int) -> list[dict[str, Any]]:
    return [{"name": f"p{each}", "port": each, "protocol": "UDP"} for each in range(1000, 1000 + count)]


@pytest.mark.req("L4-4")
async def test_schema_errors_of_the_hub_are_reported_on_the_service(world: World):
    await limit_at_hub(world, "ports", 2)
    await world.service(ports=numbered_ports(3), annotations=POD)
    agent = await world.start()
    message = await world.event("Invalid")
    assert "spec.ports" in message
    assert await world.load_balancers() == {}
    assert agent.registry.get_sample_value("fairlead_agent_exported_load_balancers") == 0
    refused = agent.registry.get_sample_value("fairlead_agent_refused_services", {"reason": "Invalid"})
    assert refused == 1
    await world.service(ports=numbered_ports(2), annotations=POD)
    await world.load_balancer()
    await until(lambda: resolved(world), what="the end of the refusal")
    # A live one that grows too far keeps what it has, and says so.
    await world.service(ports=numbered_ports(4), annotations=POD)
    assert "last valid version" in await until(lambda: said(world, "last valid version"), what="an Event")
    assert len((await world.load_balancer()).spec.ports) == 2


@pytest.mark.req("X-39")
async def test_a_warning_of_before_a_restart_is_resolved_after_it(world: World):
    await limit_at_hub(world, "ports", 2)
    for name in ("web", "other", "again"):
        await world.service(name, ports=numbered_ports(3), annotations=POD)
    agent = await world.start()
    for name in ("web", "other", "again"):
        await world.event("Invalid", name)
    await world.stop(agent)
    await world.service("web", ports=numbered_ports(2), annotations=POD)
    await world.delete_service("again")
    await world.service("again", ports=numbered_ports(2), annotations=POD)
    before = len(await world.events("other"))
    await world.start()
    assert "No longer the case: Invalid" in await world.event("Resolved")
    assert "Resolved" not in [reason for _, reason, _ in await world.events("other")], "its Warning still holds"
    assert "Resolved" not in [reason for _, reason, _ in await world.events("again")], "it is another Service"
    assert len(await world.events("other")) <= before + 1


@pytest.mark.req("X-39")
async def test_a_service_that_serves_again_after_a_restart_has_an_event(world: World):
    await world.service()
    agent = await world.start()
    await world.answer()
    await world.event("EnsuredLoadBalancer")
    await world.answer(type="Serving", status="False", reason="NoHealthyTargets")
    await world.event("ServingStopped")
    await world.stop(agent)
    await world.answer()
    await world.start()
    await until(lambda: good_news(world), what="another Event with good news")


async def good_news(world: World) -> bool:
    return [reason for _, reason, _ in await world.events()].count("EnsuredLoadBalancer") > 1


async def resolved(world: World) -> bool:
    return any(message.startswith("No longer the case: Invalid") for _, _, message in await world.events())


async def said(world: World, part: str) -> str:
    return next((message for _, _, message in await world.events() if part in message), "")


@pytest.mark.req("L4-4")
async def test_ports_and_ranges_are_as_many_as_kubernetes_allows(world: World):
    ranges = [f"10.{each // 256}.{each % 256}.0/24" for each in range(600)]
    await world.service(ports=numbered_ports(600), annotations=POD, loadBalancerSourceRanges=ranges)
    await world.start()
    spec = (await world.load_balancer()).spec
    assert (len(spec.ports), len(spec.load_balancer_source_ranges)) == (600, 600)


@pytest.mark.req("L4-6")
async def test_a_service_that_a_finalizer_holds_gives_up_its_address(world: World):
    await world.service(annotations=POD)
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.member.merge_patch(SERVICES, "shop", "web", hold, manager="another")
    agent = await world.start()
    await world.load_balancer()
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.delete_service()
    await until(lambda: is_deleting(world))
    await world.settled(agent)
    assert await world.shown() == ["192.0.2.1"], "its load balancer is still being torn down"
    await world.release()
    await world.until_shown()
    assert (await world.get_service()).metadata.finalizers == ["example.com/hold"]


@pytest.mark.req("L4-9")
async def test_a_service_created_again_while_no_agent_ran_has_none_of_the_old_endpoints(world: World):
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    agent = await world.start()
    await world.load_balancer()
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.stop(agent)
    await world.delete_service()
    await world.service(annotations=POD, ports=[{"name": "http", "port": 81, "protocol": "TCP"}])
    await world.slice("10.1.0.2")
    before = await world.load_balancer()
    agent = await world.start()
    await world.settled(agent)
    after, service = await world.load_balancer(), await world.get_service()
    assert after.metadata.uid == before.metadata.uid, "it keeps its object, and with it its address"
    assert after.spec.origin.uid == service.metadata.uid
    slices = (await world.slices()).values()
    assert {each.label("fairlead.dev/origin-uid") for each in slices} == {service.metadata.uid}
    assert await world.addresses() == ["10.1.0.2"]
    # What the hub has said so far is about the Service of before.
    assert await world.shown() == []


@pytest.mark.req("L4-1")
async def test_a_service_that_becomes_a_name_and_comes_back_is_published_again(world: World):
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    agent = await world.start()
    await world.load_balancer()
    await world.answer("192.0.2.1")
    await world.until_shown("192.0.2.1")
    name = {"spec": {"type": "ExternalName", "externalName": "example.com", "selector": None}}
    await world.member.merge_patch(SERVICES, "shop", "web", name, manager="kubectl")
    await until(lambda: is_deleting(world))
    await world.release()
    await world.until_shown()
    await world.service(annotations=POD)
    await world.load_balancer()
    await world.answer("192.0.2.2")
    await world.until_shown("192.0.2.2")
    await world.settled(agent)
    assert await world.addresses() == ["10.1.0.1"]


@pytest.mark.req("F-10")
async def test_a_service_reaches_its_backends_over_tls_as_its_secret_says_now(world: World) -> None:
    annotation = json.dumps({"hostname": "web.internal", "secret": "cert", "subjectAltNames": ["spiffe://shop/web"]})
    await world.service(annotations=POD)
    await world.start()
    await until(world.load_balancer)
    await world.service(annotations={**POD, "fairlead.dev/backend-tls": annotation})

    async def is_reported(part: str) -> bool:
        return any(part in message for _, _, message in await world.events())

    await until(lambda: is_reported("Secret shop/cert"), what="an Event about the Secret")
    assert (await world.load_balancer()).spec.backend_tls is None, "the last valid version"
    chain, key = self_signed("client")
    data, tls = {"tls.crt": chain, "tls.key": key}, None
    for number in range(2):
        data["ca.crt"] = self_signed(f"{number}.internal")[0]
        encoded = {name: base64.b64encode(part).decode() for name, part in data.items()}
        body = {"metadata": {"name": "cert", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": encoded}
        await world.member.apply(SECRETS, body, manager=USER)

        async def trusts(bundle: str = data["ca.crt"].decode()) -> Any:
            tls = (await world.load_balancer()).spec.backend_tls
            return tls if tls is not None and tls.ca_bundle == bundle else None

        tls = await until(trusts, what="the authorities of the Secret")
    assert tls is not None
    assert (tls.server_name, [name.type for name in tls.subject_alt_names]) == ("web.internal", ["URI"])
    (reference,) = (await world.load_balancer()).spec.certificates
    assert reference.name == tls.client_certificate
    copy = await world.hub.get(SECRETS, HUB_NAMESPACE, reference.name)
    assert set(copy.data or {}) == {"tls.crt", "tls.key"}
    await world.service(annotations={**POD, "fairlead.dev/backend-tls": "{}"})
    await until(lambda: is_reported("hostname"), what="an Event about the annotation")
    assert (await world.load_balancer()).spec.backend_tls == tls
    await world.hub.get(SECRETS, HUB_NAMESPACE, reference.name)
    await world.service(annotations=POD)

    async def is_collected() -> bool:
        try:
            await world.hub.get(SECRETS, HUB_NAMESPACE, reference.name)
        except NotFound:
            return (await world.load_balancer()).spec.backend_tls is None
        return False

    await until(is_collected, what="plain TCP, and no copy of the Secret")
