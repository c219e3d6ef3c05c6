"""A driver is not called again before the time that it named."""

from __future__ import annotations

import pytest

from fairlead.model.change import Action, Outcome
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver, ready, row


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
    assert [outcome.retry_after_s for outcome in outcomes] == [60, 40, 20, 60]
    assert len({outcome.message for outcome in outcomes}) == 1
    await webhook.apply([row(weight=2), row(number=2)])
    assert len(scripted.asked("ensureBackend")) == 4
    await webhook.apply([row(Action.DEREGISTER)])
    assert len(scripted.asked("deregisterBackend")) == 1
