"""One call: answers that are none, time limits, limits of parallel calls, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import socket

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fairlead.errors import BadConfiguration, Retry
from fairlead.model.change import DONE, OutcomeStatus
from fairlead.providers.webhook.client import LONGEST_ANSWER
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.telemetry import stop_listening
from tests.unit.providers.webhook.scripted_driver import KEY, SUCC, ScriptedDriver, http_status, ready, row, spec


def big(_body) -> web.Response:
    return web.Response(body=b" " * (LONGEST_ANSWER + 1) + b'{"status":"Succ"}')


def bomb(_body) -> web.Response:
    packed = gzip.compress(b" " * 8_000_000 + b'{"status":"Succ"}')
    return web.Response(body=packed, headers={"Content-Encoding": "gzip"})


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (http_status(500), "HTTP 500.*log"),
        (http_status(201), "HTTP 201"),
        (http_status(204), "HTTP 204"),
        (http_status(301, Location="/prefix/elsewhere"), "redirects are not followed"),
        (http_status(307, Location="http://198.51.100.1/"), "redirects are not followed"),
        (http_status(401), "credentials"),
        (http_status(404), "HTTP 404.*path in parameters.url"),
        (http_status(429), "lower parameters.parallel"),
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
    webhook: WebhookProvider, scripted: ScriptedDriver, reply, message: str
) -> None:
    """LT-17, LT-34: the sentence names driver, hook and backend, and quotes nothing that a driver sent as a page."""
    await webhook.ensure(spec(scripted.url))
    scripted.on("ensureBackend", reply, SUCC)
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    assert re.search(message, outcome.message, re.DOTALL), outcome.message
    for word in (scripted.url, "ensureBackend", "10.0.0.1:8080"):
        assert word in outcome.message
    assert "geheim" not in outcome.message
    assert await webhook.apply([row()]) == [DONE]
    assert {name for name, _ in scripted.calls} == {"createLoadBalancer", "ensureBackend"}


async def test_retry_after_is_honoured(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url))
    scripted.on("ensureBackend", http_status(429, **{"Retry-After": "17"}))
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


async def test_a_driver_that_takes_no_connection_has_not_been_asked(webhook: WebhookProvider) -> None:
    """As with a machine that is off, or a firewall that drops packets: connections are neither refused nor answered."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        for _ in range(4):  # nothing accepts them, so that the kernel drops those that come later
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        for ask in (webhook.reach, webhook.ensure):
            with pytest.raises(Retry, match=r"createLoadBalancer.*no connection; check"):
                await ask(spec(f"http://127.0.0.1:{port}", timeout="500ms"))
    await webhook.delete(KEY)


async def test_reaching_a_driver_asks_it_for_nothing(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.reach(spec(scripted.url))
    assert scripted.calls == []
    with pytest.raises(BadConfiguration, match=r"parameters\.url is missing"):
        await webhook.reach(spec(""))
    with pytest.raises(Retry, match="no connection"):
        await webhook.reach(spec("http://a..b"))
    tls = scripted.url.replace("http:", "https:")
    for ask in (webhook.reach, webhook.ensure):
        with pytest.raises(Retry, match="TLS handshake failed; check"):
            await ask(spec(tls))


async def test_a_call_that_may_have_arrived_is_not_treated_as_never_made(webhook: WebhookProvider) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        server.close()
        writer.transport.abort()

    server = await asyncio.start_server(die, "127.0.0.1", 0)
    asked = spec(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for _ in range(2):
        with pytest.raises(Retry, match="no connection"):
            await webhook.ensure(asked)
    with pytest.raises(Retry, match=r"deleteLoadBalancer.*no connection"):
        await webhook.delete(KEY)


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
        await stop_listening(server)


async def test_never_more_calls_at_once_than_the_class_allows(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url, parallel="3"))
    scripted.on("ensureBackend", lambda _body: asyncio.sleep(0.005, web.json_response(SUCC)))
    await asyncio.gather(*(webhook.apply([row(number=n) for n in range(k, k + 20)]) for k in (1, 21, 41)))
    assert scripted.most_at_once == 3


async def test_the_timeout_begins_with_the_call_not_with_the_queue(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    await webhook.ensure(spec(scripted.url, parallel="1", timeout="2s"))
    scripted.on("ensureBackend", lambda _body: asyncio.sleep(0.2, web.json_response(SUCC)))
    outcomes = await webhook.apply([row(number=number) for number in range(1, 13)])
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.DONE}


@pytest.mark.req("L-45")
async def test_calls_errors_fails_and_latency_are_counted(
    webhook: WebhookProvider, scripted: ScriptedDriver, registry: CollectorRegistry, clock: VirtualClock
) -> None:
    await ready(webhook, scripted)
    scripted.on(
        "ensureBackend",
        SUCC,
        {"status": "Fail"},
        lambda _body: asyncio.sleep(0, web.Response(text="<html>oops</html>", content_type="text/html")),
    )
    for _ in range(3):
        await webhook.apply([row()])
        await clock.advance(10)
    labels = {"driver": scripted.url, "hook": "ensureBackend"}
    values = [
        registry.get_sample_value(f"fairlead_webhook_{name}", labels)
        for name in ("calls_total", "errors_total", "fails_total", "seconds_count")
    ]
    assert values == [3, 1, 1, 3]
