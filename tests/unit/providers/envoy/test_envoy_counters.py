"""The counters as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.session import Counters


def test_counters_are_scraped() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry=registry)
    counters.pushes[ResourceType.CLUSTER] += 3
    counters.bytes_sent += 7
    text = generate_latest(registry).decode()
    assert 'fairlead_xds_pushes_total{type="cluster"} 3.0' in text
    assert "fairlead_xds_bytes_sent_total 7.0" in text
