"""Bad input, and what it gets: a message with the next step, others unaffected, nothing leaked, and it ends well.

driver down                     test_a_driver_that_is_down_is_reported_and_stops_no_other
driver slow                     test_lt34_... (test_lbcf_calls), test_one_slow_driver_holds_up_no_other
driver lying                    test_a_driver_that_says_succ_and_does_nothing_is_found_out
500, HTML, unknown status, {}   test_lt17_... (test_lbcf_calls), test_whatever_a_driver_answers_to_a_registration_...
one address of 500 rejected     test_one_address_of_five_hundred
quota full, then delete         test_a_full_quota_is_reported_and_deleting_leaves_nothing
two groups, one address         test_two_groups_of_one_address_...
pod IP reused                   test_an_address_that_changes_hands_...
edited during creation          test_what_is_edited_while_it_is_created_...
record hand-edited              test_a_record_that_a_person_edits_is_mended
finalizer stripped              test_a_record_deleted_without_its_finalizer_is_recreated
its group gone                  test_lt08_... (test_lbcf_restarts)
429 storm                       test_a_storm_of_429_...
class parameters wrong          test_a_wrong_parameter_of_the_class_is_reported_on_its_load_balancers
lease stolen                    tests/e2e/test_e2e_lease_theft.py
"""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from lbcf_driver import Driver
from lbcf_world import LONG_S, WEB, Shop
from prometheus_client import generate_latest

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.errors import Invalid


@pytest.fixture
async def neighbour(world, shop):
    """Another class, at another driver, that works all the time."""
    other = await Driver().start()
    await shop.lb_class("fine", parameters={"url": other.url})
    await shop.lb("neighbour", class_name="fine")
    await shop.group("neighbour", lbs=("neighbour",), static=["10.7.0.1:80"])
    await world.until(lambda: other.at("neighbour") == {"10.7.0.1:80"})
    yield other
    await other.stop()


def count_calls(world):
    text = generate_latest(world.webhook_registry).decode()
    lines = [line for line in text.splitlines() if line.startswith("fairlead_webhook_calls_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if world.driver.url in line)


async def goes_on(shop, world, neighbour):
    """The neighbour's load balancer follows its group, whatever happens elsewhere."""
    await shop.group("neighbour", lbs=("neighbour",), static=["10.7.0.1:80", "10.7.0.2:80"])
    await world.until(lambda: neighbour.at("neighbour") == {"10.7.0.1:80", "10.7.0.2:80"})
    await shop.is_good(name="neighbour")


@pytest.mark.req("I-7", "L-24", "L-40")
async def test_a_driver_that_is_down_is_reported_and_stops_no_other(shop, driver, world, neighbour):
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1", "10.7.0.1")
    port = int(driver.url.rsplit(":", 1)[1].split("/")[0])
    await driver.stop()
    await shop.pod("web-1", "10.1.0.2")
    await shop.says("Programmed", "no connection", "parameters.url", driver.url)
    await shop.reported("no connection")
    await goes_on(shop, world, neighbour)
    await shop.delete_pod("web-0")
    calls = count_calls(world)
    await world.quiet(120)
    assert count_calls(world) - calls <= 20, "nobody hammers at a door that nobody opens"
    assert "10.1.0.1" in await shop.states()
    await driver.start(port=port)
    await shop.until_at("web-1:80", limit_s=LONG_S)
    await shop.is_good()


@pytest.mark.req("I-7")
async def test_one_slow_driver_holds_up_no_other(shop, driver, world, neighbour):
    driver.gate.clear()
    await shop.group(static=[f"10.9.0.{number}:80" for number in range(1, 20)])
    await world.until(lambda: driver.at_once > 0)
    await goes_on(shop, world, neighbour)
    assert driver.at() == set()
    driver.gate.set()
    await shop.until_at(*(f"10.9.0.{number}:80" for number in range(1, 20)), limit_s=LONG_S)
    assert driver.most_at_once <= 8


async def test_a_driver_that_says_succ_and_does_nothing_is_found_out(shop, driver, world, neighbour):
    """Where it can list what it has: verify."""
    await shop.lb_class("verified", parameters={"verify": "true"})
    await shop.lb("verified", class_name="verified")
    driver.always("ensureBackend", {"status": "Succ"})
    await shop.group(lbs=("verified",), static=["10.9.0.1:80"])
    await shop.says("Programmed", "answered Succ", "is not there", "Fix the driver", name="verified")
    await goes_on(shop, world, neighbour)
    driver.mend("ensureBackend")
    await shop.until_at("10.9.0.1:80", lb="verified", limit_s=LONG_S)
    await shop.is_good(name="verified")
    driver.always("deregisterBackend", {"status": "Succ"})
    await world.user.delete(BACKEND_GROUPS, "shop", "web")
    await shop.says("Programmed", "is still there", name="verified")
    assert (await shop.states())["10.9.0.1"] == "Deregistering"
    driver.mend("deregisterBackend")
    await shop.until_at(lb="verified", limit_s=LONG_S)


ANSWERS = {
    "500": (lambda _body: web.Response(status=500, text="a secret"), "HTTP 500"),
    "HTML": (lambda _body: web.Response(text="<html>a secret"), "HTML"),
    "unknown status": ({"status": "Maybe"}, "Maybe"),
    "200 with nothing done": ({}, "no status"),
    "429": (lambda _body: web.Response(status=429, headers={"Retry-After": "30"}), "HTTP 429"),
}


@pytest.mark.req("L-23", "I-7", "L-40")
@pytest.mark.parametrize("answer", ANSWERS)
async def test_whatever_a_driver_answers_to_a_registration_is_reported_and_ends_well(
    shop, driver, world, neighbour, answer
):
    reply, text = ANSWERS[answer]
    await shop.group("before", static=["10.9.0.9:80"])
    await shop.until_at("10.9.0.9:80")
    bad = "10.9.0.1:80"

    def some(body):
        if body["backendAddr"] == bad:
            return reply(body) if callable(reply) else reply
        return driver.really["ensureBackend"](body)

    driver.always("ensureBackend", some)
    await shop.group(static=[bad, "10.9.0.2:80"])
    await shop.says("Programmed", text, driver.url, "ensureBackend", bad)
    assert "secret" not in (await shop.condition("Programmed"))[2]
    await shop.until_at("10.9.0.9:80", "10.9.0.2:80")
    # A removal does not wait for an addition that fails.
    await world.user.delete(BACKEND_GROUPS, "shop", "before")
    await shop.until_at("10.9.0.2:80")
    await goes_on(shop, world, neighbour)
    driver.mend("ensureBackend")
    await shop.until_at(bad, "10.9.0.2:80", limit_s=LONG_S)
    await shop.is_good()


@pytest.mark.req("I-7", "L-23")
@pytest.mark.slow
async def test_one_address_of_five_hundred(shop, driver, world):
    bad = "10.9.1.99:80"

    def some(body):
        if body["backendAddr"] == bad:
            return {"status": "Fail", "msg": "10.9.1.99 is reserved here"}
        return driver.really["ensureBackend"](body)

    driver.always("ensureBackend", some)
    addresses = [f"10.9.{number // 250}.{number % 250}:80" for number in range(500)]
    assert bad in addresses
    await shop.group(static=addresses)
    await shop.until_at(*(address for address in addresses if address != bad), limit_s=LONG_S)
    await shop.says("Programmed", "10.9.1.99 is reserved here", bad)

    async def reported():
        states = await shop.states()
        return states.pop("10.9.1.99") == "Failed" and set(states.values()) == {"Registered"} and len(states) == 499

    await world.until(reported, limit_s=LONG_S)
    driver.mend("ensureBackend")
    await shop.until_at(*addresses, limit_s=LONG_S)
    await shop.is_good()


@pytest.mark.req("I-2")
@pytest.mark.parametrize("lost", [False, True])
async def test_a_full_quota_is_reported_and_deleting_leaves_nothing(world, driver, hub, lost):
    """``lost``: the driver had made it all the same, and then said Fail with an answer that never arrived."""

    def full(body):
        if lost:
            driver.really["createLoadBalancer"](body)
            return web.Response(status=502)
        return {"status": "Fail", "msg": "quota of load balancers is full"}

    driver.always("createLoadBalancer", full)
    shop = Shop(world)
    await shop.open(lbs=("shared",))
    await shop.group(static=["10.9.0.1:80"])
    await shop.says("Programmed", "HTTP 502" if lost else "quota of load balancers is full", "createLoadBalancer")
    await shop.reported("createLoadBalancer")
    assert await shop.records() == []

    def delete_what_may_be(body):
        driver.lbs.pop(f"id-{body['lbInfo'].get('name', '')}", None)
        return driver.really["deleteLoadBalancer"](body)

    driver.always("deleteLoadBalancer", delete_what_may_be)
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await shop.until_gone(limit_s=LONG_S)
    assert driver.lbs == {}
    driver.mend("createLoadBalancer")
    await shop.lb()
    await shop.until_at("10.9.0.1:80", limit_s=LONG_S)


@pytest.mark.req("L-44", "L-11")
async def test_two_groups_of_one_address_share_it_until_the_last_has_gone(shop, driver, world):
    await shop.group("one", static=["10.9.0.1:80", "10.9.0.2:80"])
    await shop.group("two", static=["10.9.0.1:80"])
    await shop.registered("10.9.0.1", "10.9.0.2")
    await world.user.delete(BACKEND_GROUPS, "shop", "one")
    await shop.registered("10.9.0.1")
    assert driver.at() == {"10.9.0.1:80"}
    assert ("deregisterBackend", "10.9.0.1:80") not in driver.rows()
    await world.user.delete(BACKEND_GROUPS, "shop", "two")
    await shop.until_at()
    await world.until(shop.none_left)


@pytest.mark.req("L-44", "L-2")
async def test_a_static_address_that_is_a_pods_too_goes_with_the_last_of_them(shop, driver, world, hub):
    """The driver knows it by the address that was given, also when another wants it later, and across a restart."""
    await shop.group("fixed", static=["10.1.0.1:80"])
    await shop.registered("10.1.0.1")
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()

    async def both():
        return [len(record.spec.owners) for record in await shop.records()] == [2]

    await world.until(both)
    await world.stop(hub)
    await world.start(identity="hub-1")
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await shop.delete_pod("web-0")
    await shop.until_at()
    await world.until(shop.none_left)


@pytest.mark.req("L-27")
async def test_an_address_that_changes_hands_is_deregistered_in_between(shop, driver, world):
    """A pod's IP is used again while the old pod is still there, and on its way out."""
    await shop.pod("old", "10.1.0.1", finalizers=("test/holds",))
    await shop.pod("other", "10.1.0.9")
    await shop.group()
    await shop.registered("10.1.0.1", "10.1.0.9")
    await shop.delete_pod("old")
    await shop.pod("new", "10.1.0.1")
    await shop.until_at("new:80", "other:80", limit_s=LONG_S)
    await shop.registered("10.1.0.1", "10.1.0.9")
    rows = [row for row in driver.rows() if row[1] != "other:80"]
    assert rows[0] == ("ensureBackend", "old:80")
    assert rows[-1] == ("ensureBackend", "new:80")
    assert ("deregisterBackend", "old:80") in rows
    record = next(record for record in await shop.records() if record.spec.target.address == "10.1.0.1")
    assert record.spec.target.source.startswith("Pod/shop/new/")
    await world.quiet(20)
    assert driver.at() == {"new:80", "other:80"}


@pytest.mark.req("L-32")
async def test_edits_during_creation_are_ensured_afterwards(world, driver, hub):
    shop = Shop(world)
    made = asyncio.Event()

    async def slowly(body):
        await made.wait()
        return driver.really["createLoadBalancer"](body)

    driver.always("createLoadBalancer", slowly)
    await shop.open()
    await shop.lb(attributes={"bandwidth": "10"})
    await world.until(lambda: driver.hooks["createLoadBalancer"] == 1)
    await shop.lb(attributes={"bandwidth": "20"})
    await shop.group(static=["10.9.0.1:80"])
    await world.quiet(5)
    made.set()
    await world.until(lambda: driver.attributes.get("id-shared") == {"bandwidth": "20"})
    await shop.until_at("10.9.0.1:80")
    await shop.is_good()
    assert driver.hooks["createLoadBalancer"] == 1
    assert driver.hooks["ensureLoadBalancer"] == 1


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("what", ["parameters", "owners", "state"])
async def test_a_record_that_a_person_edits_is_mended(shop, driver, world, hub, what, restart):
    await shop.pod("web-0", "10.1.0.1")
    await shop.group(pods=WEB, parameters={"weight": "5"})
    await shop.registered("10.1.0.1")
    (record,) = await shop.records()
    edits = {
        "parameters": {"spec": {"parameters": {"weight": "77", "extra": "x"}}},
        "owners": {"spec": {"owners": ["BackendGroup/shop/nobody"]}},
        "state": {"status": {"state": "Failed"}},
    }
    if restart:
        await world.stop(hub)
    await world.user.merge_patch(BACKEND_RECORDS, *record.key, edits[what])
    if restart:
        await world.start(identity="hub-1")

    async def mended():
        (now,) = await shop.records()
        return (now.spec.parameters, now.spec.owners, now.status.state) == (
            {"weight": "5"},
            ["BackendGroup/shop/web"],
            "Registered",
        ) and now.metadata.uid == record.metadata.uid

    await world.until(mended)
    assert driver.lbs["id-shared"] == {"web-0:80": {"weight": "5"}}
    assert driver.hooks["deregisterBackend"] == 0
    assert driver.hooks["generateBackendAddr"] == 1
    fixed = {"target": {"address": "10.1.0.7"}, "listener": {"port": 81}, "loadBalancer": {"provider": "memory"}}
    for path in ({part: each} for part, each in fixed.items()):
        with pytest.raises(Invalid, match="one backend for its whole life"):
            await world.user.merge_patch(BACKEND_RECORDS, *record.key, {"spec": path})


@pytest.mark.req("L-42")
async def test_a_record_deleted_without_its_finalizer_is_recreated(shop, driver, world):
    """Forgetting, as long as the backend is wanted, is no more than a moment without a record."""
    await shop.group(static=["10.9.0.1:80", "10.9.0.2:80"])
    await shop.registered("10.9.0.1", "10.9.0.2")
    before = next(record for record in await shop.records() if record.spec.target.address == "10.9.0.1")
    await world.user.merge_patch(BACKEND_RECORDS, *before.key, {"metadata": {"finalizers": None}})
    await world.user.delete(BACKEND_RECORDS, *before.key)

    async def anew():
        result = {record.spec.target.address: record for record in await shop.records()}
        load_balancer = result.get("10.9.0.1")
        return (
            load_balancer is not None
            and load_balancer.metadata.uid != before.metadata.uid
            and load_balancer.status.state == "Registered"
        )

    await world.until(anew)
    assert driver.hooks["deregisterBackend"] == 0
    await world.user.delete(BACKEND_GROUPS, "shop", "web")
    await shop.until_at()
    await world.until(shop.none_left)


async def test_a_storm_of_429_from_the_api_delays_and_loses_nothing(shop, driver, world):
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1")
    world.wire.throttled = {"backendrecords": 25, "loadbalancers": 10}
    await shop.pod("web-1", "10.1.0.2")
    await shop.delete_pod("web-0")
    await world.until(lambda: world.wire.throttled["backendrecords"] == 0, limit_s=LONG_S)
    await shop.until_at("web-1:80", limit_s=LONG_S)
    await shop.registered("10.1.0.2", limit_s=LONG_S)
    await shop.is_good()


@pytest.mark.req("L-25", "L-40", "I-7")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"timeout": "61s"}, "parameters.timeout 61s"),
        ({"timeout.ensureBackend": "0s"}, "parameters.timeout.ensureBackend"),
        ({"timeout.noSuchHook": "1s"}, "parameters.timeout.noSuchHook"),
        ({"parallel": "none"}, "parameters.parallel"),
    ],
)
async def test_a_wrong_parameter_of_the_class_is_reported_on_its_load_balancers(shop, driver, world, wrong, text):
    """And what is there already goes on as it was."""
    await shop.group("fixed", static=["10.9.0.1:80"])
    await shop.registered("10.9.0.1")
    await shop.lb_class("wrong", parameters=wrong)
    await shop.lb("new", class_name="wrong")
    await shop.group("new", lbs=("new",), static=["10.9.0.2:80"])
    await shop.says_somewhere(text, name="new")
    await shop.group("fixed", static=["10.9.0.1:80", "10.9.0.3:80"])
    await shop.until_at("10.9.0.1:80", "10.9.0.3:80")
    await shop.lb_class("wrong")
    await shop.until_at("10.9.0.2:80", lb="new", limit_s=LONG_S)
    await shop.is_good(name="new")


async def test_a_load_balancer_of_a_class_with_no_usable_url_can_be_deleted(shop, driver, world):
    await shop.lb_class("wrong", parameters={"url": "ftp://x"})
    await shop.lb("new", class_name="wrong")
    await shop.says_somewhere("parameters.url", name="new")
    await world.user.delete(LOAD_BALANCERS, "shop", "new")
    await shop.until_gone("new")
    await shop.is_good()
