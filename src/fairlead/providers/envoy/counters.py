"""Counters of what is sent to the proxies: plain numbers, and the same for Prometheus when there is a registry."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from fairlead.providers.envoy.resources import ResourceType

_TYPED = {
    "pushes": "Responses sent to Envoy",
    "changing_pushes": "Responses that changed at least one resource of the Envoy that got them",
    "resources": "Resources sent to Envoy, removals included",
    "nacks": "Responses that Envoy refused",
    "acks": "Responses that Envoy acknowledged",
}


class Counters(Collector):
    """Counts since the start of the process, by resource type where that matters."""

    def __init__(self, *, registry: CollectorRegistry | None = None) -> None:
        self.pushes = dict.fromkeys(ResourceType, 0)
        self.changing_pushes = dict.fromkeys(ResourceType, 0)
        self.resources = dict.fromkeys(ResourceType, 0)
        self.nacks = dict.fromkeys(ResourceType, 0)
        self.acks = dict.fromkeys(ResourceType, 0)
        self.bytes_sent = 0
        self.streams = 0
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        for name, text in _TYPED.items():
            family = CounterMetricFamily(f"fairlead_xds_{name}", text, labels=["type"])
            for kind, count in getattr(self, name).items():
                family.add_metric([kind.short], count)
            yield family
        yield CounterMetricFamily("fairlead_xds_bytes_sent", "Bytes sent to Envoy", value=self.bytes_sent)
        yield GaugeMetricFamily("fairlead_xds_streams", "Proxies that are connected now", value=self.streams)
