"""Hooks about backends: what a driver is called with, and what its answers mean."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.change import DONE, Action, BackendFacts, OutcomeStatus
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock
from tests.unit.providers.webhook.scripted_driver import POD, SUCC, ScriptedDriver, ready, row, spec


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
        other.restore(spec(scripted.url), {"id": "lb-1"})
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
    ("reply", "status", "after_s", "message"),
    [
        ({"status": "Fail", "msg": "port taken"}, OutcomeStatus.RETRY, 10, "port taken"),
        ({"status": "Fail", "minRetryDelayInSeconds": 90}, OutcomeStatus.RETRY, 90, "no reason"),
        ({"status": "Running", "minRetryDelayInSeconds": 2}, OutcomeStatus.RUNNING, 2, "still working on"),
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
async def test_unsuccessful_calls_are_repeated(
    webhook: WebhookProvider, scripted: ScriptedDriver, reply, status, after_s, message, hook, change
) -> None:
    """LT-17, LT-19, LT-20."""
    await ready(webhook, scripted)
    scripted.on(hook, reply)
    (outcome,) = await webhook.apply([change])
    assert (outcome.status, outcome.retry_after_s) == (status, after_s)
    for word in (message, scripted.url, hook, "10.0.0.1"):
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
    assert "backendAddr" in outcome.message


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
        "ensureBackend", {"status": "Fail", "injectedInfo": {"task": "0"}}, SUCC | {"injectedInfo": {"task": "7"}}, SUCC
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
    webhook.restore(spec(scripted.url), {"id": "lb-stored"})
    facts = BackendFacts(record_id="uid-br", generated_address="ins-7:8080", injected_info={"t": "1"}, origin=POD)
    assert await webhook.apply([row(Action.DEREGISTER, facts=facts)]) == [DONE]
    ((hook, body),) = scripted.calls
    assert hook == "deregisterBackend"
    assert (body["lbInfo"], body["backendAddr"], body["injectedInfo"]) == (
        {"id": "lb-stored"},
        "ins-7:8080",
        {"t": "1"},
    )


async def test_a_draining_target_is_deregistered_at_once(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await ready(webhook, scripted)
    await webhook.apply([row()])
    for change in (row(Action.UPDATE, draining=True), row(Action.DRAIN), row(Action.DEREGISTER)):
        assert await webhook.apply([change]) == [DONE]
    assert len(scripted.asked("deregisterBackend")) == 3
    assert len(scripted.asked("ensureBackend")) == 1
