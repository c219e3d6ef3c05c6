"""A node with pods behind it, and a server outside that answers with the address and port that it sees.

    pod 10.77.1.2, ... ── node ── bridge of the site ── machines, router ── server
                                                         route to 10.77.1.0/24

The node translates what leaves the cluster to its own address, as a CNI does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fairlead.api.kubernetes import PODS
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_EGRESS
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.networks import connect_inside, inside, ip
from fairlead_demo.worlds.processes import Child, fairlead
from fairlead_demo.worlds.proxy_machines import Namespace, ProxyMachine, ProxySite, make_namespace

NODE = "node-1"
_PREFIX, _POD_PORT, _SERVER_PORT = "10.77.1", 8080, 9000
_CNI = f"""
table ip cni {{
 chain out {{
  type nat hook postrouting priority srcnat;
  ip saddr {_PREFIX}.0/24 ip daddr != 10.77.0.0/16 masquerade
 }}
}}
"""


class EgressWorld:
    """One node of a member, its pods, and the server outside."""

    def __init__(self, site: ProxySite, member: Member, directory: Path) -> None:
        self._site = site
        self._member = member
        self._directory = directory
        self._server: asyncio.Server | None = None
        self._pods: dict[str, tuple[str, str]] = {}
        self.node: Namespace = site.add_node("node", 60)
        self.process = Child(NODE, [], log=directory / "egress-node.log")

    async def start(self) -> None:
        """Make the node a node, and start the server outside."""
        name = self.node.name
        for key in ("net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=1"):
            self.run(name, "sysctl", "-qw", key)
        self.run(name, "nft", "-f", "-", text=_CNI)
        far = self._site.far_client
        with inside(far.name):
            listening = socket.create_server((far.address, _SERVER_PORT))
        self._server = await asyncio.start_server(_answer, sock=listening)

    def route_to_pods(self, machine: ProxyMachine) -> None:
        """Give a machine its route to the pods."""
        ip("-n", machine.namespace.name, "route", "replace", f"{_PREFIX}.0/24", "via", self.node.address)

    async def start_process(self) -> None:
        """Start ``fairlead egress-node`` on the node."""
        kubeconfig = str(self._directory / self._member.name / "kubeconfig")
        command = fairlead("egress-node", "--node", NODE, "--kubeconfig", kubeconfig, "--log-format", "json")
        self.process.command = self.node.command(command)
        await self.process.start()

    async def pod(self, name: str, *, label: str | None = None) -> str:
        """Make a pod on the node, as its kubelet does; return its address."""
        number = len(self._pods) + 2
        namespace, address = f"{self.node.name}-{name}", f"{_PREFIX}.{number}"
        make_namespace(namespace)
        ip("-n", self.node.name, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", self.node.name, "address", "add", "169.254.99.1/32", "dev", name)
        ip("-n", self.node.name, "link", "set", name, "up")
        ip("-n", self.node.name, "route", "add", f"{address}/32", "dev", name)
        ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("-n", namespace, "address", "add", f"{address}/32", "dev", "eth0")
        ip("-n", namespace, "route", "add", "169.254.99.1", "dev", "eth0")
        ip("-n", namespace, "route", "add", "default", "via", "169.254.99.1")
        self._pods[name] = (namespace, address)
        meta: JSONObject = {"name": name, "namespace": "default"}
        labels = {} if label is None else {LABEL_EGRESS: label}
        spec: JSONObject = {"nodeName": NODE, "containers": [{"name": "web", "image": "demo/web:1"}]}
        await self._member.cluster.apply(
            PODS, {"metadata": {**meta, "labels": labels}, "spec": spec}, manager="kubelet"
        )
        status: JSONObject = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await self._member.cluster.apply(
            PODS, {"metadata": meta, "status": status}, manager="kubelet", subresource="status"
        )
        return address

    async def label(self, name: str, value: str | None) -> None:
        """Write the label of a pod; None removes it."""
        patch: JSONObject = {"metadata": {"labels": {LABEL_EGRESS: value}}}
        await self._member.cluster.merge_patch(PODS, "default", name, patch)

    async def connect(self, pod: str, *, port: int = 0) -> OutsideConnection:
        """Connect from a pod to the server outside, from a source port if there is one."""
        namespace, address = self._pods[pod]
        far = self._site.far_client.address
        async with asyncio.timeout(2.0):
            if not port:
                return OutsideConnection(*await connect_inside(namespace, far, _SERVER_PORT))
            with inside(namespace):
                client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            client.setblocking(False)
            client.bind((address, port))
            await asyncio.get_running_loop().sock_connect(client, (far, _SERVER_PORT))
            return OutsideConnection(*await asyncio.open_connection(sock=client))

    async def seen(self, pod: str) -> str:
        """Return the address of a pod as the server outside sees it; empty when it is not reached."""
        try:
            connection = await self.connect(pod)
            async with asyncio.timeout(2.0):
                address, _ = await connection.ask()
            connection.close()
        except (OSError, TimeoutError):
            return ""
        return address

    def run(self, namespace: str, *command: str, text: str = "") -> str:
        """Run a command in a namespace; return what it prints."""
        inside_it = ("ip", "netns", "exec", namespace, *command)
        return subprocess.run(inside_it, input=text, capture_output=True, text=True, check=True).stdout

    def rules(self) -> Sequence[str]:
        """Return the rules of the node that are ours."""
        lines = self.run(self.node.name, "ip", "rule").splitlines()
        return [line for line in lines if line.startswith("77")]

    async def close(self) -> None:
        """End everything."""
        await self.process.terminate()
        if self._server is not None:
            self._server.close()
        for namespace, _ in self._pods.values():
            with contextlib.suppress(Exception):
                ip("netns", "delete", namespace)


class OutsideConnection:
    """A connection of a pod with the server outside."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self) -> tuple[str, int]:
        """Return the address and port that the server sees."""
        self._writer.write(b"?\n")
        address, port = (await self._reader.readline()).decode().split()
        return address, int(port)

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.readline():
            address, port = writer.get_extra_info("peername")[:2]
            writer.write(f"{address} {port}\n".encode())
    writer.close()
