"""The whole line, measured: first sync, change to effect, idle, restart, a node more, memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from bench.figures import Figure, percentile
from bench.fleet import Fleet, fleet, until_true
from bench.objects import create_node, create_node_services, create_services, endpoint_slice, service
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.api.meta import is_true
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

PROBE = "probe"
PROBE_PORT = 8099
CHANGES = 200
#: What KubeLB's agent takes for 1,000 Services at its client's default of 5 requests a second.
KUBELB_FIRST_SYNC_S = 200.0


async def programmed(running: Fleet, count: int) -> bool:
    """Say whether ``count`` load balancers are programmed, and all of them."""
    load_balancers = await running.hub_cluster.list(TCP_LOAD_BALANCERS)
    ready = sum(is_true(lb.status.conditions, "Programmed") for lb in load_balancers)
    return len(load_balancers) == count == ready


async def first_sync(services: int = 1000, endpoints: int = 10) -> AsyncIterator[Figure]:
    """Start an agent on a member that is full already."""
    async with fleet(target="Pod") as running:
        await create_services(running.member_cluster, 0, services, endpoints=endpoints)
        started = time.perf_counter()
        await running.agent.start()

        async def done() -> bool:
            return await programmed(running, services)

        await until_true(done, what="first sync", timeout_s=240, every_s=0.25)
        yield Figure(
            name=f"first sync of {services:,} Services x {endpoints} endpoints, until Envoy has acknowledged all",
            value=time.perf_counter() - started,
            unit="s",
            limit=20 if services == 1000 else None,
            compares_with=f"KubeLB's agent alone: about {KUBELB_FIRST_SYNC_S:g} s at 5 requests/s",
        )


async def backend(address: str) -> asyncio.Server:
    """Listen at ``PROBE_PORT`` of an address; each connection is answered with the address."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(address.encode())
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, address, PROBE_PORT)


async def lands_on(address: str) -> str:
    """Return what a new connection to port 80 of a load balancer is answered with; empty when it fails."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(address, 80), 2)
        try:
            return (await asyncio.wait_for(reader.read(64), 2)).decode()
        finally:
            writer.close()
    except (OSError, TimeoutError):
        return ""


@asynccontextmanager
async def _probed(running: Fleet) -> AsyncGenerator[tuple[str, str, str]]:
    """Add the probe Service to a fleet: yields its address and its two possible backends."""
    first, second = "127.99.1.1", "127.99.1.2"
    servers = [await backend(first), await backend(second)]
    await running.member_cluster.create(SERVICES, service(PROBE))
    await running.member_cluster.create(ENDPOINT_SLICES, endpoint_slice(PROBE, [first], port=PROBE_PORT))
    address = ""

    async def assigned() -> bool:
        nonlocal address
        probe = await running.member_cluster.get(SERVICES, "default", PROBE)
        address = next((ingress.address for ingress in probe.status.load_balancer.ingress or ()), "")
        return bool(address) and await lands_on(address) == first

    await until_true(assigned, what="the probe's address", timeout_s=60)
    try:
        yield address, first, second
    finally:
        for server in servers:
            server.close()


async def _change_latencies(running: Fleet) -> tuple[list[float], int]:
    """Swap the probe's only endpoint again and again; returns seconds to effect, and connections that failed."""
    latencies: list[float] = []
    failed = 0
    async with _probed(running) as (address, first, second):
        now = first
        for _ in range(CHANGES):
            now = second if now == first else first
            body = {"endpoints": [{"addresses": [now], "conditions": {"ready": True}}]}
            started = time.perf_counter()
            await running.member_cluster.merge_patch(ENDPOINT_SLICES, "default", f"{PROBE}-1", body)
            while (answer := await lands_on(address)) != now:
                failed += not answer
                if time.perf_counter() - started > 10:
                    raise TimeoutError(f"no connection reached {now} in 10 s (last answer: {answer!r})")
            latencies.append(time.perf_counter() - started)
            await asyncio.sleep(0.02)
    return latencies, failed


async def change_to_effect() -> AsyncIterator[Figure]:
    """Measure a change with 100, 1,000 and 5,000 load balancers present; one fleet that grows."""
    medians: dict[int, float] = {}
    async with fleet(target="Pod") as running:
        await running.agent.start()
        present = 0
        for total in (100, 1000, 5000):
            await create_services(running.member_cluster, present, total - present, endpoints=2)
            present = total

            async def done(count: int = total) -> bool:
                return await programmed(running, count)

            await until_true(done, what=f"{total} load balancers", timeout_s=300, every_s=1)
            await asyncio.sleep(3)
            latencies, failed = await _change_latencies(running)
            await running.member_cluster.delete(SERVICES, "default", PROBE)
            await running.member_cluster.delete(ENDPOINT_SLICES, "default", f"{PROBE}-1")
            await until_true(done, what="the probe gone", timeout_s=60, every_s=0.5)
            medians[total] = percentile(latencies, 0.5)
            where = f"EndpointSlice at the member to a new connection on the new endpoint, {total:,} load balancers"
            at_limit = total == 1000
            yield Figure(name=f"{where}: p50", value=medians[total] * 1e3, unit="ms", limit=15 if at_limit else None)
            yield Figure(
                name=f"{where}: p99",
                value=percentile(latencies, 0.99) * 1e3,
                unit="ms",
                limit=60 if at_limit else None,
                compares_with=f"{failed} connections failed meanwhile",
            )
        for total in (1000, 5000):
            yield Figure(
                name=f"the same p50, {total:,} load balancers against 100",
                value=medians[total] / medians[100],
                unit="x",
                limit=1.5,
            )


async def idle_and_restart(services: int = 1000) -> AsyncIterator[Figure]:
    """Count what is written and pushed while nothing happens, and by a restart of hub and agent."""
    async with fleet(target="Pod") as running:
        await create_services(running.member_cluster, 0, services, endpoints=10)
        await running.agent.start()

        async def done() -> bool:
            return await programmed(running, services)

        await until_true(done, what="first sync", timeout_s=240, every_s=0.5)
        await asyncio.sleep(15)
        before, pushes = await _versions(running), await _pushes(running)
        await asyncio.sleep(60)
        yield Figure(
            name=f"objects written in 60 s of idling with {services:,} load balancers (leases apart)",
            value=_changed(before, await _versions(running)), unit="writes", limit=0,
        )  # fmt: skip
        yield Figure(
            name="xDS resources pushed in the same 60 s", value=await _pushes(running) - pushes, unit="", limit=0
        )
        async with _probed(running) as (address, first, _second):
            await asyncio.sleep(3)
            before = await _versions(running)
            stop = asyncio.Event()
            prober = asyncio.create_task(_probe(address, first, stop))
            await running.hub.kill()
            await running.agent.kill()
            await asyncio.sleep(1)
            await running.hub.start()
            await running.agent.start()
            await running.wait_ready()
            await asyncio.sleep(25)
            stop.set()
            attempts, failed = await prober
            yield Figure(
                name="xDS resources changed by kill -9 and restart of hub and agent", value=await _pushes(running),
                unit="", limit=0,
            )  # fmt: skip
            yield Figure(
                name="users' objects written by the same restart",
                value=_changed(before, await _versions(running), only="member/services"), unit="writes", limit=0,
            )  # fmt: skip
            yield Figure(
                name="connections failed meanwhile", value=failed, unit="", limit=0, compares_with=f"of {attempts}"
            )


async def _probe(address: str, expected: str, stop: asyncio.Event) -> tuple[int, int]:
    attempts = failed = 0
    while not stop.is_set():
        attempts += 1
        failed += await lands_on(address) != expected
        await asyncio.sleep(0.01)
    return attempts, failed


async def _versions(running: Fleet) -> dict[str, str]:
    """Return the resourceVersion of everything but leases and Events, at both API servers."""
    versions: dict[str, str] = {}
    kinds = {"hub": (TCP_LOAD_BALANCERS, ENDPOINT_SLICES), "member": (SERVICES, ENDPOINT_SLICES)}
    for place, cluster in (("hub", running.hub_cluster), ("member", running.member_cluster)):
        for resource in kinds[place]:
            for item in await cluster.list(resource):
                versions[f"{place}/{resource.plural}/{'/'.join(item.key)}"] = item.metadata.resource_version
    return versions


def _changed(before: dict[str, str], after: dict[str, str], *, only: str = "") -> int:
    keys = {key for key in before.keys() | after.keys() if key.startswith(only)}
    return sum(before.get(key) != after.get(key) for key in keys)


async def _pushes(running: Fleet) -> float:
    metrics = await running.metrics()
    return metrics.get("fairlead_xds_changing_pushes_total", float("nan"))


async def node_added(services: int = 1000) -> AsyncIterator[Figure]:
    """Add one node to a member whose load balancers all go to nodes."""
    async with fleet(target="Node") as running:
        for number in range(3):
            await create_node(running.member_cluster, f"node-{number}", f"127.98.0.{number + 1}")
        await create_node_services(running.member_cluster, services)
        await running.agent.start()

        async def done() -> bool:
            return await programmed(running, services)

        await until_true(done, what="first sync", timeout_s=240, every_s=0.5)
        await asyncio.sleep(10)
        before = await _versions(running)
        await create_node(running.member_cluster, "node-3", "127.98.0.4")
        await asyncio.sleep(10)
        after = await _versions(running)
        what = f"when a node is added, {services:,} load balancers in Node mode"
        slices = _changed(before, after, only="hub/endpointslices")
        load_balancers = _changed(before, after, only="hub/tcploadbalancers")
        more = "one for each load balancer where each lists its nodes"
        yield Figure(name=f"slices written at the hub {what}", value=slices, unit="writes", limit=1, compares_with=more)
        more = "the number of its targets"
        yield Figure(
            name=f"statuses written {what}", value=load_balancers, unit="writes", limit=services, compares_with=more
        )


async def memory(services: int = 1000, endpoints: int = 50) -> AsyncIterator[Figure]:
    """Fill a hub and look at its memory."""
    async with fleet(target="Pod") as running:
        await create_services(running.member_cluster, 0, services, endpoints=endpoints)
        await running.agent.start()

        async def done() -> bool:
            return await programmed(running, services)

        await until_true(done, what="first sync", timeout_s=300, every_s=0.5)
        await asyncio.sleep(5)
        what = f"{services:,} load balancers x {endpoints} endpoints"
        yield Figure(name=f"hub memory at {what}", value=running.hub.rss_mb, unit="MB", limit=300)
        yield Figure(name=f"agent memory at {what}", value=running.agent.rss_mb, unit="MB", limit=150)
