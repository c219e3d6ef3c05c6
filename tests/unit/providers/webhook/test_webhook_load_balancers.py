"""Hooks about load balancers: what a driver is called with, and what its answers mean."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, OutcomeStatus
from fairlead.model.keys import Family, WantedFamilies
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock
from tests.unit.providers.webhook.scripted_driver import KEY, SUCC, ScriptedDriver, ready, row, spec

LB_INFO = {"lbInfo": {"id": "lb-1"}}


async def test_create_says_lb_spec_and_attributes_and_keeps_lb_info(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    scripted.on("createLoadBalancer", SUCC | LB_INFO | {"addresses": ["198.51.100.7"]})
    ensured = await webhook.ensure(spec(scripted.url, {"bandwidth": "10"}, parallel="2"))
    assert (ensured.info, ensured.addresses) == ({"id": "lb-1"}, ("198.51.100.7",))
    (body,) = scripted.asked("createLoadBalancer")
    assert body.pop("retryID")
    assert body == {
        "recordID": "createLoadBalancer(uid-lb)",
        "dryRun": False,
        "lbSpec": {"lbID": "lb-1"},
        "attributes": {"bandwidth": "10"},
    }


@pytest.mark.req("K-58")
@pytest.mark.parametrize(
    ("families", "all_required", "expected"),
    [
        (("IPv6",), False, (["IPv6"], "SingleStack")),
        (("IPv6", "IPv4"), False, (["IPv6", "IPv4"], "PreferDualStack")),
        (("IPv4", "IPv6"), True, (["IPv4", "IPv6"], "RequireDualStack")),
        ((), False, (None, None)),
    ],
)
async def test_a_driver_that_reads_families_gets_them(
    webhook: WebhookProvider,
    scripted: ScriptedDriver,
    families: tuple[Family, ...],
    all_required: bool,
    expected: tuple[list[str] | None, str | None],
) -> None:
    scripted.on("createLoadBalancer", SUCC | LB_INFO)
    wanted = WantedFamilies(families, all_required)
    asked = msgspec.structs.replace(spec(scripted.url, ipFamilies="true"), families=wanted)
    await webhook.ensure(asked)
    await webhook.ensure(asked)
    for hook in ("createLoadBalancer", "ensureLoadBalancer"):
        (body,) = scripted.asked(hook)
        assert (body.get("ipFamilies"), body.get("ipFamilyPolicy")) == expected
        assert "ipFamilies" not in body.get("lbSpec", {})


async def test_a_driver_of_before_gets_no_families(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    scripted.on("createLoadBalancer", SUCC | LB_INFO)
    families = WantedFamilies(("IPv4", "IPv6"), all_required=True)
    await webhook.ensure(msgspec.structs.replace(spec(scripted.url), families=families))
    (body,) = scripted.asked("createLoadBalancer")
    assert {"ipFamilies", "ipFamilyPolicy"}.isdisjoint(body)


async def test_lb_info_is_lb_spec_when_the_driver_names_none(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    """LT-29."""
    assert (await webhook.ensure(spec(scripted.url))).info == {"lbID": "lb-1"}


@pytest.mark.req("L-23", "L-22")
async def test_create_is_asked_again_until_succ(
    webhook: WebhookProvider, scripted: ScriptedDriver, clock: VirtualClock
) -> None:
    scripted.on(
        "createLoadBalancer",
        {"status": "Running", "msg": "booting", "minRetryDelayInSeconds": 7},
        {"status": "Fail", "msg": "quota"},
        SUCC,
    )
    with pytest.raises(Retry, match=r"still working on createLoadBalancer.*booting") as running:
        await webhook.ensure(spec(scripted.url))
    assert (running.value.after_s, running.value.reason) == (7, "DriverRunning")
    await clock.advance(7)
    with pytest.raises(Retry, match=r"failed createLoadBalancer.*quota") as failed:
        await webhook.ensure(spec(scripted.url))
    assert (failed.value.after_s, failed.value.reason) == (10, "DriverFail")
    await clock.advance(10)
    await webhook.ensure(spec(scripted.url))
    bodies = scripted.asked("createLoadBalancer")
    assert len({body["recordID"] for body in bodies}) == 1
    assert len({body["retryID"] for body in bodies}) == 3


async def test_changed_attributes_are_ensured_once(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await ready(webhook, scripted)
    await webhook.ensure(spec(scripted.url, {"bandwidth": "20"}))
    (body,) = scripted.asked("ensureLoadBalancer")
    assert (body["lbInfo"], body["attributes"]) == ({"id": "lb-1"}, {"bandwidth": "20"})
    assert len(scripted.asked("createLoadBalancer")) == 1


async def test_delete_waits_for_succ_and_says_lb_info(
    webhook: WebhookProvider, scripted: ScriptedDriver, clock: VirtualClock
) -> None:
    """LT-30, B21, B22."""
    await ready(webhook, scripted)
    scripted.on("deleteLoadBalancer", {"status": "Running"}, {"status": "Fail", "msg": "in use"}, SUCC)
    for message in ("still working on", "in use"):
        with pytest.raises(Retry, match=message):
            await webhook.delete(KEY)
        assert await webhook.observe(KEY) is not None
        await clock.advance(10)
    await webhook.delete(KEY)
    await webhook.delete(KEY)
    assert [body["lbInfo"] for body in scripted.asked("deleteLoadBalancer")] == [{"id": "lb-1"}] * 3
    assert await webhook.observe(KEY) is None


async def test_a_load_balancer_never_created_is_deleted_without_a_call(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    """B22: what the driver refused to create can be deleted all the same."""
    scripted.on("createLoadBalancer", {"status": "Fail", "msg": "quota"})
    with pytest.raises(Retry):
        await webhook.ensure(spec(scripted.url))
    await webhook.delete(KEY)
    assert scripted.asked("deleteLoadBalancer") == []


@pytest.mark.parametrize("first", [{"status": "Running"}, {"status": "what?"}, {"status": "Fail"}])
async def test_a_load_balancer_that_may_exist_is_deleted(
    webhook: WebhookProvider, scripted: ScriptedDriver, first: dict[str, str]
) -> None:
    """An answer that was lost, or not the last one, must not leak a load balancer; a plain Fail has made none."""
    scripted.on("createLoadBalancer", first)
    with pytest.raises(Retry):
        await webhook.ensure(spec(scripted.url))
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    await webhook.delete(KEY)
    expected = [body["lbInfo"] for body in scripted.asked("deleteLoadBalancer")]
    assert expected == ([] if first == {"status": "Fail"} else [{"lbID": "lb-1"}])
    assert await webhook.observe(KEY) is None


async def test_what_no_driver_has_heard_of_needs_none_to_be_deleted(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await scripted.stop()
    with pytest.raises(Retry, match="no connection"):
        await webhook.ensure(spec(scripted.url))
    await webhook.delete(KEY)


async def test_a_creation_that_another_process_began_is_finished(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    webhook.restore(spec(scripted.url), {})
    seen = await webhook.observe(KEY)
    assert seen is not None
    assert not seen.programmed
    assert await webhook.apply([row(Action.DEREGISTER)]) == [DONE]
    assert (await webhook.ensure(spec(scripted.url))).info == {"lbID": "lb-1"}
    assert [hook for hook, _ in scripted.calls] == ["deregisterBackend", "createLoadBalancer"]


async def test_an_existing_load_balancer_is_never_deleted(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    existing = msgspec.structs.replace(spec(scripted.url), existing=True)
    await webhook.ensure(existing)
    await webhook.delete(KEY)
    assert scripted.asked("deleteLoadBalancer") == []
    assert await webhook.observe(KEY) is None


async def test_a_namesake_of_a_released_one_is_another_one(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    first = msgspec.structs.replace(spec(scripted.url), existing=True)
    await webhook.ensure(first)
    assert await webhook.apply([row()]) == [DONE]
    webhook.release(KEY)
    assert await webhook.observe(KEY) is None
    parameters = {**first.parameters, "lbID": "lb-2"}
    second = msgspec.structs.replace(first, parameters=parameters)
    assert (await webhook.ensure(second)).info == {"lbID": "lb-2"}
    assert [body["lbSpec"] for body in scripted.asked("createLoadBalancer")] == [{"lbID": "lb-1"}, {"lbID": "lb-2"}]
    assert await webhook.apply([row()]) == [DONE]
    assert [body["lbInfo"] for body in scripted.asked("ensureBackend")] == [{"lbID": "lb-1"}, {"lbID": "lb-2"}]
    assert scripted.asked("ensureLoadBalancer") == []
    assert scripted.asked("deleteLoadBalancer") == []
