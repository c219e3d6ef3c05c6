from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver

from fairlead.providers.webhook.provider import WebhookProvider


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedDriver]:
    driver = await ScriptedDriver().start()
    yield driver
    await driver.stop()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def webhook(registry: CollectorRegistry) -> AsyncIterator[WebhookProvider]:
    provider = WebhookProvider(registry=registry)
    yield provider
    await provider.close()
