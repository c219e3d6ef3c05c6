"""The durable engine, on the embedded API server: batching of a burst, and a restart with everything as it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.figures import Figure
from fairlead.api.backendrecord import BACKEND_RECORDS
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import MANAGER_HUB
from fairlead.apiserver import ApiServer
from fairlead.hub.engine import DurableEngine
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.preflight import install_crds
from fairlead.model.change import Outcome, TargetChange
from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import desired

TOKEN = "bench"
KEY = LoadBalancerKey("LoadBalancer", "bench", "big")


class Slow(MemoryProvider):
    """A provider with 100 ms latency and a batch limit."""

    latency_s = 0.1

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        await asyncio.sleep(self.latency_s)
        return await super().apply(changes)


def wish(count: int) -> DesiredLoadBalancer:
    keys = [TargetKey(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 8080) for number in range(count)]
    return desired([Target(key) for key in keys], key=KEY)


@asynccontextmanager
async def api() -> AsyncIterator[Cluster]:
    server = ApiServer(admin_token=TOKEN)
    await server.start()
    config = ClusterConfig(server=server.url, sign_in=bearer(TOKEN))
    try:
        async with Cluster(config, name="bench", qps=0) as cluster:
            await install_crds(cluster, all_crds(), MANAGER_HUB)
            await cluster.create(NAMESPACES, {"metadata": {"name": "bench"}})
            spec = {"className": "m", "listeners": [{"port": 80}]}
            body = {"metadata": {"name": "big", "namespace": "bench"}, "spec": spec}
            await cluster.create(LOAD_BALANCERS, body)
            yield cluster
    finally:
        await server.stop()


def engine_of(cluster: Cluster, provider: MemoryProvider) -> DurableEngine:
    return DurableEngine(
        name="memory",
        provider=provider,
        store=cluster,
        clock=SystemClock(),
        report=lambda _report: None,
        epoch=lambda: 1,
    )


async def until_applied(cloud: MemoryCloud, count: int) -> None:
    while len(cloud.members(KEY)) < count:
        await asyncio.sleep(0.01)


async def batching(changes: int = 1000) -> AsyncIterator[Figure]:
    """Let backends come one by one for a second."""
    async with api() as cluster:
        cloud = MemoryCloud()
        provider = Slow(cloud=cloud, max_batch=500)
        engine = engine_of(cluster, provider)
        task = asyncio.create_task(engine.run())
        engine.tracker.put(wish(1))
        engine.worker.trigger()
        await until_applied(cloud, 1)
        before = provider.calls["apply"]
        started = time.perf_counter()
        for step in range(1, 101):
            engine.tracker.put(wish(1 + step * changes // 100))
            engine.worker.trigger()
            await asyncio.sleep(max(0.0, started + step / 100 - time.perf_counter()))
        last = time.perf_counter()
        await until_applied(cloud, changes + 1)
        took = time.perf_counter() - last
        task.cancel()
        await asyncio.wait((task,))
        calls = provider.calls["apply"] - before
        yield Figure(
            name=f"records: provider calls for {changes:,} changes in 1 s (100 ms latency, batches of 500)",
            value=calls,
            unit="calls",
            limit=15,
            compares_with=f"one call for each backend: {changes:,}",
        )
        yield Figure(name="records: all applied after the last change", value=took, unit="s", limit=2.0)


async def restart(records: int = 10_000) -> AsyncIterator[Figure]:
    """Restart with everything as it was."""
    async with api() as cluster:
        cloud = MemoryCloud()
        engine = engine_of(cluster, MemoryProvider(cloud=cloud))
        task = asyncio.create_task(engine.run())
        engine.tracker.put(wish(records))
        engine.worker.trigger()
        await engine.worker.settled()
        task.cancel()
        await asyncio.wait((task,))
        writes = cluster.writes
        provider = MemoryProvider(cloud=cloud)
        started = time.perf_counter()
        again = engine_of(cluster, provider)
        found = await cluster.list(BACKEND_RECORDS)
        shared = await cluster.get(LOAD_BALANCERS, "bench", "big")
        again.begin(found, {KEY: shared.status.frontend})
        again.tracker.put(wish(records))
        again.worker.trigger()
        task = asyncio.create_task(again.run())
        await again.worker.settled()
        took = time.perf_counter() - started
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.wait((task,))
        calls = sum(count for name, count in provider.calls.items() if name != "observe")
        yield Figure(name=f"records: restart with {records:,} records, ready", value=took, unit="s", limit=5.0)
        yield Figure(name="records: provider calls of that restart", value=calls, unit="calls", limit=0)
        yield Figure(name="records: API writes of that restart", value=cluster.writes - writes, unit="writes", limit=0)
