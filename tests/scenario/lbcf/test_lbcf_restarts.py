"""Whichever process dies, and whatever was changed by hand: LT-7 to LT-11, LT-27, LT-28, LT-40."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from lbcf_driver import READ_ONLY
from lbcf_wire import nothing
from lbcf_world import WEB, Death, Shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS


@pytest.mark.req("L-2", "L-4", "L-5", "L-7", "L-9", "L-15")
async def test_lt07_a_pod_that_goes_while_no_hub_runs_is_found_missing(shop, driver, world, hub):
    """LT-7."""
    await shop.pod("p1", "10.1.0.1")
    await shop.pod("p2", "10.1.0.2")
    await shop.group(pods=WEB, parameters={"weight": "5"})
    await shop.registered("10.1.0.1", "10.1.0.2")
    before = {record.spec.target.address: record.metadata.uid for record in await shop.records()}
    await world.stop(hub)
    await shop.delete_pod("p2")
    driver.calls.clear()
    present = []

    async def running(_body):
        present.extend(record for record in await shop.records() if record.spec.target.address == "10.1.0.2")
        return {"status": "Running", "minRetryDelayInSeconds": 2}

    driver.first("deregisterBackend", running, running)
    await world.start(identity="hub-1")
    await shop.registered("10.1.0.1")
    assert [(each.deleting, each.metadata.uid) for each in present] == [(True, before["10.1.0.2"])] * 2
    assert {hook for hook, _ in driver.calls} - READ_ONLY == {"deregisterBackend"}
    for body in driver.asked("deregisterBackend"):
        assert (body["backendAddr"], body["lbInfo"], body["parameters"]) == (
            "p2:80",
            {"id": "id-shared"},
            {"weight": "5"},
        )
    assert driver.at() == {"p1:80"}


@pytest.mark.req("L-2", "L-6", "L-15")
@pytest.mark.parametrize("what", ["group", "load balancer", "service", "everything but the records"])
async def test_lt08_what_is_deleted_while_no_hub_runs_is_deregistered_afterwards(shop, driver, world, hub, what):
    """LT-8."""
    await shop.node("n1", "10.0.0.1")
    await shop.service("svc", node_port=30200)
    await shop.group(service={"name": "svc", "port": {"port": 80}})
    await shop.group("fixed", static=["10.9.0.1:80"])
    await shop.registered("10.0.0.1", "10.9.0.1")
    await world.stop(hub)
    left = {"10.9.0.1:80"}
    if what == "group":
        await world.user.delete(BACKEND_GROUPS, "shop", "web")
    elif what == "service":
        await world.user.delete(SERVICES, "shop", "svc")
    else:
        await world.user.delete(LOAD_BALANCERS, "shop", "shared")
        left = set()
    if what == "everything but the records":
        # A user tore it all out, finalizers and all.
        await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", {"metadata": {"finalizers": None}})
        for name in ("web", "fixed"):
            await world.user.delete(BACKEND_GROUPS, "shop", name)
    await world.start(identity="hub-1")
    await shop.until_at(*left)
    await shop.registered(*(each.removesuffix(":80") for each in left))
    if not left:
        await shop.until_gone()
        await world.until(lambda: "id-shared" not in driver.lbs)


@pytest.mark.req("L-10", "L-11")
@pytest.mark.parametrize("verify", ["false", "true"])
async def test_lt09_a_server_of_others_is_never_spoken_of(world, driver, hub, verify):
    """LT-9."""
    driver.lbs["id-shared"] = {"x:99": {"theirs": "yes"}}
    shop = Shop(world)
    await shop.open(lbs=("shared",), parameters={"verify": verify})
    for number in (0, 1, 2):
        await shop.pod(f"web-{number}", f"10.1.0.1{number}")
    await shop.group()
    await shop.registered("10.1.0.10", "10.1.0.11", "10.1.0.12")
    await shop.delete_pod("web-1")
    await shop.registered("10.1.0.10", "10.1.0.12")
    await world.quiet(90)
    await world.stop(hub)
    await world.start(identity="hub-1")
    world.wire.cut()
    await world.quiet(90)
    await world.user.delete(BACKEND_GROUPS, "shop", "web")
    await shop.until_at("x:99")
    await world.until(shop.none_left)
    assert "x:99" not in str(driver.calls)
    assert driver.lbs["id-shared"] == {"x:99": {"theirs": "yes"}}


async def versions(world):
    raw = json.loads(await world.user.raw("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in raw["items"]}


@pytest.mark.req("L-12", "L-13", "L-17")
@pytest.mark.usefixtures("sockets")
async def test_lt10_what_an_operator_changed_stays_and_a_calm_restart_does_nothing(shop, driver, world, hub):
    """LT-10: nothing at all is asked, validate* included; nothing is written."""
    await shop.lb(attributes={"bandwidth": "10"})
    await shop.node("n1", "10.0.0.1")
    await shop.service()
    for number in (0, 1):
        await shop.pod(f"web-{number}", f"10.1.0.1{number}")
    await shop.group(pods=WEB, parameters={"weight": "5"})
    await shop.group("nodes", service={"name": "svc", "port": {"port": 80}})
    await shop.group("fixed", static=["10.9.0.1:80"])
    await shop.registered("10.1.0.10", "10.1.0.11", "10.0.0.1", "10.9.0.1")
    await shop.is_good()
    await world.quiet(30)
    del driver.lbs["id-shared"]["web-0:80"]
    driver.lbs["id-shared"]["web-1:80"] = {"weight": "99"}
    by_hand = dict(driver.lbs["id-shared"])
    driver.calls.clear()
    world.wire.cut()
    await world.quiet(90)
    await world.stop(hub)
    world.wire.writes.clear()
    kinds = await versions(world)
    await world.start(identity="hub-1")
    await world.quiet(90)
    assert driver.calls == []
    # The definitions of kinds are applied at each start, and are the same.
    assert [write for write in world.wire.writes if write[1] != "customresourcedefinitions"] == []
    assert await versions(world) == kinds
    assert driver.lbs["id-shared"] == by_hand


@pytest.mark.req("L-30")
async def test_lt11_always_means_no_sooner_than_the_period_across_a_restart_too(shop, driver, world, hub):
    """LT-11."""
    at_s = []

    def register(body):
        at_s.append(world.clock.monotonic())
        return driver.really["ensureBackend"](body)

    driver.always("ensureBackend", register)
    await shop.lb_class(ensurePolicy={"policy": "Always", "minPeriod": "30s"})
    await shop.group(static=["10.9.0.1:80"])
    await world.until(lambda: len(at_s) == 3)
    await world.stop(hub)
    await world.start(identity="hub-1")
    await world.until(lambda: len(at_s) == 6)
    gaps = [later - sooner for sooner, later in itertools.pairwise(at_s)]
    # The clock of the test may take a step between a call and its arrival here.
    assert min(gaps) >= 29
    assert max(gaps) <= 80
    await world.user.delete(BACKEND_GROUPS, "shop", "web")
    await shop.until_at()
    count = len(at_s)
    await world.quiet(90)
    assert len(at_s) == count


async def test_lt27_labels_move_a_pod_between_groups_and_other_labels_move_nothing(shop, driver, world):
    """LT-27."""
    await shop.lb("other")
    for app, lb in (("a", "shared"), ("b", "other")):
        pods = {"byLabel": {"selector": {"app": app}}, "ports": [{"port": 80}]}
        await shop.group(f"bg-{app}", lbs=(lb,), pods=pods)
    await shop.pod("web-0", "10.1.0.1", labels={"app": "a"})
    await shop.until_at("web-0:80")
    await shop.registered("10.1.0.1")
    await world.quiet(20)
    driver.calls.clear()
    world.wire.writes.clear()
    await shop.pod("web-0", "10.1.0.1", labels={"app": "a", "irrelevant": "yes"})
    await world.quiet(20)
    assert (driver.calls, world.wire.writes) == ([], [])
    await shop.pod("web-0", "10.1.0.1", labels={"app": "b"})
    await shop.until_at("web-0:80", lb="other")
    await shop.until_at()
    await shop.registered("10.1.0.1")


async def test_lt28_reading_everything_again_does_nothing(shop, driver, world, hub):
    """LT-28: every cache starts over and finds the same resourceVersions."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1")
    await shop.is_good()
    await world.quiet(20)
    driver.calls.clear()
    world.wire.writes.clear()
    for kind in ("pods", "backendgroups", "backendrecords", "loadbalancers", "loadbalancerclasses"):
        world.wire.breaks(kind, 410)
    await world.quiet(10)
    assert all(world.wire.refused[kind] for kind in ("pods", "backendgroups", "backendrecords", "loadbalancers"))
    world.wire.heal()
    await world.quiet(60)
    assert (driver.calls, world.wire.writes) == ([], [])
    await shop.delete_pod("web-0")
    await shop.until_at()


async def story(shop, world, name):
    """A load balancer with two pods; one of them goes."""
    await shop.lb(name)
    await shop.pod(f"{name}-0", "10.1.0.1")
    await shop.pod(f"{name}-1", "10.1.0.2")
    await shop.group(name, lbs=(name,))
    await shop.until_at(f"{name}-0:80", f"{name}-1:80", lb=name)
    await shop.delete_pod(f"{name}-0")
    await shop.until_at(f"{name}-1:80", lb=name)
    await shop.registered("10.1.0.2")
    await world.quiet(5)


async def played(shop, world, driver, name, point):
    """Play the story with a hub that dies at one point of it; False when the story ends before that."""
    hub = await world.start(identity=f"hub-{name}")
    death = Death(point)
    world.wire.at_point = death.at_point
    driver.watched(death.at_point)
    tale = asyncio.create_task(story(shop, world, name))
    killed = asyncio.create_task(death.came.wait())
    await asyncio.wait((tale, killed), return_when=asyncio.FIRST_COMPLETED)
    died = death.came.is_set()
    # Whatever it still says goes nowhere.
    await world.stop(hub)
    world.wire.at_point = nothing
    for hook in driver.really:
        driver.mend(hook)
    if died:
        await world.start(identity=f"next-{name}")
    killed.cancel()
    await tale
    return died


@pytest.mark.req("L-4", "L-14", "L-15")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", [0, *(pytest.param(shard, marks=pytest.mark.thorough) for shard in (1, 2, 3))])
async def test_lt40_killed_at_any_call_or_write_it_ends_the_same(world, driver, hub, shard):
    """LT-40: at every fourth point of the story; each time another hub goes on from what is on record."""
    shop = Shop(world)
    await shop.open()
    await world.stop(hub)
    points, died = 0, True
    while died:
        name = f"lb-{points}"
        died = await played(shop, world, driver, name, shard + 4 * points)
        assert driver.at(name) == {f"{name}-1:80"}
        for each in list(world.hubs):
            await world.stop(each)
        await shop.forget_everything(name)
        driver.lbs.clear()
        points += 1
    assert points > 5, "points of the story"
