"""A driver that is asked before anything is made of what users write: it agrees, refuses, or cannot be reached."""

from __future__ import annotations

import pytest
from aiohttp import web
from hub_world import EVENT
from shop_world import YES, open_shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.cli.changes import plan_of
from fairlead.hub.inspect.preview import preview


@pytest.fixture
async def shop(world):
    async with open_shop(world) as opened:
        await opened.class_("driven")
        yield opened


def no(text):
    return {"succ": False, "msg": text}


async def mine(shop, **spec):
    await shop.lb("mine", className="driven", parameters={"lbID": "7"}, **spec)


async def made(shop, **spec):
    await mine(shop, **spec)
    await shop.lb_says("Programmed", "True", name="mine")


@pytest.mark.req("L-37")
async def test_a_load_balancer_that_its_driver_refuses_is_not_made(shop):
    """LT-33."""
    shop.driver.on("validateLoadBalancer", no("lbID 7 is taken"))
    await mine(shop, attributes={"a": "1"})
    accepted = await shop.lb_says("Accepted", "False", "lbID 7 is taken", name="mine")
    assert accepted.reason == "RefusedByProvider"
    await shop.warned("mine", "RefusedByProvider", "lbID 7 is taken")
    (asked,) = shop.driver.asked("validateLoadBalancer")
    assert (asked["operation"], asked["lbSpec"], asked["attributes"]) == ("Create", {"lbID": "7"}, {"a": "1"})
    await shop.world.quiet(120)
    assert len(shop.driver.asked("validateLoadBalancer")) == 1, "nothing has changed, so nobody is asked again"
    assert shop.driver.asked("createLoadBalancer") == []
    assert not (await shop.api.get(LOAD_BALANCERS, "shop", "mine")).metadata.finalizers


@pytest.mark.req("L-37")
async def test_a_refused_change_leaves_what_was_accepted_through_a_restart(shop):
    await made(shop, attributes={"size": "s"})
    shop.driver.on("validateLoadBalancer", no("size l costs more"))
    await mine(shop, attributes={"size": "l"})
    await shop.lb_says("Accepted", "False", "size l costs more", "the last accepted version is served", name="mine")
    asked = shop.driver.asked("validateLoadBalancer")[-1]
    assert (asked["operation"], asked["attributes"], asked["oldAttributes"]) == ("Update", {"size": "l"}, {"size": "s"})
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"])
    await shop.driver_has("10.9.0.1")  # backends go on
    await shop.world.stop(shop.world.hubs[0])
    await shop.world.start(identity="hub-1")
    await shop.world.quiet(20)
    assert shop.driver.asked("ensureLoadBalancer") == []
    assert shop.at_driver() == {"10.9.0.1:8080"}
    shop.driver.on("validateLoadBalancer", YES)
    await mine(shop, attributes={"size": "m"})
    await shop.lb_says("Accepted", "True", name="mine")
    await shop.world.until(lambda: [each["attributes"] for each in shop.driver.asked("ensureLoadBalancer")])
    assert shop.driver.asked("ensureLoadBalancer")[-1]["attributes"] == {"size": "m"}


@pytest.mark.req("L-37", "L-17")
async def test_a_restart_asks_no_driver_about_what_was_accepted(shop):
    await made(shop, attributes={"size": "s"})
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"], parameters={"zone": "a"})
    await shop.driver_has("10.9.0.1")
    await shop.registered(1)
    await shop.world.quiet()
    await shop.world.stop(shop.world.hubs[0])
    before = len(shop.driver.calls)
    # No driver answers: what lives is not harmed by a driver that is away when the hub comes back.
    shop.driver.on("validateLoadBalancer", lambda _body: web.Response(status=500))
    shop.driver.on("validateBackend", lambda _body: web.Response(status=500))
    await shop.world.start(identity="hub-1")
    await shop.world.quiet(30)
    assert shop.driver.calls[before:] == []
    await shop.lb_says("Accepted", "True", name="mine")


@pytest.mark.req("L-37")
@pytest.mark.parametrize("away", ["500", "hangs"])
async def test_a_driver_that_cannot_be_asked_has_not_accepted_and_is_asked_again(shop, away):
    if away == "hangs":
        await shop.class_("driven", parameters={"timeout": "300ms"})
        shop.driver.gate.clear()
    else:
        shop.driver.on("validateLoadBalancer", lambda _body: web.Response(status=500))
    await mine(shop)
    accepted = await shop.lb_says("Accepted", "False", "cannot be asked", shop.driver.url, name="mine")
    assert accepted.reason == "ProviderFailed"
    assert shop.driver.asked("createLoadBalancer") == []
    # Meanwhile no other waits.
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    shop.driver.gate.set()
    shop.driver.on("validateLoadBalancer", YES)
    await shop.lb_says("Programmed", "True", name="mine")


@pytest.mark.req("L-37")
async def test_a_group_that_the_driver_refuses_brings_nothing_and_the_others_go_on(shop):
    """LT-33."""
    await made(shop)

    def judge(body):
        return no("weight: 1 to 10") if body["parameters"].get("weight") == "99" else YES

    shop.driver.on("validateBackend", judge)
    await shop.group("bad", lbs=["mine", "shared"], static=["10.9.0.1:8080"], parameters={"weight": "99"})
    await shop.group("good", lbs=["mine"], static=["10.9.0.2:8080"], parameters={"weight": "2"})
    await shop.driver_has("10.9.0.2")
    accepted = await shop.group_says("bad", "Accepted", "False", "weight: 1 to 10")
    assert accepted.reason == "RefusedByProvider"
    await shop.warned("bad", "RefusedByProvider", "weight: 1 to 10")
    await shop.until("10.9.0.1")  # its other load balancer has another provider
    asked = [each for each in shop.driver.asked("validateBackend") if each["parameters"]["weight"] == "99"]
    assert [(each["backendType"], each["operation"], each["lbInfo"]) for each in asked] == [
        ("Static", "Create", {"id": "1"})
    ]
    await shop.group("bad", lbs=["mine", "shared"], static=["10.9.0.1:8080"], parameters={"weight": "3"})
    await shop.driver_has("10.9.0.1", "10.9.0.2")
    await shop.group_says("bad", "Accepted", "True")
    assert shop.driver.backends["10.9.0.1:8080"]["weight"] == "3"


@pytest.mark.req("L-37")
async def test_refused_parameters_of_a_group_leave_those_of_before(shop):
    await made(shop)
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"], parameters={"zone": "a"})
    await shop.driver_has("10.9.0.1")
    shop.driver.on("validateBackend", no("there is no zone b"))
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080", "10.9.0.2:8080"], parameters={"zone": "b"})
    await shop.group_says("fixed", "Accepted", "False", "there is no zone b", "the last accepted version is served")
    asked = shop.driver.asked("validateBackend")[-1]
    assert (asked["operation"], asked["parameters"], asked["oldParameters"]) == ("Update", {"zone": "b"}, {"zone": "a"})
    await shop.driver_has("10.9.0.1", "10.9.0.2")
    assert [backend["zone"] for backend in shop.driver.backends.values()] == ["a", "a"]
    await shop.world.quiet(60)
    assert len(shop.driver.asked("validateBackend")) == 2


@pytest.mark.req("I-7")
async def test_a_group_whose_acceptance_cannot_be_recorded_waits_and_the_others_do_not(shop):
    await made(shop)
    shop.world.hubs[0].cluster.refuse_name = "stuck"
    await shop.group("stuck", lbs=["mine"], static=["10.9.0.1:8080"])
    await shop.group("good", lbs=["mine"], static=["10.9.0.2:8080"])
    await shop.driver_has("10.9.0.2")
    await shop.world.quiet()
    assert shop.at_driver() == {"10.9.0.2:8080"}
    shop.world.hubs[0].cluster.refuse_name = ""
    await shop.driver_has("10.9.0.1", "10.9.0.2")


@pytest.mark.req("L-37")
async def test_a_recorded_group_without_acceptance_is_not_new(shop):
    """As after an upgrade from a release that did not."""
    await made(shop)
    await shop.group("fixed", lbs=["mine"], static=["10.9.0.1:8080"])
    await shop.driver_has("10.9.0.1")
    await shop.registered(1)
    await shop.world.stop(shop.world.hubs[0])
    await shop.api.merge_patch(BACKEND_GROUPS, "shop", "fixed", {"status": {"accepted": None}}, subresource="status")
    shop.driver.on("validateBackend", no("not today"))
    await shop.world.start(identity="hub-1")
    await shop.world.quiet(20)
    assert shop.at_driver() == {"10.9.0.1:8080"}
    await shop.group_says("fixed", "Accepted", "True")


async def previewed(shop):
    (previewed,) = [each for each in await preview(shop.world.user) if each.key.name == "mine"]
    return previewed


@pytest.mark.req("L-37", "I-10")
async def test_a_preview_plans_nothing_of_what_the_driver_refused(shop):
    shop.driver.on("validateLoadBalancer", no("lbID 7 is taken"))
    await mine(shop)
    await shop.lb_says("Accepted", "False", "lbID 7 is taken", name="mine")
    plan = plan_of(await previewed(shop))
    assert plan.rows == []
    assert "lbID 7 is taken" in plan.problem
    shop.driver.on("validateLoadBalancer", YES)
    shop.driver.on("validateBackend", no("weight: 1 to 10"))
    await mine(shop, attributes={"a": "1"})
    await shop.lb_says("Programmed", "True", name="mine")
    await shop.group("bad", lbs=["mine"], static=["10.9.0.1:8080"], parameters={"weight": "99"})
    await shop.group_says("bad", "Accepted", "False", "weight: 1 to 10")
    result = await previewed(shop)
    assert plan_of(result).rows == []
    assert [(exclusion.owner, "weight: 1 to 10" in exclusion.why) for exclusion in result.exclusions] == [
        ("BackendGroup/shop/bad", True)
    ]


async def test_what_a_driver_fails_at_is_one_warning_and_no_good_news(shop):
    shop.driver.on("createLoadBalancer", {"status": "Fail", "msg": "no room"})
    await mine(shop)
    await shop.lb_says("Programmed", "False", "no room", name="mine")
    await shop.warned("mine", "DriverFail", "no room")
    await shop.world.quiet(5)
    about = [each for each in await shop.api.list(EVENT, "shop") if each.involved_object.get("name") == "mine"]
    assert {(each.type, "no room" in each.message) for each in about} == {("Warning", True)}
    assert len({each.reason for each in about}) == 1
