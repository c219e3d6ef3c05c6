"""The durable engine against an API server in a process of its own: how many calls a burst of changes makes."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure
from bench.fleet import Process, until
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import MANAGER_HUB
from fairlead.hub.providers.runner import DurableRunner, TermSettings
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.model.change import Outcome, TargetChange
from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.logs import configure_logging
from fairlead.testing.builders import desired
from fairlead.testing.ledger import resource_of

KEY = LoadBalancerKey("LoadBalancer", "bench", "big")


class Slow(MemoryProvider):
    """A provider with 100 ms latency and a batch limit."""

    latency_s = 0.1

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        await asyncio.sleep(self.latency_s)
        return await super().apply(changes)


def wanted(count: int, *, key: LoadBalancerKey = KEY) -> DesiredLoadBalancer:
    keys = [TargetKey(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 8080) for number in range(count)]
    return desired([Target(at) for at in keys], key=key)


@asynccontextmanager
async def api(keys: Sequence[LoadBalancerKey] = (KEY,)) -> AsyncGenerator[Cluster]:
    """Run ``fairlead apiserver`` with the objects of ``keys``."""
    # What the engine says of each load balancer would cost more than what it does.
    configure_logging("warning")
    with tempfile.TemporaryDirectory(prefix="flb-", dir="/tmp") as name:
        directory = Path(name)
        config = directory / "api" / "kubeconfig"
        server = Process("api", "apiserver", "--memory", "--data-dir", str(directory / "api"), directory=directory)
        await server.start()
        try:
            await until(config.exists, what="the kubeconfig of the API server")
            async with Cluster.from_kubeconfig(config, name="bench", qps=10_000) as cluster:
                await install_crds(cluster, all_crds(), MANAGER_HUB)
                await cluster.create(NAMESPACES, {"metadata": {"name": "bench"}})
                spec = {"className": "m", "listeners": [{"port": 80}]}
                for key in keys:
                    body = {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}
                    await cluster.create(LOAD_BALANCERS, body)
                yield cluster
        finally:
            await server.stop()


def engine_of(cluster: Cluster, provider: MemoryProvider) -> DurableRunner:
    return DurableRunner(
        TermSettings(
            name="memory",
            provider=provider,
            cluster=cluster,
            clock=SystemClock(),
            report=lambda _report: None,
            epoch=lambda: 1,
            resource_of=resource_of,
        )
    )


async def batching(changes: int = 1000) -> AsyncIterator[Figure]:
    """Let backends come one by one for a second: to one load balancer, and to a hundred."""
    for count in (1, 100):
        calls, took = await burst(changes, load_balancers=count)
        what = f"{changes:,} changes in 1 s, {count} load balancer{'s' if count > 1 else ''}"
        yield Figure(
            name=f"records: provider calls for {what} (100 ms latency, batches of 500)",
            value=calls,
            unit="calls",
            limit=15,
            compares_with=f"one call for each backend: {changes:,}",
        )
        yield Figure(name=f"records: all applied after the last of {what}", value=took, unit="s", limit=2.0)


async def burst(changes: int, *, load_balancers: int) -> tuple[int, float]:
    """Return how many calls were made, and how long after the last change everything was applied."""
    keys = [LoadBalancerKey("LoadBalancer", "bench", f"lb-{number}") for number in range(load_balancers)]
    async with api(keys) as cluster:
        cloud = MemoryCloud()
        provider = Slow(cloud=cloud, max_batch=500)
        engine = engine_of(cluster, provider)
        task = asyncio.create_task(engine.run())

        def put(key: LoadBalancerKey, count: int) -> None:
            engine.tracker.put(wanted(count, key=key))
            engine.worker.trigger()

        def applied(count: int) -> Callable[[], bool]:
            return lambda: sum(len(cloud.members(key)) for key in keys) >= count

        for key in keys:
            put(key, 1)
        await until(applied(load_balancers), what="the first backend of each")
        await engine.worker.settled()
        before = provider.calls["apply"]
        started = time.perf_counter()
        backends = dict.fromkeys(keys, 1)
        for step in range(100):
            share = range(step * changes // 100, (step + 1) * changes // 100)
            for key in (keys[number % load_balancers] for number in share):
                backends[key] += 1
            for key in {keys[number % load_balancers] for number in share}:
                put(key, backends[key])
            await asyncio.sleep(max(0.0, started + (step + 1) / 100 - time.perf_counter()))
        last = time.perf_counter()
        await until(applied(changes + load_balancers), what="all backends")
        took = time.perf_counter() - last
        task.cancel()
        await asyncio.wait((task,))
        return provider.calls["apply"] - before, took
