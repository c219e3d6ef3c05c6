"""Our layer 2: a PoolService of our class becomes a TCPLoadBalancer with exactly the pool's pods."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from regions_world import NAMESPACE, Running, World, until

import fairlead.regions.source
from fairlead.api.kubernetes import NODES, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import condition_of
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from tests.scenario.any_api import hide

HELD = {"metadata": {"finalizers": ["fairlead.dev/cleanup"]}}


def lb(pool_service: str) -> str:
    return f"{pool_service}.poolservice.fairlead"


async def two_regions(world: World, **service: object) -> None:
    for number, pool in enumerate(("east", "west"), start=1):
        await world.pool(pool, region=f"r-{pool}", edge="yes")
        await world.node(f"n-{pool}", pool, address=f"10.1.{number}.1")
    await world.service(**{"selector": "edge=yes", "class_name": "fairlead.dev/envoy", **service})  # type: ignore[arg-type]
    await world.slice(("10.0.1.1", "n-east"), ("10.0.1.2", "n-east", False), ("10.0.2.1", "n-west"))


@pytest.mark.req("O-21", "O-5", "O-54", "O-52")
async def test_each_region_gets_a_load_balancer_with_its_own_pods(world: World) -> None:
    await two_regions(world)
    await world.start()
    load_balancers = await world.load_balancers()
    assert sorted(load_balancers) == [lb("test-east"), lb("test-west")]
    east = load_balancers[lb("test-east")]
    assert (east.spec.class_name, east.spec.targets, east.spec.region) == ("envoy", "Pod", "r-east")
    assert [(port.port, port.name, port.protocol) for port in east.spec.ports] == [(80, "http", "TCP")]
    owner = next(iter(east.metadata.owner_references or ()))
    assert (owner.kind, owner.name, owner.uid) == (
        "PoolService", "test-east", (await world.get("test-east")).metadata.uid,
    )  # fmt: skip
    assert await world.targets(lb("test-east")) == ["10.0.1.1", "10.0.1.2"]
    assert await world.targets(lb("test-west")) == ["10.0.2.1"]
    slices = await world.slices_of(lb("test-east"))
    ready = {e.addresses[0]: e.conditions.ready for slice_ in slices for e in slice_.endpoints or ()}  # type: ignore[index,union-attr]
    assert ready == {"10.0.1.1": True, "10.0.1.2": False}


@pytest.mark.req("O-22", "O-13")
async def test_changes_of_ports_and_pods_reach_the_load_balancer(world: World) -> None:
    await two_regions(world)
    await world.start()
    await world.slice(("10.0.1.9", "n-east"), ("10.0.2.1", "n-west"))

    async def moved() -> bool:
        return await world.targets(lb("test-east")) == ["10.0.1.9"]

    await until(moved)
    await world.change_service({"spec": {"ports": [{"name": "http", "port": 81, "targetPort": 8080}]}})

    async def port() -> bool:
        return [load_balancer.spec.ports[0].port for load_balancer in (await world.load_balancers()).values()] == [
            81,
            81,
        ]

    await until(port)


@pytest.mark.req("O-22")
async def test_endpoints_are_followed_while_their_service_is_refused(world: World) -> None:
    await two_regions(world)
    await world.start()

    async def targets_are(*addresses: str) -> None:
        async def now() -> bool:
            return await world.targets(lb("test-east")) == [*addresses]

        await until(now)

    await targets_are("10.0.1.1", "10.0.1.2")
    await world.change_service({"metadata": {"annotations": {"fairlead.dev/drain": "soon"}}})

    async def refused() -> bool:
        condition = condition_of((await world.get("test-east")).status.conditions, "Accepted")
        return condition is not None and condition.status == "False"

    await until(refused)
    await world.slice(("10.0.1.9", "n-east"), ("10.0.2.1", "n-west"))
    await targets_are("10.0.1.9")
    # Their targets are not those of the port in effect.
    await world.change_service({"spec": {"ports": [{"name": "other", "port": 80, "targetPort": 9090}]}})
    await world.slice(("10.0.1.7", "n-east"), ("10.0.2.1", "n-west"))
    await world.settled()
    await targets_are("10.0.1.9")


@pytest.mark.req("CORE-03")
async def test_what_cannot_be_read_at_the_start_changes_no_region(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy", "targets": "Node"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="operator")
    await two_regions(world, ports=[{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}])
    running = await world.start()
    for number, name in enumerate(("test-east", "test-west"), start=1):
        await world.programmed(lb(name), f"192.0.2.{number}")
    await world.until_shown("192.0.2.1", "192.0.2.2")
    await world.settled()

    async def state() -> dict[str, object]:
        load_balancers = await world.load_balancers()
        return {
            name: (load_balancer.deleting, load_balancer.spec, await world.targets(name))
            for name, load_balancer in load_balancers.items()
        }

    before = await state()
    for kind in ("PoolService test-east", "NodePool east", "Node n-east", "LoadBalancerClass envoy"):
        await world.stop(running)
        with monkeypatch.context() as patch:
            hide(patch, kind)
            running = Running(world.api)
            world.running.append(running)
            await until(lambda: running.regions.leading, what="leading")  # noqa: B023
            # Each key is reconciled, or waits for what cannot be read.
            queues = running.regions.queues.values()
            await until(lambda: not any(queue.processing for queue in queues), what="reconciled")  # noqa: B023
            await world.node("n-west", "west", address=f"10.1.2.{len(kind)}")
            await until(lambda: has_target(world, f"10.1.2.{len(kind)}"), what=f"the other region beside {kind}")  # noqa: B023
            await world.node("n-west", "west", address="10.1.2.1")
            await until(lambda: has_target(world, "10.1.2.1"), what=f"the other region beside {kind}")
            assert await state() == before, kind
            assert await world.shown() == ["192.0.2.1", "192.0.2.2"], kind
            if kind in ("PoolService test-east", "NodePool east"):
                await until(partial(is_named, world, kind), what=f"an Event of the Service about {kind}")


#: What cannot be read, and the object that has the Event; none where everything is decided without it.
UNREAD = {
    "_WholeService test": "test-east",
    "NodePool east": "test-east",
    "Node n-east": "",
    "LoadBalancerClass envoy": "",
}


@pytest.mark.req("CORE-03")
@pytest.mark.parametrize("limit_bytes", [96 * 1024, 1], ids=["annotated", "truncated"])
@pytest.mark.parametrize("target", ["Pod", "Node"])
async def test_unreadable_objects_do_not_freeze_backends(
    world: World, monkeypatch: pytest.MonkeyPatch, target: str, limit_bytes: int
) -> None:
    monkeypatch.setattr(fairlead.regions.source, "BACKENDS_LIMIT_BYTES", limit_bytes)
    body = {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy", "targets": target}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="operator")
    await two_regions(world, ports=[{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}])
    await world.node("n-other", "east", address="10.1.1.2")
    running = await world.start()
    for number, (kind, about) in enumerate(UNREAD.items(), start=1):
        await world.stop(running)
        expected = await changed_backends(world, target, f"10.{number}.1")
        with monkeypatch.context() as patch:
            hide(patch, kind)
            running = Running(world.api)
            world.running.append(running)
            await until(partial(has_targets, world, "test-east", expected), what=f"{expected} beside {kind}")
            expected = await changed_backends(world, target, f"10.{number}.2")
            await until(partial(has_targets, world, "test-east", expected), what=f"{expected} beside {kind}")
            if about:
                await until(partial(is_named, world, kind, about), what=f"an Event of {about} about {kind}")
        # The next version can be read.
        await world.change_service({"metadata": {"labels": {"version": str(number)}}})
        await world.pool("east", region="r-east", edge="yes", version=str(number))
        if about:
            await until(partial(is_named, world, kind, about, "Resolved"), what=f"the end of the Event about {kind}")
    assert sorted(await world.load_balancers()) == [lb("test-east"), lb("test-west")]


@pytest.mark.req("CORE-03")
@pytest.mark.parametrize("target", ["Pod", "Node"])
async def test_a_node_stays_in_an_older_pool_that_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    body = {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy", "targets": target}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="operator")
    for name in ("a-old", "b-young"):
        await world.pool(name, nodes={"kubernetes.io/os": "linux"}, edge="yes")
    await world.pool("c-other", nodes={"other": "yes"}, edge="yes")
    await world.node("n-1", address="10.1.1.1")
    await world.user.merge_patch(NODES, "", "n-1", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]
    await world.service(selector="edge=yes", class_name="fairlead.dev/envoy", ports=ports)
    await world.slice(("10.0.1.1", "n-1"))
    running = await world.start()
    first = ["10.0.1.1"] if target == "Pod" else ["10.1.1.1"]
    await until(partial(has_targets, world, "test-a-old", first), what="the older pool")
    await world.stop(running)
    with monkeypatch.context() as patch:
        hide(patch, "NodePool a-old")
        running = Running(world.api)
        world.running.append(running)
        await world.slice(("10.0.1.2", "n-1"))
        await world.node("n-1", address="10.1.1.2")
        await world.user.merge_patch(NODES, "", "n-1", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
        moved = ["10.0.1.2"] if target == "Pod" else ["10.1.1.2"]
        await until(partial(has_targets, world, "test-a-old", moved), what="the changed backend")
        await until(partial(is_named, world, "NodePool a-old"), what="an Event")
        assert await world.targets(lb("test-b-young")) == []
    await world.stop(running)
    # Nothing has changed but that the process before could not read it: its Warnings are over.
    await world.start()
    for about in ("test", "test-a-old"):
        await until(
            partial(is_named, world, "NodePool a-old", about, "Resolved"), what=f"the end of the Event of {about}"
        )
    assert await world.targets(lb("test-b-young")) == []


@pytest.mark.req("CORE-03")
async def test_pods_of_a_new_node_that_cannot_be_read_are_placed_by_its_labels(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_regions(world)
    running = await world.start()
    await until(partial(has_targets, world, "test-east", ["10.0.1.1", "10.0.1.2"]), what="the pods")
    await world.stop(running)
    with monkeypatch.context() as patch:
        hide(patch, "Node n-new", "Node n-west")
        await world.node("n-new", "east", address="10.1.1.9")
        # The label of n-west has changed, but it is published in west.
        await world.node("n-west", "east", address="10.1.2.1")
        running = Running(world.api)
        world.running.append(running)
        await world.slice(("10.0.1.1", "n-east"), ("10.0.1.9", "n-new"), ("10.0.2.1", "n-west"))
        await until(partial(has_targets, world, "test-east", ["10.0.1.1", "10.0.1.9"]), what="the pod of the new node")
        assert await world.targets(lb("test-west")) == ["10.0.2.1"]


@pytest.mark.req("CORE-03")
async def test_pods_decide_about_a_node_that_cannot_be_read_with_policy_local(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairlead.regions.source, "BACKENDS_LIMIT_BYTES", 1)
    body = {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy", "targets": "Node"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="operator")
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]
    await two_regions(world, ports=ports, externalTrafficPolicy="Local")
    await world.slice(("10.0.1.1", "n-east", False))
    running = await world.start()

    async def ready(*wanted: bool) -> bool:
        slices = await world.slices_of(lb("test-east"))
        return [endpoint.ready for part in slices for endpoint in part.endpoints or ()] == [*wanted]

    await until(partial(ready, False), what="a node without a ready pod")
    await world.stop(running)
    with monkeypatch.context() as patch:
        hide(patch, "Node n-east")
        world.running.append(Running(world.api))
        await world.slice(("10.0.1.1", "n-east"))
        await until(partial(ready, True), what="the pod that is ready now")
        await world.slice(("10.0.1.1", "n-east", False))
        await until(partial(ready, False), what="the pod that is not ready")


async def changed_backends(world: World, target: str, network: str) -> list[str]:
    """Give both regions new pods, and one node of east another address; return the new backends of east."""
    await world.slice((f"{network}.1", "n-east"), (f"{network}.2", "n-west"))
    await world.node("n-other", "east", address=f"{network}.9")
    return [f"{network}.1"] if target == "Pod" else ["10.1.1.1", f"{network}.9"]


async def has_targets(world: World, pool_service: str, addresses: list[str]) -> bool:
    return await world.targets(lb(pool_service)) == addresses


async def is_named(world: World, kind: str, about: str = "test", reason: str = "ReferenceNotRead") -> bool:
    messages = [event.message for event in await world.events(about, reason)]
    return any(kind.split()[1] in message and "ReferenceNotRead" in f"{reason}: {message}" for message in messages)


async def has_target(world: World, address: str) -> bool:
    return await world.targets(lb("test-west")) == [address]


@pytest.mark.req("O-24", "O-25", "O-4")
async def test_address_conditions_and_events_come_back(world: World) -> None:
    await two_regions(world)
    await world.start()

    async def pending() -> bool:
        condition = condition_of((await world.get("test-east")).status.conditions, "Programmed")
        return condition is not None and (condition.status, condition.reason) == ("False", "Pending")

    await until(pending)
    await world.programmed(lb("test-east"), "192.0.2.1")
    await world.programmed(lb("test-west"), "192.0.2.2")
    await world.until_shown("192.0.2.1", "192.0.2.2")
    status = (await world.get("test-east")).status
    assert (status.address, status.targets) == ("192.0.2.1", "1/1")
    shown = {condition.type: condition.status for condition in status.conditions or ()}
    assert shown == {"Programmed": "True", "Ready": "True"}
    assert "192.0.2.1" in (await world.event("test-east", "Programmed")).message
    await world.settled()
    points = json.loads((await world.get_service()).annotation("fairlead.dev/access-points"))
    assert points == {"east": ["192.0.2.1"], "west": ["192.0.2.2"]}


@pytest.mark.req("O-23", "O-20", "O-34", "O-52", "W-O-6")
async def test_a_region_leaves_the_union_then_its_load_balancer_goes_then_the_object(world: World) -> None:
    await two_regions(world)
    await world.start()
    for pool, address in (("east", "192.0.2.1"), ("west", "192.0.2.2")):
        await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, lb(f"test-{pool}"), HELD)  # as a hub does
        await world.programmed(lb(f"test-{pool}"), address)
    await world.until_shown("192.0.2.1", "192.0.2.2")
    await world.user.delete(POOL_SERVICES, NAMESPACE, "test-west")  # by hand, although it is still wanted
    await world.until_shown("192.0.2.1")

    async def going() -> bool:
        return (await world.load_balancers())[lb("test-west")].deleting

    await until(going)
    assert (await world.get("test-west")).deleting
    assert await world.targets(lb("test-west")) == ["10.0.2.1"]
    uid = (await world.get("test-west")).metadata.uid
    await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, lb("test-west"), {"metadata": {"finalizers": None}})

    async def again() -> bool:
        load_balancer = await world.find("test-west")
        return load_balancer is not None and load_balancer.metadata.uid != uid

    await until(again)
    await world.settled()
    assert not (await world.load_balancers())[lb("test-west")].deleting


@pytest.mark.req("O-7", "O-9", "O-23")
async def test_a_deleted_service_takes_everything_along(world: World) -> None:
    await two_regions(world)
    await world.start()
    for pool in ("east", "west"):
        await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, lb(f"test-{pool}"), HELD)
    await world.delete_service()

    async def going() -> bool:
        return all(load_balancer.deleting for load_balancer in (await world.load_balancers()).values())

    await until(going)
    assert await world.user.list(SERVICES, NAMESPACE)
    for pool in ("east", "west"):
        await world.user.merge_patch(
            TCP_LOAD_BALANCERS, NAMESPACE, lb(f"test-{pool}"), {"metadata": {"finalizers": None}}
        )

    async def gone() -> bool:
        services = await world.user.list(SERVICES, NAMESPACE)
        slices = [*await world.slices_of(lb("test-east")), *await world.slices_of(lb("test-west"))]
        return not services and not slices and not await world.user.list(POOL_SERVICES, NAMESPACE)

    await until(gone)


@pytest.mark.req("O-23", "O-22")
async def test_a_moved_pool_gets_a_load_balancer_of_the_new_region(world: World) -> None:
    await two_regions(world)
    await world.start()
    name = lb("test-east")
    await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, name, HELD)
    before = (await world.load_balancers())[name].metadata.uid
    await world.pool("east", region="elsewhere", edge="yes")

    async def going() -> bool:
        return (await world.load_balancers())[name].deleting

    await until(going)
    await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, name, {"metadata": {"finalizers": None}})

    async def anew() -> bool:
        load_balancer = (await world.load_balancers()).get(name)
        return (
            load_balancer is not None
            and load_balancer.metadata.uid != before
            and load_balancer.spec.region == "elsewhere"
        )

    await until(anew)
    await world.settled()
    assert await world.targets(name) == ["10.0.1.1", "10.0.1.2"]


@pytest.mark.req("O-14", "O-55", "O-5")
async def test_nodes_as_backends_are_the_pools_ready_nodes_at_the_node_port(world: World) -> None:
    await two_regions(world, annotations={"fairlead.dev/target": "Node"})
    await world.start()
    east = (await world.load_balancers())[lb("test-east")]
    assert east.spec.targets == "Address"
    port = (await world.get_service()).spec.ports[0].node_port  # type: ignore[index]
    (slice_,) = await world.slices_of(lb("test-east"))
    assert [(p.name, p.port) for p in slice_.ports or ()] == [("http", port)]
    assert await world.targets(lb("test-east")) == ["10.1.1.1"]
    await world.node("n-east-2", "east", address="10.1.1.2")

    async def both() -> bool:
        return await world.targets(lb("test-east")) == ["10.1.1.1", "10.1.1.2"]

    await until(both)
    assert await world.targets(lb("test-west")) == ["10.1.2.1"]


@pytest.mark.req("O-14")
async def test_the_class_may_say_that_backends_are_nodes(world: World) -> None:
    spec = {"provider": "envoy", "targets": "Node"}
    await world.user.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": "nodes"}, "spec": spec}, manager="user")
    await two_regions(world, class_name="fairlead.dev/nodes")
    await world.start()
    assert await world.targets(lb("test-east")) == ["10.1.1.1"]
    await world.user.delete(LOAD_BALANCER_CLASSES, "", "nodes")


@pytest.mark.req("O-25")
async def test_unserved_parts_are_reported_and_the_rest_is_served(world: World) -> None:
    await two_regions(world)
    await world.start()
    await world.annotate(**{"fairlead.dev/proxy-protocol": "v9"})
    assert "v9" in (await world.event("test-east", "Invalid")).message
    assert "v9" in (await world.event("test", "RegionsFailing")).message
    assert sorted(await world.load_balancers()) == [lb("test-east"), lb("test-west")]
    await world.annotate(**{"fairlead.dev/proxy-protocol": "v2"})

    async def served() -> bool:
        return {load_balancer.spec.proxy_protocol for load_balancer in (await world.load_balancers()).values()} == {
            "v2"
        }

    await until(served)


@pytest.mark.req("O-53")
async def test_each_pool_may_ask_for_an_address_of_its_own(world: World) -> None:
    await two_regions(world, annotations={"fairlead.dev/address-request": "east=192.0.2.7, west=192.0.2.8"})
    await world.start()
    assert {name: each.spec.address for name, each in (await world.load_balancers()).items()} == {
        lb("test-east"): "192.0.2.7", lb("test-west"): "192.0.2.8",
    }  # fmt: skip


@pytest.mark.req("O-45", "O-54")
async def test_a_load_balancer_that_was_not_made_for_it_is_never_touched(world: World) -> None:
    body = {
        "metadata": {
            "namespace": NAMESPACE,
            "name": lb("test-east"),
            "labels": {"fairlead.dev/origin-kind": "PoolService"},
        },
        "spec": {"ports": [{"port": 9}]},
    }
    await world.user.create(TCP_LOAD_BALANCERS, body)
    version = (await world.load_balancers())[lb("test-east")].metadata.resource_version
    await two_regions(world)
    await world.start()
    assert "left alone" in (await world.event("test-east", "Invalid")).message
    await world.delete_service()
    await world.until_names()
    assert (await world.load_balancers())[lb("test-east")].metadata.resource_version == version


@pytest.mark.req("O-3", "O-52", "O-33")
async def test_a_pool_service_that_goes_to_another_class_is_released(world: World) -> None:
    await world.pool_service("alone", "east", class_name="fairlead.dev/envoy", owned=False, annotations={
        "fairlead.dev/service": json.dumps({"metadata": {"name": "alone"}, "spec": {"ports": [{"port": 80}]}}),
    })  # fmt: skip
    await world.start()
    assert list(await world.load_balancers()) == [lb("alone-east")]
    await world.programmed(lb("alone-east"), "192.0.2.1")
    await world.change("alone-east", {"spec": {"loadBalancerClass": "elb"}})

    async def let_go() -> bool:
        load_balancer = await world.get("alone-east")
        return (
            not load_balancer.metadata.finalizers
            and not load_balancer.status.address
            and not await world.load_balancers()
        )

    await until(let_go)


@pytest.mark.req("O-1", "O-3", "O-21", "O-22", "O-23", "O-24", "O-25", "O-26", "O-52")
async def test_a_foreign_layer_2_that_knows_only_the_crd(world: World, tmp_path: Path, authority: bytes) -> None:
    (tmp_path / "authority").write_bytes(authority)
    await two_regions(world, class_name="example.com/elb")
    await world.service("ours", selector="edge=yes", class_name="fairlead.dev/envoy")
    running = await world.start()
    access = await world.api.sign_in(None)
    environment = {
        **os.environ,
        "API": world.api.server,
        "AUTHORIZATION": access.headers["Authorization"],
        "CLASS": "example.com/elb",
        "SSL_CERT_FILE": str(tmp_path / "authority"),
    }
    script = Path(__file__).with_name("foreign_layer2.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), env=environment)
    try:
        await world.until_shown("203.0.113.1", "203.0.113.2")
        east = await world.get("test-east")
        assert east.metadata.finalizers == ["example.com/lb"]
        assert {condition.type: condition.status for condition in east.status.conditions or ()}["Programmed"] == "True"
        assert (await world.event("test-east", "Ensured")).message
        assert (await world.get_service()).annotation("aggregated.elb-id") == "elb-test-east,elb-test-west"
        assert "test-east" not in " ".join(await world.load_balancers())
        await world.slice(("10.0.1.1", "n-east"), ("10.0.1.3", "n-east"), ("10.0.2.1", "n-west"))

        async def counted() -> bool:
            return (await world.get("test-east")).status.targets == "2/2"

        await until(counted)
        ours = await world.get("ours-east")
        assert ours.metadata.finalizers == ["fairlead.dev/load-balancer"]
        assert not ours.status.address
        await world.delete_service()

        async def gone() -> bool:
            return sorted(await world.names()) == ["ours-east", "ours-west"]

        await until(gone)
        assert running.regions.leading
    finally:
        process.terminate()
        await process.wait()
