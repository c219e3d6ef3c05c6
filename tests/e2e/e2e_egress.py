"""A node with pods behind it, and a server outside that answers with the address and port that it sees.

    pod 10.77.1.2, ... ── node ── bridge of the site ── machines, router ── server
                                                         route to 10.77.1.0/24

The node translates what leaves the cluster to its own address, as a CNI does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from fairlead.agent.egress import TABLE, Programmed
from fairlead.api.kubernetes import PODS
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_EGRESS
from fairlead.machine.kernel import egress_rules
from fairlead.model.machine import EgressIdentity
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.networks import connect_inside, inside, ip
from fairlead_demo.worlds.processes import Child, fairlead
from fairlead_demo.worlds.proxy_machines import Namespace, ProxyMachine, ProxySite, make_namespace

NODE = "node-1"
_FORWARDING6 = "ipv6.conf.all.forwarding"
#: After that long, a pod reaches nothing.
_SEEN_S = 3.0
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
        return await _seen(self.connect(pod))

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


_FOLLOW = """
import asyncio, sys, msgspec
from fairlead.agent.egress import _hop_to, program
async def follow(pods, service):
    return await program(dict.fromkeys(pods, service), {service: await _hop_to(service)} if pods else {})
print(msgspec.json.encode(asyncio.run(follow(sys.argv[2:], sys.argv[1]))).decode())
"""


class EgressPath:
    """The way of packets without hub and agent: pod, node, machine and server outside, one behind the other."""

    def __init__(self, version: int, directory: Path) -> None:
        nets = ("10.77.1", "192.0.2", "198.51.100") if version == 4 else ("fd77:1:", "2001:db8:2:", "2001:db8:3:")
        dot, length = (".", 32) if version == 4 else (":", 128)
        self._version = version
        self._broken = directory
        self.pod, self.node, self.service = f"{nets[0]}{dot}2", f"{nets[1]}{dot}1", f"{nets[1]}{dot}10"
        machine, self._server = f"{nets[1]}{dot}2", f"{nets[2]}{dot}2"
        self.names = tuple(f"fl-egress-{os.getpid()}-{version}-{name}" for name in ("pod", "node", "machine", "out"))
        for name in self.names:
            make_namespace(name)
            ip("-n", name, "link", "set", "lo", "up")
        for (left, right), net in zip(pairwise(self.names), nets, strict=True):
            ip("-n", left, "link", "add", "right", "type", "veth", "peer", "name", "left", "netns", right)
            # The pod's network has the node at .1, the others have the next one at .2.
            ends = ("2", "1") if net == nets[0] else ("1", "2")
            for namespace, device, last in ((left, "right", ends[0]), (right, "left", ends[1])):
                ip("-n", namespace, "link", "set", device, "up")
                ip("-n", namespace, "address", "add", f"{net}{dot}{last}/{length - 8}", "dev", device, *self._nodad)
        for namespace, key in ((node, key) for node in self.names[1:3] for key in ("ipv4.ip_forward", _FORWARDING6)):
            self.run(namespace, "sysctl", "-qw", f"net.{key}=1")
        pods = f"{self.pod}/{length}"
        for namespace, *route in (
            (self.names[0], "default", f"{nets[0]}{dot}1"),
            (self.names[1], "default", machine),
            (self.names[2], pods, self.node),
            (self.names[3], "default", f"{nets[2]}{dot}1"),
        ):
            ip("-n", namespace, f"-{version}", "route", "add", route[0], "via", route[1])
        ip("-n", self.names[2], "address", "add", f"{self.service}/{length}", "dev", "left", *self._nodad)
        family = "ip" if version == 4 else "ip6"
        cni = f"{family} saddr {self.pod} {family} daddr != {self.pod} masquerade"
        chain = "type nat hook postrouting priority srcnat;"
        self.run(
            self.names[1], "nft", "-f", "-", text=f"table {family} cni {{\n chain out {{\n {chain}\n {cni}\n }}\n}}\n"
        )

    @property
    def _nodad(self) -> tuple[str, ...]:
        return ("nodad",) if self._version == 6 else ()

    def run(self, namespace: str, *command: str, text: str = "") -> str:
        """Run a command in a namespace, with the programs that are broken; return what it prints."""
        environment = {**os.environ, "PATH": f"{self._broken}:{os.environ['PATH']}"}
        inside_it = ("ip", "netns", "exec", namespace, "env", f"PATH={environment['PATH']}", *command)
        return subprocess.run(inside_it, input=text, capture_output=True, text=True, check=True).stdout

    def machine_translates(self) -> None:
        """Write the rules of the machine."""
        identity = EgressIdentity(address=self.service, sources=(self.pod,), first_port=32_768, last_port=60_999)
        self.run(self.names[2], "nft", "-f", "-", text=egress_rules((identity,)))

    def follow(self, pods: Sequence[str] | None = None) -> Programmed:
        """Have the node follow the labels once."""
        named = (self.pod,) if pods is None else pods
        answer = self.run(self.names[1], sys.executable, "-c", _FOLLOW, self.service, *named)
        return msgspec.json.decode(answer.splitlines()[-1], type=Programmed)

    def delete_table(self) -> None:
        """Delete the table of the node, as another program may do."""
        self.run(self.names[1], "nft", "delete", "table", *TABLE.split())

    def breaks(self, program: str, arguments: str) -> None:
        """Have a program fail when it gets arguments of a pattern."""
        real = shutil.which(program)
        script = self._broken / program
        script.write_text(f'#!/bin/sh\ncase "$*" in {arguments}) echo broken >&2; exit 1;; esac\nexec {real} "$@"\n')
        script.chmod(0o755)

    def repaired(self) -> None:
        """Have all programs work again."""
        for script in self._broken.iterdir():
            script.unlink()

    @contextlib.asynccontextmanager
    async def server(self) -> AsyncGenerator[None]:
        """Answer at the server outside with the address that it sees; remove everything at the end."""
        try:
            with inside(self.names[3]):
                family = socket.AF_INET6 if self._version == 6 else socket.AF_INET
                listening = socket.create_server((self._server, _SERVER_PORT), family=family)
            server = await asyncio.start_server(_answer, sock=listening)
            yield
            server.close()
        finally:
            for name in self.names:
                ip("netns", "delete", name)

    async def seen(self, _pod: str = "") -> str:
        """Return the address of the pod as the server outside sees it; empty when it is not reached."""

        async def connect() -> OutsideConnection:
            return OutsideConnection(*await connect_inside(self.names[0], self._server, _SERVER_PORT))

        return await _seen(connect())


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


async def _seen(connecting: Awaitable[OutsideConnection]) -> str:
    try:
        async with asyncio.timeout(_SEEN_S):
            connection = await connecting
            try:
                address, _ = await connection.ask()
            finally:
                connection.close()
    except (OSError, TimeoutError):
        return ""
    return address


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # Cancelled: a connection whose packets are dropped is still open when the test ends.
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while await reader.readline():
            address, port = writer.get_extra_info("peername")[:2]
            writer.write(f"{address} {port}\n".encode())
    writer.close()
