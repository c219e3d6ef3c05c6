"""A client, a proxy machine that forwards in its kernel, and targets, each in a network namespace of its own.

    client 10.66.1.2 ── 10.66.1.1 machine 10.66.2.1 ── targets 10.66.2.11, ...
                        addresses of load balancers: 10.66.1.100, ...

In: root and the right to make network namespaces. Out: ``ForwardingSite``; the client and the targets have the machine
as their router, so replies pass it. Never touches a network that it did not make.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
from collections.abc import Sequence

from fairlead.errors import Terminal
from fairlead_demo.worlds.networks import inside, ip

CLIENT, ADDRESS = "10.66.1.2", "10.66.1.100"
_GATEWAYS = {"client": "10.66.1.1", "targets": "10.66.2.1"}


class ForwardingSite:
    """The three namespaces: ``client``, ``machine`` and ``targets``."""

    def __init__(self) -> None:
        name = f"fairlead-{secrets.token_hex(2)}"
        self.client, self.machine, self.targets = (f"{name}-{part}" for part in ("client", "machine", "targets"))

    def start(self) -> None:
        """Make the namespaces and their links."""
        for namespace in (self.client, self.machine, self.targets):
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        for part, namespace in (("client", self.client), ("targets", self.targets)):
            gateway = _GATEWAYS[part]
            peer = ("peer", "name", part, "netns", self.machine)
            ip("-n", namespace, "link", "add", "eth0", "type", "veth", *peer)
            for where, device in ((namespace, "eth0"), (self.machine, part)):
                ip("-n", where, "link", "set", device, "up")
            ip("-n", self.machine, "address", "add", f"{gateway}/24", "dev", part)
            ip("-n", namespace, "address", "add", f"{gateway[:-1]}2/24", "dev", "eth0")
            ip("-n", namespace, "route", "add", "default", "via", gateway)
        ip("-n", self.machine, "address", "add", f"{ADDRESS}/32", "dev", "client")

    def close(self) -> None:
        """Delete the namespaces."""
        for namespace in (self.client, self.machine, self.targets):
            with contextlib.suppress(Terminal):
                ip("netns", "delete", namespace)

    def add_target(self, number: int) -> str:
        """Add a target; return its address."""
        address = f"10.66.2.{10 + number}"
        ip("-n", self.targets, "address", "add", f"{address}/24", "dev", "eth0")
        return address

    def add_clients(self, count: int) -> list[str]:
        """Give the client more addresses; return them."""
        addresses = [f"10.66.1.{150 + number}" for number in range(count)]
        for address in addresses:
            ip("-n", self.client, "address", "add", f"{address}/24", "dev", "eth0")
        return addresses

    def socket_at(self, namespace: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Return a socket in a namespace, where it stays."""
        with inside(namespace):
            made = socket.socket(socket.AF_INET, kind)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made

    def run(self, namespace: str, command: Sequence[str], *, text: str = "") -> str:
        """Run a command in a namespace to its end; return what it prints."""
        inside_it = ("ip", "netns", "exec", namespace, *command)
        return subprocess.run(inside_it, input=text, capture_output=True, text=True, check=True).stdout
