"""A hub and several proxy machines, each in a network namespace of its own, on one subnet with a client.

    this machine ──control──► hub ──┐
                                    ├─ bridge, 198.18.<n>.0/24 ── client, pods, router ── far client
    m1, m2, ... ────────────────────┘  addresses of load balancers: the upper half

In: a directory; root and the right to make network namespaces. Out: ``ProxySite``: machines that join by the command of
``fairlead proxy token``, boot again, and lose their cable; load balancers; traffic of the client; where it is
``routed`` also BGP and a client behind the router; with a member also Services. ``close`` ends every process in the
namespaces and deletes them; if this process is killed, its guard does. Never touches a network that it did not make.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.announcing import ADVERTISEMENTS, BGP_PEERS
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import DEFAULT_CLASS, LABEL_LOAD_BALANCER, LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Terminal
from fairlead.kube.cluster import Cluster
from fairlead.machine.app import NICENESS
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.bgp import MACHINE_ASN, ROUTER_ASN, Router, be_a_router, next_hops
from fairlead_demo.worlds.fleet import start_member
from fairlead_demo.worlds.guard import run_afterwards
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.networks import connect_inside, free_control_network, ip
from fairlead_demo.worlds.objects import ready_endpoint
from fairlead_demo.worlds.processes import PATIENCE_S, Child, ExpectationFailed, fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic

#: Of the load balancers.
NAMESPACE = "default"
API_PORT, MACHINES_PORT, POD_PORT = 6443, 7443, 8080
_ROUTER, _HUB, _CLIENT, _PODS = 1, 2, 4, 5
_FIRST_MACHINE = 11
#: Begins the commands of clients and pods. All share the cores of one machine here: with the priority of machines, a
#: hub or a cluster that starts delays none of them, as if it were elsewhere. Without the right, ``nice`` warns only.
PREFERRED = ("nice", "-n", str(NICENESS))
#: Of load balancers that are announced by BGP: in no subnet, so that a route is the only way to them.
ROUTED_POOL = "203.0.113.0/24"


def why_no_namespaces() -> str:
    """Return why network namespaces cannot be made here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root: run it as root, for example with sudo"
    if shutil.which("ip") is None:
        return "network namespaces are made by ip, which is not installed: apt-get install iproute2"
    name = f"fairlead-{secrets.token_hex(3)}"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
    except Terminal as error:
        return f"network namespaces cannot be made here; use a machine, or a privileged container: {error.sentence}"
    return ""


def make_namespace(name: str) -> None:
    """Make a network namespace that is deleted after this process at the latest."""
    ip("netns", "add", name)
    run_afterwards("ip", "netns", "delete", name)


class Namespace:
    """A network namespace with one interface, ``eth0``, on the bridge of its site."""

    def __init__(
        self,
        name: str,
        *,
        bridge: str,
        port: str,
        address: str,
        length: int,
        mac: str,
        gateway: str = "",
        segment: str = "br0",
    ) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._bridge = bridge
        self._segment = segment
        self._gateway = gateway
        self._length = length
        self.mac = mac

    def make(self) -> None:
        """Make it, with its cable to the bridge."""
        make_namespace(self.name)
        peer = ("peer", "name", "eth0", "address", self.mac, "netns", self.name)
        ip("-n", self._bridge, "link", "add", self.port, "type", "veth", *peer)
        ip("-n", self._bridge, "link", "set", self.port, "master", self._segment, "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "link", "set", "eth0", "up")
        ip("-n", self.name, "address", "add", f"{self.address}/{self._length}", "dev", "eth0")
        if self._gateway:
            ip("-n", self.name, "route", "add", "default", "via", self._gateway)

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` inside."""
        return ["ip", "netns", "exec", self.name, *command]

    def preferred(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a client or a pod inside."""
        return self.command([*PREFERRED, *command])

    def kill_all(self) -> None:
        """End every process inside, as a power cut does."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """Return the processes inside."""
        answer = subprocess.run(("ip", "netns", "pids", self.name), capture_output=True, text=True, check=False)
        return [int(pid) for pid in answer.stdout.split()]

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
        #: Options of ``fairlead proxy`` on this machine alone.
        self.options: tuple[str, ...] = ()

    async def start(self, command: Sequence[str] = ("proxy", "run")) -> None:
        """Start ``fairlead proxy run``, or ``join`` as ``fairlead proxy token`` has printed it."""
        options = ("--state-dir", str(self.state_dir), "--envoy-threads", "1", "--log-level", "info")
        name = ("--name", self.name) if command[1] == "join" else ()
        self.process.command = self.namespace.command(fairlead(*command, *name, *options, *self.options))
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
        """Return the addresses that it has on its interface and on ``lo``, without those of every machine.

        Those that ``lo`` keeps for a while, for connections that are open, belong to another machine by now.
        """
        answer = subprocess.run(
            self.namespace.command(("ip", "-o", "address", "show")), capture_output=True, text=True, check=False
        )
        lasting = (line for line in answer.stdout.splitlines() if ": lo " not in line or "valid_lft forever" in line)
        fields = (line.split() for line in lasting)
        return {row[3].partition("/")[0] for row in fields if len(row) > 3} - {"127.0.0.1", "::1"}

    @property
    def envoy(self) -> tuple[str, int]:
        """Return the program and the process id of the Envoy that runs."""
        pid = int((self.state_dir / "envoy" / "envoy.pid").read_text())
        return str(Path("/proc", str(pid), "exe").readlink()), pid


class ProxySite:
    """A hub, its machines, pods and a client."""

    def __init__(self, directory: Path, *, hub_options: Sequence[str] = (), routed: bool = False) -> None:
        self.directory = directory
        self.routed = routed
        self.machines: dict[str, ProxyMachine] = {}
        self._id = secrets.token_hex(2)
        number = secrets.randbelow(250)
        self._prefix, self._far_prefix = f"198.18.{number}", f"198.19.{number}"
        self.pool = f"{self._prefix}.128/25"
        self._bridge = f"fairlead-{self._id}-bridge"
        self._control = free_control_network()
        self._made: list[Namespace] = []
        self._hub_options = tuple(hub_options)
        self._pods: dict[str, Child] = {}
        self._cluster: Cluster | None = None
        self.kubeconfig = directory / "hub" / "kubeconfig"
        self.hub = Child("hub", [], log=directory / "hub.log")
        self.router: Router | None = None
        self._apis: EmbeddedApis | None = None
        self._member: Member | None = None

    @property
    def cluster(self) -> Cluster:
        """Return an administrator's client of the hub's API."""
        if self._cluster is None:
            raise ExpectationFailed("the hub has not been started")
        return self._cluster

    @property
    def member(self) -> Member:
        """Return the member cluster."""
        if self._member is None:
            raise ExpectationFailed("no member cluster has been started")
        return self._member

    @property
    def control_address(self) -> str:
        """Return the address of this machine that the hub reaches."""
        return f"{self._control}.1"

    @property
    def hub_namespace(self) -> Namespace:
        """Return where the hub runs."""
        return self._made[0]

    @property
    def client(self) -> Namespace:
        """Return where the client runs."""
        return self._made[1]

    @property
    def router_namespace(self) -> Namespace:
        """Return where the router runs; only where the site is routed."""
        return self._made[3]

    @property
    def far_client(self) -> Namespace:
        """Return where the client behind the router runs; only where the site is routed."""
        return self._made[4]

    async def start(self) -> None:
        """Make the networks, and start the hub with its API."""
        make_namespace(self._bridge)
        ip("-n", self._bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self._bridge, "link", "set", "br0", "up")
        for name, last in (("hub", _HUB), ("client", _CLIENT), ("pods", _PODS)):
            self._namespace(name, last)
        if self.routed:
            self._add_router()
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

    def _add_router(self) -> None:
        router = self._namespace("router", _ROUTER)
        ip("-n", self._bridge, "link", "add", "br1", "type", "bridge")
        ip("-n", self._bridge, "link", "set", "br1", "up")
        ip("-n", self._bridge, "link", "add", "v-inner", "type", "veth", "peer", "name", "eth1", "netns", router.name)
        ip("-n", self._bridge, "link", "set", "v-inner", "master", "br1", "up")
        ip("-n", router.name, "address", "add", f"{self._far_prefix}.1/24", "dev", "eth1")
        ip("-n", router.name, "link", "set", "eth1", "up")
        be_a_router(router.name)
        self._namespace("far", _CLIENT, prefix=self._far_prefix, gateway=f"{self._far_prefix}.1", segment="br1")

    async def start_bgp(self) -> None:
        """Start BIRD on the router, and have machines announce the addresses of ``ROUTED_POOL`` by BGP."""
        directory = self.directory / "router"
        directory.mkdir()
        options = "bfd on; graceful restart on;"
        self.router = Router(self.router_namespace.name, directory, options, network=f"{self._prefix}.0/24")
        self.router.start()
        pool = "routed"
        router = {"address": self.router_namespace.address, "asn": ROUTER_ASN, "localASN": MACHINE_ASN}
        for resource, name, spec in (
            (ADDRESS_POOLS, pool, {"addresses": [ROUTED_POOL]}),
            (BGP_PEERS, "router", {**router, "bfd": True, "holdTimeSeconds": 9}),
            (ADVERTISEMENTS, "on-the-link", {"announcement": "L2"}),
            # A machine whose cable was out sees no healthy target until its next check.
            (ADVERTISEMENTS, "to-the-router", {"announcement": "BGP", "pools": [pool], "withdrawWhenUnhealthy": True}),
        ):
            await self.cluster.create(resource, {"metadata": {"name": name}, "spec": spec})
        patch = {"spec": {"healthCheck": {"interval": "1s"}}}
        await self.cluster.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, patch, manager="operator")

    async def start_member(self, name: str, *options: str) -> Member:
        """Start a member cluster and its agent, on this machine; its nodes have the addresses of pods."""
        self._apis = EmbeddedApis(self.directory, (name,), host=self.control_address)
        await self._apis.start()
        self._member = await start_member(
            name,
            self._apis.kubeconfig(name),
            hub=self.cluster,
            hub_kubeconfig=self.kubeconfig,
            directory=self.directory,
            targets="Pod",
            network=self._prefix,
            options=options,
        )
        return self._member

    async def start_hub(self) -> None:
        """Start the hub and wait until it is ready."""
        await self.hub.start(first_line_s=PATIENCE_S)

    def add_node(self, name: str, last: int) -> Namespace:
        """Make a namespace on the link for a node of the member, from which this machine is reached, too."""
        node = self._namespace(name, last)
        outside, inside = f"fln{self._id}{last}", "control"
        place = f"169.254.{last}"
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", node.name)
        ip("address", "add", f"{place}.1/24", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", node.name, "address", "add", f"{place}.2/24", "dev", inside)
        ip("-n", node.name, "link", "set", inside, "up")
        ip("-n", node.name, "route", "add", self.control_address, "via", f"{place}.1")
        return node

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
        await wait_until(machine.ready, f"{name} has joined and is ready")
        return machine

    async def pod(self, name: str) -> str:
        """Start a pod that answers HTTP with its name; return its address and port."""
        last = 20 + len(self._pods)
        namespace = self._made[2]
        address = f"{self._prefix}.{last}"
        ip("-n", namespace.name, "address", "add", f"{address}/24", "dev", "eth0")
        command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", address, str(POD_PORT), name]
        pod = self._pods[name] = Child(name, namespace.preferred(command), log=self.directory / f"{name}.log")
        await pod.start(first_line_s=PATIENCE_S)
        return f"{address}:{POD_PORT}"

    async def stop_pod(self, name: str) -> None:
        """Kill a pod: its port is closed."""
        await self._pods[name].kill()

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

    async def address(self, name: str) -> str:
        """Return the address that a load balancer shows, once it has one and is programmed."""

        async def programmed() -> bool:
            status = (await self.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, name)).status
            conditions = status.conditions or ()
            return any(condition.type == "Programmed" and condition.status == "True" for condition in conditions)

        await wait_until(programmed, f"{name} is programmed")
        return (await self.cluster.get(TCP_LOAD_BALANCERS, NAMESPACE, name)).status.address

    async def owners(self, address: str) -> list[str]:
        """Return the machines that have an address on an interface of their links."""
        machines = list(self.machines.values())
        return await asyncio.to_thread(lambda: [machine.name for machine in machines if address in machine.addresses])

    async def next_hops(self, address: str) -> list[str]:
        """Return the machines to which the router sends packets for an address."""
        hops = await asyncio.to_thread(next_hops, self.router_namespace.name, address)
        return [machine.name for machine in self.machines.values() if machine.namespace.address in hops]

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
        if self._member is not None:
            await self._member.close()
        if self._apis is not None:
            await self._apis.close()
        await self.hub.terminate()
        if self.router is not None:
            self.router.close()
        for namespace in self._made:
            namespace.delete()
        for child in (*self._pods.values(), *(machine.process for machine in self.machines.values())):
            await child.ended()
        for command in (("netns", "delete", self._bridge), ("link", "delete", f"flc{self._id}")):
            with contextlib.suppress(Terminal):
                ip(*command)

    def _namespace(
        self, name: str, last: int, *, prefix: str = "", gateway: str = "", segment: str = "br0"
    ) -> Namespace:
        inside = f"{self._prefix}.{_ROUTER}" if self.routed and last != _ROUTER else ""
        namespace = Namespace(
            f"fairlead-{self._id}-{name}",
            bridge=self._bridge,
            port=f"v-{name}",
            address=f"{prefix or self._prefix}.{last}",
            length=24,
            mac=f"02:00:{self._id[:2]}:{self._id[2:]}:00:{last:02x}",
            gateway=gateway or inside,
            segment=segment,
        )
        self._made.append(namespace)
        namespace.make()
        return namespace
