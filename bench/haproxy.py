"""An ordinary Service on a HAProxy, measured through agent and hub: a pod more, and a rolling update under load."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure, percentile
from bench.fleet import Fleet, fleet, free_port, until_true
from bench.load import POD_PORT, RATE_PER_S, load, start_pod
from bench.objects import endpoint_slice
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES

NAME = "probe"
SAMPLES = 150
PODS = 20
WAVE = 5
#: How long a pod that is being deleted still answers: a preStop hook.
GRACE_S = 3.0


class HAProxy:
    """One HAProxy with one frontend, and what its Runtime API says."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "admin.sock"
        self.port = free_port()
        self.config = directory / "haproxy.cfg"
        self.config.write_text(
            f"global\n  stats socket {self.socket} mode 600 level admin\n  maxconn 2000\n"
            "defaults\n  mode http\n  timeout connect 2s\n  timeout client 30s\n  timeout server 30s\n"
            "  option redispatch\n  retries 3\n"
            f"frontend web\n  bind 127.0.0.1:{self.port}\n  default_backend web\n"
            "backend web\n  balance roundrobin\n  server theirs 192.0.2.1:1 disabled\n"
        )

    async def ask(self, command: str) -> str:
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        writer.write(f"{command}\n".encode())
        answer = await reader.read()
        writer.close()
        return answer.decode()

    async def answers(self) -> bool:
        try:
            return "Pid:" in await self.ask("show info")
        except OSError:
            return False

    async def up(self) -> set[str]:
        """Return the addresses of servers that are UP and take traffic."""
        rows = (row.split() for row in (await self.ask("show servers state web")).splitlines())
        return {row[4] for row in rows if len(row) > 6 and row[5] == "2" and row[6] == "0"}

    async def all(self) -> set[str]:
        """Return the addresses of all servers of ours, also of those that are on their way out."""
        rows = (row.split() for row in (await self.ask("show servers state web")).splitlines())
        return {row[4] for row in rows if len(row) > 6 and row[3].startswith("fl-")}


@asynccontextmanager
async def _served(*pods: str) -> AsyncGenerator[tuple[Fleet, HAProxy]]:
    """Run a fleet whose one Service is on a HAProxy."""
    with tempfile.TemporaryDirectory(prefix="flh-", dir="/tmp") as name:
        haproxy = HAProxy(Path(name))
        process = await asyncio.create_subprocess_exec("haproxy", "-db", "-q", "-f", str(haproxy.config))
        try:
            await until_true(haproxy.answers, what="HAProxy")
            async with fleet(target="Node") as running:
                parameters = {"socket": str(haproxy.socket), "backend": "web", "address": "127.0.0.1"}
                spec = {"provider": "haproxy", "parameters": parameters, "targets": "Pod", "drain": "1s"}
                await running.hub_cluster.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": spec})
                service = {
                    "metadata": {"name": NAME, "namespace": "default"},
                    "spec": {
                        "type": "LoadBalancer",
                        "loadBalancerClass": "fairlead.dev/edge",
                        "ports": [{"name": "http", "port": haproxy.port, "targetPort": POD_PORT}],
                    },
                }
                await running.member_cluster.create(SERVICES, service)
                await running.member_cluster.create(ENDPOINT_SLICES, endpoint_slice(NAME, list(pods), port=POD_PORT))
                await running.agent.start()

                async def ready() -> bool:
                    return await haproxy.up() == set(pods)

                await until_true(ready, what="HAProxy has all pods")
                yield running, haproxy
        finally:
            process.kill()
            await process.wait()


async def _endpoints(running: Fleet, ready: Sequence[str], leaving: Sequence[str] = ()) -> None:
    endpoints = [{"addresses": [pod], "conditions": {"ready": True}} for pod in ready]
    going = {"ready": False, "serving": True, "terminating": True}
    endpoints += [{"addresses": [pod], "conditions": going} for pod in leaving]
    await running.member_cluster.merge_patch(ENDPOINT_SLICES, "default", f"{NAME}-1", {"endpoints": endpoints})


async def measured() -> AsyncIterator[Figure]:
    """Measure both, where there is a HAProxy."""
    if not shutil.which("haproxy"):
        print("| haproxy: not measured, the program is not installed | | | | |", flush=True)
        return
    async for figure in ready_to_up():
        yield figure
    async for figure in rolling_update():
        yield figure


async def ready_to_up() -> AsyncIterator[Figure]:
    """Let one pod come, and one go, again and again."""
    pods = [f"127.97.0.{number + 1}" for number in range(PODS)]
    took_ms: list[float] = []
    # One server for all of them: HAProxy checks its servers, and pods that do not answer are not UP.
    everybody, _ = await start_pod("0.0.0.0")
    async with everybody, _served(*pods) as (running, haproxy):
        for number in range(SAMPLES):
            pod = f"127.97.1.{number + 1}"
            pods = [*pods[1:], pod]
            began_s = time.perf_counter()
            await _endpoints(running, pods)
            while pod not in await haproxy.up():
                if time.perf_counter() - began_s > 30:
                    raise TimeoutError(f"{pod} is not UP after 30 s")
                await asyncio.sleep(0.002)
            took_ms.append((time.perf_counter() - began_s) * 1000)
            await asyncio.sleep(0.05)
    what = f"haproxy: pod Ready to server UP, {len(took_ms)} samples"
    yield Figure(name=f"{what}, median", value=percentile(took_ms, 0.5), unit="ms")
    yield Figure(name=f"{what}, p99", value=percentile(took_ms, 0.99), unit="ms", limit=150)


async def rolling_update() -> AsyncIterator[Figure]:
    """Replace all pods, some at a time, while requests keep coming."""
    old = [f"127.96.0.{number + 1}" for number in range(PODS)]
    new = [f"127.96.1.{number + 1}" for number in range(PODS)]
    counts: Counter[str] = Counter()
    latencies_ms: list[float] = []
    servers = {pod: await start_pod(pod) for pod in old}
    async with _served(*old) as (running, haproxy):
        stop = asyncio.Event()
        began_s = time.perf_counter()
        sending = asyncio.create_task(load("127.0.0.1", haproxy.port, counts, latencies_ms, stop))
        await asyncio.sleep(2)
        going: list[asyncio.Task[None]] = []

        async def end(pods: Sequence[str]) -> None:
            await asyncio.sleep(GRACE_S)
            for pod in pods:
                server, connections = servers.pop(pod)
                server.close()
                for connection in list(connections):
                    connection.close()

        for start in range(0, PODS, WAVE):
            coming, leaving = new[start : start + WAVE], old[start : start + WAVE]
            servers |= {pod: await start_pod(pod) for pod in coming}
            there = [*new[: start + WAVE], *old[start:]]
            await _endpoints(running, there)
            # As a Deployment does it: the next ones go as soon as these are Ready, whatever the load balancer thinks.
            await asyncio.sleep(0.5)
            await _endpoints(running, [pod for pod in there if pod not in leaving], leaving)
            going.append(asyncio.create_task(end(leaving)))
            await asyncio.sleep(1)
        await asyncio.gather(*going)
        await _endpoints(running, new)

        async def replaced() -> bool:
            return await haproxy.up() == await haproxy.all() == set(new)

        await until_true(replaced, what="only new pods are there")
        await asyncio.sleep(1)
        stop.set()
        took_s = time.perf_counter() - began_s
        await sending
    for server, _ in servers.values():
        server.close()
    rate = counts["good"] / took_s
    yield Figure(
        name=f"haproxy: requests failed in a rolling update of {PODS} pods, {WAVE} at a time",
        value=counts["sent"] - counts["good"],
        unit="",
        limit=0,
        compares_with=f"of {counts['sent']:,}; {rate:,.0f}/s of {RATE_PER_S:,}/s reached by an asyncio generator that "
        "shares the machine with pods, HAProxy, hub and agent",
    )
    yield Figure(name="haproxy: latency of those requests, p99", value=percentile(latencies_ms, 0.99), unit="ms")
