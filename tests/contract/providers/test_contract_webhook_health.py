"""A driver says which backends are healthy: the one that the docs print, over HTTP, with backends that live and die."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.model.change import DONE, Action, BackendFacts, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import RestoredBackend
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Health
from fairlead.providers.webhook.provider import WebhookProvider
from tests.contract.providers.provider_processes import ExampleDriver, free_port

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
HTTP = Listener(80)


@pytest.fixture
async def webhook() -> AsyncIterator[WebhookProvider]:
    provider = WebhookProvider()
    yield provider
    await provider.close()


def listening(port: int) -> socket.socket:
    backend = socket.socket()
    backend.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    backend.bind(("127.0.0.1", port))
    backend.listen()
    return backend


async def health(webhook: WebhookProvider) -> Health:
    observed = await webhook.observe(KEY)
    assert observed is not None
    assert observed.health is not None
    return observed.health


@pytest.mark.req("X-1")
async def test_backends_that_die_and_come_back_are_seen_by_the_printed_driver(
    tmp_path: Path, webhook: WebhookProvider
) -> None:
    ports = sorted({free_port() for _ in range(8)})[:2]
    alive = {port: listening(port) for port in ports}
    driver = ExampleDriver(tmp_path)
    parameters = {"url": driver.url, "name": "shared", "backendHealth": "true"}
    spec = FrontendSpec(KEY, "group", (HTTP,), parameters=parameters)
    targets = [Target(TargetKey("127.0.0.1", port)) for port in ports]
    changes = [TargetChange(KEY, HTTP.key, target, Action.REGISTER, Reason.NEW) for target in targets]
    try:
        info = (await webhook.ensure(spec)).info or {}
        assert (await health(webhook)).reason is ConditionReason.NO_TARGETS
        assert await webhook.apply(changes) == [DONE, DONE]
        assert (await health(webhook)).serving is True
        alive.pop(ports[0]).close()
        half = await health(webhook)
        assert (half.serving, half.healthy, half.unhealthy) == (True, 1, (f"127.0.0.1:{ports[0]} (TCP/80)",))
        alive.pop(ports[1]).close()
        assert (await health(webhook)).reason is ConditionReason.NO_HEALTHY_TARGETS
        alive |= {port: listening(port) for port in ports}
        assert (await health(webhook)).healthy == 2
        driver.stop()
        down = await health(webhook)
        assert (down.serving, down.reason) == (None, ConditionReason.PROVIDER_FAILED)
        assert "no connection" in down.message
        driver.start()
        again = WebhookProvider()
        again.restore(spec, info)
        again.restore_backends(KEY, [RestoredBackend(HTTP.key, target, BackendFacts()) for target in targets])
        assert (await health(again)).healthy == 2
        await again.close()
    finally:
        driver.stop()
        for backend in alive.values():
            backend.close()


@pytest.mark.req("X-1")
async def test_a_change_of_health_is_noticed_without_being_asked_for(tmp_path: Path, webhook: WebhookProvider) -> None:
    port = free_port()
    backend = listening(port)
    driver = ExampleDriver(tmp_path)
    noticed = asyncio.Event()
    webhook.on_change(lambda _key: noticed.set())
    parameters = {"url": driver.url, "name": "shared", "backendHealth": "true"}
    try:
        await webhook.ensure(FrontendSpec(KEY, "group", (HTTP,), parameters=parameters))
        target = Target(TargetKey("127.0.0.1", port))
        await webhook.apply([TargetChange(KEY, HTTP.key, target, Action.REGISTER, Reason.NEW)])
        await webhook.start()
        async with asyncio.timeout(180):
            await noticed.wait()
            assert (await health(webhook)).serving is True
            backend.close()
            while (await health(webhook)).serving is not False:
                noticed.clear()
                await noticed.wait()
    finally:
        backend.close()
        driver.stop()
