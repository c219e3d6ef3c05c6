"""Metrics of the calls to drivers: number, errors, answers Fail and latency, by driver and hook."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LABELS = ("driver", "hook")


class WebhookMetrics:
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.calls = Counter("fairlead_webhook_calls", "Calls to drivers.", _LABELS, registry=registry)
        self.errors = Counter("fairlead_webhook_errors", "Calls without a usable answer.", _LABELS, registry=registry)
        self.fails = Counter(
            "fairlead_webhook_fails", "Calls that the driver answered Fail.", _LABELS, registry=registry
        )
        self.seconds = Histogram(
            "fairlead_webhook_seconds", "How long a call took.", _LABELS, buckets=_SECONDS, registry=registry
        )
