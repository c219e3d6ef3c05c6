"""The metrics of kube/: requests and caches, on a registry that the caller owns.

In: a registry; make one KubeMetrics per registry and hand it to every Cluster. Out: counters.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class KubeMetrics:
    """Counters shared by all clusters of a process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter(
            "fairlead_kube_requests",
            "Requests to Kubernetes APIs; code is the HTTP status, or error when there was no answer.",
            ["cluster", "verb", "resource", "code"],
            registry=self.registry,
        )
        self.cache_events = Counter(
            "fairlead_kube_cache_events",
            "Events of watch caches; event is change, relist, reconnect, undecodable or unconfirmed_empty.",
            ["cluster", "resource", "event"],
            registry=self.registry,
        )
