"""Hook by hook: what a driver is asked, and what its answers mean."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry
from tests.unit.providers.webhook.scripted_driver import KEY, POD, SUCC, ScriptedDriver, row, spec

from fairlead.errors import Retry, Terminal
from fairlead.model.change import DONE, Action, BackendFacts, Outcome, OutcomeStatus
from fairlead.model.contract import Lifecycle, PodRetention, Releasable, Restorable, Validates
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock

LB_INFO = {"lbInfo": {"id": "lb-1"}}


async def ready(webhook: WebhookProvider, scripted: ScriptedDriver, **parameters: str) -> None:
    scripted.on("createLoadBalancer", SUCC | LB_INFO)
    await webhook.ensure(spec(scripted.url, {"bandwidth": "10"}, **parameters))


def test_it_says_what_it_can_do(webhook: WebhookProvider) -> None:
    for protocol in (Restorable, Releasable, Lifecycle, Validates, PodRetention):
        assert isinstance(webhook, protocol)


# --- load balancers -------------------------------------------------------------------------------------------


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
    with pytest.raises(Retry, match=r"still at createLoadBalancer.*booting") as running:
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
    for words in ("still at", "in use"):
        with pytest.raises(Retry, match=words):
            await webhook.delete(KEY)
        assert await webhook.observe(KEY) is not None
        await clock.advance(10)
    await webhook.delete(KEY)
    await webhook.delete(KEY)
    assert [body["lbInfo"] for body in scripted.asked("deleteLoadBalancer")] == [{"id": "lb-1"}] * 3
    assert await webhook.observe(KEY) is None


async def test_one_that_was_never_created_is_deleted_without_a_call(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    """B22: what the driver refused to create can be deleted all the same."""
    scripted.on("createLoadBalancer", {"status": "Fail", "msg": "quota"})
    with pytest.raises(Retry):
        await webhook.ensure(spec(scripted.url))
    await webhook.delete(KEY)
    assert scripted.asked("deleteLoadBalancer") == []


@pytest.mark.parametrize("first", [{"status": "Running"}, {"status": "what?"}, {"status": "Fail"}])
async def test_one_that_may_have_been_created_is_deleted(
    webhook: WebhookProvider, scripted: ScriptedDriver, first: dict[str, str]
) -> None:
    """An answer that was lost, or not the last one, must not leak a load balancer; a plain Fail has made none."""
    scripted.on("createLoadBalancer", first)
    with pytest.raises(Retry):
        await webhook.ensure(spec(scripted.url))
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    await webhook.delete(KEY)
    said = [body["lbInfo"] for body in scripted.asked("deleteLoadBalancer")]
    assert said == ([] if first == {"status": "Fail"} else [{"lbID": "lb-1"}])
    assert await webhook.observe(KEY) is None


async def test_what_no_driver_has_heard_of_needs_none_to_be_deleted(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await scripted.stop()
    with pytest.raises(Retry, match="nobody answers"):
        await webhook.ensure(spec(scripted.url))
    await webhook.delete(KEY)


async def test_a_creation_that_another_process_began_is_finished(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    webhook.recall(spec(scripted.url), {})
    seen = await webhook.observe(KEY)
    assert seen is not None
    assert not seen.programmed
    assert await webhook.apply([row(Action.DEREGISTER)]) == [DONE]
    assert (await webhook.ensure(spec(scripted.url))).info == {"lbID": "lb-1"}
    assert [hook for hook, _ in scripted.calls] == ["deregisterBackend", "createLoadBalancer"]


async def test_one_that_existed_before_is_never_deleted(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    existing = msgspec.structs.replace(spec(scripted.url), existing=True)
    await webhook.ensure(existing)
    await webhook.delete(KEY)
    assert scripted.asked("deleteLoadBalancer") == []
    assert await webhook.observe(KEY) is None


async def test_a_namesake_of_one_that_was_let_go_is_another_one(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    first = msgspec.structs.replace(spec(scripted.url), existing=True)
    await webhook.ensure(first)
    assert await webhook.apply([row()]) == [DONE]
    webhook.let_go(KEY)
    assert await webhook.observe(KEY) is None
    parameters = {**first.parameters, "lbID": "lb-2"}
    second = msgspec.structs.replace(first, parameters=parameters)
    assert (await webhook.ensure(second)).info == {"lbID": "lb-2"}
    assert [body["lbSpec"] for body in scripted.asked("createLoadBalancer")] == [{"lbID": "lb-1"}, {"lbID": "lb-2"}]
    assert await webhook.apply([row()]) == [DONE]
    assert [body["lbInfo"] for body in scripted.asked("ensureBackend")] == [{"lbID": "lb-1"}, {"lbID": "lb-2"}]
    assert scripted.asked("ensureLoadBalancer") == []
    assert scripted.asked("deleteLoadBalancer") == []


# --- backends -------------------------------------------------------------------------------------------------


@pytest.mark.req("L-22")
async def test_ensure_backend_says_everything(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await ready(webhook, scripted)
    facts = BackendFacts(record_id="uid-br", parameters={"zone": "a"}, injected_info={"task": "7"})
    assert await webhook.apply([row(facts=facts, weight=10)]) == [DONE]
    (body,) = scripted.asked("ensureBackend")
    assert body.pop("retryID")
    assert body == {
        "recordID": "ensureBackend(uid-br)",
        "dryRun": False,
        "lbInfo": {"id": "lb-1"},
        "backendAddr": "10.0.0.1:8080",
        "parameters": {"zone": "a", "weight": "10"},
        "injectedInfo": {"task": "7"},
    }
    assert scripted.asked("generateBackendAddr") == []  # LT-6: the address is given


@pytest.mark.req("L-22")
async def test_record_ids_stay_across_retries_and_processes(
    webhook: WebhookProvider, scripted: ScriptedDriver, clock: VirtualClock
) -> None:
    """LT-20, with and without a ledger that names them."""
    await ready(webhook, scripted)
    scripted.on("deregisterBackend", {"status": "Fail"})
    for facts in (None, BackendFacts(record_id="uid-br")):
        scripted.calls.clear()
        other = WebhookProvider(clock=clock)
        other.recall(spec(scripted.url), {"id": "lb-1"})
        for provider in (webhook, webhook, other):
            (outcome,) = await provider.apply([row(Action.DEREGISTER, facts=facts)])
            assert (outcome.status, outcome.retry_after_s) == (OutcomeStatus.RETRY, 10)
            await clock.advance(10)
        await other.close()
        bodies = scripted.asked("deregisterBackend")
        assert len({body["recordID"] for body in bodies}) == 1
        assert len({body["retryID"] for body in bodies}) == 3


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("reply", "status", "after_s", "words"),
    [
        ({"status": "Fail", "msg": "port taken"}, OutcomeStatus.RETRY, 10, "port taken"),
        ({"status": "Fail", "minRetryDelayInSeconds": 90}, OutcomeStatus.RETRY, 90, "no reason"),
        ({"status": "Running", "minRetryDelayInSeconds": 2}, OutcomeStatus.RUNNING, 2, "still at"),
        ({"status": "weird"}, OutcomeStatus.RETRY, 0, "weird"),
    ],
)
@pytest.mark.parametrize(
    ("hook", "change"),
    [
        ("generateBackendAddr", row(facts=BackendFacts(origin=POD))),
        ("ensureBackend", row()),
        ("deregisterBackend", row(Action.DEREGISTER)),
    ],
)
async def test_what_is_not_succ_is_asked_again(
    webhook: WebhookProvider, scripted: ScriptedDriver, reply, status, after_s, words, hook, change
) -> None:
    """LT-17, LT-19, LT-20."""
    await ready(webhook, scripted)
    scripted.on(hook, reply)
    (outcome,) = await webhook.apply([change])
    assert (outcome.status, outcome.retry_after_s) == (status, after_s)
    for word in (words, scripted.url, hook, "10.0.0.1"):
        assert word in outcome.message
    assert [name for name, _ in scripted.calls if name != "createLoadBalancer"] == [hook]


async def test_the_drivers_own_delay_is_passed_on(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await ready(webhook, scripted)
    scripted.on("ensureBackend", {"status": "Fail", "minRetryDelayInSeconds": 42})
    (outcome,) = await webhook.apply([row()])
    assert outcome.retry_after_s == 42


async def test_an_address_is_stored_before_the_backend_is_registered(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await ready(webhook, scripted)
    scripted.on("generateBackendAddr", SUCC | {"backendAddr": "ins-7:8080"})
    facts = BackendFacts(record_id="uid-br", origin=POD, parameters={"zone": "a"})
    (outcome,) = await webhook.apply([row(facts=facts)])
    assert (outcome.status, outcome.generated_address) == (OutcomeStatus.RUNNING, "ins-7:8080")
    assert scripted.asked("ensureBackend") == []
    (body,) = scripted.asked("generateBackendAddr")
    assert body["podBackend"] == POD["podBackend"]
    assert (body["lbInfo"], body["lbAttributes"], body["parameters"]) == (
        {"id": "lb-1"},
        {"bandwidth": "10"},
        {"zone": "a"},
    )
    stored = msgspec.structs.replace(facts, generated_address=outcome.generated_address)
    assert await webhook.apply([row(facts=stored)]) == [DONE]
    assert [body["backendAddr"] for body in scripted.asked("ensureBackend")] == ["ins-7:8080"]
    assert len(scripted.asked("generateBackendAddr")) == 1


async def test_succ_without_an_address_is_an_error(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await ready(webhook, scripted)
    (outcome,) = await webhook.apply([row(facts=BackendFacts(origin=POD))])
    assert outcome.status is OutcomeStatus.RETRY
    assert "no backendAddr" in outcome.message


@pytest.mark.req("L-29")
async def test_without_an_address_nothing_was_registered(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """LT-21."""
    await ready(webhook, scripted)
    scripted.calls.clear()
    assert await webhook.apply([row(Action.DEREGISTER, facts=BackendFacts(origin=POD))]) == [DONE]
    assert scripted.calls == []


@pytest.mark.req("L-26")
async def test_injected_info_comes_back_with_later_calls(
    webhook: WebhookProvider, scripted: ScriptedDriver, clock: VirtualClock
) -> None:
    """LT-18: kept on Succ only, and only when there is any; from the ledger, and until it is there."""
    await ready(webhook, scripted)
    scripted.on(
        "ensureBackend",
        {"status": "Fail", "injectedInfo": {"task": "0"}},
        SUCC | {"injectedInfo": {"task": "7"}},
        SUCC,
    )
    (failed,) = await webhook.apply([row()])
    await clock.advance(10)
    good, again = [(await webhook.apply([row()]))[0] for _ in range(2)]
    assert (failed.injected_info, good.injected_info, again.injected_info) == (None, {"task": "7"}, None)
    await webhook.apply([row(Action.DEREGISTER)])
    said = [body["injectedInfo"] for name, body in scripted.calls if name != "createLoadBalancer"]
    assert said == [{}, {}, {"task": "7"}, {"task": "7"}]
    await webhook.apply([row(Action.DEREGISTER, facts=BackendFacts(injected_info={"task": "8"}))])
    assert scripted.asked("deregisterBackend")[-1]["injectedInfo"] == {"task": "8"}


@pytest.mark.req("L-24")
async def test_a_driver_is_not_asked_the_same_before_its_time(
    webhook: WebhookProvider, scripted: ScriptedDriver, clock: VirtualClock
) -> None:
    """Whatever else makes the core try again; what is asked in other words, or about another, is asked at once."""
    await ready(webhook, scripted)
    scripted.on("ensureBackend", {"status": "Fail", "msg": "full", "minRetryDelayInSeconds": 60})
    outcomes: list[Outcome] = []
    for _ in range(4):
        outcomes += await webhook.apply([row()])
        await clock.advance(20)
    assert len(scripted.asked("ensureBackend")) == 2
    assert [one.retry_after_s for one in outcomes] == [60, 40, 20, 60]
    assert len({one.message for one in outcomes}) == 1
    await webhook.apply([row(weight=2), row(number=2)])
    assert len(scripted.asked("ensureBackend")) == 4
    await webhook.apply([row(Action.DEREGISTER)])
    assert len(scripted.asked("deregisterBackend")) == 1


async def test_changed_parameters_ensure_in_place(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """LT-12."""
    await ready(webhook, scripted)
    for weight in ("1", "5"):
        await webhook.apply([row(Action.UPDATE, facts=BackendFacts(parameters={"weight": weight}))])
    assert [body["parameters"] for body in scripted.asked("ensureBackend")] == [{"weight": "1"}, {"weight": "5"}]
    assert scripted.asked("deregisterBackend") == []


@pytest.mark.req("L-2")
async def test_a_new_process_deregisters_with_what_was_stored(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    """LT-7: pod, group and node are gone; the record says it all."""
    webhook.recall(spec(scripted.url), {"id": "lb-stored"})
    facts = BackendFacts(record_id="uid-br", generated_address="ins-7:8080", injected_info={"t": "1"}, origin=POD)
    assert await webhook.apply([row(Action.DEREGISTER, facts=facts)]) == [DONE]
    ((hook, body),) = scripted.calls
    assert hook == "deregisterBackend"
    assert (body["lbInfo"], body["backendAddr"], body["injectedInfo"]) == (
        {"id": "lb-stored"},
        "ins-7:8080",
        {"t": "1"},
    )


async def test_what_is_not_known_is_not_called_removed(webhook: WebhookProvider) -> None:
    (outcome,) = await webhook.apply([row(Action.DEREGISTER)])
    assert outcome.status is OutcomeStatus.RETRY


async def test_a_draining_target_is_deregistered_at_once(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await ready(webhook, scripted)
    await webhook.apply([row()])
    for change in (row(Action.UPDATE, draining=True), row(Action.DRAIN), row(Action.DEREGISTER)):
        assert await webhook.apply([change]) == [DONE]
    assert len(scripted.asked("deregisterBackend")) == 3
    assert len(scripted.asked("ensureBackend")) == 1


# --- asked once -----------------------------------------------------------------------------------------------


async def test_a_refusal_has_the_drivers_words(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """LT-33."""
    scripted.on("validateLoadBalancer", {"succ": False, "msg": "unknown lbID"})
    scripted.on("validateBackend", {"succ": False, "msg": "weight too big"})
    with pytest.raises(Terminal, match="unknown lbID"):
        await webhook.validate(spec(scripted.url))
    with pytest.raises(Terminal, match="weight too big"):
        await webhook.validate_backends(spec(scripted.url), backend_type="Pod", parameters={"weight": "900"})


async def test_validation_says_what_was_and_what_shall_be(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    yes = {"succ": True}
    scripted.on("validateLoadBalancer", yes)
    scripted.on("validateBackend", yes)
    old, new = spec(scripted.url, {"a": "1"}), spec(scripted.url, {"a": "2"})
    await webhook.validate(old)
    await webhook.validate(new, old=old)
    await webhook.validate_backends(new, backend_type="Static", parameters={"w": "2"}, old_parameters={"w": "1"})
    first, second = scripted.asked("validateLoadBalancer")
    assert (first["operation"], first["lbSpec"], "oldAttributes" in first) == ("Create", {"lbID": "lb-1"}, False)
    assert (second["operation"], second["attributes"], second["oldAttributes"]) == ("Update", {"a": "2"}, {"a": "1"})
    (backend,) = scripted.asked("validateBackend")
    assert backend == {
        "dryRun": False,
        "backendType": "Static",
        "lbInfo": {"lbID": "lb-1"},
        "operation": "Update",
        "parameters": {"w": "2"},
        "oldParameters": {"w": "1"},
    }


async def test_the_driver_judges_pods_that_are_not_ready(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """LT-26: whom to keep; every way not to answer is a Retry, for the caller's failurePolicy."""
    pods = [{"metadata": {"namespace": "shop", "name": name}} for name in ("p1", "p2")]
    scripted.on("judgePodDeregister", {"succ": True, "doNotDeregister": [pods[0]]})
    parameters = spec(scripted.url).parameters
    assert await webhook.judge_pods(parameters, pods) == {("shop", "p1")}
    assert scripted.asked("judgePodDeregister") == [{"dryRun": False, "notReadyPods": pods}]
    for reply in ({"succ": False, "msg": "busy"}, {}, {"succ": True, "doNotDeregister": "all"}):
        scripted.on("judgePodDeregister", reply)
        with pytest.raises(Retry):
            await webhook.judge_pods(parameters, pods)
    scripted.calls.clear()
    assert await webhook.judge_pods(parameters, []) == frozenset()
    assert scripted.calls == []


async def test_health_is_asked(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    scripted.on("healthz", {"healthy": True}, {"healthy": False, "msg": "disk full"})
    await webhook.healthy(spec(scripted.url).parameters)
    with pytest.raises(Retry, match="disk full"):
        await webhook.healthy(spec(scripted.url).parameters)


@pytest.mark.req("L-41")
@pytest.mark.parametrize("accepts", ["true", "false"])
async def test_dry_run_asks_only_who_agreed_and_remembers_nothing(scripted: ScriptedDriver, accepts: str) -> None:
    """LT-36."""
    webhook = WebhookProvider(dry_run=True)
    scripted.on("generateBackendAddr", SUCC | {"backendAddr": "ins-7"})
    scripted.on("validateLoadBalancer", {"succ": True})
    asked = spec(scripted.url, acceptDryRunCall=accepts, verify="true")
    try:
        with structlog.testing.capture_logs() as logged:
            assert (await webhook.ensure(asked)).info is None
            assert await webhook.observe(KEY) is None
            await webhook.validate(asked)
            webhook.recall(asked, {"id": "lb-1"})
            for change in (row(), row(facts=BackendFacts(origin=POD)), row(Action.DEREGISTER)):
                await webhook.apply([change])
            await webhook.delete(KEY)
        said = [(line["would"], line["driver_is_asked"]) for line in logged if line["event"] == "dry run"]
        words = ("create", "Register", "Register", "Deregister", "delete")
        assert said == [(word, accepts == "true") for word in words]
        hooks = {name for name, _ in scripted.calls if name != "listBackends"}
        if accepts == "true":
            assert hooks == {
                "createLoadBalancer",
                "validateLoadBalancer",
                "ensureBackend",
                "generateBackendAddr",
                "deregisterBackend",
                "deleteLoadBalancer",
            }
            assert all(body["dryRun"] for name, body in scripted.calls if name != "listBackends")
        else:
            assert hooks == set()
    finally:
        await webhook.close()


@pytest.mark.req("L-45")
async def test_calls_errors_fails_and_latency_are_counted(
    webhook: WebhookProvider, scripted: ScriptedDriver, registry: CollectorRegistry, clock: VirtualClock
) -> None:
    await ready(webhook, scripted)
    scripted.on("ensureBackend", SUCC, {"status": "Fail"}, lambda _body: asyncio.sleep(0, _html()))
    for _ in range(3):
        await webhook.apply([row()])
        await clock.advance(10)
    labels = {"driver": scripted.url, "hook": "ensureBackend"}
    values = [
        registry.get_sample_value(f"fairlead_webhook_{name}", labels)
        for name in ("calls_total", "errors_total", "fails_total", "seconds_count")
    ]
    assert values == [3, 1, 1, 3]


def _html():
    from aiohttp import web

    return web.Response(text="<html>oops</html>", content_type="text/html")


async def test_taking_back_a_broken_object_stops_nobody(webhook: WebhookProvider) -> None:
    webhook.recall(spec("no url"), {"id": "lb-1"})
    (outcome,) = await webhook.apply([row(Action.DEREGISTER)])
    assert outcome.status is OutcomeStatus.RETRY
