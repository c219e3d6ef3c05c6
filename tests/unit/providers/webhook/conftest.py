from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.clock import VirtualClock
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedDriver]:
    driver = await ScriptedDriver().start()
    yield driver
    await driver.stop()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def webhook(registry: CollectorRegistry, clock: VirtualClock) -> AsyncIterator[WebhookProvider]:
    provider = WebhookProvider(registry=registry, clock=clock)
    yield provider
    await provider.close()
