"""The webhook provider as a whole: its protocols, dry runs, and load balancers that it does not know."""

from __future__ import annotations

import pytest
import structlog

from fairlead.model.change import DONE, Action, BackendFacts, OutcomeStatus
from fairlead.model.contract import Lifecycle, PodRetention, Reachable, Releasable, Restorable, Validates
from fairlead.providers.webhook.provider import WebhookProvider
from tests.unit.providers.webhook.scripted_driver import KEY, POD, SUCC, ScriptedDriver, row, spec


def test_the_provider_lists_its_features(webhook: WebhookProvider) -> None:
    for protocol in (Reachable, Restorable, Releasable, Lifecycle, Validates, PodRetention):
        assert isinstance(webhook, protocol)


async def test_unknown_targets_are_not_called_removed(webhook: WebhookProvider) -> None:
    (outcome,) = await webhook.apply([row(Action.DEREGISTER)])
    assert outcome.status is OutcomeStatus.RETRY


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
            webhook.restore(asked, {"id": "lb-1"})
            for change in (row(), row(facts=BackendFacts(origin=POD)), row(Action.DEREGISTER)):
                await webhook.apply([change])
            await webhook.delete(KEY)
        said = [(line["would"], line["driver_is_asked"]) for line in logged if line["event"] == "dry run"]
        actions = ("create", "Register", "Register", "Deregister", "delete")
        assert said == [(word, accepts == "true") for word in actions]
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


async def test_restoring_a_broken_object_stops_no_other(webhook: WebhookProvider) -> None:
    webhook.restore(spec("no url"), {"id": "lb-1"})
    (outcome,) = await webhook.apply([row(Action.DEREGISTER)])
    assert outcome.status is OutcomeStatus.RETRY


async def test_without_a_driver_there_is_nothing_to_remove(webhook: WebhookProvider) -> None:
    webhook.restore(spec("no url"), {})
    assert await webhook.apply([row(Action.DEREGISTER)]) == [DONE]
    await webhook.delete(KEY)


async def test_created_parts_are_deleted_despite_an_invalid_class(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    webhook.restore(spec(scripted.url, parallel="many", timeout="soon"), {"id": "lb-1"})
    assert await webhook.apply([row(Action.DEREGISTER)]) == [DONE]
    await webhook.delete(KEY)
    assert [hook for hook, _ in scripted.calls] == ["deregisterBackend", "deleteLoadBalancer"]
