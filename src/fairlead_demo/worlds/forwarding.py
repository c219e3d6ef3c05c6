"""A client, a proxy machine that forwards in its kernel, and targets, each in a network namespace of its own.

    client 10.66.1.2 ── 10.66.1.1 machine 10.66.2.1 ── targets 10.66.2.11, ...
                        addresses of load balancers: 10.66.1.100, ...
    with IPv6 also 2001:db8:66:1::2, and so on

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
CLIENT6, ADDRESS6 = "2001:db8:66:1::2", "2001:db8:66:1::100"
_GATEWAYS = {
    "client": (("10.66.1.1", 24), ("2001:db8:66:1::1", 64)),
    "targets": (("10.66.2.1", 24), ("2001:db8:66:2::1", 64)),
}


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
            peer = ("peer", "name", part, "netns", self.machine)
            ip("-n", namespace, "link", "add", "eth0", "type", "veth", *peer)
            for where, device in ((namespace, "eth0"), (self.machine, part)):
                ip("-n", where, "link", "set", device, "up")
            for gateway, length in _GATEWAYS[part]:
                _add(self.machine, part, f"{gateway}/{length}")
                _add(namespace, "eth0", f"{gateway[:-1]}2/{length}")
                ip("-n", namespace, "route", "add", "default", "via", gateway)
        _add(self.machine, "client", f"{ADDRESS}/32")
        _add(self.machine, "client", f"{ADDRESS6}/128")

    def close(self) -> None:
        """Delete the namespaces."""
        for namespace in (self.client, self.machine, self.targets):
            with contextlib.suppress(Terminal):
                ip("netns", "delete", namespace)

    def add_target(self, number: int, *, v6: bool = False) -> str:
        """Add a target; return its address."""
        address = f"2001:db8:66:2::{10 + number}" if v6 else f"10.66.2.{10 + number}"
        _add(self.targets, "eth0", f"{address}/{64 if v6 else 24}")
        return address

    def add_clients(self, count: int) -> list[str]:
        """Give the client more addresses; return them."""
        addresses = [f"10.66.1.{150 + number}" for number in range(count)]
        for address in addresses:
            ip("-n", self.client, "address", "add", f"{address}/24", "dev", "eth0")
        return addresses

    def socket_at(self, namespace: str, kind: int = socket.SOCK_STREAM, *, v6: bool = False) -> socket.socket:
        """Return a socket in a namespace, where it stays."""
        with inside(namespace):
            made = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, kind)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made

    def run(self, namespace: str, command: Sequence[str], *, text: str = "") -> str:
        """Run a command in a namespace to its end; return what it prints."""
        inside_it = ("ip", "netns", "exec", namespace, *command)
        return subprocess.run(inside_it, input=text, capture_output=True, text=True, check=True).stdout


def _add(namespace: str, device: str, address: str) -> None:
    ip("-n", namespace, "address", "add", address, "dev", device, *(("nodad",) if ":" in address else ()))
