"""Give each region a network of its own, as separate as this machine allows.

    root        a network namespace per region: nothing of another region's network can be reached from it
    otherwise   loopback ranges: separate addresses on one network

    region's namespace                            this machine
    ┌──────────────────────────────┐
    │ pods, Envoy, clients on lo   │   control    ┌────────────────┐
    │ 10.66.<n>.0/24, all local    ├─── veth ─────┤ bridge, API    │
    └──────────────────────────────┘              └────────────────┘

Out: addresses for pods and load balancers, commands that run inside, and connections opened inside. ``close`` removes
all of it. Never touches a network that it did not make.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from fairlead.errors import Terminal
from fairlead_demo.worlds.loopback import free_network, service_port

_TRIES = 20


class RegionNetwork(Protocol):
    """One region's network: the first three parts of pod addresses, and the CIDR of its load balancers."""

    pods: str
    pool: str
    description: str

    def command(self, command: list[str]) -> list[str]:
        """Return the command that runs ``command`` inside."""
        ...

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection as a client inside does."""
        ...


class Networks(Protocol):
    """The networks of all regions."""

    api_host: str
    separate: bool

    def add(self, region: str) -> RegionNetwork:
        """Make the network of one more region."""
        ...

    def close(self) -> None:
        """Remove everything."""
        ...


class LoopbackNetworks:
    """Ranges of the loopback network: needs no rights."""

    def __init__(self) -> None:
        self.api_host = "127.0.0.1"
        self.separate = False

    def add(self, region: str) -> RegionNetwork:
        """Choose ranges that nothing else uses."""
        return _Loopback(region)

    def close(self) -> None:
        """Do nothing: there is nothing to remove."""


class _Loopback:
    def __init__(self, region: str) -> None:
        self.pods = free_network()
        self.pool = f"{free_network(service_port(80))}.0/24"
        self.description = f"{region}: pods in {self.pods}.0/24, access points in {self.pool}"

    def command(self, command: list[str]) -> list[str]:
        return command

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(host, port)


class NamespaceNetworks:
    """A network namespace for each region, connected to a bridge for control traffic only."""

    def __init__(self) -> None:
        self.separate = True
        self._id = secrets.token_hex(2)
        self._bridge = f"flb{self._id}"
        self._control = free_control_network()
        self._made: list[str] = []
        self.api_host = f"{self._control}.1"
        ip("link", "add", self._bridge, "type", "bridge")
        ip("address", "add", f"{self.api_host}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")

    def add(self, region: str) -> RegionNetwork:
        """Make a namespace with a /24 of its own, in which every address is local."""
        number = len(self._made) + 1
        name = f"fairlead-{self._id}-{region}"
        outside, inside = f"flv{self._id}{number}", f"flr{self._id}{number}"
        ip("netns", "add", name)
        self._made.append(name)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        ip("link", "set", outside, "master", self._bridge, "up")
        ip("-n", name, "address", "add", f"{self._control}.{number + 1}/24", "dev", inside)
        ip("-n", name, "link", "set", inside, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "route", "add", "local", f"10.66.{number}.0/24", "dev", "lo")
        return _Namespace(region, name, number)

    def close(self) -> None:
        """Remove the namespaces with their veth pairs, and the bridge."""
        for name in self._made:
            with suppress(Terminal):
                ip("netns", "delete", name)
        with suppress(Terminal):
            ip("link", "delete", self._bridge)


class _Namespace:
    def __init__(self, region: str, name: str, number: int) -> None:
        self._name = name
        self.pods = f"10.66.{number}"
        self.pool = f"10.66.{number}.128/25"
        self.description = f"{region}: network namespace {name}, {self.pods}.0/24"

    def command(self, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self._name, *command]

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connect_inside(self._name, host, port)


async def connect_inside(
    namespace: str, host: str, port: int, *, source: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection as a process in a network namespace does; from the address ``source``, if there is one."""
    with inside(namespace):
        # A socket stays in the network namespace in which it was created.
        client = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    client.setblocking(False)
    try:
        if source:
            client.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(client, (host, port))
        return await asyncio.open_connection(sock=client)
    except BaseException:
        client.close()
        raise


def choose_networks(*, loopback: bool) -> Networks:
    """Return network namespaces if this process may create them, else loopback ranges."""
    if not loopback and os.geteuid() == 0:
        with suppress(Terminal, OSError):
            return NamespaceNetworks()
    return LoopbackNetworks()


def free_control_network() -> str:
    """Return the first three parts of a private /24 to which this machine has no route of its own."""
    routes = Path("/proc/net/route").read_text(encoding="ascii")
    for _ in range(_TRIES):
        third = secrets.randbelow(250)
        if f"00{third:02X}FD0A" not in routes:
            return f"10.253.{third}"
    raise Terminal("There is no free network for the control traffic of regions.")


_CLONE_NEWNET = 0x40000000


def ip(*arguments: str) -> None:
    """Run ``ip``; ``Terminal`` says what it answered when it fails."""
    try:
        subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        answer = getattr(error, "stderr", "") or str(error)
        raise Terminal(f"ip {' '.join(arguments)}: {answer.strip()}") from error


@contextmanager
def inside(namespace: str) -> Generator[None]:
    """Be in a network namespace for the length of a block: this thread only, and what it starts."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        target = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
        try:
            _enter(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
