"""The drivers that this process calls: one ``Driver`` for each distinct ``DriverSettings``.

In: settings. Out: the driver, made when it is first needed; another URL or other credentials make another one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fairlead.providers.webhook.batch import BatchLimits
from fairlead.providers.webhook.client import Driver
from fairlead.providers.webhook.metrics import WebhookMetrics
from fairlead.providers.webhook.protocol import Hook
from fairlead.providers.webhook.settings import DriverSettings
from fairlead.runtime.clock import Clock

#: One batch takes no longer than this, since the core gives up a call that takes much longer.
_BATCH_S = 100.0


class Drivers:
    """All drivers of one provider."""

    def __init__(self, *, directory: Path, metrics: WebhookMetrics, clock: Clock) -> None:
        self._directory = directory
        self._metrics = metrics
        self._clock = clock
        self._drivers: dict[DriverSettings, Driver] = {}
        self._limits: dict[DriverSettings, BatchLimits] = {}

    def get(self, settings: DriverSettings) -> Driver:
        """Return the driver of these settings; ``BadConfiguration`` when its credentials cannot be used."""
        driver = self._drivers.get(settings)
        if driver is None:
            driver = self._drivers[settings] = Driver(
                settings=settings, directory=self._directory, metrics=self._metrics, clock=self._clock
            )
        return driver

    def batch_limits(self, settings: DriverSettings) -> BatchLimits:
        """Return the limits that all batches at the driver of these settings share."""
        limits = self._limits.get(settings)
        if limits is None:
            longest_s = max(settings.timeout_of(hook) for hook in Hook)
            calls = 2 if settings.verify else 1
            slots = asyncio.Semaphore(settings.parallel)
            limits = self._limits[settings] = BatchLimits(slots, max(0.0, _BATCH_S - calls * longest_s))
        return limits

    async def close(self) -> None:
        """Close all connections."""
        drivers, self._drivers = self._drivers, {}
        for driver in drivers.values():
            await driver.close()
