"""What becomes of a driver's answers: LT-17 to LT-24, LT-29, LT-30, LT-34, LT-39."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from lbcf_world import LONG_S, WEB

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import FINALIZER_DEREGISTER

RUNNING = {"status": "Running", "minRetryDelayInSeconds": 3}
FAIL = {"status": "Fail", "msg": "no more room", "minRetryDelayInSeconds": 20}


async def hang(_body):
    await asyncio.sleep(30)
    return web.json_response({"status": "Succ"})


def times_of(world, driver, hook, *replies):
    """Script a hook; returns the list to which the (virtual) time of each call is added."""
    at_s = []
    left = list(replies)

    def answer(body):
        at_s.append(world.clock.monotonic())
        reply = left.pop(0) if left else driver.really[hook]
        return reply(body) if callable(reply) else reply

    driver.always(hook, answer)
    return at_s


WRONG = {
    "Fail": (FAIL, "no more room"),
    "Running": (RUNNING, ""),
    "weird": ({"status": "weird"}, "weird"),
    "HTTP 500": (lambda _body: web.Response(status=500, text="secret page"), "HTTP 500"),
    "HTML": (lambda _body: web.Response(text="<html>"), "HTML"),
    "bad JSON": (lambda _body: web.Response(text="{"), "JSON"),
    "no status": ({}, "no status"),
    "Succ without it": ({"status": "Succ"}, "backendAddr"),
    "timeout": (hang, "timeout of 0.2 s"),
}


@pytest.mark.req("L-23", "L-24", "L-40")
@pytest.mark.usefixtures("sockets")
@pytest.mark.parametrize("answer", WRONG)
async def test_lt17_an_address_that_is_not_generated_registers_nothing(shop, driver, world, answer):
    """LT-17."""
    reply, text = WRONG[answer]
    await shop.lb_class(parameters={"timeout.generateBackendAddr": "200ms"})
    await shop.group("fixed", static=["10.9.0.1:80"])
    await shop.registered("10.9.0.1")
    driver.calls.clear()
    at_s = times_of(world, driver, "generateBackendAddr", reply, reply)
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await world.until(lambda: len(at_s) == 2, what="it is asked again", limit_s=LONG_S)
    if answer == "Fail":
        assert at_s[1] - at_s[0] >= 20
    if answer == "Running":
        assert 3 <= at_s[1] - at_s[0] <= 5
    record = next(record for record in await shop.records() if record.spec.target.address == "10.1.0.1")
    assert record.status.generated_address == ""
    assert driver.rows() == []
    assert driver.at() == {"10.9.0.1:80"}
    if text:
        await shop.reported(text, "generateBackendAddr", "10.1.0.1:80")
    await shop.until_at("web-0:80", "10.9.0.1:80", limit_s=LONG_S)
    await shop.registered("10.1.0.1", "10.9.0.1")
    await shop.is_good()
    asked = driver.asked("generateBackendAddr")
    assert {body["recordID"] for body in asked} == {f"generateBackendAddr({record.metadata.uid})"}
    assert len({body["retryID"] for body in asked}) == len(asked) == 3


@pytest.mark.req("L-26", "L-40", "L-23", "L-22")
async def test_lt18_a_failed_registration_stores_no_injected_info(shop, driver, world):
    """LT-18."""
    driver.first(
        "ensureBackend",
        FAIL | {"injectedInfo": {"id": "of-a-failure"}},
        lambda body: driver.really["ensureBackend"](body) | {"injectedInfo": {"id": "7"}},
    )
    await shop.pod("web-0", "10.1.0.1")
    await shop.group(pods=WEB, parameters={"v": "1"})

    async def failed():
        records = await shop.records()
        return records and records[0].status.state == "Failed" and "no more room" in records[0].status.message

    await world.until(failed, what="the record says that it failed, and why")
    await shop.says("Programmed", "no more room")
    await shop.registered("10.1.0.1", limit_s=LONG_S)
    (record,) = await shop.records()
    assert (record.status.message, record.status.injected_info) == ("", {"id": "7"})
    await shop.group(pods=WEB, parameters={"v": "2"})
    await world.until(lambda: driver.hooks["ensureBackend"] == 3)
    assert [body.get("injectedInfo") for body in driver.asked("ensureBackend")] == [{}, {}, {"id": "7"}]
    await shop.delete_pod("web-0")
    await shop.until_at()
    assert driver.asked("deregisterBackend")[-1]["injectedInfo"] == {"id": "7"}


@pytest.mark.req("L-9", "L-4", "L-22", "L-24")
@pytest.mark.parametrize("answer", ["Running", "Fail", "weird", "HTTP 500"])
async def test_lt19_lt20_the_finalizer_stays_until_the_deregistration_is_done(shop, driver, world, answer):
    """LT-19, LT-20: asked again with the same recordID and another retryID."""
    reply = WRONG[answer][0]
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1")
    (record,) = await shop.records()
    driver.always("deregisterBackend", reply)
    await shop.delete_pod("web-0")
    await world.until(lambda: driver.hooks["deregisterBackend"] >= 3, limit_s=LONG_S)
    (held,) = await shop.records()
    assert held.metadata.uid == record.metadata.uid
    assert held.deleting
    assert held.metadata.finalizers == [FINALIZER_DEREGISTER]
    assert held.status.state == "Deregistering"
    driver.mend("deregisterBackend")
    await world.until(shop.none_left, limit_s=LONG_S)
    asked = driver.asked("deregisterBackend")
    assert {body["recordID"] for body in asked} == {f"deregisterBackend({record.metadata.uid})"}
    assert len({body["retryID"] for body in asked}) == len(asked)
    assert driver.at() == set()


@pytest.mark.req("L-29")
@pytest.mark.parametrize("who", ["pod", "record"])
async def test_lt21_without_an_address_no_driver_is_asked_to_deregister(shop, driver, world, who):
    """LT-21."""
    driver.always("generateBackendAddr", RUNNING)
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await world.until(lambda: driver.hooks["generateBackendAddr"] >= 1)
    (before,) = await shop.records()
    if who == "pod":
        await shop.delete_pod("web-0")
        await world.until(shop.none_left)
    else:
        await world.user.delete(BACKEND_RECORDS, *before.key)

        async def another():
            records = await shop.records()
            return records and records[0].metadata.uid != before.metadata.uid

        await world.until(another, what="the pod is still wanted: another record")
    assert driver.rows() == []


async def handed_over(shop, driver, world):
    """A driver that names backends by their pods; web-0 comes back with another IP while the old one goes."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1")
    driver.always("deregisterBackend", RUNNING)
    await shop.delete_pod("web-0")
    await world.until(lambda: driver.hooks["deregisterBackend"] >= 1)
    await shop.pod("web-0", "10.1.0.2")
    await world.until(lambda: driver.hooks["generateBackendAddr"] == 2)
    await world.quiet(20)


@pytest.mark.req("L-27", "L-18")
async def test_lt22_a_registration_waits_for_the_deregistration_of_the_same_address(shop, driver, world):
    """LT-22: two records, one address at the driver."""
    await handed_over(shop, driver, world)
    assert driver.hooks["ensureBackend"] == 1
    states = await shop.states()
    assert states["10.1.0.1"] == "Deregistering"
    waiting = next(record for record in await shop.records() if record.spec.target.address == "10.1.0.2")
    assert "with the same address" in waiting.status.message
    ended_s = times_of(world, driver, "deregisterBackend")
    began_s = times_of(world, driver, "ensureBackend")
    await shop.registered("10.1.0.2")
    assert driver.at() == {"web-0:80"}
    assert driver.rows()[-2:] == [("deregisterBackend", "web-0:80"), ("ensureBackend", "web-0:80")]
    assert began_s[0] - ended_s[-1] <= 2.0, "right after the old one has gone"


@pytest.mark.req("L-28")
async def test_lt23_and_it_does_so_across_a_restart(shop, driver, world, hub):
    """LT-23."""
    await handed_over(shop, driver, world)
    await world.stop(hub)
    driver.calls.clear()
    await world.start(identity="hub-1")
    await world.until(lambda: driver.hooks["deregisterBackend"] >= 2)
    await world.quiet(10)
    assert driver.hooks["ensureBackend"] == 0
    driver.mend("deregisterBackend")
    await shop.registered("10.1.0.2")
    assert driver.at() == {"web-0:80"}
    assert driver.rows()[-1] == ("ensureBackend", "web-0:80")


@pytest.mark.req("L-28")
async def test_lt24_a_conflict_on_the_finalizer_never_takes_the_successor_away(shop, driver, world, hub):
    """LT-24: another client writes to the record between its deregistration and the removal of its finalizer."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.group()
    await shop.registered("10.1.0.1")
    (record,) = await shop.records()

    edits = []

    async def edit():
        # The hub has named the version that it knows, and its request waits: this edit comes before it.
        await asyncio.sleep(0.05)
        patch = {"metadata": {"labels": {"touched": str(driver.hooks["deregisterBackend"])}}}
        await world.user.merge_patch(BACKEND_RECORDS, *record.key, patch)
        hub.cluster.slow_kind = ""
        hub.cluster.answers.set()

    def meddle(body):
        hub.cluster.answers.clear()
        hub.cluster.slow_kind = BACKEND_RECORDS.kind
        edits.append(asyncio.ensure_future(edit()))
        return driver.really["deregisterBackend"](body)

    driver.first("deregisterBackend", meddle, meddle)
    await shop.delete_pod("web-0")
    await world.until(lambda: edits, what="the pod is deregistered")
    await shop.pod("web-0", "10.1.0.2")
    await shop.registered("10.1.0.2", limit_s=LONG_S)
    await world.quiet(30)
    hooks = [hook for hook, _ in driver.rows()]
    assert hooks.count("deregisterBackend") >= 2, "the conflicts were met"
    assert hooks[-1] == "ensureBackend"
    assert driver.at() == {"web-0:80"}


@pytest.mark.req("L-44", "L-28")
@pytest.mark.parametrize("restart", [False, True])
async def test_records_that_are_one_backend_there_share_it(shop, driver, world, hub, restart):
    """The driver's protocol knows no listeners: a backend of two of them goes with the last."""
    listeners = [{"name": name, "port": port, "protocol": "TCP"} for name, port in (("a", 80), ("b", 443))]
    await shop.lb(listeners=listeners)
    await shop.group("on-a", static=["10.9.0.1:80"], listener="a")
    await shop.group("on-b", static=["10.9.0.1:80"], listener="b")

    async def two():
        return [record.status.state for record in await shop.records()] == ["Registered"] * 2

    await world.until(two)
    if restart:
        await world.stop(hub)
        await world.start(identity="hub-1")
    await world.user.delete(BACKEND_GROUPS, "shop", "on-a")

    async def call_once():
        return len(await shop.records()) == 1

    await world.until(call_once)
    assert driver.at() == {"10.9.0.1:80"}
    assert driver.hooks["deregisterBackend"] == 0
    await world.user.delete(BACKEND_GROUPS, "shop", "on-b")
    await shop.until_at()
    await world.until(shop.none_left)


@pytest.mark.req("L-9", "L-44")
async def test_records_that_are_one_backend_there_and_leave_together_take_it_with_them(shop, driver, world):
    listeners = [{"name": name, "port": port, "protocol": "TCP"} for name, port in (("a", 80), ("b", 443))]
    await shop.lb(listeners=listeners)
    await shop.pod("web-0", "10.1.0.1")
    await shop.pod("web-1", "10.1.0.2")
    await shop.group()

    async def four():
        return [record.status.state for record in await shop.records()] == ["Registered"] * 4

    await world.until(four)
    await shop.delete_pod("web-0")
    await shop.until_at("web-1:80")
    await world.user.delete(BACKEND_GROUPS, "shop", "web")
    await shop.until_at()
    await world.until(shop.none_left)


@pytest.mark.req("L-40")
async def test_lt29_a_creation_without_lb_info_takes_lb_spec_for_it(world, driver, hub):
    """LT-29."""
    from lbcf_world import Shop

    shop = Shop(world)
    driver.lbs["shared"] = {}
    driver.always("createLoadBalancer", {"status": "Succ"})
    await shop.open()
    await shop.lb(parameters={"name": "shared", "id": "shared"})
    await shop.is_good()
    load_balancer = await shop.get()
    (entry,) = load_balancer.status.provisioned or []
    assert entry.info == {"name": "shared", "id": "shared"}
    assert (entry.state, entry.serving) == ("Ensured", True)
    await shop.group(static=["10.9.0.1:80"])
    await shop.registered("10.9.0.1")
    assert driver.asked("ensureBackend")[0]["lbInfo"] == {"name": "shared", "id": "shared"}


@pytest.mark.req("L-35", "L-23", "L-40")
async def test_lt30_a_load_balancer_stays_until_its_driver_has_deleted_it(shop, driver, world):
    """LT-30."""
    await shop.is_good()
    driver.first("deleteLoadBalancer", RUNNING, RUNNING | {"status": "Fail", "msg": "still in use"})
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await world.until(lambda: driver.hooks["deleteLoadBalancer"] == 2)
    assert await world.find(LOAD_BALANCERS, "shop", "shared") is not None
    await shop.reported("still in use", "deleteLoadBalancer")
    await shop.until_gone(limit_s=LONG_S)
    asked = driver.asked("deleteLoadBalancer")
    assert len(asked) == 3
    assert len({body["recordID"] for body in asked}) == 1
    assert [body["lbInfo"] for body in asked] == [{"id": "id-shared"}] * 3


@pytest.mark.req("L-25", "L-23")
@pytest.mark.usefixtures("sockets")
async def test_lt34_each_hook_has_its_own_time_and_what_is_too_slow_says_so(shop, driver, world):
    """LT-34: a slow creation is within its time, a registration is not."""

    async def slowly(body):
        await asyncio.sleep(0.4)
        return driver.really["createLoadBalancer"](body)

    await shop.is_good()
    driver.calls.clear()
    driver.first("createLoadBalancer", slowly)
    driver.always("ensureBackend", hang)
    await shop.lb_class("slow", parameters={"timeout.ensureBackend": "100ms"})
    await shop.lb("slow", class_name="slow")
    await shop.group(lbs=("slow",), static=["10.9.0.1:80"])
    await shop.says("Programmed", "timeout of 0.1 s", "ensureBackend", "timeout.ensureBackend", name="slow")
    assert driver.at("slow") == set()
    assert driver.hooks["createLoadBalancer"] == 1, "it had its own ten seconds"
    driver.mend("ensureBackend")
    await shop.until_at("10.9.0.1:80", lb="slow", limit_s=LONG_S)
    driver.always("ensureBackend", lambda _body: web.Response(status=404))
    await shop.group("more", lbs=("slow",), static=["10.9.0.2:80"])
    await shop.says("Programmed", "HTTP 404", "ensureBackend", name="slow")


@pytest.mark.req("L-8", "L-18")
async def test_lt39_a_deleted_record_is_deregistered_and_recreated(shop, driver, world):
    """LT-39."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.pod("web-1", "10.1.0.2")
    await shop.group()
    await shop.registered("10.1.0.1", "10.1.0.2")
    before = next(record for record in await shop.records() if record.spec.target.address == "10.1.0.1")
    driver.calls.clear()
    await world.user.delete(BACKEND_RECORDS, *before.key)

    async def another():
        result = [record for record in await shop.records() if record.spec.target.address == "10.1.0.1"]
        return [each.status.state for each in result] == ["Registered"] and result[
            0
        ].metadata.uid != before.metadata.uid

    await world.until(another)
    assert driver.rows() == [("deregisterBackend", "web-0:80"), ("ensureBackend", "web-0:80")]
    assert driver.asked("deregisterBackend")[0]["recordID"] == f"deregisterBackend({before.metadata.uid})"
    assert driver.at() == {"web-0:80", "web-1:80"}
