"""The metrics of each process: its real parts are made, never started, and their registries read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class Family:
    """One metric as a scrape shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


async def registries() -> dict[str, list[Family]]:
    """Return the metrics by process; a running loop is needed to make the parts."""
    return {"Hub": await _hub(), "Agent": await _agent(), "Embedded API server": _api()}


async def _hub() -> list[Family]:
    from fairlead.hub.app import Hub, HubConfig
    from fairlead.hub.machines.states import AddressMoves, MachineCollector
    from fairlead.kube.cluster import Cluster
    from fairlead.kube.config import ClusterConfig
    from fairlead.kube.transport import KubeMetrics
    from fairlead.page.traffic import TrafficMetrics
    from fairlead.providers.envoy.session import Counters
    from fairlead.providers.webhook.client import WebhookMetrics
    from fairlead.runtime.clock import SystemClock
    from fairlead.runtime.telemetry import Telemetry
    from fairlead.translate.addresses import AddressRanges

    registry = CollectorRegistry()
    KubeMetrics(registry)
    Counters(registry=registry)
    WebhookMetrics(registry)
    registry.register(TrafficMetrics(clock=SystemClock()))
    registry.register(MachineCollector(lambda: None, AddressMoves()))
    async with Cluster(ClusterConfig(server="http://127.0.0.1:9"), name="hub") as cluster:
        config = HubConfig(identity="reference", address_pool=AddressRanges.parse("192.0.2.0/24"))
        Hub(cluster=cluster, providers={}, config=config, telemetry=Telemetry(registry))
        return _families(registry)


async def _agent() -> list[Family]:
    from fairlead.agent.app import Agent
    from fairlead.agent.config import AgentConfig
    from fairlead.kube.cluster import Cluster
    from fairlead.kube.config import ClusterConfig

    nowhere = ClusterConfig(server="http://127.0.0.1:9")
    async with Cluster(nowhere, name="the member") as member, Cluster(nowhere, name="the hub") as hub:
        return _families(Agent(member=member, hub=hub, config=AgentConfig(tenant="reference")).registry)


def _api() -> list[Family]:
    from podless.metrics import Metrics

    own = "_registry"  # one of its own, which it shows as text only
    return _families(getattr(Metrics("fairlead", watchers=lambda: 0, objects=dict[str, int]), own))


def _families(registry: CollectorRegistry) -> list[Family]:
    names = "_labelnames"  # neither collectors nor families have another way to say which labels they will have
    labels: dict[str, tuple[str, ...]] = {}
    metrics: list[Metric] = []
    for collector in _collectors(registry):
        for metric in collector.collect():
            labels[metric.name] = tuple(getattr(metric, names, ()) or getattr(collector, names, ()))
            metrics.append(metric)
    return sorted(
        (
            Family(_shown(metric), metric.type, labels[metric.name], metric.documentation.rstrip(".") + ".")
            for metric in metrics
        ),
        key=lambda family: family.name,
    )


def _collectors(registry: CollectorRegistry) -> Iterable[Collector]:
    by_names = "_collector_to_names"
    return list(getattr(registry, by_names))


def _shown(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name
