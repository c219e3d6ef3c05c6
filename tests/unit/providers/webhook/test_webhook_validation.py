"""Hooks that are called once: validation, pods that are not ready, health."""

from __future__ import annotations

import pytest

from fairlead.errors import Retry, Terminal
from fairlead.providers.webhook.provider import WebhookProvider
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver, spec


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


async def test_the_driver_decides_which_pods_that_are_not_ready_stay(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
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
