"""What names the address of a load balancer as its endpoint: connections would go from one to the next without end."""

from __future__ import annotations

import pytest
from hub_http_world import at_cloud as http_at_cloud
from hub_http_world import endpoints, load_balancer, read, route, says

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.testing.builders import lb_key, slice_body

EAST, WEST = "tenant-east", "tenant-west"
ONE, TWO, THREE = "192.0.2.1", "192.0.2.2", "192.0.2.3"
PORTS = ({"port": 8080},)


async def lb(world, name, address, *, namespace=EAST, ports=PORTS, **spec):
    """Write a load balancer at this address; its endpoints are at port 8080."""
    await world.lb(name, namespace=namespace, ports=ports, spec={"address": address, **spec})


async def refused(world, name, namespace=EAST):
    """Wait until a load balancer says that its endpoints are load balancers; returns the message."""

    async def check():
        condition = await world.condition("ResolvedRefs", name, namespace)
        return condition.message if condition is not None and condition.reason == "Invalid" else ""

    message = await world.until(check, what=f"{name} says so")
    assert "load balancers themselves" in message
    return message


@pytest.fixture
async def west(world, hub):
    await world.tenant("west")


@pytest.mark.req("S-6")
async def test_load_balancers_of_two_members_that_lead_to_each_other_get_no_connection(world, hub, west):
    await lb(world, "a", ONE)
    await world.slice("a", TWO)
    assert await world.programmed("a") == ONE
    # So far it could be a machine.
    assert world.at_cloud("a") == {f"{TWO}:8080"}
    await lb(world, "b", TWO, namespace=WEST)
    await world.slice("b", ONE, namespace=WEST)
    # The guard keeps the last backend of a load balancer, but not this one.
    await world.until(lambda: world.at_cloud("a") == set(), what="it goes")
    message = await refused(world, "a")
    assert message.startswith(f"endpoints that are load balancers themselves are left out ({TWO}:8080)")
    assert "list the pods or nodes behind them" in message
    assert "tenant-west" not in message
    assert ONE in await refused(world, "b", WEST)
    assert world.at_cloud("b", WEST) == set()
    # A hub that starts sees the same, in whichever order it reads them.
    await world.stop(hub)
    await world.start()
    assert world.at_cloud("a") == world.at_cloud("b", WEST) == set()
    # Once the other is gone, its address may be a machine's again.
    await world.delete_lb("b", WEST)
    await world.until(lambda: world.at_cloud("a") == {f"{TWO}:8080"}, what="it comes back")
    await world.said("ResolvedRefs", "True", name="a")


async def test_a_chain_of_three_is_broken_too(world, hub):
    for name, address, next_ in (("a", ONE, TWO), ("b", TWO, THREE), ("c", THREE, ONE)):
        await lb(world, name, address)
        await world.slice(name, next_, "10.1.0.9")
    for name in ("a", "b", "c"):
        await refused(world, name)
        await world.until(lambda name=name: world.at_cloud(name) == {"10.1.0.9:8080"}, what=f"{name} is repaired")


async def test_an_address_in_another_spelling_is_the_same_address(world, hub):
    await lb(world, "a", ONE)
    body = slice_body("a-1", [f"::ffff:{TWO}"], load_balancer="a", family="IPv6")
    await world.user.apply(ENDPOINT_SLICES, body, manager="kubectl")
    await world.until(lambda: world.at_cloud("a") == {f"{TWO}:8080"}, what="it is served")
    await lb(world, "b", TWO)
    await refused(world, "a")
    assert world.at_cloud("a") == set()


async def test_a_port_that_a_load_balancer_opens_later_counts_from_then_on(world, hub):
    await lb(world, "b", TWO, ports=({"port": 80},))
    await lb(world, "a", ONE)
    await world.slice("a", TWO)
    await world.until(lambda: world.at_cloud("a") == {f"{TWO}:8080"}, what="it is served")
    await world.user.merge_patch(TCP_LOAD_BALANCERS, EAST, "b", {"spec": {"ports": [{"port": 80}, *PORTS]}})
    await refused(world, "a")
    assert world.at_cloud("a") == set()


async def test_http_and_tcp_do_not_lead_to_each_other(world, hub):
    await load_balancer(world, address=ONE, more=[{"name": "more", "port": 8080}])
    await route(world)
    await endpoints(world, TWO)
    await world.until(lambda: http_at_cloud(world) == {f"shop/web:80 {TWO}:8080"}, what="it is served")
    await lb(world, "b", TWO)
    await world.slice("b", ONE)
    resolved = await says(world, "ResolvedRefs", "False")
    assert f"{TWO}:8080" in resolved.message
    assert f"{ONE}:8080" in await refused(world, "b")
    assert http_at_cloud(world) == world.at_cloud("b") == set()
    assert (await read(world)).status.address == ONE


async def test_a_node_with_the_address_of_load_balancers_is_reached_at_its_node_port(world, hub):
    await world.nodes(ONE)
    ports = ({"port": 80, "nodePort": 30080},)
    await lb(world, "web", ONE, targets="Node", ports=ports)
    await world.until(lambda: world.at_cloud("web") == {f"{ONE}:30080"}, what="it is served")
    await lb(world, "other", ONE, ports=({"port": 30080},))
    assert f"{ONE}:30080" in await refused(world, "web")
    await world.delete_lb("other")
    await world.until(lambda: world.at_cloud("web") == {f"{ONE}:30080"}, what="it is served again")


async def test_an_address_that_is_given_out_concerns_only_those_that_name_it(world):
    hub, given = await world.start(pool="192.0.2.0/24"), "192.0.2.250"
    await world.tenant()
    await world.nodes(given, "10.0.0.1")
    for number in range(20):
        await lb(world, f"at-nodes-{number}", "", targets="Node", ports=({"port": 80, "nodePort": 30000 + number},))
        await lb(world, f"at-pods-{number}", "")
        await world.slice(f"at-pods-{number}", f"10.1.0.{number + 1}")
    await world.slice("at-pods-7", given)
    await world.until(lambda: world.at_cloud("at-pods-7") == {f"{given}:8080"}, what="it is served")
    await world.until(lambda: len(world.at_cloud("at-nodes-3")) == 2, what="it is served")
    await world.quiet()
    woken = set()
    hub.hub.inventory.on_wake(lambda key, _cause: woken.add(key.name))
    await lb(world, "b", given, ports=(*PORTS, {"port": 30003}))
    await refused(world, "at-pods-7")
    await world.until(lambda: world.at_cloud("at-nodes-3") == {"10.0.0.1:30003"}, what="the node is left out")
    await world.quiet()
    assert woken == {"b", "at-pods-7", "at-nodes-3"}
    assert lb_key("b") in world.cloud.load_balancers


async def test_what_the_guard_keeps_does_not_become_a_loop_when_addresses_change(world, hub):
    for name, address, later in (("a", ONE, "192.0.2.5"), ("b", TWO, "192.0.2.6")):
        await lb(world, name, address)
        await world.slice(name, later)
        await world.until(lambda name=name, later=later: world.at_cloud(name) == {f"{later}:8080"}, what="it is served")
        # The last target is no longer listed, so the guard keeps it.
        await world.slice(name)
        await world.until(lambda name=name: is_held(world, name), what="it is held")
    for name, later in (("a", "192.0.2.6"), ("b", "192.0.2.5")):
        await world.user.merge_patch(TCP_LOAD_BALANCERS, EAST, name, {"spec": {"address": later}})
    await world.until(lambda: world.address_at_cloud("b") == "192.0.2.5", what="it has moved")
    await world.quiet()
    assert world.address_at_cloud("a") == "192.0.2.6"
    # The last to get its address sees all others.
    assert set() in (world.at_cloud("a"), world.at_cloud("b"))


async def is_held(world, name):
    obj = await world.get(name)
    return obj is not None and obj.status.held_total == 1


async def test_an_address_that_another_provider_found_counts_once_the_status_shows_it(world, hub):
    address = "198.51.100.7"
    outside = {"provider": "memory", "targets": "Pod", "parameters": {"address": address}}
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "outside"}, "spec": outside})
    await lb(world, "b", "", className="outside")
    await world.slice("b", "10.1.0.1")

    async def shown():
        obj = await world.get("b")
        return obj is not None and obj.status.addresses == (address,)

    await world.until(shown, what="its status shows the address")
    await lb(world, "a", ONE)
    await world.slice("a", address)
    assert f"{address}:8080" in await refused(world, "a")
    assert world.at_cloud("a") == set()
