"""Which records there are, and what the driver is asked for them: LT-1 to LT-6, LT-12 to LT-15, LT-37."""

from __future__ import annotations

import pytest
from lbcf_world import LOOSE, WEB

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import FINALIZER_DEREGISTER


@pytest.mark.req("L-1", "L-2", "L-3")
async def test_lt01_the_record_with_everything_in_it_is_there_before_the_driver_is_asked(shop, driver, world):
    """LT-1."""
    seen = []

    async def look(body):
        seen.extend((record, body) for record in await shop.records())
        return driver.really["ensureBackend"](body)

    driver.always("ensureBackend", look)
    await shop.lb(attributes={"bandwidth": "10"})
    await world.until(lambda: driver.attributes.get("id-shared") == {"bandwidth": "10"})
    await shop.pod("web-0", "10.1.0.1")
    await shop.group(pods=WEB, parameters={"weight": "3"})
    await shop.registered("10.1.0.1")
    (record, body), *_ = seen
    assert record.metadata.finalizers == [FINALIZER_DEREGISTER]
    assert record.status.state == "Pending"
    assert record.spec.owners == ["BackendGroup/shop/web"]
    assert record.spec.parameters == {"weight": "3"}
    load_balancer = record.spec.load_balancer
    assert (load_balancer.info, load_balancer.attributes) == ({"id": "id-shared"}, {"bandwidth": "10"})
    assert load_balancer.parameters == {"name": "shared", "url": driver.url}
    assert record.status.generated_address == "web-0:80"
    assert body["recordID"] == f"ensureBackend({record.metadata.uid})"
    assert (body["lbInfo"], body["backendAddr"]) == ({"id": "id-shared"}, "web-0:80")
    assert body["parameters"] == {"weight": "3"}
    assert driver.at() == {"web-0:80"}


@pytest.mark.req("L-2")
async def test_lt01_an_address_is_generated_once_from_the_whole_pod(shop, driver, world):
    """LT-1: what generateBackendAddr is sent of a pod, and that it is never asked again."""
    await shop.pod("web-0", "10.1.0.1", labels={"app": "web", "zone": "a"})
    await shop.group()
    await shop.registered("10.1.0.1")
    (body,) = driver.asked("generateBackendAddr")
    (record,) = await shop.records()
    pod = body["podBackend"]["pod"]
    uid = record.spec.target.source.rpartition("/")[2]
    assert uid
    labels = {"app": "web", "zone": "a"}
    assert pod["metadata"] == {"name": "web-0", "namespace": "shop", "uid": uid, "labels": labels}
    assert pod["status"] == {"podIP": "10.1.0.1", "phase": "Running"}
    assert pod["spec"] == {"nodeName": "n1"}
    assert body["podBackend"]["port"] == {"port": 80, "portNumber": 80, "protocol": "TCP"}
    assert (body["lbInfo"], body["lbAttributes"], body["parameters"]) == ({"id": "id-shared"}, {}, {})
    await shop.group(pods=WEB, parameters={"weight": "7"})
    await world.until(lambda: driver.lbs["id-shared"].get("web-0:80") == {"weight": "7"})
    await shop.delete_pod("web-0")
    await shop.until_at()
    assert len(driver.asked("generateBackendAddr")) == 1
    (gone,) = driver.asked("deregisterBackend")
    assert (gone["backendAddr"], gone["parameters"]) == ("web-0:80", {"weight": "7"})


@pytest.mark.req("L-19")
async def test_lt02_a_pod_that_is_not_available_has_no_record(shop, driver, world):
    """LT-2."""
    await shop.pod("unready", "10.1.0.1", ready=False)
    await shop.pod("homeless", "")
    await shop.pod("leaving", "10.1.0.3", finalizers=("test/holds",))
    await shop.delete_pod("leaving")
    await shop.group()
    await world.quiet(20)
    assert await shop.records() == []
    assert not driver.hooks.keys() & {"generateBackendAddr", "ensureBackend"}


@pytest.mark.req("L-1")
async def test_lt03_two_load_balancers_two_ports_two_pods(shop, driver, world):
    """LT-3."""
    await shop.lb("lb-1")
    await shop.lb("lb-2")
    for number in (0, 1):
        await shop.pod(f"p{number}", f"10.1.0.{number + 1}")
    ports = [{"port": 80}, {"port": 90}]
    await shop.group(lbs=("lb-1", "lb-2"), pods={**WEB, "ports": ports})
    wanted = {"p0:80", "p0:90", "p1:80", "p1:90"}
    await shop.until_at(*wanted, lb="lb-1")
    await shop.until_at(*wanted, lb="lb-2")
    assert len(await shop.records()) == 8


async def test_lt04_a_pod_by_name_that_is_not_there_is_nothing(shop, driver, world):
    """LT-4."""
    await shop.group(pods={"byName": ["pod-0"], "ports": [{"port": 80}]})
    await shop.is_good()
    await world.quiet(10)
    assert await shop.records() == []
    assert (await shop.condition("Programmed"))[0] == "True"
    await shop.pod("pod-0", "10.1.0.1", labels={"any": "thing"})
    await shop.until_at("pod-0:80")


@pytest.mark.req("L-2")
@pytest.mark.parametrize("end", ["deleted", "no NodePort", "port missing"])
async def test_lt05_a_node_port_service_is_one_backend_for_each_matching_node(shop, driver, world, end):
    """LT-5: and what generateBackendAddr is sent of it."""
    await shop.node("n1", "10.0.0.1", pick="me")
    await shop.node("n2", "10.0.0.2")
    await shop.service("svc", port=80, node_port=30200)
    service = {"name": "svc", "port": {"port": 80}, "nodeSelector": {"pick": "me"}}
    await shop.group(service=service)
    await shop.registered("10.0.0.1")
    assert driver.at() == {"n1:30200"}
    (body,) = driver.asked("generateBackendAddr")
    reported = body["serviceBackend"]
    assert (reported["nodeName"], reported["port"]["port"]) == ("n1", 80)
    assert {"type": "InternalIP", "address": "10.0.0.1"} in reported["nodeAddresses"]
    assert (reported["service"]["metadata"]["name"], reported["service"]["spec"]["type"]) == ("svc", "NodePort")
    assert reported["service"]["spec"]["ports"] == [{"port": 80, "nodePort": 30200, "protocol": "TCP"}]
    if end == "deleted":
        await world.user.delete(SERVICES, "shop", "svc")
    elif end == "no NodePort":
        await world.user.delete(SERVICES, "shop", "svc")
        await shop.service("svc", type_="ClusterIP", node_port=0)
    else:
        await shop.service("svc", port=81, node_port=30200)
    await shop.until_at()
    await world.until(shop.none_left)
    assert driver.asked("deregisterBackend")[-1]["backendAddr"] == "n1:30200"
    assert len(driver.asked("generateBackendAddr")) == 1


async def test_lt06_a_static_address_is_taken_as_it_is(shop, driver):
    """LT-6."""
    await shop.group(static=["10.9.0.1:80", "10.9.0.2:81"])
    await shop.registered("10.9.0.1", "10.9.0.2")
    assert driver.at() == {"10.9.0.1:80", "10.9.0.2:81"}
    assert driver.asked("generateBackendAddr") == []


@pytest.mark.req("L-31")
async def test_lt12_other_parameters_are_ensured_in_place(shop, driver, world):
    """LT-12."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.group(pods=WEB, parameters={"zone": "a"})
    await shop.registered("10.1.0.1")
    await shop.group(pods=WEB, parameters={"zone": "b"})
    await world.until(lambda: driver.lbs["id-shared"]["web-0:80"] == {"zone": "b"})
    await shop.registered("10.1.0.1")
    (record,) = await shop.records()
    assert record.spec.parameters == {"zone": "b"}
    assert [hook for hook, _ in driver.rows()] == ["ensureBackend", "ensureBackend"]


@pytest.mark.req("L-31", "L-32", "L-2")
async def test_lt13_other_attributes_reach_the_driver_once_and_every_record(shop, driver, world):
    """LT-13."""
    await shop.lb(attributes={"bandwidth": "10", "old": "yes"})
    for number in (0, 1, 2):
        await shop.pod(f"web-{number}", f"10.1.0.1{number}")
    await shop.group()
    await shop.registered("10.1.0.10", "10.1.0.11", "10.1.0.12")
    before = len(driver.asked("ensureLoadBalancer"))
    await shop.lb(attributes={"bandwidth": "20"})

    async def recorded():
        text = [record.spec.load_balancer.attributes for record in await shop.records()]
        return text == [{"bandwidth": "20"}] * 3

    await world.until(recorded)
    await world.quiet(60)
    asked = driver.asked("ensureLoadBalancer")[before:]
    assert [(body["lbInfo"], body["attributes"]) for body in asked] == [({"id": "id-shared"}, {"bandwidth": "20"})]
    assert driver.hooks["ensureBackend"] == 3
    assert driver.hooks["deregisterBackend"] == 0


@pytest.mark.req("L-31", "L-30")
async def test_lt13_an_ensure_policy_applies_in_place_until_removed(shop, driver, world):
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1")
    await world.quiet(90)
    assert driver.hooks["ensureBackend"] == 1
    await shop.lb(ensurePolicy={"policy": "Always", "minPeriod": "30s"})
    await world.until(lambda: driver.hooks["ensureBackend"] >= 3)
    await shop.lb(ensurePolicy={"policy": "IfNotSucc"})
    await world.quiet(10)
    asked = driver.hooks["ensureBackend"]
    await world.quiet(90)
    assert driver.hooks["ensureBackend"] == asked
    assert driver.hooks["deregisterBackend"] == 0
    assert driver.hooks["generateBackendAddr"] == 1


@pytest.mark.req("L-35", "L-40")
async def test_lt14_a_load_balancer_that_goes_takes_its_records_first(shop, driver, world):
    """LT-14."""
    await shop.lb("stays")
    await shop.pod("web-0", "10.1.0.1")
    await shop.group(lbs=("shared", "stays"))
    await shop.until_at("web-0:80")
    await shop.until_at("web-0:80", lb="stays")
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await shop.until_at()
    await world.until(lambda: "id-shared" not in driver.lbs)
    hooks = [hook for hook, body in driver.calls if body.get("lbInfo") == {"id": "id-shared"}]
    assert hooks[-2:] == ["deregisterBackend", "deleteLoadBalancer"]
    assert driver.at("stays") == {"web-0:80"}
    await world.user.delete(LOAD_BALANCERS, "shop", "stays")
    await shop.until_gone("stays")

    async def reported():
        group = await world.user.get(BACKEND_GROUPS, "shop", "web")
        return (group.status.backends, group.status.registered_backends) == (0, 0)

    await world.until(reported, what="status.backends of the group is 0")


@pytest.mark.req("L-34")
async def test_lt15_a_load_balancer_that_a_group_leaves_loses_that_groups_records_only(shop, driver):
    """LT-15."""
    await shop.lb("other")
    await shop.pod("web-0", "10.1.0.1")
    await shop.group(lbs=("shared", "other"))
    await shop.group("fixed", static=["10.9.0.1:80"])
    await shop.until_at("web-0:80", "10.9.0.1:80")
    await shop.until_at("web-0:80", lb="other")
    await shop.group(lbs=("other",))
    await shop.until_at("10.9.0.1:80")
    assert driver.at("other") == {"web-0:80"}
    assert [(hook, addr) for hook, addr in driver.rows() if hook == "deregisterBackend"] == [
        ("deregisterBackend", "web-0:80")
    ]


@pytest.mark.req("L-31")
async def test_lt37_only_what_differs_is_created_updated_or_deleted(shop, driver, world):
    """LT-37: expected add, same and three changed ones; there are del, same, the three as before, and keep."""
    await shop.lb_class(guard=LOOSE)
    await shop.group("same", static=["10.9.0.1:80"])
    await shop.group("updated", static=["10.9.0.2:80", "10.9.0.3:80"], parameters={"v": "1"})
    await shop.group("del", static=["10.9.0.4:80"])
    await shop.pod("keep-0", "10.1.0.1", labels={"app": "keep"})
    keep = {"byLabel": {"selector": {"app": "keep"}}, "ports": [{"port": 80}]}
    await shop.group("keep", pods=keep, deregisterPolicy="IfNotRunning")
    await shop.registered("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4", "10.1.0.1")
    await shop.pod("keep-0", "10.1.0.1", labels={"app": "keep"}, ready=False)
    await world.quiet(10)
    driver.calls.clear()
    await shop.group("updated", static=["10.9.0.2:80", "10.9.0.3:80"], parameters={"v": "2"})
    await shop.group("add", static=["10.9.0.5:80"])
    await world.user.delete(BACKEND_GROUPS, "shop", "del")
    await shop.registered("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.5", "10.1.0.1")
    assert sorted(driver.rows()) == [
        ("deregisterBackend", "10.9.0.4:80"),
        ("ensureBackend", "10.9.0.2:80"),
        ("ensureBackend", "10.9.0.3:80"),
        ("ensureBackend", "10.9.0.5:80"),
    ]
