"""Measures 1,000 GlobalServices over five members: cold start, one endpoint change, and writes while idle.

In: one hub with its API and Envoys as processes, and objects written as agents write them. Out: figures. Each member
has a load balancer of its own for each Service as well, as agents publish them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

from bench.figures import Figure, percentile
from bench.fleet import until_namespace, until_true
from bench.hub_alone import HubAlone, hub_alone
from bench.traffic import PROBE, PROBE_PORT, backend, lands_on
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.meta import JSONObject, is_true
from fairlead.api.names import hub_name
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.testing.builders import slice_body, tcp_body

MEMBERS = 5
ENDPOINTS = 20
CHANGES = 200
IDLE_S = 30
#: One alone compares each new listener with all others, and needs as many files.
ENVOYS = 2
_AT_ONCE = 64
_NAMES = [f"m{number}" for number in range(MEMBERS)]


async def measured(services: int = int(os.environ.get("GLOBAL_SERVICES", "1000"))) -> AsyncIterator[Figure]:
    """Measure a hub that starts with all of it, then one endpoint after another, then nothing."""
    async with hub_alone(pool="127.140.0.0/16", envoys=ENVOYS) as hub:
        await hub.process.start()
        for name in _NAMES:
            await hub.cluster.create(TENANTS, {"metadata": {"name": name}, "spec": {}})
        for name in _NAMES:
            await until_namespace(hub.cluster, f"tenant-{name}")
        slots = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(_create(hub, slots, f"s{number}", number) for number in range(services)))
        await _served(hub, services)
        await hub.process.kill()
        hub.end_envoys()
        what = f"{services:,} GlobalServices x {MEMBERS} members x {ENDPOINTS} endpoints"
        began_s = time.perf_counter()
        await hub.process.start()
        await _served(hub, services)
        seconds, cpu = time.perf_counter() - began_s, f"{hub.process.cpu_s:.1f} s of CPU of the hub"
        name = f"cold start with {what}, new Envoys, until they have acknowledged all"
        yield Figure(name=name, value=seconds, unit="s", limit=20.0, compares_with=cpu)
        async for figure in _changes(hub, what):
            yield figure
        before, cpu_s = await _versions(hub), hub.process.cpu_s
        await asyncio.sleep(IDLE_S)
        after = await _versions(hub)
        written = sum(after.get(key) != version for key, version in before.items())
        cpu = f"{hub.process.cpu_s - cpu_s:.2f} s of CPU of the hub"
        name = f"objects written in {IDLE_S} s of idling, {what}"
        yield Figure(name=name, value=written, unit="writes", limit=0, compares_with=cpu)


async def _create(hub: HubAlone, slots: asyncio.Semaphore, service: str, number: int) -> None:
    """Create a GlobalService, and the load balancer of each member with its endpoints."""
    async with slots:
        for place, member in enumerate(_NAMES):
            first = (number * MEMBERS + place) * ENDPOINTS
            addresses = [_address(first + index) for index in range(ENDPOINTS)]
            await _publish(hub, service, member, addresses, 8080)
        await hub.cluster.create(GLOBAL_SERVICES, _global(service))


async def _publish(hub: HubAlone, service: str, member: str, addresses: list[str], port: int) -> None:
    name, namespace = hub_name("shop", service), f"tenant-{member}"
    ports: list[JSONObject] = [{"name": "", "port": port, "protocol": "TCP"}]
    slice_ = slice_body(f"{name}-1", addresses, namespace=namespace, load_balancer=name, ports=ports)
    await hub.cluster.create(ENDPOINT_SLICES, slice_)
    spec: JSONObject = {"targets": "Pod", "origin": {"kind": "Service", "namespace": "shop", "name": service}}
    body = tcp_body(name, namespace=namespace, ports=[{"port": 80}], spec=spec)
    await hub.cluster.create(TCP_LOAD_BALANCERS, body)


def _global(service: str) -> JSONObject:
    meta = {"name": service, "namespace": f"tenant-{_NAMES[0]}"}
    members = [{"tenant": name, "weight": 10 * place + 10} for place, name in enumerate(_NAMES)]
    return {"metadata": meta, "spec": {"service": f"shop/{service}", "members": members}}


def _address(number: int) -> str:
    """Return a loopback address without a listener."""
    return f"127.{160 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"


async def _served(hub: HubAlone, services: int) -> None:
    count = services * (1 + MEMBERS)

    async def done() -> bool:
        return await hub.listeners() >= count and await hub.programmed() >= count

    await until_true(done, what=f"{count} load balancers are programmed", timeout_s=1800, every_s=0.5)


async def _changes(hub: HubAlone, what: str) -> AsyncIterator[Figure]:
    """Swap the only endpoint of one more GlobalService."""
    first, second = "127.99.1.1", "127.99.1.2"
    servers = [await backend(first), await backend(second)]
    await _publish(hub, PROBE, _NAMES[1], [first], PROBE_PORT)
    await hub.cluster.create(GLOBAL_SERVICES, _global(PROBE))
    namespace, name, address = f"tenant-{_NAMES[0]}", hub_name("shop", PROBE), ""

    async def serves() -> bool:
        nonlocal address
        obj = await hub.cluster.get(GLOBAL_SERVICES, namespace, PROBE)
        address = obj.status.address
        return is_true(obj.status.conditions, "Programmed") and await lands_on(address) == first

    await until_true(serves, what="the probe serves", timeout_s=120, every_s=0.1)
    latencies_ms, failed, now = list[float](), 0, first
    pushes, cpu_s = await hub.metric("fairlead_xds_resources_total"), hub.process.cpu_s
    for _ in range(CHANGES):
        now = second if now == first else first
        body: JSONObject = {"endpoints": [{"addresses": [now], "conditions": {"ready": True}}]}
        began_s = time.perf_counter()
        await hub.cluster.merge_patch(ENDPOINT_SLICES, f"tenant-{_NAMES[1]}", f"{name}-1", body)
        while (answer := await lands_on(address)) != now:
            failed += not answer
        latencies_ms.append((time.perf_counter() - began_s) * 1e3)
        await asyncio.sleep(0.05)
    cpu_ms = (hub.process.cpu_s - cpu_s) / CHANGES * 1e3
    pushed = (await hub.metric("fairlead_xds_resources_total") - pushes) / CHANGES
    for server in servers:
        server.close()
    beside = f"p50 {percentile(latencies_ms, 0.5):.0f} ms; {cpu_ms:.1f} ms of CPU of the hub; {failed} failed"
    p99 = percentile(latencies_ms, 0.99)
    yield Figure(name=f"one endpoint change, {what}: p99", value=p99, unit="ms", limit=80, compares_with=beside)
    # Its own load balancer has the endpoint, too.
    yield Figure(name="the same: EDS resources pushed for the GlobalService", value=pushed - 1, unit="", limit=1)


async def _versions(hub: HubAlone) -> dict[tuple[str, str, str], str]:
    kinds = (GLOBAL_SERVICES, TCP_LOAD_BALANCERS, ENDPOINT_SLICES, TENANTS)
    return {
        (kind.kind, obj.metadata.namespace, obj.metadata.name): obj.metadata.resource_version
        for kind in kinds
        for obj in await hub.cluster.list(kind)
    }
