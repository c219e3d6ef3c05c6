"""One hub with 20,000 load balancers x 5 backends: its first start, its restarts, its memory, and one change."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

from bench.figures import Figure, percentile
from bench.fleet import until_true
from bench.hub_alone import SPACE, HubAlone, add_tenant, create_load_balancers, endpoint_slice, hub_alone, load_balancer
from bench.traffic import PROBE, PROBE_PORT, backend, lands_on
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

FEW, BACKENDS = 100, 5
CHANGES = 200
POOL = "127.140.0.0/16"
START_S = 60.0
#: One alone compares each new listener with 20,000, and needs as many files.
ENVOYS = 4


async def scale(many: int = int(os.environ.get("LOAD_BALANCERS", "20000"))) -> AsyncIterator[Figure]:
    """Measure with few and with many; the same hub grows."""
    async with hub_alone(pool=POOL, envoys=ENVOYS) as hub:
        await hub.process.start()
        await _ready(hub)
        await add_tenant(hub.cluster)
        await create_load_balancers(hub.cluster, 0, FEW, backends=BACKENDS)
        await _programmed(hub, FEW)
        p50, p99, failed = await _changes(hub, FEW)
        few_p50 = p50
        for figure in _change_figures(FEW, p50, p99, failed):
            yield figure

        await hub.process.kill()
        await create_load_balancers(hub.cluster, FEW, many - FEW, backends=BACKENDS)
        what = f"{many:,} load balancers x {BACKENDS} backends"
        first = f"first start with {what}: each is given an address, until its Envoys have acknowledged all"
        yield await _start(hub, many, first, limit_s=None)
        yield Figure(name=f"hub memory then, {what}", value=hub.process.rss_mb, unit="MB", limit=2048)
        p50, p99, failed = await _changes(hub, many)
        for figure in _change_figures(many, p50, p99, failed):
            yield figure
        yield Figure(name=f"the same p50 against that with {FEW}", value=p50 / few_p50, unit="x", limit=1.5)

        await hub.process.kill()
        yield await _start(hub, many, f"restart with {what}, its Envoys serving")
        pushes = await hub.metric("fairlead_xds_changing_pushes_total")
        yield Figure(name="responses of that restart that changed an Envoy", value=pushes, unit="", limit=0)
        await hub.process.kill()
        hub.end_envoys()
        yield await _start(hub, many, f"cold start with {what}, with new Envoys, until they have acknowledged all")
        yield Figure(name=f"hub memory then, {what}", value=hub.process.rss_mb, unit="MB", limit=2048)


async def _start(hub: HubAlone, count: int, what: str, *, limit_s: float | None = START_S) -> Figure:
    started_s = time.perf_counter()
    await hub.process.start()
    ready_s = await _ready(hub)
    await _programmed(hub, count)
    seconds = time.perf_counter() - started_s
    beside = f"ready after {ready_s:.1f} s; {hub.process.cpu_s:.1f} s of CPU of the hub"
    return Figure(name=what, value=seconds, unit="s", limit=limit_s, compares_with=beside)


async def _ready(hub: HubAlone) -> float:
    started_s = time.perf_counter()

    async def ready() -> bool:
        return bool(await hub.page("/readyz"))

    await until_true(ready, what="the hub's /readyz", timeout_s=900, every_s=0.2)
    return time.perf_counter() - started_s


async def _programmed(hub: HubAlone, count: int) -> None:
    """Wait until so many are programmed, and its Envoys serve so many listeners: a status may be of earlier ones."""

    async def done() -> bool:
        return await hub.listeners() >= count and await hub.programmed() >= count

    await until_true(done, what=f"{count} load balancers are programmed", timeout_s=1800, every_s=1)


async def _changes(hub: HubAlone, count: int) -> tuple[float, float, int]:
    """Swap the only backend of one more load balancer; returns p50 and p99 in ms, and failed connections."""
    first, second = "127.99.1.1", "127.99.1.2"
    servers = [await backend(first), await backend(second)]
    slice_ = endpoint_slice(PROBE, [first], port=PROBE_PORT)
    await hub.cluster.create(ENDPOINT_SLICES, slice_)
    await hub.cluster.create(TCP_LOAD_BALANCERS, load_balancer(PROBE))
    address = ""

    async def serves() -> bool:
        nonlocal address
        address = (await hub.cluster.get(TCP_LOAD_BALANCERS, SPACE, PROBE)).status.address
        return bool(address) and await lands_on(address) == first

    await until_true(serves, what="the probe serves", timeout_s=120, every_s=0.1)
    latencies_ms: list[float] = []
    failed = 0
    now = first
    for _ in range(CHANGES):
        now = second if now == first else first
        body = {"endpoints": [{"addresses": [now], "conditions": {"ready": True}}]}
        started_s = time.perf_counter()
        await hub.cluster.merge_patch(ENDPOINT_SLICES, SPACE, f"{PROBE}-1", body)
        while (answer := await lands_on(address)) != now:
            failed += not answer
        latencies_ms.append((time.perf_counter() - started_s) * 1e3)
        await asyncio.sleep(0.02)
    for server in servers:
        server.close()
    await hub.cluster.delete(TCP_LOAD_BALANCERS, SPACE, PROBE)
    await hub.cluster.delete(ENDPOINT_SLICES, SPACE, f"{PROBE}-1")

    async def gone() -> bool:
        return await hub.listeners() == count

    await until_true(gone, what="the probe is gone", timeout_s=120, every_s=0.5)
    return percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.99), failed


def _change_figures(count: int, p50: float, p99: float, failed: int) -> list[Figure]:
    what = f"EndpointSlice at the hub to a new connection on the new backend, {count:,} load balancers"
    return [
        Figure(name=f"{what}: p50", value=p50, unit="ms", compares_with=f"{failed} connections failed"),
        Figure(name=f"{what}: p99", value=p99, unit="ms", limit=60),
    ]
