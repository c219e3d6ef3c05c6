"""The metrics of a hub, computed only when they are scraped.

In: the hub's parts. Out: metrics for Prometheus, each documented in docs/reference/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.hub.intents.status import TargetCounts
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.hub.tenants.tenants import MemberHealth
from fairlead.ledger.records import load_balancer_of
from fairlead.model.condition import ConditionType
from fairlead.runtime.clock import Clock
from fairlead.sync.worker import Worker
from fairlead.translate.certificates import first_ends
from fairlead.translate.tenant import has_limits, quota_rows


class HubCollector(Collector):
    """The hub's metrics."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        providers: ProviderRegistry,
        member_health: MemberHealth,
        allocator: AddressAllocator,
        target_counts: TargetCounts,
        leading: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._inventory = inventory
        self._providers = providers
        self._member_health = member_health
        self._allocator = allocator
        self._target_counts = target_counts
        self._leading = leading
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """Count everything now."""
        yield _gauge("fairlead_hub_leading", "1 when this replica writes.", float(self._leading()))
        yield self._caches()
        yield from self._load_balancers()
        yield self._targets()
        yield from self._pool()
        yield from self._quotas()
        yield from self._sync()
        yield self._member_states()
        yield from self._certificates()

    def _caches(self) -> Metric:
        family = GaugeMetricFamily(
            "fairlead_hub_cache_age_seconds", "Seconds since the API server last answered.", labels=["kind"]
        )
        for name, cache in self._inventory.caches.items():
            family.add_metric([name], cache.age_s)
        return family

    def _load_balancers(self) -> Iterable[Metric]:
        programmed: Counter[tuple[str, str]] = Counter()
        serving: Counter[tuple[str, str]] = Counter()
        raised: Counter[str] = Counter()
        for _, obj in self._inventory.objects():
            for condition in obj.status.conditions or ():
                if condition.type == ConditionType.PROGRAMMED:
                    programmed[condition.status, condition.reason] += 1
                elif condition.type == ConditionType.SERVING:
                    serving[condition.status, condition.reason] += 1
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
            "fairlead_hub_serving",
            "Load balancers by their Serving condition: whether targets were seen to be healthy.",
            labels=["serving", "reason"],
        )
        for (status, reason), count in sorted(serving.items()):
            family.add_metric([status, reason], count)
        yield family
        family = GaugeMetricFamily(
            "fairlead_hub_conditions", "Load balancers that carry this condition.", labels=["condition"]
        )
        for condition in sorted(_WORTH_COUNTING):
            family.add_metric([condition], raised[condition])
        yield family

    def _targets(self) -> Metric:
        """Count targets; only the leader knows their health, because it writes the statuses."""
        family = GaugeMetricFamily(
            "fairlead_hub_targets",
            "Targets in rotation, for each load balancer; state is healthy, unhealthy or unknown.",
            labels=["provider", "class", "state"],
        )
        for (provider, class_name, state), count in sorted(self._target_counts.by_class().items()):
            # A class name that a member invented must not become a label.
            if self._leading() and self._inventory.classes.get("", class_name) is not None:
                family.add_metric([provider, class_name, state], count)
        return family

    def _pool(self) -> Iterable[Metric]:
        size = GaugeMetricFamily("fairlead_hub_addresses", "Addresses in a pool.", labels=["pool"])
        used = GaugeMetricFamily(
            "fairlead_hub_addresses_used", "Addresses of a pool that a load balancer has.", labels=["pool"]
        )
        used_addresses = {address for address, _ in self._allocator.given()}
        for pool in self._allocator.pools.pools:
            size.add_metric([pool.name], pool.ranges.size)
            used.add_metric([pool.name], sum(address in pool.ranges for address in used_addresses))
        yield size
        yield used

    def _quotas(self) -> Iterable[Metric]:
        """Count each member's usage of the limits in its Tenant."""
        labels = ["tenant", "subtenant", "resource"]
        used = GaugeMetricFamily(
            "fairlead_hub_tenant_used", "What a member or sub-tenant uses of a limit of its Tenant.", labels=labels
        )
        limits = GaugeMetricFamily("fairlead_hub_tenant_limit", "A limit that a Tenant sets.", labels=labels)
        for tenant in self._inventory.tenants.values():
            for row in quota_rows(tenant) if has_limits(tenant) else ():
                if row.limit is not None:
                    used.add_metric([row.tenant, row.subtenant, row.resource], row.used)
                    limits.add_metric([row.tenant, row.subtenant, row.resource], row.limit)
        yield used
        yield limits

    def _sync(self) -> Iterable[Metric]:
        for name, kind, text, read in _OF_WORKERS:
            family = kind(f"fairlead_sync_{name}", text, labels=["provider"])
            for provider, runner in self._providers.items():
                family.add_metric([provider], read(runner.worker))
            yield family
        oldest = GaugeMetricFamily(
            "fairlead_sync_oldest_pending_seconds",
            "How long the oldest pending load balancer has been waiting; 0 when nothing is pending.",
            labels=["provider"],
        )
        for provider, runner in self._providers.items():
            oldest.add_metric([provider], runner.worker.oldest_pending_s(self._clock.monotonic()))
        yield oldest
        yield from self._drift()
        yield self._orphans()
        yield from self._calls()
        yield self._records()

    def _drift(self) -> Iterable[Metric]:
        drifted = GaugeMetricFamily(
            "fairlead_sync_drift", "Entries of ours that another client changed.", labels=["provider"]
        )
        foreign = GaugeMetricFamily(
            "fairlead_sync_foreign", "Entries of our load balancers that Fairlead did not create.", labels=["provider"]
        )
        for name, runner in self._providers.durable.items():
            drifted.add_metric([name], sum(drift.ours for drift in runner.readback.drifts.values()))
            foreign.add_metric([name], sum(len(drift.foreign) for drift in runner.readback.drifts.values()))
        yield from (drifted, foreign)

    def _orphans(self) -> Metric:
        family = GaugeMetricFamily(
            "fairlead_sync_orphans",
            "Orphans: records whose load balancer is gone, and entries of ours without a record.",
            labels=["provider", "kind"],
        )
        records = Counter(
            record.spec.load_balancer.provider
            for record in self._inventory.records.values()
            if self._inventory.intent(load_balancer_of(record)) is None
        )
        entries = {
            name: sum(len(drift.unrecorded) for drift in runner.readback.drifts.values())
            for name, runner in self._providers.durable.items()
        }
        for name in sorted({*records, *entries}):
            family.add_metric([name, "record"], records[name])
            family.add_metric([name, "entry"], entries.get(name, 0))
        return family

    def _calls(self) -> Iterable[Metric]:
        calls = CounterMetricFamily(
            "fairlead_provider_calls",
            "Calls of providers; result is success, error (temporary) or refused (permanent).",
            labels=["provider", "method", "result"],
        )
        seconds = HistogramMetricFamily(
            "fairlead_provider_call_seconds", "Duration of calls.", labels=["provider", "method", "result"]
        )
        changes = CounterMetricFamily(
            "fairlead_sync_changes",
            "Backends registered, updated, drained and deregistered; result is done, running, retry or rejected.",
            labels=["provider", "action", "result"],
        )
        for name, runner in self._providers.items():
            timings = runner.worker.executor.timings
            for method, result in timings:
                labels = [name, method, result]
                calls.add_metric(labels, timings.total(method, result))
                seconds.add_metric(labels, timings.cumulative(method, result), timings.seconds(method, result))
            for (action, outcome), count in sorted(runner.worker.executor.outcomes.items()):
                changes.add_metric([name, action.lower(), outcome.lower()], count)
        yield from (calls, seconds, changes)

    def _records(self) -> Metric:
        family = GaugeMetricFamily("fairlead_sync_records", "BackendRecords by state.", labels=["provider", "state"])
        counts = Counter(
            (record.spec.load_balancer.provider, record.status.state or "Pending")
            for record in self._inventory.records.values()
        )
        for (provider, state), count in sorted(counts.items()):
            family.add_metric([provider, state], count)
        return family

    def _member_states(self) -> Metric:
        family = GaugeMetricFamily("fairlead_hub_members", "Members by state of their agent.", labels=["state"])
        states = Counter(
            self._member_health.state(tenant.namespace, tenant.status.state)
            for tenant in self._inventory.tenants.values()
        )
        for state in ("Engaged", "Stale", "Lost", "Pending"):
            family.add_metric([state], states[state])
        return family

    def _certificates(self) -> Iterable[Metric]:
        ends = GaugeMetricFamily(
            "fairlead_certificate_expiry_timestamp_seconds",
            "Expiry of a member's first certificate to expire, of those that the hub orders, as a Unix time.",
            labels=["tenant"],
        )
        states = GaugeMetricFamily("fairlead_hub_certificates", "ManagedCertificates by state.", labels=["state"])
        for namespace, first in sorted(first_ends(self._inventory.managed.values()).items()):
            tenant = self._inventory.tenant_of(namespace)
            if tenant is not None:
                ends.add_metric([tenant.metadata.name], first.timestamp())
        counts = Counter(certificate.status.state for certificate in self._inventory.managed.values())
        for state in ("Pending", "Ordering", "Issued", "Failing"):
            states.add_metric([state], counts[state])
        yield from (ends, states)


Read = Callable[[Worker], float]
#: Name, type, help and value of the metrics of each worker.
_OF_WORKERS: tuple[tuple[str, type[GaugeMetricFamily | CounterMetricFamily], str, Read], ...] = (
    (
        "pending",
        GaugeMetricFamily,
        "Load balancers that differ from the desired state: waiting, in progress, or to be retried.",
        lambda worker: worker.pending,
    ),
    ("runs", CounterMetricFamily, "Runs of the worker that had work.", lambda worker: worker.runs),
    (
        "retrying",
        GaugeMetricFamily,
        "Load balancers whose last run failed and is retried.",
        lambda worker: worker.failing,
    ),
    ("retries", CounterMetricFamily, "Runs that failed.", lambda worker: worker.retries),
    (
        "parked",
        GaugeMetricFamily,
        "Backends and load balancers that their provider refuses, retried every five minutes.",
        lambda worker: worker.parked,
    ),
    (
        "quarantined",
        GaugeMetricFamily,
        "Backends among those, quarantined so that all others are applied.",
        lambda worker: len(worker.quarantine),
    ),
    ("draining", GaugeMetricFamily, "Load balancers with backends that are draining.", lambda worker: worker.draining),
)

_WORTH_COUNTING = frozenset(
    {ConditionType.STALE.value, ConditionType.PAUSED.value, ConditionType.GUARDED.value, ConditionType.DRIFTED.value}
)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family
