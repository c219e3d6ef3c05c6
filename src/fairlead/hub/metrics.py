"""How the hub is: numbers taken when somebody asks, so that counting costs the hot path nothing.

In: the hub's parts. Out: gauges for Prometheus, each documented in docs/reference/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.hub.allocations import AllocationBook
from fairlead.hub.engine import DurableEngine, Engine
from fairlead.hub.inventory import Inventory
from fairlead.hub.members import Members
from fairlead.model.condition import ConditionType


class HubCollector(Collector):
    """The hub's gauges."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        engines: Mapping[str, Engine],
        members: Members,
        book: AllocationBook,
        leading: Callable[[], bool],
    ) -> None:
        self._inventory = inventory
        self._engines = engines
        self._members = members
        self._book = book
        self._leading = leading

    def collect(self) -> Iterable[Metric]:
        """Count everything now."""
        yield _gauge("fairlead_hub_leading", "1 when this replica writes.", float(self._leading()))
        yield self._caches()
        yield from self._load_balancers()
        yield from self._pool()
        yield from self._sync()
        yield self._member_states()

    def _caches(self) -> Metric:
        family = GaugeMetricFamily(
            "fairlead_hub_cache_age_seconds", "Time since the API server was last heard.", labels=["kind"]
        )
        for name, cache in self._inventory.caches.items():
            family.add_metric([name], cache.age_s)
        return family

    def _load_balancers(self) -> Iterable[Metric]:
        programmed: Counter[tuple[str, str]] = Counter()
        raised: Counter[str] = Counter()
        for one in self._inventory.load_balancers.values():
            for condition in one.status.conditions or ():
                if condition.type == ConditionType.PROGRAMMED:
                    programmed[condition.status, condition.reason] += 1
                elif condition.type in _WORTH_COUNTING and condition.status == "True":
                    raised[condition.type] += 1
        family = GaugeMetricFamily(
            "fairlead_hub_load_balancers",
            "Load balancers by their Programmed condition.",
            labels=["programmed", "reason"],
        )
        for (status, reason), count in sorted(programmed.items()):
            family.add_metric([status, reason], count)
        yield family
        family = GaugeMetricFamily(
            "fairlead_hub_conditions", "Load balancers that carry this condition.", labels=["condition"]
        )
        for condition in sorted(_WORTH_COUNTING):
            family.add_metric([condition], raised[condition])
        yield family

    def _pool(self) -> Iterable[Metric]:
        if self._book.pool is None:
            return
        yield _gauge("fairlead_hub_addresses", "Addresses in the pool.", len(self._book.pool))
        yield _gauge("fairlead_hub_addresses_used", "Addresses that are given to a load balancer.", len(self._book))

    def _sync(self) -> Iterable[Metric]:
        pending = GaugeMetricFamily(
            "fairlead_sync_pending", "Load balancers that differ from what should be.", labels=["provider"]
        )
        runs = CounterMetricFamily("fairlead_sync_runs", "Runs of the worker that had work.", labels=["provider"])
        for name, engine in self._engines.items():
            pending.add_metric([name], engine.tracker.dirty)
            runs.add_metric([name], engine.worker.runs)
        yield pending
        yield runs
        yield from self._troubles()
        yield from self._calls()
        yield self._records()

    def _troubles(self) -> Iterable[Metric]:
        waiting = GaugeMetricFamily(
            "fairlead_sync_retrying", "Load balancers whose last run failed, and is tried again.", labels=["provider"]
        )
        retries = CounterMetricFamily("fairlead_sync_retries", "Runs that failed.", labels=["provider"])
        parked = GaugeMetricFamily(
            "fairlead_sync_quarantined", "Backends that their provider refuses.", labels=["provider"]
        )
        drift = GaugeMetricFamily(
            "fairlead_sync_drift", "Entries of ours that somebody changed behind our back.", labels=["provider"]
        )
        foreign = GaugeMetricFamily(
            "fairlead_sync_foreign", "Members of our load balancers that are not ours.", labels=["provider"]
        )
        for name, engine in self._engines.items():
            waiting.add_metric([name], engine.worker.failing)
            retries.add_metric([name], engine.worker.retries)
            parked.add_metric([name], len(engine.worker.quarantine))
            if isinstance(engine, DurableEngine):
                drift.add_metric([name], sum(one.ours for one in engine.readback.drifts.values()))
                foreign.add_metric([name], sum(len(one.foreign) for one in engine.readback.drifts.values()))
        yield from (waiting, retries, parked, drift, foreign)

    def _calls(self) -> Iterable[Metric]:
        calls = CounterMetricFamily(
            "fairlead_provider_calls", "Calls of providers.", labels=["provider", "method", "result"]
        )
        seconds = CounterMetricFamily(
            "fairlead_provider_call_seconds", "Time spent in them.", labels=["provider", "method", "result"]
        )
        for name, engine in self._engines.items():
            for (method, result), count in sorted(engine.worker.executor.calls.items()):
                calls.add_metric([name, method, result], count)
                seconds.add_metric([name, method, result], engine.worker.executor.seconds[method, result])
        yield from (calls, seconds)

    def _records(self) -> Metric:
        family = GaugeMetricFamily("fairlead_records", "BackendRecords by state.", labels=["provider", "state"])
        counts = Counter(
            (one.spec.load_balancer.provider, one.status.state or "Pending") for one in self._inventory.records.values()
        )
        for (provider, state), count in sorted(counts.items()):
            family.add_metric([provider, state], count)
        return family

    def _member_states(self) -> Metric:
        family = GaugeMetricFamily("fairlead_hub_members", "Members by state of their agent.", labels=["state"])
        states = Counter(self._members.state(tenant.namespace) for tenant in self._inventory.tenants.values())
        for state in ("Engaged", "Stale", "Lost", "Pending"):
            family.add_metric([state], states[state])
        return family


_WORTH_COUNTING = frozenset(
    {ConditionType.STALE.value, ConditionType.PAUSED.value, ConditionType.GUARDED.value, ConditionType.DRIFTED.value}
)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family
