"""One link in network namespaces: a bridge, machines that announce, a client, and hosts that are foreign.

    bridge ── machine-1, machine-2, ...   one namespace each: the process of the announcer
           ├─ client                       tries to connect every 20 ms
           └─ router (10.77.0.1), foreign hosts

This process accepts connections at every address of each machine, whether its announcer runs or not. The bridge has a
namespace of its own, where no filter of this machine sees its frames. ``close`` deletes everything.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import os
import secrets
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from fairlead.announce import layer2_packets as packets
from fairlead.model.machine import AddressState, AnnouncedAddress, MachinePlan, Neighbour
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.networks import inside, ip
from tests.worlds.layer2_machine import PlanFile, StateFile
from tests.worlds.own_time import waited_s

SERVER_PORT = 8080
TRY_EVERY_S = 0.02
TRY_S = 0.2
#: Linux sends a lost first packet again after a second: so slow is only a connection that has lost one.
LOST_S = 0.95
_START_S = 180.0
_SO_RCVBUFFORCE = 33


class Host:
    """A namespace with ``eth0`` on the bridge."""

    def __init__(self, link: Layer2Link, name: str, number: int) -> None:
        self.link = link
        self.name = name
        self.number = number
        self.namespace = f"{link.prefix}-{name}"
        self.cable = f"p{number}"
        self.mac = f"02:77:00:00:00:{number:02x}"
        self.v4, self.v6 = f"10.77.0.{number}", f"2001:db8:77::{number:x}"
        ip("netns", "add", self.namespace)
        peer = ("peer", "name", "eth0", "address", self.mac, "netns", self.namespace)
        ip("-n", link.bridge, "link", "add", self.cable, "type", "veth", *peer)
        ip("-n", link.bridge, "link", "set", self.cable, "master", "br0", "up")
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", "eth0", "up")
        self.ip("address", "add", f"{self.v4}/16", "dev", "eth0")
        self.ip("address", "add", f"{self.v6}/64", "dev", "eth0", "nodad")

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` inside."""
        ip("-n", self.namespace, *arguments)

    def set_cable(self, *, plugged: bool) -> None:
        """Pull the cable at the bridge, or plug it in."""
        ip("-n", self.link.bridge, "link", "set", self.cable, "up" if plugged else "down")

    def cut_off(self, *, on: bool) -> None:
        """Drop all frames between this host and the others, and keep the carrier."""
        ip("-n", self.link.bridge, "link", "set", self.cable, *(("nomaster",) if on else ("master", "br0")))

    def text(self, *command: str) -> str:
        """Return what a command inside prints."""
        done = ("ip", "netns", "exec", self.namespace, *command)
        return subprocess.run(done, capture_output=True, text=True, check=True).stdout

    def addresses(self) -> set[str]:
        """Return the addresses on all interfaces, without those that lo keeps for open connections."""
        lines = self.text("ip", "-o", "address", "show").splitlines()
        return {line.split()[3].partition("/")[0] for line in lines if ": lo " not in line or "lft forever" in line}

    def raw(self) -> socket.socket:
        """Return a socket that sends and receives every frame of ``eth0``."""
        with inside(self.namespace):
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        opened.bind(("eth0", 3))
        opened.setblocking(False)
        return opened

    def frames(self, opened: socket.socket) -> list[bytes]:
        """Return the frames that a raw socket has received."""
        frames: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(opened.recv(9000))
        return frames

    def heard(self, opened: socket.socket) -> list[packets.Answer]:
        """Return what the frames that a raw socket has received say about addresses."""
        return [answer for frame in self.frames(opened) if (answer := _read(frame)) is not None]

    def who_has(self, address: str, *, wait_s: float = 0.3) -> set[str]:
        """Return the MACs that answer for an address, as arping does."""
        return set(self.ask(address, 1, wait_s=wait_s))

    def ask(self, address: str, times: int, *, wait_s: float = 0.3) -> list[str]:
        """Ask for an address many times, 10 ms apart, and return the MACs of all answers."""
        answers: list[str] = []
        with contextlib.closing(self.raw()) as opened:
            own = self.v6 if packets.is_v6(address) else self.v4
            for _ in range(times):
                opened.send(packets.question(self.mac, own, address))
                time.sleep(0.01)
            end_s = time.monotonic() + wait_s
            while time.monotonic() < end_s:
                read = (answer for answer in self.heard(opened) if answer.address == address and not answer.probe)
                answers += [answer.mac for answer in read if answer.mac != self.mac]
                time.sleep(0.005)
        return answers


class Machine(Host):
    """A host with an announcer."""

    def __init__(self, link: Layer2Link, name: str, number: int) -> None:
        super().__init__(link, name, number)
        self.plan_file = link.directory / f"{name}.plan.json"
        self.state_file = link.directory / f"{name}.state.json"
        self.log = link.directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._server: asyncio.Server | None = None
        self.written = PlanFile(plan=MachinePlan(machine=name, version="0"), serving={})

    def write(self, plan: PlanFile) -> None:
        """Give the process another plan."""
        self.written = plan
        new = self.plan_file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(plan))
        new.rename(self.plan_file)

    def start(self) -> None:
        """Start the process."""
        self.state_file.unlink(missing_ok=True)
        command = self._command()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command], stdout=log, stderr=log, cwd=Path(__file__).parents[2]
            )

    def fails(self, *prefix: str) -> str:
        """Run the process with a prefix until it fails, and return its output."""
        done = ["ip", "netns", "exec", self.namespace, *prefix, *self._command()]
        ended = subprocess.run(
            done, capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2]
        )
        assert ended.returncode != 0
        return ended.stdout + ended.stderr

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.worlds.layer2_machine", str(self.plan_file), str(self.state_file)]

    async def serve(self) -> None:
        """Accept connections at every local address."""
        with inside(self.namespace):
            opened = socket.create_server(("::", SERVER_PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=500)
        self._server = await asyncio.start_server(_answer, sock=opened)

    def kill(self) -> None:
        """Kill the process with SIGKILL; the kernel goes on answering."""
        self._end(kill=True)

    def stop(self) -> None:
        """End the process with SIGTERM, as a restart does."""
        self._end(kill=False)

    def stop_serving(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _end(self, *, kill: bool) -> None:
        if self.process is not None:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait()
            self.process = None

    def lose_power(self) -> None:
        """Kill the process and the kernel's network at once."""
        self.set_cable(plugged=False)
        self.kill()
        self.ip("link", "set", "eth0", "down")
        self.ip("address", "flush", "dev", "eth0")

    def boot(self) -> None:
        """Start again after ``lose_power``."""
        self.ip("link", "set", "eth0", "up")
        self.ip("address", "add", f"{self.v4}/16", "dev", "eth0")
        self.ip("address", "add", f"{self.v6}/64", "dev", "eth0", "nodad")
        self.set_cable(plugged=True)
        self.start()

    def state(self) -> StateFile | None:
        """Return what the announcer reports; None before it does."""
        try:
            return msgspec.json.decode(self.state_file.read_bytes(), type=StateFile)
        except FileNotFoundError:
            return None

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_text(self) -> str:
        """Return what the process has logged."""
        return self.log.read_text()

    def address(self, address: str) -> AddressState:
        """Return what the announcer reports about an address."""
        state = self.state()
        results = [value for value in state.addresses if value.address == address] if state else []
        return results[0] if results else AddressState(address=address, announced=False)


class Layer2Link:
    """The link with its hosts; ``close`` removes them."""

    def __init__(self, directory: Path, *, machines: int = 2, ageing_s: int = 300) -> None:
        self.directory = directory
        self.prefix = f"fl2{secrets.token_hex(2)}"
        self.bridge = f"{self.prefix}-bridge"
        self.hosts: list[Host] = []
        self.machines: list[Machine] = []
        self.epoch = 1
        self.version = 0
        ip("netns", "add", self.bridge)
        try:
            ageing = ("type", "bridge", "ageing_time", str(ageing_s * 100))
            ip("-n", self.bridge, "link", "add", "br0", *ageing)
            ip("-n", self.bridge, "link", "set", "br0", "up")
            self.router = self.host("router", 1)
            self.client = self.host("client", 200)
            for number in range(1, machines + 1):
                self.machines.append(Machine(self, f"machine-{number}", 10 + number))
                self.hosts.append(self.machines[-1])
        except BaseException:
            self.close()
            raise

    def host(self, name: str, number: int) -> Host:
        """Add a host."""
        made = Host(self, name, number)
        self.hosts.append(made)
        return made

    async def aclose(self) -> None:
        """End the servers with what they have accepted, and close."""
        for machine in self.machines:
            if machine._server is not None:
                await stop_listening(machine._server)
        self.close()

    def close(self) -> None:
        """End the processes, and delete the namespaces."""
        for machine in self.machines:
            machine.kill()
            machine.stop_serving()
        for name in [*(host.namespace for host in self.hosts), self.bridge]:
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)

    def plan(
        self,
        order: dict[str, Sequence[Machine]],
        *,
        serving: bool | dict[tuple[str, str], bool] = True,
        drained: Sequence[Machine] = (),
        fast: bool = False,
        interfaces: tuple[str, ...] = (),
        neighbours_known: bool = True,
        machines: Sequence[Machine] = (),
    ) -> None:
        """Send every machine the plan in which each address has an order of machines."""
        self.version += 1
        for machine in machines or self.machines:
            addresses = tuple(
                AnnouncedAddress(
                    address=address,
                    announcement="L2",
                    machines=tuple(each.name for each in ranked),
                    interfaces=interfaces,
                    fast=fast,
                )
                for address, ranked in order.items()
            )
            neighbours = tuple(
                Neighbour(name=other.name, addresses=(other.v4, other.v6) if neighbours_known else ())
                for other in self.machines
                if other is not machine
            )
            plan = MachinePlan(
                machine=machine.name,
                version=str(self.version),
                epoch=self.epoch,
                drained=machine in drained,
                addresses=addresses,
                neighbours=neighbours,
                link_key="6b6579" * 8,
            )
            serves = {
                address: serving if isinstance(serving, bool) else serving.get((machine.name, address), True)
                for address in order
            }
            machine.write(PlanFile(plan=plan, serving=serves))

    def owners(self, address: str) -> list[str]:
        """Return the machines that have an address on an interface."""
        return [machine.name for machine in self.machines if address in machine.addresses()]

    async def start(self, *, hear: bool = True) -> None:
        """Start all machines, and wait until they hear each other."""
        for machine in self.machines:
            await machine.serve()
            machine.start()
        if hear:
            await self.eventually(lambda: all(self._hears_all(machine) for machine in self.machines))

    def _hears_all(self, machine: Machine) -> bool:
        state = machine.state()
        heard = {name for link in state.links for name in link.hears} if state else set[str]()
        return state is not None and len(heard) == len(self.machines) - 1

    async def settled(self, address: str, owner: str, *, within_s: float = _START_S) -> None:
        """Wait until exactly one machine has an address."""
        await self.eventually(lambda: self.owners(address) == [owner], within_s=within_s)

    async def taken(self, address: str, owner: str) -> None:
        """Wait until a machine has an address, though another one may have it, too."""
        await self.eventually(lambda: owner in self.owners(address))

    async def reported(
        self, machine: Machine, address: str, *, reason: str | None = None, cause: str | None = None
    ) -> AddressState:
        """Wait until the announcer reports a reason or a cause, and return the state."""

        def arrived() -> bool:
            state = machine.address(address)
            return machine.state() is not None and reason in (None, state.reason) and cause in (None, state.cause)

        await self.eventually(arrived)
        return machine.address(address)

    async def eventually(self, arrived: Callable[[], bool], *, within_s: float = _START_S) -> None:
        """Wait for something; the failure has the ends of all logs."""
        end_s = time.monotonic() + within_s
        while not arrived():
            if time.monotonic() > end_s:
                states = {machine.name: (machine.addresses(), machine.state()) for machine in self.machines}
                logs = "".join(machine.log.read_text()[-1500:] for machine in self.machines if machine.log.exists())
                raise AssertionError(f"not so after {within_s} s\n{states}\n{logs}")
            await asyncio.sleep(0.1)


class Probe:
    """Connects to an address every 20 ms, and knows when that worked."""

    def __init__(self, host: Host, address: str, *, try_s: float = TRY_S) -> None:
        self.host = host
        self._try_s = try_s
        self.address = address
        self.served: list[float] = []
        self.failed: list[float] = []
        self.lag_s = 0.0
        #: When the waits for a processor were read, and what they were by then.
        self._read: list[float] = []
        self._waited: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        await self.works()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def works(self, *, within_s: float = _START_S) -> None:
        """Wait until ten connections in a row worked that began from now on."""
        begin_s = time.monotonic()
        while True:
            good = [at for at in self.served if at > begin_s]
            bad = [at for at in self.failed if at > begin_s]
            if len(good) >= 10 and not [at for at in bad if at > good[-10]]:
                return
            if time.monotonic() > begin_s + within_s:
                raise AssertionError(f"{self.address} does not answer: {len(good)} of {len(good) + len(bad)}")
            await asyncio.sleep(0.05)

    def gap_s(self, since_s: float) -> float:
        """Return the longest gap without the lag of this process, and without waits of any process for a processor."""
        own = (later - earlier - self._waited_s(earlier, later) for earlier, later in self._gaps(since_s))
        return max(0.0, max(own, default=0.0) - self.lag_s)

    def raw_gap_s(self, since_s: float) -> float:
        """Return the longest time without a connection since a moment."""
        return max((later - earlier for earlier, later in self._gaps(since_s)), default=0.0)

    def _gaps(self, since_s: float) -> Iterable[tuple[float, float]]:
        before = [at for at in self.served if at <= since_s][-1:] or [since_s]
        return itertools.pairwise([*before, *(at for at in self.served if at > since_s)])

    def _waited_s(self, earlier: float, later: float) -> float:
        first, last = (self._waited[max(0, bisect.bisect(self._read, at) - 1)] for at in (earlier, later))
        return last - first

    def failures(self, since_s: float) -> int:
        """Return how many connections failed since a moment."""
        return sum(at >= since_s for at in self.failed)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        due_s = time.monotonic()
        try:
            while True:
                self.lag_s = max(self.lag_s, time.monotonic() - due_s)
                self._read.append(time.monotonic())
                self._waited.append(waited_s())
                task = loop.create_task(self._connect())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due_s = max(due_s + TRY_EVERY_S, time.monotonic() - TRY_EVERY_S)
                await asyncio.sleep(due_s - time.monotonic())
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _connect(self) -> None:
        family = socket.AF_INET6 if packets.is_v6(self.address) else socket.AF_INET
        with inside(self.host.namespace):
            opened = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        begin_s, waited_before_s = time.monotonic(), waited_s()
        try:
            async with asyncio.timeout(self._try_s):
                await asyncio.get_running_loop().sock_connect(opened, (self.address, SERVER_PORT))
            self.served.append(begin_s)
        except OSError as error:
            own_s = time.monotonic() - begin_s - (waited_s() - waited_before_s)
            # A busy machine may be what took so long.
            if not isinstance(error, TimeoutError) or own_s >= self._try_s:
                self.failed.append(begin_s)
        finally:
            opened.close()


async def _answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def _read(frame: bytes) -> packets.Answer | None:
    kind = struct.unpack_from("!H", frame, 12)[0] if len(frame) > 14 else 0
    if kind == packets.ETH_ARP:
        return packets.read_arp(frame)
    if kind == packets.ETH_IPV6 and len(frame) > 54 and frame[20] == socket.IPPROTO_ICMPV6:
        return packets.read_neighbour(frame[54:], socket.inet_ntop(socket.AF_INET6, frame[22:38]))
    return None
