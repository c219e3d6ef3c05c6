"""The traffic of a hub process: the data planes that count it, and the metrics of it.

In: a hub, and the readers of its own proxies. Out: ``Traffic``, its metrics registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry

from fairlead.hub.app import Hub
from fairlead.model.traffic import CountsTraffic, TrafficReader
from fairlead.page.traffic import Traffic
from fairlead.page.traffic_metrics import TrafficMetrics
from fairlead.runtime.clock import Clock


def make_traffic(
    hub: Hub,
    own: Sequence[TrafficReader],
    registry: CollectorRegistry,
    *,
    clock: Clock,
    now: Callable[[], datetime],
) -> Traffic:
    """Build the figures of ``hub``: of its ``own`` proxies, and of the providers that classes name."""
    metrics = TrafficMetrics(clock=clock)

    def readers() -> Sequence[TrafficReader]:
        counting = [runner.provider for runner in hub.providers.durable.values()]
        of_classes = [provider.traffic for provider in counting if isinstance(provider, CountsTraffic)]
        return [*of_classes, *own]

    traffic = Traffic(readers, clock=clock, now=now, added=metrics.add)
    metrics.active = traffic.active
    registry.register(metrics)
    return traffic
