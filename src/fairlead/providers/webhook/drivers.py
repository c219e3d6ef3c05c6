"""Which connections are there: one ``Driver`` for each distinct description of one.

In: settings. Out: the driver, made when it is first needed; another URL or other credentials make another one.
"""

from __future__ import annotations

from pathlib import Path

from fairlead.providers.webhook.client import Driver
from fairlead.providers.webhook.metrics import WebhookMetrics
from fairlead.providers.webhook.settings import DriverSettings
from fairlead.runtime.clock import Clock


class Drivers:
    """All drivers of one provider."""

    def __init__(self, *, directory: Path, metrics: WebhookMetrics, clock: Clock) -> None:
        self._directory = directory
        self._metrics = metrics
        self._clock = clock
        self._drivers: dict[DriverSettings, Driver] = {}

    def get(self, settings: DriverSettings) -> Driver:
        """Return the driver of these settings; ``BadConfiguration`` when its credentials cannot be used."""
        driver = self._drivers.get(settings)
        if driver is None:
            driver = self._drivers[settings] = Driver(
                settings=settings, directory=self._directory, metrics=self._metrics, clock=self._clock
            )
        return driver

    async def close(self) -> None:
        """Close all connections."""
        drivers, self._drivers = self._drivers, {}
        for driver in drivers.values():
            await driver.close()
