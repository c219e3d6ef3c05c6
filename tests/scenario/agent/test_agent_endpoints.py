"""Endpoints and nodes: what changes at the hub, and in how many writes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agent_world import HUB_NAMESPACE, World, until, writes
from structlog.testing import capture_logs

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.errors import Invalid

POD = {"fairlead.dev/target": "Pod"}
HTTP = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}


@pytest.mark.req("E-3")
@pytest.mark.req("KI-11")
async def test_pod_targets_follow_the_member(world: World):
    await world.service(annotations=POD)
    await world.slice("10.1.0.1", "10.1.0.2")
    agent = await world.start()
    assert await world.addresses() == ["10.1.0.1", "10.1.0.2"]
    before = writes(agent)
    await world.slice("10.1.0.1", "10.1.0.3")
    await until(lambda: has(world, ["10.1.0.1", "10.1.0.3"]))
    await world.slice("10.1.0.9", name="web-2")
    await until(lambda: has(world, ["10.1.0.1", "10.1.0.3", "10.1.0.9"]))
    await world.slice("fd00::1", name="web-6", family="IPv6")
    await world.member.delete(ENDPOINT_SLICES, "shop", "web-2")
    await until(lambda: has(world, ["10.1.0.1", "10.1.0.3"]))
    await world.settled(agent)
    assert writes(agent) - before == 3


@pytest.mark.parametrize(("target", "level"), [("Node", "warning"), ("Pod", "info")])
async def test_a_member_without_nodes_is_a_warning_only_where_nodes_are_the_targets(world: World, target, level):
    for name in ("n1", "n2"):
        await world.member.delete(NODES, "", name)
    with capture_logs() as logs:
        await world.start(target=target)
    assert [each["log_level"] for each in logs if each["event"] == "nodes"] == [level]


async def has(world: World, addresses: list[str]) -> bool:
    return await world.addresses() == addresses


@pytest.mark.req("K-33")
@pytest.mark.req("E-10")
@pytest.mark.req("W-19")
async def test_local_lists_only_nodes_with_endpoints(world: World):
    await world.service(externalTrafficPolicy="Local")
    await world.slice("10.1.0.1", node="n1")
    agent = await world.start()
    assert (await world.load_balancer()).spec.external_traffic_policy == "Local"
    assert await world.addresses() == ["10.0.0.1"]
    await world.slice("10.1.0.2", node="n2")
    await until(lambda: has(world, ["10.0.0.2"]))
    await world.slice("10.1.0.2", node="n2", ready=False)
    await world.settled(agent)
    (slice_,) = (await world.slices()).values()
    assert [e.conditions.ready for e in slice_.endpoints] == [False]
    before = writes(agent)
    await world.member.delete(NODES, "", "n2")
    await until(lambda: nodes_are(world, ["10.0.0.1"]))
    await world.settled(agent)
    assert writes(agent) - before == 1


async def nodes_are(world: World, ready: list[str]) -> bool:
    return (await world.nodes())[0] == ready


@pytest.mark.req("K-7", "K-16")
@pytest.mark.req("K-17")
@pytest.mark.req("K-18")
@pytest.mark.req("K-32")
@pytest.mark.req("I-1")
@pytest.mark.req("B01")
async def test_one_node_change_is_one_write_however_many_services(world: World):
    for number in range(20):
        await world.service(f"web-{number}")
    agent = await world.start()

    async def cost(ready: list[str]) -> int:
        before = writes(agent)
        await until(lambda: nodes_are(world, ready), what=f"nodes {ready}")
        await world.settled(agent)
        return writes(agent) - before

    assert await cost(["10.0.0.1", "10.0.0.2"]) == 0
    await world.node("n3", "10.0.0.3")
    assert await cost(["10.0.0.1", "10.0.0.2", "10.0.0.3"]) in (0, 1)
    await world.settled(agent)
    total = writes(agent)
    await world.node("n3", "10.0.0.3", ready="Unknown")
    assert await cost(["10.0.0.1", "10.0.0.2"]) <= 1
    await world.node("n2", "10.0.0.2", unschedulable=True)
    await world.member.delete(NODES, "", "n2")
    assert await cost(["10.0.0.1"]) <= 1
    assert writes(agent) - total == 2
    await world.node("n1", "10.0.0.1", ready="Unknown")

    async def stale() -> bool:
        return "no node of the member is Ready" in (await world.nodes())[1]

    await until(stale)
    await world.settled(agent)
    assert (await world.nodes())[0] == ["10.0.0.1"]
    assert writes(agent) - total == 3
    await world.node("n1", "10.0.0.1")

    async def current() -> bool:
        return (await world.nodes())[1] == ""

    await until(current)
    await world.settled(agent)
    assert writes(agent) - total == 4


@pytest.mark.req("K-4", "K-16", "K-30")
async def test_nodes_are_published_in_each_family_that_they_have(world: World):
    await world.service("web")
    agent = await world.start()
    await until(lambda: nodes_are(world, ["10.0.0.1", "10.0.0.2"]), what="nodes of IPv4")
    await world.settled(agent)
    assert await world.nodes("fairlead.dev/nodes-ipv6") == ([], "")
    total = writes(agent)
    await world.node("n1", "10.0.0.1", "fd00::1")

    async def both() -> bool:
        return (await world.nodes("fairlead.dev/nodes-ipv6"))[0] == ["fd00::1"]

    await until(both, what="a node of IPv6")
    await world.settled(agent)
    assert writes(agent) - total == 1, "the slice of IPv4 is as it was"
    # A hand that takes the slice away has it back.
    await world.hub.delete(ENDPOINT_SLICES, HUB_NAMESPACE, "fairlead-nodes-ipv6-0")
    await until(both, what="the slice is back")


@pytest.mark.req("I-1")
async def test_an_empty_list_of_endpoints_is_passed_on_as_it_is(world: World):
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    await world.start()
    await world.slice()
    await until(lambda: has(world, []))
    assert set(await world.slices()) == {"shop.web.pod.web-1"}


@pytest.mark.req("B26")
@pytest.mark.req("I-10")
async def test_objects_deleted_by_hand_at_the_hub_are_restored(world: World):
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    await world.start()
    (name,) = await world.slices()
    await world.hub.delete(ENDPOINT_SLICES, "tenant-east", name)
    await until(lambda: has(world, ["10.1.0.1"]))
    await world.hub.delete(ENDPOINT_SLICES, "tenant-east", "fairlead-nodes-0")
    await until(lambda: nodes_are(world, ["10.0.0.1", "10.0.0.2"]))


async def test_the_class_at_the_hub_decides_on_targets(world: World):
    from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES

    await world.service()
    await world.slice("10.1.0.1")
    await world.start()
    assert (await world.load_balancer()).spec.targets == "Node"
    body = {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy", "targets": "Pod"}}
    await world.hub.apply(LOAD_BALANCER_CLASSES, body, manager="admin")
    await until(lambda: has(world, ["10.1.0.1"]))
    assert (await world.load_balancer()).spec.targets == "Pod"


@pytest.mark.req("L4-2")
@pytest.mark.parametrize("restarts", [False, True])
async def test_an_address_of_another_pod_is_given_up(world: World, restarts: bool):
    """Whether the agent sees how the address changes hands, or finds it changed when it starts."""

    async def listed(name: str, service: str, *pods: tuple[str, str]) -> None:
        await world.slice(*(address for address, _ in pods), name=name, service=service)
        endpoints = [
            {"addresses": [address], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": uid}}
            for address, uid in pods
        ]
        patch = {"endpoints": endpoints}
        await world.member.merge_patch(ENDPOINT_SLICES, "shop", name, patch, manager="endpointslice-controller")

    await world.service(annotations=POD)
    await listed("web-1", "web", ("10.1.0.1", "first"))
    agent = await world.start()
    assert await world.addresses() == ["10.1.0.1"]
    (mirrored,) = (await world.slices()).values()
    assert msgspec.to_builtins(mirrored.endpoints[0].target_ref) == {"uid": "first"}, "names stay in the member"
    if restarts:
        await world.stop(agent)
    await listed("web-1", "web")
    if not restarts:
        await world.settled(agent)
        assert await world.addresses() == []
    await listed("other-1", "other", ("10.1.0.1", "second"))
    if restarts:
        await world.start()

    async def given_up() -> bool:
        every = [each for slice_ in (await world.slices()).values() for each in slice_.endpoints or ()]
        return [(each.addresses, each.serving, each.terminating) for each in every] == [(["10.1.0.1"], False, True)]

    await until(given_up, what="a report that it is gone")
    await listed("web-1", "web", ("10.1.0.3", "third"))

    async def with_the_present_one() -> bool:
        every = [each for slice_ in (await world.slices()).values() for each in slice_.endpoints or ()]
        return sorted((each.addresses, each.terminating) for each in every) == [
            (["10.1.0.1"], True),
            (["10.1.0.3"], False),
        ]

    await until(with_the_present_one, what="the report stays while another pod has the address")


@pytest.mark.req("E-10")
async def test_a_changed_node_port_is_where_the_targets_are(world: World):
    """The load balancer at the hub names the port that the nodes have now, and its health checks follow."""
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30001}]
    await world.service(ports=ports)
    await world.slice("10.1.0.1")
    await world.start(target="Node")
    assert node_ports((await world.load_balancer()).spec.ports) == [30001]
    await world.service(ports=[{**ports[0], "nodePort": 30002}])
    await until(lambda: has_node_port(world, 30002), what="the new node port")


def node_ports(ports: Any) -> list[int | None]:
    return [each.node_port for each in ports]


async def has_node_port(world: World, port: int) -> bool:
    return node_ports((await world.load_balancer()).spec.ports) == [port]


@pytest.mark.req("E-3", "L4-2")
@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {**POD, "fairlead.dev/proxy-protocol": "v9"}},
        {"annotations": {"fairlead.dev/target": "Nod"}},
        {"annotations": POD, "ports": [HTTP, {"port": 9, "name": "sctp", "protocol": "SCTP"}]},
        {"annotations": {**POD, "fairlead.dev/hostname": f"{'a' * 63}.example.com"}},
    ],
    ids=["annotation", "target", "protocol", "refused-by-the-hub"],
)
async def test_endpoints_are_followed_while_their_service_is_refused(world: World, change: dict[str, Any]):
    await world.service(annotations=POD, ports=[HTTP])
    await world.slice("10.1.0.1")
    agent = await world.start()
    before = (await world.load_balancer()).spec
    real = agent.engine.publisher.load_balancers._apply

    async def refuse(obj: TCPLoadBalancer, reason: str) -> None:
        if obj.spec.hostnames:
            raise Invalid("admission webhook denied the request")
        await real(obj, reason)

    agent.engine.publisher.load_balancers._apply = refuse  # type: ignore[method-assign]
    await world.service(**change)
    await world.settled(agent)
    await world.slice("10.1.0.2")
    await until(lambda: has(world, ["10.1.0.2"]))
    assert (await world.load_balancer()).spec == before
    # Endpoints have the names of the Service's ports: with others than those in effect, the last ones are kept.
    renamed: dict[str, Any] = {**change, "ports": [{**HTTP, "name": "web"}, *change.get("ports", [])[1:]]}
    await world.service(**renamed)
    await world.settled(agent)
    await world.slice("10.1.0.3")
    await world.settled(agent)
    assert await world.addresses() == ["10.1.0.2"]
