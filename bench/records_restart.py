"""A restart with everything as it was: the ledger alone, and a whole hub, against an API server of its own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from bench.figures import Figure
from bench.fleet import until
from bench.records import api
from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.kubernetes import CRDS, ENDPOINT_SLICES, NAMESPACES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.providers.runner import DurableRunner, TermSettings
from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import KubeMetrics
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import slice_body, tcp_body
from fairlead.testing.faults import FaultyProvider
from fairlead.testing.ledger import resource_of

WRITES = frozenset({"create", "update", "replace", "patch", "apply", "delete", "POST", "PUT", "PATCH", "DELETE"})
APART = ("leases", "customresourcedefinitions")


class RunningHub:
    """One hub with nothing but a provider whose ledger are BackendRecords; the cloud outlives it."""

    def __init__(self, cluster: Cluster, cloud: MemoryCloud, metrics: KubeMetrics) -> None:
        self.provider = MemoryProvider(cloud=cloud)
        self.metrics = metrics
        served = FaultyProvider(MemoryProvider(), clock=SystemClock())
        self.hub = Hub(
            cluster=cluster,
            providers={"envoy": served},
            config=HubConfig(identity="bench", reclaim_lease=True),
            factories={"memory": lambda: self.provider},
        )

    @property
    def engine(self) -> DurableRunner | None:
        return self.hub.providers.durable.get("memory")

    def ready(self, records: int) -> bool:
        """Say whether everything on record is known, desired, and done."""
        engine = self.engine
        if engine is None or not engine.loaded or not self.hub.leading or engine.worker.pending:
            return False
        sides = [side for key in engine.tracker if (side := engine.tracker.state(key)) is not None]
        desired = all(side.desired is not None for side in sides)
        return desired and sum(len(targets) for side in sides for targets in side.recorded.values()) == records

    @property
    def writes(self) -> dict[str, float]:
        """Return the accepted writes by kind; those of the lease and the apply of our definitions are apart."""
        writes: dict[str, float] = {}
        for family in self.metrics.requests.collect():
            for sample in family.samples:
                labels = sample.labels
                accepted = labels.get("code", "").startswith("2") and labels.get("verb") in WRITES
                if sample.name.endswith("_total") and accepted and not labels["resource"].startswith(APART):
                    writes[labels["resource"]] = writes.get(labels["resource"], 0.0) + sample.value
        return writes


@asynccontextmanager
async def running(base: Cluster, cloud: MemoryCloud) -> AsyncGenerator[RunningHub]:
    metrics = KubeMetrics(CollectorRegistry())
    async with Cluster(base.config, name="hub", qps=10_000, metrics=metrics) as cluster:
        hub = RunningHub(cluster, cloud, metrics)
        task = asyncio.create_task(hub.hub.run())
        try:
            yield hub
        finally:
            task.cancel()
            await asyncio.wait((task,))


async def populate(cluster: Cluster, records: int, load_balancers: int) -> None:
    """Make load balancers with so many backends in all."""
    edge = {"provider": "memory", "drain": "0s", "guard": {"maxRemovalPercent": 100, "minBackends": 0}}
    await cluster.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": edge})
    each = records // load_balancers
    for number in range(load_balancers):
        name = f"lb-{number}"
        spec = {"className": "edge", "targets": "Pod"}
        await cluster.create(TCP_LOAD_BALANCERS, tcp_body(name, namespace="bench", ports=[{"port": 80}], spec=spec))
        addresses = [f"10.{number}.{index >> 8}.{index & 255}" for index in range(each)]
        body = slice_body(name, addresses, namespace="bench", load_balancer=name)
        await cluster.create(ENDPOINT_SLICES, body)


async def restart(records: int = 10_000, load_balancers: int = 100) -> AsyncIterator[Figure]:
    """Let a hub register everything, end it, and start another one."""
    async with api(()) as cluster:
        cloud = MemoryCloud()
        async with running(cluster, cloud) as first:
            await until(lambda: first.hub.leading, what="the first hub leads")
            await populate(cluster, records, load_balancers)

            def registered() -> bool:
                there = sum(len(cloud.members(key)) for key in cloud.load_balancers)
                return there == records and first.ready(records)

            await until(registered, what=f"{records} backends are registered", timeout_s=300)
            await asyncio.sleep(8.0)  # until no status is left to be written
        yield await ledger_alone(cluster, records)
        before = await versions(cluster)
        started = time.perf_counter()
        async with running(cluster, cloud) as again:
            await until(lambda: again.ready(records), what="the second hub is ready")
            took = time.perf_counter() - started
            await asyncio.sleep(8.0)  # as long as bad news may wait before it is written
            calls = {name: count for name, count in again.provider.calls.items() if name != "observe" and count}
            writes = again.writes
        changed = {str(key) for key in before.items() ^ (await versions(cluster)).items()}
        what = f"of a hub restarted with {records:,} records in {load_balancers} load balancers"
        yield Figure(name=f"records: ready {what}", value=took, unit="s", limit=5.0)
        yield Figure(
            name=f"records: provider calls that change something {what}",
            value=sum(calls.values()),
            unit="calls",
            limit=0,
            compares_with=str(calls or ""),
        )
        yield Figure(
            name=f"records: API writes {what}",
            value=sum(writes.values()),
            unit="writes",
            limit=0,
            compares_with=str(writes or "renewals of the lease, and applying the definitions of our kinds, apart"),
        )
        yield Figure(
            name=f"records: objects at the API that changed meanwhile {what}",
            value=len(changed),
            unit="objects",
            limit=0,
            compares_with=", ".join(sorted(changed)[:5]),
        )


async def versions(cluster: Cluster) -> dict[str, str]:
    """Return the version of every object that a hub might write, its lease apart."""
    kinds = (BACKEND_RECORDS, TCP_LOAD_BALANCERS, ENDPOINT_SLICES, LOAD_BALANCER_CLASSES, CRDS, NAMESPACES)
    versions_of: dict[str, str] = {}
    for kind in kinds:
        for obj in await cluster.list(kind):
            versions_of[f"{kind.plural}/{'/'.join(obj.key)}"] = obj.metadata.resource_version
    return versions_of


async def ledger_alone(cluster: Cluster, records: int) -> Figure:
    """Read the records, and know what was done: without a hub, and with nothing to do."""
    started = time.perf_counter()
    engine = DurableRunner(
        TermSettings(
            name="memory",
            provider=MemoryProvider(),
            cluster=cluster,
            clock=SystemClock(),
            report=lambda _report: None,
            epoch=lambda: 1,
            resource_of=resource_of,
        )
    )
    backend_records = await cluster.list(BACKEND_RECORDS)
    tcp: list[TCPLoadBalancer] = await cluster.list(TCP_LOAD_BALANCERS)
    frontends = {LoadBalancerKey(TCP_LOAD_BALANCERS.kind, *obj.key): obj.status.frontend_of("memory") for obj in tcp}
    engine.begin(backend_records, {key: status for key, status in frontends.items() if status is not None})
    took = time.perf_counter() - started
    if len(engine.ledger) != records:
        raise RuntimeError(f"there are {len(engine.ledger)} records instead of {records}")
    return Figure(name=f"records: {records:,} records listed and restored", value=took, unit="s", limit=3.0)
