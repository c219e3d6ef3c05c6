"""Prometheus metrics of one server, and the counters of its requests."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})
MAX_TALLIES = 4096
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self, name: str, *, watchers: Callable[[], int], objects: Callable[[], dict[str, int]]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{name}_apiserver_requests", "Requests answered.", ("verb", "resource", "code"), registry=self._registry
        )
        self._latency = Histogram(
            f"{name}_apiserver_write_seconds", "Time to answer a write.", buckets=_BUCKETS, registry=self._registry
        )
        watching = Gauge(f"{name}_apiserver_watchers", "Open watches.", registry=self._registry)
        watching.set_function(watchers)
        self._held = Gauge(f"{name}_apiserver_objects", "Stored objects.", ("resource",), registry=self._registry)
        self._objects = objects
        self._tally: Tally[tuple[str, str, str, str]] = Tally()
        self._children: dict[tuple[str, str, int], Counter] = {}

    def record(self, verb: str, resource: str, code: int, user_agent: str, took_s: float) -> None:
        """Count one answered request."""
        key = (verb, resource, code)
        counter = self._children.get(key)
        if counter is None:
            counter = self._children[key] = self._requests.labels(verb, resource, str(code))
        counter.inc()
        kind, _, sub = resource.partition("/")
        by_agent = (verb, kind, sub, user_agent)
        # Bounded, because a client may send another User-Agent with every request.
        self._tally[
            by_agent if len(self._tally) < MAX_TALLIES or by_agent in self._tally else (verb, kind, sub, "")
        ] += 1
        if verb in WRITE_VERBS:
            self._latency.observe(took_s)

    def requests(self, user_agent: str = "") -> dict[tuple[str, str], int]:
        """Return (verb, resource) -> count, of clients whose User-Agent starts with ``user_agent``."""
        total: Tally[tuple[str, str]] = Tally()
        for (verb, kind, sub, agent), count in self._tally.items():
            if agent.startswith(user_agent):
                total[verb, f"{kind}/{sub}" if sub else kind] += count
        return dict(total)

    def writes(self, exclude: Collection[str], user_agent: str) -> int:
        """Return the number of write requests to resources that are not in ``exclude``."""
        return sum(
            count
            for (verb, resource), count in self.requests(user_agent).items()
            if verb in WRITE_VERBS and resource.partition("/")[0] not in exclude
        )

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        for resource, count in self._objects().items():
            self._held.labels(resource).set(count)
        return generate_latest(self._registry)
