"""Who may be on a load balancer: by scope, as nodes of a NodePort Service, with which weight, and with whom."""

from __future__ import annotations

import pytest
from group_shop import KEY
from shop_world import open_shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import NAMESPACES, NODES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import LABEL_EXCLUDE_NODE
from fairlead.testing.builders import HTTP, target


@pytest.fixture
async def shop(world):
    async with open_shop(world) as opened:
        await opened.api.apply(NAMESPACES, {"metadata": {"name": "other"}}, manager="kubectl")
        yield opened


async def group_elsewhere(shop, *addresses, namespace="other"):
    spec = {"loadBalancers": ["shop/shared"], "static": [f"{address}:8080" for address in addresses]}
    body = {"metadata": {"name": "guest", "namespace": namespace}, "spec": spec}
    await shop.api.apply(BACKEND_GROUPS, body, manager="kubectl")


async def set_scope(shop, *scope):
    await shop.api.merge_patch(LOAD_BALANCERS, "shop", "shared", {"spec": {"scope": list(scope)}})


# --- scope ---


@pytest.mark.req("L-33")
@pytest.mark.parametrize(
    ("scope", "admitted"), [([], False), (["else"], False), (["other"], True), (["*"], True), (["a", "other"], True)]
)
async def test_a_group_of_another_namespace_needs_the_scope(shop, scope, admitted):
    """LT-38."""
    await set_scope(shop, *scope)
    await group_elsewhere(shop, "10.9.0.1")
    await shop.group("home", static=["10.9.0.2:8080"])
    if admitted:
        await shop.until("10.9.0.1", "10.9.0.2")
        await shop.group_says("guest", "ResolvedRefs", "True", namespace="other")
        return
    resolved = await shop.group_says("guest", "ResolvedRefs", "False", "shop/shared", "other", namespace="other")
    assert resolved.reason == "OutOfScope"
    await shop.warned("guest", "OutOfScope", namespace="other")
    await shop.lb_says("ResolvedRefs", "False", "other/guest", "spec.scope")
    await shop.until("10.9.0.2")  # its own namespace is always at home


@pytest.mark.req("L-34")
async def test_losing_the_scope_takes_exactly_those_backends(shop):
    """LT-16."""
    await set_scope(shop, "other")
    await group_elsewhere(shop, "10.9.0.1", "10.9.0.2")
    await shop.group("home", static=["10.9.0.3:8080"])
    await shop.until("10.9.0.1", "10.9.0.2", "10.9.0.3")
    await shop.registered(3)
    await set_scope(shop)
    await shop.until("10.9.0.3")
    await shop.registered(1)
    await shop.group_says("guest", "ResolvedRefs", "False", "spec.scope", namespace="other")

    async def is_empty():
        guest = await shop.api.get(BACKEND_GROUPS, "other", "guest")
        return (guest.status.backends, guest.status.registered_backends) == (0, 0)

    await shop.world.until(is_empty, what="the group has no backend")
    await set_scope(shop, "*")
    await shop.until("10.9.0.1", "10.9.0.2", "10.9.0.3")


@pytest.mark.req("L-34")
async def test_taking_a_load_balancer_off_a_group_takes_exactly_its_records(shop):
    """LT-15."""
    await shop.lb("second")
    await shop.group("both", lbs=["shared", "second"], static=["10.9.0.1:8080"])
    await shop.group("one", static=["10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(3)
    await shop.group("both", lbs=["second"], static=["10.9.0.1:8080"])
    await shop.until("10.9.0.2")
    await shop.registered(2)
    result = {(record.spec.load_balancer.name, record.spec.target.address) for record in await shop.records()}
    assert result == {("second", "10.9.0.1"), ("shared", "10.9.0.2")}
    both = await shop.api.get(BACKEND_GROUPS, "shop", "both")
    assert set(both.status.accepted) == {"shop/second"}


@pytest.mark.req("L-33")
async def test_nothing_is_added_to_a_load_balancer_that_is_not_made(shop):
    """The driver has not confirmed its creation yet."""
    await shop.class_("driven")
    shop.driver.on("createLoadBalancer", {"status": "Running"})
    await shop.lb("mine", className="driven", parameters={"lbID": "7"})
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"])
    await shop.world.until(lambda: len(shop.driver.asked("createLoadBalancer")) > 2)
    assert shop.driver.asked("ensureBackend") == []
    shop.driver.on("createLoadBalancer", {"status": "Succ", "lbInfo": {"id": "1"}})
    await shop.driver_has("10.9.0.1")


async def test_a_group_names_a_load_balancer_that_comes_later(shop):
    await shop.group("early", lbs=["later"], static=["10.9.0.1:8080"])
    resolved = await shop.group_says("early", "ResolvedRefs", "False", "shop/later does not exist")
    assert resolved.reason == "NoSuchLoadBalancer"
    await shop.lb("later")
    await shop.group_says("early", "ResolvedRefs", "True")


# --- nodes ---

NODE_PORTS = {"name": "web", "port": {"port": 80}, "nodeSelector": {"pool": "edge"}}


async def until(shop, *addresses):
    wanted = {f"{address}:30200" for address in addresses}
    await shop.world.until(lambda: shop.at_cloud() == wanted, what=f"{wanted}, there are {shop.at_cloud()}")


@pytest.fixture
async def nodes(shop):
    await shop.service()
    for number in (1, 2):
        await shop.node(f"n{number}", f"10.2.0.{number}", labels={"pool": "edge"})
    await shop.node("n9", "10.2.0.9", labels={"pool": "batch"})
    await shop.group("web", service=NODE_PORTS)
    await until(shop, "10.2.0.1", "10.2.0.2")
    await shop.registered(2)
    return shop


async def test_nodes_come_and_go_by_their_labels_and_the_services_port_counts(nodes):
    """LT-5, and nodes are watched."""
    shop = nodes
    result = {(record.spec.target.source.split("/")[2], record.spec.target.port) for record in await shop.records()}
    assert result == {("n1", 30200), ("n2", 30200)}
    await shop.node("n9", "10.2.0.9", labels={"pool": "edge"})
    await until(shop, "10.2.0.1", "10.2.0.2", "10.2.0.9")
    await shop.registered(3)
    await shop.node("n1", "10.2.0.1", labels={"pool": "edge", LABEL_EXCLUDE_NODE: "true"})
    await until(shop, "10.2.0.2", "10.2.0.9")
    await shop.registered(2)
    await shop.api.delete(NODES, "", "n2")
    await until(shop, "10.2.0.9")


async def test_a_node_that_is_not_ready_is_not_added_and_loses_its_place(nodes):
    shop = nodes
    await shop.node("n3", "10.2.0.3", ready=False, labels={"pool": "edge"})
    await shop.world.quiet(20)
    await until(shop, "10.2.0.1", "10.2.0.2")
    await shop.node("n3", "10.2.0.3", labels={"pool": "edge"})
    await until(shop, "10.2.0.1", "10.2.0.2", "10.2.0.3")
    await shop.registered(3)
    await shop.node("n1", "10.2.0.1", ready=False, labels={"pool": "edge"})
    await until(shop, "10.2.0.2", "10.2.0.3")


async def test_when_no_node_is_ready_those_that_are_registered_stay(nodes):
    shop = nodes
    await shop.node("n3", "10.2.0.3", ready=False, labels={"pool": "edge"})
    for number in (1, 2):
        await shop.node(f"n{number}", f"10.2.0.{number}", ready=False, labels={"pool": "edge"})
    # What the last-but-one lost its place for is put right as soon as none is left.
    await shop.group_says("web", "Stale", "True", "none of 3 nodes", "is Ready")
    await shop.lb_says("Stale", "True", "is Ready")
    await shop.world.quiet(60)
    assert "10.2.0.2:30200" in shop.at_cloud()
    assert shop.at_cloud() <= {"10.2.0.1:30200", "10.2.0.2:30200"}, "and no other is added"
    for number in (1, 2):
        await shop.node(f"n{number}", f"10.2.0.{number}", labels={"pool": "edge"})
    await until(shop, "10.2.0.1", "10.2.0.2")


@pytest.mark.parametrize("how", ["gone", "ClusterIP", "port"])
async def test_without_a_usable_node_port_there_are_no_backends(nodes, how):
    """LT-5."""
    shop = nodes
    if how == "gone":
        await shop.api.delete(SERVICES, "shop", "web")
        text = "there is no Service shop/web"
    elif how == "ClusterIP":
        patch = {"spec": {"type": "ClusterIP", "ports": [{"name": "http", "port": 80, "nodePort": None}]}}
        await shop.api.merge_patch(SERVICES, "shop", "web", patch)
        text = "Service shop/web has no node port for TCP/80"
    else:
        await shop.service(ports=[{"name": "http", "port": 81, "nodePort": 30200, "protocol": "TCP"}])
        text = "Service shop/web has no node port for TCP/80"
    resolved = await shop.group_says("web", "ResolvedRefs", "False", text)
    assert resolved.reason == "BackendNotFound"
    await shop.warned("web", "BackendNotFound", text)


# --- weights, and two groups on one address ---


@pytest.mark.parametrize("weight", ["heavy", "-1", "1.5", "257", "", "²", "0x1"])
async def test_a_weight_that_is_none_is_refused_and_not_taken_for_one(shop, weight):
    await shop.group("fixed", static=["10.9.0.1:8080"], parameters={"weight": weight})
    accepted = await shop.group_says("fixed", "Accepted", "False", "spec.parameters.weight", "from 0 to 256")
    assert accepted.reason == "Invalid"
    await shop.world.quiet()
    assert shop.at_cloud() == set()


async def test_a_weight_counts_and_a_bad_one_leaves_the_last(shop):
    await shop.group("fixed", static=["10.9.0.1:8080"], parameters={"weight": "7"})
    await shop.until("10.9.0.1")
    await shop.registered(1)
    place = (HTTP, target("10.9.0.1").key)
    assert shop.world.outside.members(KEY)[place].weight == 7
    assert (await shop.records())[0].spec.target.weight == 7
    await shop.group("fixed", static=["10.9.0.1:8080"], parameters={"weight": "much"})
    await shop.group_says("fixed", "Accepted", "False", "'much'", "the last accepted version is served")
    assert shop.world.outside.members(KEY)[place].weight == 7
    await shop.group("fixed", static=["10.9.0.1:8080"], parameters={"weight": "9"})
    await shop.world.until(lambda: shop.world.outside.members(KEY)[place].weight == 9)


async def test_two_groups_with_other_parameters_for_one_address_are_shown_whose_count(shop):
    await shop.group("b", static=["10.9.0.1:8080"], parameters={"weight": "2"})
    await shop.until("10.9.0.1")
    await shop.registered(1)
    await shop.group("a", static=["10.9.0.1:8080"], parameters={"weight": "5"})
    place = (HTTP, target("10.9.0.1").key)
    await shop.world.until(lambda: shop.world.outside.members(KEY)[place].weight == 5)
    text = ("10.9.0.1:8080", "BackendGroup shop/a than in shop/b", "those of the first by name count")
    conflicted = await shop.group_says("b", "Conflicted", "True", *text)
    assert conflicted.reason == "ParametersDiffer"
    await shop.lb_says("Conflicted", "True", *text)
    await shop.warned("b", "ParametersDiffer")
    assert "Conflicted" not in {
        condition.type for condition in (await shop.api.get(BACKEND_GROUPS, "shop", "a")).status.conditions
    }
    await shop.group("b", static=["10.9.0.1:8080"], parameters={"weight": "5"})

    async def settled():
        backend_group = await shop.api.get(BACKEND_GROUPS, "shop", "b")
        return "Conflicted" not in {condition.type for condition in backend_group.status.conditions}

    await shop.world.until(settled)
    await shop.api.delete(BACKEND_GROUPS, "shop", "a")
    await shop.world.quiet()
    await shop.until("10.9.0.1")
