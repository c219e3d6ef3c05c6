"""A hub, its API and its Envoy as processes, and load balancers written as agents write them. No member runs."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from bench.fleet import Process, until, until_namespace, until_true
from bench.objects import pod_address
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.testing.builders import slice_body, tcp_body
from fairlead_demo.worlds.loopback import free_port

SPACE = "tenant-bench"
_AT_ONCE = 64
_ACTIVE = "listener_manager.total_listeners_active"


class HubAlone:
    """One hub; ``cluster`` is its API. Its Envoys outlive it: ``end_envoys`` ends them."""

    def __init__(self, directory: Path, cluster: Cluster, *, api: Process, pool: str, envoys: int = 1) -> None:
        self.cluster = cluster
        self.api = api
        self.data = directory / "h"
        self.metrics_port = free_port()
        self.process = Process(
            "hub", "hub", "--kubeconfig", str(directory / "api" / "kubeconfig"), "--address-pool", pool,
            "--data-dir", str(self.data), "--metrics", f"127.0.0.1:{self.metrics_port}", "--log-level", "warning",
            "--envoy-threads", "1", "--envoys", str(envoys), "--tenant-ports", "0", directory=directory,
        )  # fmt: skip

    async def page(self, path: str) -> str:
        """Return a page of the hub; empty when it does not answer with 200."""
        timeout = aiohttp.ClientTimeout(total=60)
        with suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.metrics_port}{path}") as answer,
            ):
                return await answer.text() if answer.status == 200 else ""
        return ""

    async def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels; NaN when the hub does not answer."""
        page = await self.page("/metrics")
        rows = [line.rsplit(" ", 1) for line in page.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(value) for _, value in rows) if page else float("nan")

    async def programmed(self) -> int:
        """Return how many load balancers the hub's metrics show as programmed."""
        page = await self.page("/metrics")
        rows = [line for line in page.splitlines() if line.startswith('fairlead_hub_load_balancers{programmed="True"')]
        return round(sum(float(row.rsplit(" ", 1)[1]) for row in rows))

    async def listeners(self) -> int:
        """Return how many listeners its Envoys serve; one that does not answer serves none."""
        sockets = [path.with_name("admin.sock") for path in self.data.rglob("envoy.pid")]
        pages = await asyncio.gather(
            *(admin_get(socket, f"/stats?filter={_ACTIVE}", timeout_s=30) for socket in sockets)
        )
        return sum(int(text.rpartition(":")[2] or 0) for status, text in pages if status == 200)

    def end_envoys(self) -> None:
        """End its Envoys with SIGKILL."""
        for pid_file in self.data.rglob("envoy.pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)


@asynccontextmanager
async def hub_alone(*, pool: str, lasting: bool = False, envoys: int = 1) -> AsyncGenerator[HubAlone]:
    """Run an API server with our kinds; the hub, which gives out addresses of ``pool``, is not started yet.

    Backends are not checked: most of them do not exist, and what Envoy does about that is not the hub's.
    ``lasting``: the API may be killed and started again, with the same state at the same port. So many ``envoys``
    share the load balancers.
    """
    with tempfile.TemporaryDirectory(prefix="flh-", dir="/tmp") as name:
        directory = Path(name)
        config = directory / "api" / "kubeconfig"
        kept = ("--listen", f"127.0.0.1:{free_port()}") if lasting else ("--memory",)
        api = Process("api", "apiserver", *kept, "--data-dir", str(config.parent), directory=directory)
        await api.start()
        try:
            await until(config.exists, what="the API server")
            async with Cluster.from_kubeconfig(config, name="bench", qps=20_000) as cluster:

                async def served() -> bool:
                    return not await install_crds(cluster, all_crds(), "bench")

                await until_true(served, what="the kinds are served")
                unchecked: JSONObject = {"provider": "envoy", "healthCheck": {"disabled": True}}
                await cluster.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": DEFAULT_CLASS}, "spec": unchecked})
                hub = HubAlone(directory, cluster, api=api, pool=pool, envoys=envoys)
                try:
                    yield hub
                finally:
                    await hub.process.kill()
                    hub.end_envoys()
        finally:
            await api.stop()


async def add_tenant(cluster: Cluster) -> None:
    """Add the member, and wait for its namespace."""
    await cluster.create(TENANTS, {"metadata": {"name": SPACE.removeprefix("tenant-")}, "spec": {}})
    await until_namespace(cluster, SPACE)


async def create_load_balancers(cluster: Cluster, first: int, count: int, *, backends: int) -> None:
    """Create load balancers of one port each, with their backends."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def make(number: int) -> None:
        async with slots:
            addresses = [pod_address(number, index) for index in range(backends)]
            await cluster.create(ENDPOINT_SLICES, endpoint_slice(f"lb-{number}", addresses))
            await cluster.create(TCP_LOAD_BALANCERS, load_balancer(f"lb-{number}"))

    await asyncio.gather(*(make(number) for number in range(first, first + count)))


def endpoint_slice(name: str, addresses: Sequence[str], *, port: int = 8080) -> JSONObject:
    """Return the EndpointSlice of a load balancer."""
    ports = [{"name": "", "port": port, "protocol": "TCP"}]
    return slice_body(f"{name}-1", addresses, namespace=SPACE, load_balancer=name, ports=ports)


def load_balancer(name: str) -> JSONObject:
    """Return a load balancer of port 80."""
    return tcp_body(name, namespace=SPACE, ports=[{"port": 80}], spec={"targets": "Pod"})
