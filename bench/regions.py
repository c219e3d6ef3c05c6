"""The figures of regions: a cold start of 10,000 PoolServices, one endpoint, one node, one label; real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from bench.figures import Figure, percentile
from bench.fleet import POOL, Process, free_port, until, until_true
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.api.poolservice import NODE_POOLS, POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds

SELECTOR = "fairlead.dev/nodepool-selector"
_AT_ONCE = 50


class Bench:
    """An API server, regions, and if asked for a hub with its Envoy."""

    def __init__(self, directory: Path, *, hub: bool) -> None:
        api = directory / "api"
        self.kubeconfig = api / "kubeconfig"
        self.port = free_port()
        self.api = Process("api", "apiserver", "--memory", "--data-dir", str(api), directory=directory)
        layers = [] if hub else ["--layer1-only"]
        self.regions = Process(
            "regions", "regions", "--kubeconfig", str(self.kubeconfig), "--metrics", f"127.0.0.1:{self.port}",
            "--log-level", "warning", *layers, directory=directory,
        )  # fmt: skip
        self.hub = Process(
            "hub", "hub", "--kubeconfig", str(self.kubeconfig), "--address-pool", POOL,
            "--data-dir", str(directory / "h"), "--stop-proxy", "--tenant-ports", "0", directory=directory,
        )  # fmt: skip
        self.with_hub = hub

    async def page(self) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return await answer.text()

    async def writes(self, *kinds: str) -> int:
        """Return the accepted writes of regions so far, of these plurals; leases and Events never count."""
        total = 0
        for line in (await self.page()).splitlines():
            if not line.startswith("fairlead_kube_requests_total{") or 'code="2' not in line:
                continue
            quiet = ('verb="get"', 'verb="list"', 'verb="watch"', "leases", 'resource="events"', "customresource")
            if not any(word in line for word in quiet) and any(f'"{kind}' in line for kind in kinds or ("",)):
                total += int(float(line.rsplit(" ", 1)[1]))
        return total

    async def reconciles(self) -> int:
        lines = [line for line in (await self.page()).splitlines() if line.startswith("fairlead_reconcile_total{")]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)


@asynccontextmanager
async def running(*, hub: bool) -> AsyncGenerator[tuple[Bench, Cluster]]:
    with tempfile.TemporaryDirectory(prefix="flr-", dir="/tmp") as name:
        bench = Bench(Path(name), hub=hub)
        await bench.api.start()
        try:
            await until(bench.kubeconfig.exists, what="the API server")
            async with Cluster.from_kubeconfig(bench.kubeconfig, name="bench", qps=20_000) as cluster:
                await until_true(lambda: _served(cluster), what="the kinds are served")
                if hub:
                    await bench.hub.start()
                yield bench, cluster
        finally:
            for process in (bench.regions, bench.hub, bench.api):
                await process.stop()
            end_envoys(Path(name))


def end_envoys(directory: Path) -> None:
    for pid_file in directory.rglob("envoy.pid"):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)


async def _served(cluster: Cluster) -> bool:
    return not await install_crds(cluster, all_crds(), "bench")


async def run_all(work: list[Awaitable[Any]]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def run(job: Awaitable[Any]) -> None:
        async with gate:
            await job

    await asyncio.gather(*(run(job) for job in work))


def _service(name: str, *, selector: str, class_name: str) -> JSONObject:
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": {SELECTOR: selector}},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": class_name,
            "allocateLoadBalancerNodePorts": False,
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    }


def _slice(name: str, endpoints: list[tuple[str, str]], *, port: int = 8080) -> JSONObject:
    labels = {"kubernetes.io/service-name": name}
    return {
        "metadata": {"name": f"{name}-1", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [a], "nodeName": n, "conditions": {"ready": True}} for a, n in endpoints],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


async def _pools(cluster: Cluster, count: int) -> None:
    for number in range(count):
        name = f"pool-{number}"
        spec = {"nodeSelector": {"region": name}}
        await cluster.create(NODE_POOLS, {"metadata": {"name": name, "labels": {"edge": "yes"}}, "spec": spec})
        await cluster.create(NODES, {"metadata": {"name": f"node-{number}", "labels": {"region": name}}})


async def cold_start(services: int = 200, pools: int = 50) -> AsyncIterator[Figure]:
    """Measure a start with nothing done yet, then what it costs to stand still, and single changes."""
    async with running(hub=False) as (bench, cluster):
        await _pools(cluster, pools)
        endpoints = [(f"10.1.{number}.1", f"node-{number}") for number in range(pools)]
        work: list[Awaitable[Any]] = []
        for number in range(services):
            name = f"svc-{number}"
            work.append(cluster.create(SERVICES, _service(name, selector="edge=yes", class_name="example.com/elb")))
            work.append(cluster.create(ENDPOINT_SLICES, _slice(name, endpoints)))
        await run_all(work)
        cache: WatchCache[PoolService] = WatchCache(cluster, POOL_SERVICES)
        changed: list[str] = []
        cache.on_change(lambda _old, new: changed.append(new.spec.nodepool_name if new is not None else ""))
        watching = asyncio.create_task(cache.run())
        await cache.wait_synced()
        started_s = time.monotonic()
        await bench.regions.start()
        total = services * pools
        await until(lambda: len(cache) >= total, what=f"{total} PoolServices", timeout_s=180)
        what = f"{services} Services x {pools} regions"
        yield Figure(
            name=f"{what} = {total:,} PoolServices from a cold start",
            value=time.monotonic() - started_s,
            unit="s",
            limit=30,
        )
        before = await _quiet(bench)
        await asyncio.sleep(15)
        written = await bench.writes() - before
        yield Figure(name="writes in 15 s of standing still", value=written, unit="writes", limit=0)

        async def single(name: str, job: Awaitable[Any], *, limit: int) -> Figure:
            before, reconciled = await bench.writes(), await bench.reconciles()
            await job
            written = await _quiet(bench) - before
            more = f"{await bench.reconciles() - reconciled} keys reconciled"
            return Figure(name=name, value=written, unit="writes", limit=limit, compares_with=more)

        moved = [("10.1.0.9", "node-0"), *endpoints[1:]]
        yield await single(
            "one EndpointSlice change in one of 50 regions",
            cluster.apply(ENDPOINT_SLICES, _slice("svc-7", moved), manager="bench"), limit=1,
        )  # fmt: skip
        changed.clear()
        patch = {"metadata": {"labels": {"region": "pool-1"}}}
        yield await single(
            f"one node moving pool, {services} Services with a pod on it",
            cluster.merge_patch(NODES, "", "node-0", patch), limit=2 * services,
        )  # fmt: skip
        others = len([pool for pool in changed if pool not in {"pool-0", "pool-1"}])
        yield Figure(name="of these in other pools than the two concerned", value=others, unit="writes", limit=0)
        watching.cancel()


async def label_change(services: int = 2000, concerned: int = 20) -> AsyncIterator[Figure]:
    """Change one label of a NodePool that few of many Services ask for."""
    async with running(hub=False) as (bench, cluster):
        await _pools(cluster, 3)
        await run_all(
            [
                cluster.create(
                    SERVICES,
                    _service(
                        f"svc-{number}",
                        selector="tier=gold" if number < concerned else f"edge=yes,group!=g{number}",
                        class_name="example.com/elb",
                    ),
                )
                for number in range(services)
            ]
        )
        await bench.regions.start()

        async def there() -> bool:
            return len(await cluster.list(POOL_SERVICES)) >= 3 * (services - concerned)

        await until_true(there, what="cold start", timeout_s=180, every_s=0.5)
        before, reconciled = await _quiet(bench), await bench.reconciles()
        await cluster.merge_patch(NODE_POOLS, "", "pool-0", {"metadata": {"labels": {"tier": "gold"}}})
        written = await _quiet(bench) - before
        name = f"a NodePool label change, {services:,} Services, {concerned} of them concerned"
        # For each a PoolService, and the condition that a pool matches now.
        yield Figure(name=name, value=written, unit="writes", limit=2 * concerned)
        # A region, then its Service and what it shows, because a PoolService was made.
        reconciled_keys = await bench.reconciles() - reconciled
        yield Figure(name="keys reconciled for it", value=reconciled_keys, unit="keys", limit=6 * concerned)


async def endpoint_to_effect(changes: int = 200, services: int = 20) -> AsyncIterator[Figure]:
    """Measure from the write of an EndpointSlice to the first new connection on the new pod, through Envoy."""
    async with running(hub=True) as (bench, cluster):
        await _pools(cluster, 3)
        names = [f"svc-{number}" for number in range(services)]
        await run_all(
            [cluster.create(SERVICES, _service(n, selector="edge=yes", class_name="fairlead.dev/envoy")) for n in names]
        )
        # Many take turns, so that no pod answers that was still in the load balancer from the last time.
        pods = [f"127.151.0.{number}" for number in range(1, 9)]
        servers = [await _pod(address) for address in pods]
        others = [(f"127.152.{number}.1", f"node-{number}") for number in (1, 2)]
        await cluster.apply(ENDPOINT_SLICES, _slice("svc-0", [("127.151.0.1", "node-0"), *others]), manager="bench")
        await bench.regions.start()

        async def address() -> str:
            load_balancers: list[TCPLoadBalancer] = await cluster.list(TCP_LOAD_BALANCERS)
            mine = [lb.status.address for lb in load_balancers if lb.metadata.name.startswith("svc-0-pool-0.")]
            return mine[0] if mine and len([lb for lb in load_balancers if lb.status.address]) == 3 * services else ""

        async def has_address() -> bool:
            return bool(await address())

        await until_true(has_address, what="addresses", timeout_s=90, every_s=0.2)
        host = await address()
        await until_true(lambda: _answers(host, "127.151.0.1"), what="traffic", timeout_s=30)
        await asyncio.sleep(2)
        cache: WatchCache[PoolService] = WatchCache(cluster, POOL_SERVICES)
        renewed: list[str] = []

        def note(old: PoolService | None, new: PoolService | None) -> None:
            if old is not None and new is not None and old.spec.renew_time != new.spec.renew_time:
                renewed.append(new.metadata.name)

        cache.on_change(note)
        watching = asyncio.create_task(cache.run())
        await cache.wait_synced()
        latencies: list[float] = []
        for number in range(changes):
            now = pods[(number + 1) % len(pods)]
            started_s = time.monotonic()
            await cluster.apply(ENDPOINT_SLICES, _slice("svc-0", [(now, "node-0"), *others]), manager="bench")
            await until_true(lambda now=now: _answers(host, now), what=f"{now} answers", timeout_s=20, every_s=0.001)
            latencies.append(time.monotonic() - started_s)
            await until(lambda number=number: len(renewed) > number, what="the PoolService renewed", timeout_s=20)
        await asyncio.sleep(0.5)
        where = "EndpointSlice to a new connection on the new pod, through Envoy"
        yield Figure(name=f"{where}: p50", value=percentile(latencies, 0.5) * 1e3, unit="ms")
        yield Figure(name=f"{where}: p99", value=percentile(latencies, 0.99) * 1e3, unit="ms", limit=80)
        yield Figure(
            name=f"PoolService writes for {changes} EndpointSlice changes",
            value=len(renewed),
            unit="writes",
            limit=changes,
        )
        watching.cancel()
        for server in servers:
            server.close()


async def _pod(address: str) -> asyncio.Server:
    async def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(address.encode() + b"\n")
        writer.close()

    return await asyncio.start_server(connected, address, 8080)


async def _answers(host: str, wanted: str) -> bool:
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(host, 80)
            line = await reader.readline()
            writer.close()
    except (OSError, TimeoutError):
        return False
    return line.decode().strip() == wanted


async def _quiet(bench: Bench) -> int:
    """Return the writes once there have been no more for a second."""
    last, since_s = await bench.writes(), time.monotonic()
    while time.monotonic() - since_s < 1.0:
        await asyncio.sleep(0.1)
        now = await bench.writes()
        if now != last:
            last, since_s = now, time.monotonic()
    return last


async def run() -> list[str]:
    """Run every case and return the printed rows."""
    rows: list[str] = []
    for case in (cold_start, label_change, endpoint_to_effect):
        async for figure in case():
            rows.append(figure.row())
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    asyncio.run(run())
