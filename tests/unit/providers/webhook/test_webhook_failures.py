"""Drivers that are down, slow, lying or greedy."""

from __future__ import annotations

import asyncio
import gzip
import re

import msgspec
import pytest
from aiohttp import web
from tests.unit.providers.webhook.scripted_driver import SUCC, ScriptedDriver, row, spec

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, BackendFacts, OutcomeStatus
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.webhook.client import LONGEST_ANSWER
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock


def big(_body) -> web.Response:
    return web.Response(body=b" " * (LONGEST_ANSWER + 1) + b'{"status":"Succ"}')


def bomb(_body) -> web.Response:
    packed = gzip.compress(b" " * 8_000_000 + b'{"status":"Succ"}')
    return web.Response(body=packed, headers={"Content-Encoding": "gzip"})


def status(code: int, **headers: str):
    return lambda _body: web.Response(status=code, headers=headers, text='{"status":"Succ","msg":"geheim"}')


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (status(500), "HTTP 500.*own log"),
        (status(201), "HTTP 201"),
        (status(204), "HTTP 204"),
        (status(301, Location="/prefix/elsewhere"), "redirects are not followed"),
        (status(307, Location="http://198.51.100.1/"), "redirects are not followed"),
        (status(401), "credentials"),
        (status(404), "HTTP 404.*path in parameters.url"),
        (status(429), "asked again later"),
        (lambda _body: web.Response(text="<html>geheim</html>", content_type="text/html"), "HTML page"),
        (lambda _body: web.Response(text=""), "empty body"),
        ({}, "no status"),
        ({"status": "OK"}, "unknown status 'OK'"),
        (SUCC | {"injectedInfo": ["a"]}, "injectedInfo is not a map"),
        (big, "more than"),
        (bomb, "no JSON"),
    ],
)
async def test_whatever_is_not_an_answer_is_an_error_with_a_next_step(
    webhook: WebhookProvider, scripted: ScriptedDriver, reply, words: str
) -> None:
    """LT-17, LT-34: the sentence names driver, hook and backend, and quotes nothing that a driver sent as a page."""
    await webhook.ensure(spec(scripted.url))
    scripted.on("ensureBackend", reply, SUCC)
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    assert re.search(words, outcome.message, re.DOTALL), outcome.message
    for word in (scripted.url, "ensureBackend", "10.0.0.1:8080"):
        assert word in outcome.message
    assert "geheim" not in outcome.message
    assert await webhook.apply([row()]) == [DONE]
    assert {name for name, _ in scripted.calls} == {"createLoadBalancer", "ensureBackend"}


async def test_retry_after_is_honoured(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url))
    scripted.on("ensureBackend", status(429, **{"Retry-After": "17"}))
    (outcome,) = await webhook.apply([row()])
    assert outcome.retry_after_s == 17


@pytest.mark.req("L-25")
async def test_a_hook_that_takes_too_long_is_cut_off(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """LT-34."""
    await webhook.ensure(spec(scripted.url, **{"timeout.ensureBackend": "100ms"}))
    scripted.gate.clear()
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    assert "timeout of 0.1 s" in outcome.message
    assert "timeout.ensureBackend" in outcome.message


async def test_a_slow_trickle_is_cut_off_too(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(Retry, match="gave no answer within"):
            await webhook.ensure(spec(f"http://127.0.0.1:{port}", timeout="100ms"))
    finally:
        server.close()


async def test_a_driver_that_is_down_is_not_asked_five_hundred_times(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url))
    await scripted.stop()
    outcomes = await webhook.apply([row(number=number) for number in range(1, 251)])
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.RETRY}
    assert "nobody answers" in outcomes[0].message
    assert outcomes[-1].message.startswith("not tried")


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


async def test_never_more_calls_at_once_than_the_class_allows(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url, parallel="3"))
    scripted.on("ensureBackend", lambda _body: asyncio.sleep(0.005, web.json_response(SUCC)))
    await asyncio.gather(*(webhook.apply([row(number=n) for n in range(k, k + 20)]) for k in (1, 21, 41)))
    assert scripted.most_at_once == 3


async def test_never_two_calls_for_one_record_at_once(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url, parallel="8"))
    scripted.on("ensureBackend", lambda _body: asyncio.sleep(0.005, web.json_response(SUCC)))
    facts = BackendFacts(record_id="uid-br")
    await asyncio.gather(*(webhook.apply([row(facts=facts), row(number=2)]) for _ in range(6)))
    assert len(scripted.asked("ensureBackend")) == 12
    assert scripted.overlaps == 0
    assert scripted.most_at_once == 2


async def test_the_timeout_begins_with_the_call_not_with_the_queue(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url, parallel="1", timeout="2s"))
    scripted.on("ensureBackend", lambda _body: asyncio.sleep(0.2, web.json_response(SUCC)))
    outcomes = await webhook.apply([row(number=number) for number in range(1, 13)])
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.DONE}


@pytest.mark.req("L-10")
async def test_a_driver_that_does_nothing_is_found_out(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """Effects are verified where the driver can list them; what is there and not ours is reported, never named."""
    await webhook.ensure(spec(scripted.url, verify="true"))
    scripted.on("listBackends", SUCC | {"backends": ["10.0.0.1:8080", "10.9.9.9:1"]})
    outcomes = await webhook.apply([row(number=1), row(number=2), row(Action.DEREGISTER, number=3)])
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE, OutcomeStatus.RETRY, OutcomeStatus.DONE]
    assert "answered Succ to ensureBackend for 10.0.0.2:8080" in outcomes[1].message
    assert "it is not there" in outcomes[1].message
    (lie,) = await webhook.apply([row(Action.DEREGISTER, number=1)])
    assert "still there" in lie.message
    assert len(scripted.asked("listBackends")) == 2
    assert not any("10.9.9.9" in str(body) for _, body in scripted.calls)
    observed = await webhook.observe(spec("").key)
    assert observed is not None
    assert "10.9.9.9:1" in observed.foreign


async def test_a_list_that_fails_makes_no_success(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url, verify="true"))
    scripted.on("listBackends", status(500))
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    assert "listBackends" in outcome.message


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


@pytest.mark.req("L-10")
async def test_drift_is_seen_where_the_driver_can_list(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """Weights and drained targets are no drift; and a process that has not seen everything does not judge."""
    there: set[str] = set()
    scripted.on("ensureBackend", lambda body: there.add(body["backendAddr"]) or SUCC)
    scripted.on("deregisterBackend", lambda body: there.discard(body["backendAddr"]) or SUCC)
    scripted.on("listBackends", lambda _body: SUCC | {"backends": sorted(there)})
    listed = spec(scripted.url, verify="true")
    await webhook.ensure(listed)
    await webhook.apply([row(number=1, weight=7), row(number=2), row(number=3)])
    await webhook.apply([row(Action.UPDATE, number=2, draining=True)])
    seen = await webhook.observe(listed.key)
    assert seen is not None
    assert [(at.key.address, at.weight, at.draining) for at in seen.targets or ()] == [
        ("10.0.0.1", 7, False),
        ("10.0.0.2", 1, True),
        ("10.0.0.3", 1, False),
    ]
    there.remove("10.0.0.3:8080")
    there.add("theirs")
    seen = await webhook.observe(listed.key)
    assert seen is not None
    assert (seen.programmed, len(seen.targets or ()), seen.foreign) == (False, 2, ("theirs",))
    webhook.recall(listed, {"lbID": "lb-1"})
    seen = await webhook.observe(listed.key)
    assert seen is not None
    assert (seen.targets, seen.foreign) == (None, ())
