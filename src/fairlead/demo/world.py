"""What does the demo consist of? A hub and two members as real processes, each with its own API server.

    east API ◄── east agent ──►            ┌──► Envoy (outlives the hub)
                               hub API ◄── hub
    west API ◄── west agent ──►

In: a directory. Out: ``World``, whose parts can be killed and started again; ``close`` ends them all, Envoy included.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.demo.net import free_network, free_port
from fairlead.demo.pods import Workload
from fairlead.demo.process import Child, StepFailed, fairlead, wait_until
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.providers.envoy.fleet_local import LocalFleet

MEMBERS = ("east", "west")
DRAIN = "3s"
_START_S = 30.0


class Member:
    """One member cluster: its API, its agent, and its workloads."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = self.directory / "kubeconfig"
        self.hub_kubeconfig = self.directory / "at-hub.kubeconfig"
        self.network = free_network()
        api = fairlead("apiserver", "--data-dir", str(self.directory), "--log-format", "json")
        self.api = Child(f"{name} API", api, log=self.directory / "apiserver.log")
        agent = fairlead("agent", "--kubeconfig", str(self.kubeconfig), "--hub-kubeconfig", str(self.hub_kubeconfig))
        options = ("--tenant", name, "--target", "Pod", "--data-dir", str(self.directory), "--log-format", "json")
        self.agent = Child(f"{name} agent", [*agent, *options], log=self.directory / "agent.log")
        self.cluster: Cluster | None = None

    async def start_api(self) -> None:
        """Start the API, and connect to it."""
        await self.api.start(first_line_s=_START_S)
        self.cluster = Cluster.from_kubeconfig(self.kubeconfig, name=self.name)

    def workload(self, name: str, *, port: int = 80) -> Workload:
        """Return the pods of a Service in this member, none of them started yet."""
        if self.cluster is None:
            raise StepFailed(f"{self.name} has not been started")
        return Workload(
            cluster=self.cluster, member=self.name, name=name, network=self.network, directory=self.directory, port=port
        )


class World:
    """The hub and its members."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.members = {name: Member(name, directory) for name in MEMBERS}
        self.hub_directory = directory / "hub"
        self.hub_directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = self.hub_directory / "kubeconfig"
        api = fairlead("apiserver", "--data-dir", str(self.hub_directory), "--log-format", "json")
        self.hub_api = Child("hub API", api, log=self.hub_directory / "apiserver.log")
        self.metrics_port = free_port()
        self.envoy_directory = directory / "envoy"
        options = (
            "--kubeconfig", str(self.kubeconfig),
            "--address-pool", f"{free_network(80)}.0/24",
            "--data-dir", str(self.envoy_directory),
            "--metrics", f"127.0.0.1:{self.metrics_port}",
            "--log-format", "json",
        )  # fmt: skip
        self.hub = Child("hub", fairlead("hub", *options), log=self.hub_directory / "hub.log")
        self.cluster: Cluster | None = None

    async def start(self) -> None:
        """Start everything, in the order in which an operator would."""
        await asyncio.gather(
            self.hub_api.start(first_line_s=_START_S), *(member.start_api() for member in self.members.values())
        )
        self.cluster = Cluster.from_kubeconfig(self.kubeconfig, name="hub")
        await self.start_hub()
        # Thirty seconds, the default, are right for people's connections and too long for a demo.
        patch = {"spec": {"drain": DRAIN}}
        await self.cluster.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, patch, manager="demo-operator")
        for member in self.members.values():
            await self._add_tenant(member)
            await member.agent.start()

    async def start_hub(self) -> None:
        """Start the hub and wait until it is ready."""
        await self.hub.start()
        await wait_until(self.hub_is_ready, "the hub is ready", timeout_s=_START_S)

    async def hub_is_ready(self) -> bool:
        """Say whether the hub's /readyz does."""
        if not self.hub.running:
            raise StepFailed(f"the hub has ended: {self.hub.last_words()}", detail=f"see {self.hub.log}")
        status, _ = await self._page("/readyz")
        return status == 200

    async def hosts(self) -> set[str]:
        """Return the addresses that Envoy knows as targets, draining ones included."""
        status, text = await admin_get(self.envoy_directory / "admin.sock", "/clusters")
        if status != 200:
            raise StepFailed("Envoy does not answer")
        rows = (line.split("::") for line in text.splitlines())
        return {row[1].rpartition(":")[0] for row in rows if len(row) > 2 and row[2] == "health_flags"} - {""}

    async def metric(self, name: str) -> float:
        """Return the sum of one metric of the hub over all of its labels."""
        status, text = await self._page("/metrics")
        if status != 200:
            raise StepFailed("the hub shows no metrics")
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value in rows if key.partition("{")[0] == name)

    def processes(self) -> list[Child]:
        """Return the processes of ours, those that others depend on last."""
        members = list(self.members.values())
        return [*(one.agent for one in members), self.hub, *(one.api for one in members), self.hub_api]

    async def close(self) -> None:
        """End everything, Envoy included."""
        for cluster in (self.cluster, *(member.cluster for member in self.members.values())):
            if cluster is not None:
                await cluster.aclose()
        await asyncio.gather(*(child.terminate(patience_s=5.0) for child in self.processes() if child.running))
        fleet = LocalFleet(data_dir=self.envoy_directory)
        with contextlib.suppress(OSError):
            await fleet.stop()

    async def _add_tenant(self, member: Member) -> None:
        command = fairlead("tenant", "add", member.name, "--kubeconfig", str(self.kubeconfig))
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, problem = await process.communicate()
        if process.returncode:
            raise StepFailed(f"fairlead tenant add {member.name} failed: {problem.decode().strip()}")
        member.hub_kubeconfig.touch(mode=0o600)
        member.hub_kubeconfig.write_bytes(out)

    async def _page(self, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=5.0)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.metrics_port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""
