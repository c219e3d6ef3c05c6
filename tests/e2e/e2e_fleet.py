"""A hub and its members as real processes, started by the command line that people use."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
from tests.e2e.e2e_apis import Apis

from fairlead.api.kubernetes import ENDPOINT_SLICES, EVENTS, NAMESPACES, NODES, SERVICES, Service
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.demo.net import free_network, free_port
from fairlead.demo.process import Child, StepFailed, fairlead, wait_until
from fairlead.errors import AlreadyExists, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.fleet_local import LocalFleet

MEMBERS = {"east": "Pod", "west": "Node"}
_SLICE_LABELS = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


class Member:
    """One member: its API as an administrator, its agent, and what a kubelet would write."""

    def __init__(self, *, name: str, cluster: Cluster, hub: Cluster, agent: Child, network: str) -> None:
        self._hub = hub
        self.name = name
        self.cluster = cluster
        self.agent = agent
        self._network = network
        self._addresses = itertools.count(11)

    def new_address(self) -> str:
        """Return an address that nothing in this member has had."""
        return f"{self._network}.{next(self._addresses)}"

    async def namespace(self, name: str) -> None:
        with contextlib.suppress(AlreadyExists):
            await self.cluster.create(NAMESPACES, {"metadata": {"name": name}})

    async def node(self, name: str, address: str, *, ready: bool = True) -> None:
        meta = {"name": name}
        await self.cluster.apply(NODES, {"metadata": meta, "spec": {}}, manager="kubelet")
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        await self.cluster.apply(NODES, {"metadata": meta, "status": status}, manager="kubelet", subresource="status")

    async def service(
        self,
        name: str,
        *ports: dict[str, Any],
        namespace: str = "default",
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Service:
        body = {"type": "LoadBalancer", "ports": list(ports), **spec}
        meta = {"name": name, "namespace": namespace, "annotations": annotations or {}}
        found: Service = await self.cluster.apply(SERVICES, {"metadata": meta, "spec": body}, manager="user")
        return found

    async def endpoints(
        self, service: str, port: int, *addresses: str, namespace: str = "default", port_name: str = "", **more: Any
    ) -> None:
        """Write one slice; ``more``: protocol, and ``part`` for a slice of its own beside others."""
        part = more.get("part", "main")
        obj = {
            "metadata": {
                "name": f"{service}-{part}",
                "namespace": namespace,
                "labels": {**_SLICE_LABELS, "kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses],
            "ports": [{"name": port_name, "port": port, "protocol": more.get("protocol", "TCP")}],
        }
        await self.cluster.apply(ENDPOINT_SLICES, obj, manager="kubelet")

    async def get(self, name: str, namespace: str = "default") -> Service:
        found: Service = await self.cluster.get(SERVICES, namespace, name)
        return found

    async def address(self, name: str, namespace: str = "default", *, timeout_s: float = 20.0) -> str:
        """Wait for the address that a Service shows."""

        async def shown() -> bool:
            return bool(_ingress(await self.get(name, namespace)))

        try:
            await wait_until(shown, f"{self.name} {namespace}/{name} gets an address", timeout_s=timeout_s)
        except StepFailed as error:
            raise AssertionError(f"{error}; the hub says: {await self._hub_says(name, namespace)}") from error
        return _ingress(await self.get(name, namespace))

    async def _hub_says(self, name: str, namespace: str) -> str:
        path = TCP_LOAD_BALANCERS.path(f"tenant-{self.name}", f"{namespace}.{name}")
        try:
            return (await self._hub.raw("GET", path)).decode()
        except NotFound:
            return "nothing"

    async def delete(self, name: str, namespace: str = "default") -> None:
        await self.cluster.delete(SERVICES, namespace, name)

    async def events(self, name: str) -> list[str]:
        """Return the reasons of the Events about a Service."""
        raw = json.loads(await self.cluster.raw("GET", EVENTS.path("default")))
        return [one.get("reason", "") for one in raw["items"] if one["involvedObject"].get("name") == name]


class Fleet:
    """All of it. ``local_range`` is the first part of addresses that backends may have."""

    def __init__(self, *, apis: Apis, directory: Path) -> None:
        self.apis = apis
        self.directory = directory
        self.members: dict[str, Member] = {}
        self.metrics_port = free_port()
        self.pool = f"{free_network(80)}.0/24"
        self.envoy_directory = directory / "envoy"
        self.hub = Child("hub", self.hub_command(self.envoy_directory, self.metrics_port), log=directory / "hub.log")
        self.cluster = Cluster.from_kubeconfig(apis.kubeconfig("hub"), name="hub")

    def hub_command(self, data_dir: Path, port: int) -> list[str]:
        options = ("--kubeconfig", str(self.apis.kubeconfig("hub")), "--address-pool", self.pool)
        more = (
            "--data-dir",
            str(data_dir),
            "--metrics",
            f"127.0.0.1:{port}",
            "--log-format",
            "json",
            "--log-level",
            "debug",
        )
        return fairlead("hub", *options, *more)

    async def start(self) -> None:
        await self.start_hub()
        # Thirty seconds of drain are right for people and too long for tests.
        patch = {"spec": {"drain": "1s"}}
        from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES

        await self.cluster.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", patch, manager="test")
        for number, (name, target) in enumerate(MEMBERS.items()):
            network = f"10.66.{number}" if self.apis.kind == "real" else free_network()
            await self.add_member(name, self.apis.kubeconfig(name), target=target, network=network)

    async def add_member(self, name: str, kubeconfig: Path, *, target: str, network: str) -> Member:
        """Add a Tenant by the command line, and start its agent."""
        at_hub = await self.tenant_kubeconfig(name)
        options = ("--kubeconfig", str(kubeconfig), "--hub-kubeconfig", str(at_hub), "--tenant", name)
        more = ("--target", target, "--data-dir", str(self.directory / "agents"), "--log-format", "json")
        command = fairlead("agent", *options, *more)
        agent = Child(f"{name} agent", command, log=self.directory / f"{name}-agent.log")
        cluster = Cluster.from_kubeconfig(kubeconfig, name=name)
        member = self.members[name] = Member(name=name, cluster=cluster, hub=self.cluster, agent=agent, network=network)
        await agent.start()
        return member

    async def tenant_kubeconfig(self, name: str) -> Path:
        code, out, problem = await run_cli("tenant", "add", name, "--kubeconfig", str(self.apis.kubeconfig("hub")))
        assert code == 0, problem
        path = self.directory / f"{name}-at-hub.kubeconfig"
        path.write_text(out)
        return path

    async def start_hub(self) -> None:
        await self.hub.start()

        async def ready() -> bool:
            assert self.hub.running, self.hub.last_words()
            return (await self.page("/readyz"))[0] == 200

        await wait_until(ready, "the hub is ready")

    async def page(self, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=5.0)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.metrics_port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def metric(self, name: str) -> float:
        _, text = await self.page("/metrics")
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value in rows if key.partition("{")[0] == name)

    async def at_hub(self, member: str, name: str) -> TCPLoadBalancer | None:
        """Return the hub's object of a Service, named ``namespace.service``."""
        try:
            found: TCPLoadBalancer = await self.cluster.get(TCP_LOAD_BALANCERS, f"tenant-{member}", name)
        except NotFound:
            return None
        return found

    async def gone(self, member: str, name: str, *, timeout_s: float = 30.0) -> None:
        async def absent() -> bool:
            return await self.at_hub(member, name) is None

        await wait_until(absent, f"{member} {name} is gone from the hub", timeout_s=timeout_s)

    async def close(self) -> None:
        for cluster in (self.cluster, *(member.cluster for member in self.members.values())):
            await cluster.aclose()
        agents = [member.agent for member in self.members.values()]
        await asyncio.gather(*(child.kill() for child in (self.hub, *agents)))
        await LocalFleet(data_dir=self.envoy_directory).stop()
        await self.apis.close()


async def run_cli(*arguments: str, timeout_s: float = 60.0) -> tuple[int, str, str]:
    """Run ``fairlead`` and return its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *fairlead(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, problem = await asyncio.wait_for(process.communicate(), timeout_s)
    return process.returncode or 0, out.decode(), problem.decode()


def _ingress(service: Service) -> str:
    ingress = service.status.load_balancer.ingress or ()
    return ingress[0].address if ingress else ""
