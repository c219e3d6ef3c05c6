"""Measures a member's change while another member makes thousands of ports, deletes them and creates them again.

The hub runs without a quota of ports, so that the noisy member may do what a quota would refuse.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from bench.figures import Figure, percentile
from bench.fleet import FAIRLEAD, Fleet, fleet, until_true
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.testing.builders import slice_body, tcp_body

LOAD_BALANCERS, PORTS = 19, 256
PROBES, FIRST_PORT, NODE_PORT = 8, 20_000, 30_080
NOISY, QUIET = "tenant-bench", "tenant-quiet"
BACKEND = "127.99.5.1"


async def beside_a_noisy_member() -> AsyncIterator[Figure]:
    """Measure a member's load balancer from its creation to its first connection, alone and next to the noisy one."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), BACKEND, NODE_PORT, backlog=1024)
    try:
        async with fleet(target="Pod") as running:
            adding = await asyncio.create_subprocess_exec(
                FAIRLEAD, "tenant", "add", "quiet", "--kubeconfig", str(running.hub_config),
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            if await adding.wait():
                raise RuntimeError("tenant add failed")
            for namespace in (NOISY, QUIET):
                await running.hub_cluster.create(
                    ENDPOINT_SLICES, slice_body("nodes-1", [BACKEND], nodes=True, namespace=namespace)
                )
            alone = [await _to_first_connection(running, f"alone-{number}") for number in range(PROBES)]
            noise = asyncio.create_task(_noise(running.hub_cluster))
            await asyncio.sleep(5)
            beside = [await _to_first_connection(running, f"beside-{number}") for number in range(PROBES)]
            noise.cancel()
            await asyncio.gather(noise, return_exceptions=True)
    finally:
        server.close()
    what = "a load balancer from its creation to its first connection"
    yield Figure(name=f"{what}, alone: p50", value=percentile(alone, 0.5), unit="s")
    yield Figure(
        name=f"{what}, while another member remakes {LOAD_BALANCERS} of {PORTS} ports: p50",
        value=percentile(beside, 0.5), unit="s", compares_with="86 to 164 s in 0.1",
    )  # fmt: skip
    yield Figure(name="the same, longest", value=max(beside), unit="s")


async def _noise(hub: Cluster) -> None:
    """Create, delete and create again until cancelled."""
    names = [f"noisy-{number}" for number in range(LOAD_BALANCERS)]
    while True:
        for name in names:
            await _create(hub, NOISY, name, [FIRST_PORT + number for number in range(PORTS)])
        await asyncio.sleep(3)
        for name in names:
            await hub.delete(TCP_LOAD_BALANCERS, NOISY, name)
        await until_true(lambda: _gone(hub, names), what="the noisy member's load balancers gone", timeout_s=600)


async def _gone(hub: Cluster, names: list[str]) -> bool:
    return not {each.metadata.name for each in await hub.list(TCP_LOAD_BALANCERS, NOISY)} & set(names)


async def _to_first_connection(running: Fleet, name: str) -> float:
    hub, address = running.hub_cluster, ""
    started = time.perf_counter()
    await _create(hub, QUIET, name, [80])

    async def connects() -> bool:
        nonlocal address
        try:
            address = address or (await hub.get(TCP_LOAD_BALANCERS, QUIET, name)).status.address
            _, writer = await asyncio.open_connection(address, 80) if address else (None, None)
        except (OSError, NotFound):
            return False
        if writer is not None:
            writer.close()
        return writer is not None

    await until_true(connects, what=f"{name} accepts connections", timeout_s=300)
    return time.perf_counter() - started


async def _create(hub: Cluster, namespace: str, name: str, ports: list[int]) -> None:
    wanted = [{"name": f"p{port}", "port": port, "nodePort": NODE_PORT} for port in ports]
    await hub.create(TCP_LOAD_BALANCERS, tcp_body(name, namespace=namespace, ports=wanted))
