"""A hub and several proxy machines, each in a network namespace of its own, on one subnet with a client.

    this machine ──control──► hub ──┐
                                    ├─ bridge, 198.18.<n>.0/24 ── client, pods
    m1, m2, ... ────────────────────┘  addresses of load balancers: the upper half

In: a directory; root and the right to make network namespaces. Out: ``ProxySite``: machines that join by the command of
``fairlead proxy token``, boot again, and lose their cable; load balancers; traffic of the client. ``close`` ends every
process in the namespaces and deletes them. Never touches a network that it did not make.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_LOAD_BALANCER, LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Terminal
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.networks import connect_inside, free_control_network, ip
from fairlead_demo.worlds.objects import ready_endpoint
from fairlead_demo.worlds.processes import Child, ExpectationFailed, fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic

#: Of the load balancers.
NAMESPACE = "default"
API_PORT, MACHINES_PORT, POD_PORT = 6443, 7443, 8080
_START_S = 90.0
_HUB, _CLIENT, _PODS = 2, 4, 5
_FIRST_MACHINE = 11


def why_no_namespaces() -> str:
    """Return why network namespaces cannot be made here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"fairlead-{secrets.token_hex(3)}"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
    except Terminal as error:
        return f"network namespaces cannot be made here: {error.sentence}"
    return ""


class Namespace:
    """A network namespace with one interface, ``eth0``, on the bridge of its site."""

    def __init__(self, name: str, *, bridge: str, port: str, address: str, length: int, mac: str) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._bridge = bridge
        self._length = length
        self._mac = mac

    def make(self) -> None:
        """Make it, with its cable to the bridge."""
        ip("netns", "add", self.name)
        peer = ("peer", "name", "eth0", "address", self._mac, "netns", self.name)
        ip("-n", self._bridge, "link", "add", self.port, "type", "veth", *peer)
        ip("-n", self._bridge, "link", "set", self.port, "master", "br0", "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "link", "set", "eth0", "up")
        ip("-n", self.name, "address", "add", f"{self.address}/{self._length}", "dev", "eth0")

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` inside."""
        return ["ip", "netns", "exec", self.name, *command]

    def kill_all(self) -> None:
        """End every process inside, as a power cut does."""
        answer = subprocess.run(("ip", "netns", "pids", self.name), capture_output=True, text=True, check=False)
        for pid in answer.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def delete(self) -> None:
        """End what runs inside, and delete it with its cable."""
        self.kill_all()
        with contextlib.suppress(Terminal):
            ip("netns", "delete", self.name)
        with contextlib.suppress(Terminal):
            # The kernel deletes a namespace, and the cable's other end, a moment later.
            ip("-n", self._bridge, "link", "delete", self.port)

    def set_cable(self, *, plugged: bool) -> None:
        """Pull the cable at the bridge, or plug it in."""
        ip("-n", self._bridge, "link", "set", self.port, "up" if plugged else "down")


class ProxyMachine:
    """One proxy machine: its namespace, its state directory, and the process of ``fairlead proxy``."""

    def __init__(self, name: str, namespace: Namespace, directory: Path) -> None:
        self.name = name
        self.namespace = namespace
        self.state_dir = directory / name
        self.process = Child(name, [], log=directory / f"{name}.log")

    async def start(self, command: Sequence[str] = ("proxy", "run")) -> None:
        """Start ``fairlead proxy run``, or ``join`` as ``fairlead proxy token`` has printed it."""
        options = ("--state-dir", str(self.state_dir), "--envoy-threads", "1", "--log-level", "info")
        name = ("--name", self.name) if command[1] == "join" else ()
        self.process.command = self.namespace.command(fairlead(*command, *name, *options))
        await self.process.start()

    async def lose_power(self) -> None:
        """End everything on the machine; addresses and settings of its kernel are gone, too. Its disk stays."""
        self.namespace.delete()
        await self.process.ended()

    async def power_on(self) -> None:
        """Start the machine again."""
        self.namespace.make()
        await self.start()

    async def ready(self) -> bool:
        """Return whether the process runs its Envoy and announcers; ``ExpectationFailed`` when it has ended."""
        self.process.check_running()
        return '"event": "ready"' in self.process.log_of_this_run()

    @property
    def addresses(self) -> set[str]:
        """Return the addresses that it has on its interface and on ``lo``, without those of every machine."""
        answer = subprocess.run(
            self.namespace.command(("ip", "-o", "address", "show")), capture_output=True, text=True, check=False
        )
        fields = (line.split() for line in answer.stdout.splitlines())
        return {row[3].partition("/")[0] for row in fields if len(row) > 3} - {"127.0.0.1", "::1"}


class ProxySite:
    """A hub, its machines, pods and a client."""

    def __init__(self, directory: Path, *, hub_options: Sequence[str] = ()) -> None:
        self.directory = directory
        self.machines: dict[str, ProxyMachine] = {}
        self._id = secrets.token_hex(2)
        self._prefix = f"198.18.{secrets.randbelow(250)}"
        self.pool = f"{self._prefix}.128/25"
        self._bridge = f"fairlead-{self._id}-bridge"
        self._control = free_control_network()
        self._made: list[Namespace] = []
        self._hub_options = tuple(hub_options)
        self._pods: dict[str, Child] = {}
        self._cluster: Cluster | None = None
        self.kubeconfig = directory / "hub" / "kubeconfig"
        self.hub = Child("hub", [], log=directory / "hub.log")

    @property
    def cluster(self) -> Cluster:
        """Return an administrator's client of the hub's API."""
        if self._cluster is None:
            raise ExpectationFailed("the hub has not been started")
        return self._cluster

    @property
    def hub_namespace(self) -> Namespace:
        """Return where the hub runs."""
        return self._made[0]

    @property
    def client(self) -> Namespace:
        """Return where the client runs."""
        return self._made[1]

    async def start(self) -> None:
        """Make the networks, and start the hub with its API."""
        ip("netns", "add", self._bridge)
        ip("-n", self._bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self._bridge, "link", "set", "br0", "up")
        for name, last in (("hub", _HUB), ("client", _CLIENT), ("pods", _PODS)):
            self._namespace(name, last)
        hub = self.hub_namespace
        control = f"flc{self._id}"
        ip("link", "add", control, "type", "veth", "peer", "name", "control", "netns", hub.name)
        ip("address", "add", f"{self._control}.1/24", "dev", control)
        ip("link", "set", control, "up")
        ip("-n", hub.name, "address", "add", f"{self._control}.2/24", "dev", "control")
        ip("-n", hub.name, "link", "set", "control", "up")
        options = ("--data-dir", str(self.directory / "hub"), "--listen", f"{self._control}.2:{API_PORT}")
        machines = ("--machines", f"{hub.address}:{MACHINES_PORT}", "--address-pool", self.pool)
        logs = ("--log-level", "info", "--log-format", "json")
        self.hub.command = hub.command(fairlead("standalone", *options, *machines, *logs, *self._hub_options))
        await self.start_hub()
        self._cluster = Cluster.from_kubeconfig(self.kubeconfig, name="hub")

    async def start_hub(self) -> None:
        """Start the hub and wait until it is ready."""
        await self.hub.start(first_line_s=_START_S)

    async def token(self) -> list[str]:
        """Return the arguments of the command that ``fairlead proxy token`` prints, without ``fairlead``."""
        # At the hub: its API may listen at an address of that machine only.
        command = self.hub_namespace.command(fairlead("proxy", "token", "--kubeconfig", str(self.kubeconfig)))
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, problem = await process.communicate()
        lines = [line.strip() for line in out.decode().splitlines()]
        joins = [line for line in lines if line.startswith("fairlead proxy join")]
        if process.returncode or not joins:
            raise ExpectationFailed(f"fairlead proxy token failed: {problem.decode().strip()}", detail=out.decode())
        return shlex.split(joins[0])[1:]

    def machine(self, name: str) -> ProxyMachine:
        """Add a machine that has not joined."""
        namespace = self._namespace(name, _FIRST_MACHINE + len(self.machines))
        self.machines[name] = ProxyMachine(name, namespace, self.directory)
        return self.machines[name]

    async def join(self, name: str) -> ProxyMachine:
        """Add a machine, and join it to the hub."""
        machine = self.machine(name)
        await machine.start(await self.token())
        await wait_until(machine.ready, f"{name} has joined and is ready", timeout_s=_START_S)
        return machine

    async def pod(self, name: str) -> str:
        """Start a pod that answers HTTP with its name; return its address and port."""
        last = 20 + len(self._pods)
        namespace = self._made[2]
        address = f"{self._prefix}.{last}"
        ip("-n", namespace.name, "address", "add", f"{address}/24", "dev", "eth0")
        command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", address, str(POD_PORT), name]
        pod = self._pods[name] = Child(name, namespace.command(command), log=self.directory / f"{name}.log")
        await pod.start(first_line_s=_START_S)
        return f"{address}:{POD_PORT}"

    async def load_balancer(self, name: str, *backends: str, port: int = 80, spec: JSONObject | None = None) -> None:
        """Write a load balancer of a member, and its backends as ``address:port`` with one port."""
        meta: JSONObject = {"namespace": NAMESPACE, "name": name}
        ports: list[JSONObject] = [{"name": "http", "port": port}]
        body: JSONObject = {"metadata": meta, "spec": {"targets": "Pod", "ports": ports, **(spec or {})}}
        await self.cluster.apply(TCP_LOAD_BALANCERS, body, manager="user")
        places = [backend.rpartition(":") for backend in backends]
        endpoints = {
            "metadata": {**meta, "labels": {LABEL_LOAD_BALANCER: name, LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY}},
            "addressType": "IPv4",
            "endpoints": [ready_endpoint(address) for address, _, _ in places],
            "ports": [{"name": "http", "port": int(number), "protocol": "TCP"} for _, _, number in places[:1]],
        }
        await self.cluster.apply(ENDPOINT_SLICES, endpoints, manager="user")

    async def address(self, name: str, *, timeout_s: float = 60.0) -> str:
        """Return the address that a load balancer shows, once it has one and is programmed."""

        async def programmed() -> bool:
            status = (await self.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, name)).status
            conditions = status.conditions or ()
            return any(condition.type == "Programmed" and condition.status == "True" for condition in conditions)

        await wait_until(programmed, f"{name} is programmed", timeout_s=timeout_s)
        return (await self.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, name)).status.address

    def traffic(self, host: str, *, port: int = 80, new_per_s: float = 20.0, kept: int = 2) -> Traffic:
        """Return traffic from the client, not started yet."""
        return Traffic(
            host=host,
            port=port,
            new_per_s=new_per_s,
            kept=kept,
            connect=lambda host, port: connect_inside(self.client.name, host, port),
        )

    async def close(self) -> None:
        """End everything."""
        if self._cluster is not None:
            await self._cluster.aclose()
        await self.hub.terminate()
        for namespace in self._made:
            namespace.delete()
        for child in (*self._pods.values(), *(machine.process for machine in self.machines.values())):
            await child.ended()
        for command in (("netns", "delete", self._bridge), ("link", "delete", f"flc{self._id}")):
            with contextlib.suppress(Terminal):
                ip(*command)

    def _namespace(self, name: str, last: int) -> Namespace:
        namespace = Namespace(
            f"fairlead-{self._id}-{name}",
            bridge=self._bridge,
            port=f"v-{name}",
            address=f"{self._prefix}.{last}",
            length=24,
            mac=f"02:00:{self._id[:2]}:{self._id[2:]}:00:{last:02x}",
        )
        self._made.append(namespace)
        namespace.make()
        return namespace
