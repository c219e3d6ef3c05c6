"""Many changes at once: drivers that are down or slow, and what one change means for the others."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from fairlead.model.change import DONE, BackendFacts, OutcomeStatus
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock
from tests.unit.providers.webhook.scripted_driver import SUCC, ScriptedDriver, row, spec


async def test_a_driver_that_is_down_is_not_asked_five_hundred_times(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url))
    await scripted.stop()
    outcomes = await webhook.apply([row(number=number) for number in range(1, 251)])
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.RETRY}
    assert "no connection" in outcomes[0].message
    assert outcomes[-1].message.startswith("skipped after")


async def test_a_driver_that_never_answers_in_time_is_given_up_for_this_batch(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url, parallel="1", **{"timeout.ensureBackend": "300ms"}))
    scripted.gate.clear()
    outcomes = await webhook.apply([row(number=number) for number in range(1, 100)])
    assert len(scripted.asked("ensureBackend")) == 3
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.RETRY}


async def test_one_refused_address_of_many_stops_no_other(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url))
    scripted.on("ensureBackend", lambda body: {"status": "Fail"} if body["backendAddr"] == "10.0.0.77:8080" else SUCC)
    outcomes = await webhook.apply([row(number=number) for number in range(1, 201)])
    assert [index for index, outcome in enumerate(outcomes) if outcome != DONE] == [76]


async def test_never_two_calls_for_one_record_at_once(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url, parallel="8"))
    scripted.on("ensureBackend", lambda _body: asyncio.sleep(0.005, web.json_response(SUCC)))
    facts = BackendFacts(record_id="uid-br")
    await asyncio.gather(*(webhook.apply([row(facts=facts), row(number=2)]) for _ in range(6)))
    assert len(scripted.asked("ensureBackend")) == 12
    assert scripted.overlaps == 0
    assert scripted.most_at_once == 2


async def test_two_drivers_do_not_hold_each_other_up(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    other = await ScriptedDriver().start()
    try:
        second = msgspec.structs.replace(spec(other.url), key=LoadBalancerKey("LoadBalancer", "shop", "other"))
        await webhook.ensure(spec(scripted.url, **{"timeout.ensureBackend": "200ms"}))
        await webhook.ensure(second)
        scripted.gate.clear()
        theirs = msgspec.structs.replace(row(), load_balancer=second.key)
        slow, quick = await webhook.apply([row(), theirs])
        assert (slow.status, quick) == (OutcomeStatus.RETRY, DONE)
    finally:
        await other.stop()


async def test_what_cannot_begin_in_time_is_left_for_the_next_batch(scripted: ScriptedDriver) -> None:
    """A batch ends before the core gives it up, so that what was done is stored."""
    clock = VirtualClock()
    webhook = WebhookProvider(clock=clock)
    try:
        await webhook.ensure(spec(scripted.url, parallel="1"))

        def slow(_body):
            clock.jump(30)
            return SUCC

        scripted.on("ensureBackend", slow)
        outcomes = await webhook.apply([row(number=number) for number in range(1, 9)])
        assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE] * 4 + [OutcomeStatus.RUNNING] * 4
        assert len(scripted.asked("ensureBackend")) == 4
        assert await webhook.apply([row(number=8)]) == [DONE]
    finally:
        await webhook.close()
