"""A router and machines that announce routes to it, each in a network namespace, connected by a switch.

    router 10.77.0.1 ───┐
    machine 1  .11   ───┤ switch: a bridge in a namespace of its own
    machine 2  .12   ───┘

The router is a real BIRD or FRR with BFD and multipath; a machine is a process with the announcer, which is controlled
by lines of JSON. ``ip monitor`` in the router's namespace logs each change of a route with its time. Needs root.
Out: ``close`` removes all of it. Never touches a namespace that it did not make.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead.announce.bird import SPEAKER_NICENESS, Bird
from fairlead.announce.external import external_speaker
from fairlead.announce.frr import Frr
from fairlead.announce.routes import RouteAnnouncer, Speaker
from fairlead.errors import Terminal
from fairlead.model.machine import AddressState, AnnouncedAddress, BgpAttributes, BgpPeerPlan, MachinePlan, SessionState
from fairlead.runtime.commands import prefer
from fairlead_demo.worlds.networks import inside, ip
from fairlead_demo.worlds.processes import PATIENCE_S, wait_until

ROUTER_ASN, MACHINE_ASN = 65000, 65001
ROUTER, ROUTER6 = "10.77.0.1", "fd77::1"
_CLIENT = 200
#: Of a leave under connections; the group of next hops and its table are those of a resilient router.
_CONNECTIONS, _PORT, _ANSWER_S = 90, 8080, 10.0
_GROUP, _TABLE = "100", "100"
PASSWORD = "a-secret-of-two"  # noqa: S105 - of a test network

_BIRD = """
log "{directory}/bird.log" {{ info, remote, warning, error, auth, fatal, bug }};
timeformat protocol iso long ms;
router id {identity};
protocol device {{ scan time 1; }}
protocol kernel {{ ipv4 {{ export all; }}; merge paths yes; learn no; }}
protocol kernel {{ ipv6 {{ export all; }}; merge paths yes; learn no; }}
protocol bfd {{ interface "*" {{ interval 100 ms; multiplier 3; }}; }}
template bgp machine {{
  local as 65000;
  hold time 9;
  connect delay time 1; connect retry time 2; error wait time 1, 2;
  {options}
}}
"""
_BIRD_SESSION = """
protocol bgp {name} from machine {{
  neighbor range {network} as 65001;
  dynamic name "{name}_";
  {families}
}}
"""


class Router:
    """A real BIRD as the router; ``options`` are lines for all sessions, such as ``bfd on;``.

    ``network`` has the machines that may have IPv4 sessions.
    """

    def __init__(
        self,
        namespace: str,
        directory: Path,
        options: str,
        *,
        extra: str = "",
        network: str = "10.77.0.0/24",
        identity: str = ROUTER,
    ) -> None:
        self.namespace = namespace
        self._directory = directory
        text = _BIRD.format(directory=directory, options=options, identity=identity)
        text += _BIRD_SESSION.format(name="v4", network=network, families=_family(4))
        text += _BIRD_SESSION.format(name="v6", network="fd77::/64", families=_family(6)) + extra
        (directory / "bird.conf").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        command = ["bird", "-f", "-c", str(self._directory / "bird.conf"), "-s", str(self._directory / "ctl")]
        self._process = subprocess.Popen(
            in_namespace(self.namespace, command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        prefer(self._process.pid, SPEAKER_NICENESS)

    def ask(self, command: str) -> str:
        """Return the answer to a command of birdc."""
        done = subprocess.run(
            ["birdc", "-s", str(self._directory / "ctl"), command], capture_output=True, text=True, check=True
        )
        return done.stdout

    def updates(self) -> tuple[int, int]:
        """Return how many routes were updated and withdrawn on all sessions, since they are up."""
        answer = self.ask("show protocols all")
        received = [re.findall(rf"Import {kind}:\s+(\d+)", answer) for kind in ("updates", "withdraws")]
        return sum(map(int, received[0])), sum(map(int, received[1]))

    def since(self) -> list[str]:
        """Return when each session came up."""
        return sorted(
            re.findall(r"^v\d\S* +BGP .*? up +(\S+ \S+) +Established", self.ask("show protocols"), re.MULTILINE)
        )

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


_FRR = """
log file {directory}/bgpd.log
router bgp 65000
 bgp router-id 10.77.0.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp bestpath as-path multipath-relax
 neighbor machines peer-group
 neighbor machines remote-as 65001
 neighbor machines timers 3 9
 neighbor machines timers connect 1
 {options}
 neighbor 10.77.0.11 peer-group machines
 neighbor 10.77.0.12 peer-group machines
 neighbor fd77::b peer-group machines
 neighbor fd77::c peer-group machines
 {extra}
 address-family ipv4 unicast
  neighbor machines activate
  {activate}
 exit-address-family
 address-family ipv6 unicast
  neighbor machines activate
  {activate}
 exit-address-family
"""


class FrrRouter:
    """A real FRR as the router; with ``unnumbered`` it has one session more, on its interface."""

    def __init__(self, namespace: str, options: str, *, unnumbered: bool) -> None:
        self.directory = Path("/run") / f"fairlead-frr-{namespace}"
        self._namespace = namespace
        self._processes: list[subprocess.Popen[bytes]] = []
        self.directory.mkdir(mode=0o700)
        shutil.chown(self.directory, "frr", "frr")
        extra = "neighbor eth0 interface remote-as 65001" if unnumbered else ""
        activate = "neighbor eth0 activate" if unnumbered else ""
        text = _FRR.format(directory=self.directory, options=options, extra=extra, activate=activate)
        for daemon in ("zebra", "bfdd", "bgpd"):
            path = self.directory / f"{daemon}.conf"
            path.write_text(text if daemon == "bgpd" else "")
            shutil.chown(path, "frr", "frr")

    def start(self) -> None:
        """Start its daemons."""
        where = str(self.directory)
        for daemon in ("zebra", "bfdd", "bgpd"):
            command = [f"/usr/lib/frr/{daemon}", "-f", f"{where}/{daemon}.conf", "-i", f"{where}/{daemon}.id"]
            command += ["--vty_socket", where, "-z", f"{where}/zserv.api", "-P", "0"]
            command += ["--bfdctl", f"{where}/bfdd.sock"] if daemon == "bfdd" else []
            process = subprocess.Popen(
                in_namespace(self._namespace, command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            prefer(process.pid, SPEAKER_NICENESS)
            self._processes.append(process)
            while not (self.directory / f"{daemon}.vty").exists():  # each one needs the one before
                time.sleep(0.05)

    def updates(self) -> int:
        """Return how many updates it received on all sessions."""
        command = ["vtysh", "--vty_socket", str(self.directory), "-c", "show bgp neighbors json"]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return sum(neighbour["messageStats"]["updatesRecv"] for neighbour in answer.values())

    def close(self) -> None:
        """End it."""
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _family(version: int) -> str:
    return f"ipv{version} {{ import all; export none; }};"


class Change(msgspec.Struct, frozen=True):
    """A route that changed in the kernel of the router, at a time in seconds since 1970."""

    at: float
    text: str


class RouteLog:
    """Each change of a route in the kernel of a router, with its time, as ``ip monitor`` says it."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._changes: list[Change] = []
        self._marks = 0
        self._noted = asyncio.Event()
        command = ["ip", "-n", namespace, "-ts", "-o", "monitor", "route"]
        self._monitor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._monitor.stdout is not None
        self._output = self._monitor.stdout
        os.set_blocking(self._output.fileno(), False)
        asyncio.get_running_loop().add_reader(self._output.fileno(), self._note)

    async def since(self, at: float, address: str) -> list[Change]:
        """Return how the route of an address has changed until now."""
        await self.settle()
        return self._since(at, address)

    async def settle(self) -> None:
        """Return when all that has changed is noted: ``ip monitor`` gives a change the time at which it reads it."""
        self._marks += 1
        mark = f"198.51.100.{self._marks % 256}"
        at = time.time()
        for change in ("add", "del"):
            ip("-n", self._namespace, "route", change, "blackhole", mark)
        await self.changed(at, mark, number=2)

    async def changed(self, at: float, address: str, *, within_s: float = PATIENCE_S, number: int = 1) -> float:
        """Return how many seconds after ``at`` the route of an address changed for the n-th time."""
        async with asyncio.timeout(within_s):
            while len(changes := self._since(at, address)) < number:
                self._noted.clear()
                await self._noted.wait()
        return changes[number - 1].at - at

    def close(self) -> None:
        """End it."""
        asyncio.get_running_loop().remove_reader(self._output.fileno())
        self._monitor.kill()
        self._monitor.wait()
        self._output.close()

    def _since(self, at: float, address: str) -> list[Change]:
        return [change for change in self._changes if change.at >= at and address in change.text.split()]

    def _note(self) -> None:
        self._noted.set()
        lines = self._output.readlines()
        if not lines:
            asyncio.get_running_loop().remove_reader(self._output.fileno())
        for line in lines:
            if match := re.match(r"\[(\S+)\] ?(.*)", line):
                self._changes.append(Change(datetime.fromisoformat(match.group(1)).timestamp(), match.group(2)))


class Machine:
    """A machine in a namespace: a process with the announcer, which can be killed and started again."""

    def __init__(self, number: int, namespace: str, directory: Path, speaker: str) -> None:
        self.number, self.name, self.namespace = number, f"m{number}", namespace
        self.directory = directory
        self.speaker = speaker
        self.addresses: dict[str, AddressState] = {}
        self.sessions: dict[str, SessionState] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._applied = 0
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Start the process; a speaker that runs is adopted."""
        command = [sys.executable, "-m", "fairlead_demo.worlds.bgp", str(self.directory), self.speaker]
        with (self.directory / "machine.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *in_namespace(self.namespace, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                limit=1 << 24,
            )  # fmt: skip
        self._reader = asyncio.create_task(self._read(self._process))

    async def apply(
        self,
        addresses: Mapping[str, bool | None],
        *,
        peers: tuple[BgpPeerPlan, ...] | None = None,
        drained: bool = False,
        attributes: BgpAttributes | None = None,
        others: tuple[str, ...] = (),
    ) -> None:
        """Send a plan and return when it is applied; addresses are serving, not serving, or unknown (None).

        ``others`` are machines that have the addresses, too.
        """
        kind = "BGP" if self.speaker in {"bird", "frr"} else "External"
        plan = MachinePlan(
            machine=self.name,
            version="1",
            drained=drained,
            addresses=tuple(
                AnnouncedAddress(address=address, announcement=kind, machines=(self.name, *others), bgp=attributes)
                for address in addresses
            ),
            bgp_peers=(router_peer(),) if peers is None else peers,
        )
        await self.send(plan, {address: serves for address, serves in addresses.items() if serves is not None})

    async def send(self, plan: MachinePlan, serving: Mapping[str, bool]) -> None:
        """Send a plan and return when it is applied."""
        await self._command({"plan": msgspec.to_builtins(plan), "serving": serving})

    async def withdraw(self) -> None:
        """Stop as planned."""
        await self._command({"withdraw": True})

    async def until(self, holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        """Wait until a report makes ``holds()`` true."""
        async with asyncio.timeout(within_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def until_up(self, *peers: str) -> None:
        """Wait until the sessions are up."""
        names = peers or ("router",)
        await self.until(lambda: all(name in self.sessions and self.sessions[name].up for name in names))

    def expire(self, *addresses: str) -> None:
        """Let the lifetime of addresses on ``lo`` end now, sooner than by itself; they have lengths of prefix."""
        for address in addresses:
            options = ["preferred_lft", "0", "valid_lft", "1", *([] if ":" in address else ["scope", "host"])]
            ip("-n", self.namespace, "address", "change", address, "dev", "lo", *options)

    def speaker_pid(self) -> int:
        """Return the process id of the speaker."""
        file = self.directory / "bird.pid" if self.speaker == "bird" else Frr(self.directory).directory / "bgpd.pid"
        return int(file.read_text())

    async def kill(self) -> None:
        """Kill the process, not the speaker."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        self._process = None

    async def close(self) -> None:
        """End process and speaker."""
        await self.kill()
        of_frr = Frr(self.directory).directory
        for file in (*self.directory.glob("*.pid"), *of_frr.glob("*.pid")):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        shutil.rmtree(of_frr, ignore_errors=True)

    async def _command(self, command: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        target = self._applied + 1
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self.until(lambda: self._applied >= target)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            report = json.loads(line)
            self._applied += bool(report.get("applied"))
            states = msgspec.convert(report["addresses"], list[AddressState])
            sessions = msgspec.convert(report["sessions"], list[SessionState])
            self.addresses = {state.address: state for state in states}
            self.sessions = {session.peer: session for session in sessions}
            self._changed.set()


class BgpWorld:
    """Namespaces with a switch, a router and machines; ``speaker`` is that of the machines."""

    def __init__(self, directory: Path, *, speaker: str = "bird") -> None:
        self._id = secrets.token_hex(2)
        self._directory = directory
        self.speaker = speaker
        self._namespaces: list[str] = []
        self._log: RouteLog | None = None
        self.machines: list[Machine] = []
        self.router: Router | FrrRouter | None = None
        self._second: Router | None = None
        self._switch = self._namespace("switch")
        ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self._switch, "link", "set", "br0", "up")
        self.router_namespace = self._host("router", 1)
        be_a_router(self.router_namespace)
        self.client = self._host("client", _CLIENT)
        ip("-n", self.client, "route", "add", "default", "via", ROUTER)

    def start_router(self, options: str = "bfd on;", *, extra: str = "") -> Router:
        """Start a BIRD as the router."""
        directory = self._directory / "router"
        directory.mkdir(exist_ok=True)
        router = self.router = Router(self.router_namespace, directory, options, extra=extra)
        router.start()
        self._log = RouteLog(self.router_namespace)
        return router

    def start_second_router(self, number: int, options: str = "bfd on;") -> Router:
        """Start a BIRD as one more router, at the address with this last number."""
        directory = self._directory / f"router-{number}"
        directory.mkdir()
        namespace = self._host(f"router-{number}", number)
        router = self._second = Router(namespace, directory, options, identity=f"10.77.0.{number}")
        router.start()
        return router

    def start_frr_router(self, options: str = "neighbor machines bfd", *, unnumbered: bool = False) -> FrrRouter:
        """Start an FRR as the router."""
        router = self.router = FrrRouter(self.router_namespace, options, unnumbered=unnumbered)
        router.start()
        self._log = RouteLog(self.router_namespace)
        return router

    async def add_machine(self) -> Machine:
        """Make one more machine and start its process."""
        number = len(self.machines) + 1
        directory = self._directory / f"m{number}"
        directory.mkdir(mode=0o755)
        machine = Machine(number, self._host(f"m{number}", 10 + number), directory, self.speaker)
        self.machines.append(machine)
        await machine.start()
        return machine

    def link(self, machine: Machine, *, up: bool) -> None:
        """Pull the cable of a machine at the switch, or plug it in: the router's own link stays up."""
        ip("-n", self._switch, "link", "set", f"to-m{machine.number}", "up" if up else "down")

    def next_hops(self, address: str) -> set[str]:
        """Return the next hops of an address in the kernel of the router."""
        return next_hops(self.router_namespace, address)

    async def until_hops(self, address: str, hops: set[str] | int, *, within_s: float = PATIENCE_S) -> None:
        """Wait until the router has these next hops, or so many, and its log has noted them."""

        async def reached() -> bool:
            present = self.next_hops(address)
            return (len(present) if isinstance(hops, int) else present) == hops

        await wait_until(reached, f"the router has {hops} next hops of {address}", timeout_s=within_s)
        await self.log.settle()

    async def until_bfd(self, machine: Machine) -> None:
        """Wait until both sides of a machine's session with a BIRD have seen each other's packets of BFD."""
        await machine.until(lambda: machine.sessions["router"].bfd == "Up")
        router = self.router
        assert isinstance(router, Router)

        async def seen() -> bool:
            sessions = [line.split() for line in router.ask("show bfd sessions").splitlines()]
            return [machine.sessions["router"].next_hop, "eth0", "Up"] in [fields[:3] for fields in sessions]

        await wait_until(seen, f"the router has seen BFD of {machine.name}")

    @property
    def log(self) -> RouteLog:
        """Return the changes of routes since the router was started."""
        assert self._log is not None
        return self._log

    def hash_resiliently(self, address: str) -> None:
        """Have the router forward to the next hops of BIRD by a resilient group, as they are now.

        The buckets of next hops that stay are not moved. BIRD 2 writes plain multipath routes only.
        """
        router = ["-n", self.router_namespace]
        hops = {int(hop.rpartition(".")[2]): hop for hop in sorted(self.next_hops(address))}
        commands = [
            ["nexthop", "replace", "id", str(number), "via", hop, "dev", "eth0"] for number, hop in hops.items()
        ]
        group = "/".join(map(str, hops))
        resilient = ["type", "resilient", "buckets", "64", "idle_timer", "120"]
        commands += [
            ["nexthop", "replace", "id", _GROUP, "group", group, *resilient],
            ["route", "replace", address, "nhid", _GROUP, "table", _TABLE],
        ]
        rules = subprocess.run(["ip", *router, "rule"], capture_output=True, text=True, check=True).stdout
        if address not in rules:
            commands.append(["rule", "add", "to", address, "lookup", _TABLE])
        for command in commands:
            ip(*router, *command)

    async def cut_by_a_leave(
        self, address: str, leaving: Machine, *, resilient: bool, peers: tuple[BgpPeerPlan, ...] | None = None
    ) -> tuple[int, int]:
        """Have a machine leave under open connections of a client behind the router.

        Return how many of the connections to the others were cut, and how many there were.
        """
        if resilient:
            self.hash_resiliently(address)
        with contextlib.ExitStack() as stack:
            listeners: dict[str, socket.socket] = {}
            for machine in self.machines:
                with inside(machine.namespace):
                    listener = socket.create_server((address, _PORT), backlog=_CONNECTIONS)
                listeners[machine.name] = stack.enter_context(listener)
            clients: dict[int, socket.socket] = {}
            for _ in range(_CONNECTIONS):
                with inside(self.client):
                    client = stack.enter_context(socket.socket())
                client.settimeout(10)
                client.connect((address, _PORT))
                client.setblocking(False)
                clients[client.getsockname()[1]] = client
            pairs: list[tuple[socket.socket, socket.socket]] = []
            for name, listener in listeners.items():
                listener.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        accepted, (_, port) = listener.accept()
                        accepted.setblocking(False)
                        stack.enter_context(accepted)
                        if name != leaving.name:
                            pairs.append((clients[port], accepted))
            await leaving.apply({address: False}, peers=peers)
            await self.until_hops(address, len(self.machines) - 1)
            if resilient:
                self.hash_resiliently(address)
            for client, _ in pairs:
                client.send(b"?")
            unknown, cut = pairs, 0
            end_s = time.monotonic() + _ANSWER_S
            while unknown and time.monotonic() < end_s:
                await asyncio.sleep(0.05)
                seen = [(pair, _arrived(*pair)) for pair in unknown]
                cut += sum(arrived is False for _, arrived in seen)
                unknown = [pair for pair, arrived in seen if arrived is None]
        return cut + len(unknown), len(pairs)

    async def close(self) -> None:
        """End all processes and remove the namespaces."""
        for machine in self.machines:
            await machine.close()
        for router in filter(None, (self.router, self._second)):
            router.close()
        if self._log is not None:
            self._log.close()
        for namespace in self._namespaces:
            with contextlib.suppress(Terminal):
                ip("netns", "delete", namespace)

    def _namespace(self, name: str) -> str:
        namespace = f"fairlead-{self._id}-{name}"
        ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def _host(self, name: str, number: int) -> str:
        namespace = self._namespace(name)
        ip("-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{name}", "netns", self._switch)
        ip("-n", self._switch, "link", "set", f"to-{name}", "master", "br0", "up")
        ip("-n", namespace, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        ip("-n", namespace, "address", "add", f"fd77::{number:x}/64", "dev", "eth0", "nodad")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return namespace


def _arrived(client: socket.socket, accepted: socket.socket) -> bool | None:
    """Return whether what a client sent has arrived, or its connection was reset; None while neither is known."""
    with contextlib.suppress(BlockingIOError):
        return accepted.recv(1) == b"?"
    with contextlib.suppress(BlockingIOError):
        try:
            return client.recv(1) != b""
        except ConnectionError:
            return False
    return None


def be_a_router(namespace: str) -> None:
    """Have a namespace forward packets, and spread the connections of one client, too, over next hops."""
    settings = ["net.ipv4.fib_multipath_hash_policy=1", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]
    # Otherwise a client on the subnet of the machines learns one of them, and keeps it when the route is gone.
    settings += [f"net.ipv4.conf.{name}.send_redirects=0" for name in ("all", "eth0")]
    subprocess.run(in_namespace(namespace, ["sysctl", "-qw", *settings]), check=True)


def next_hops(namespace: str, address: str) -> set[str]:
    """Return the next hops of an address in the kernel of a router."""
    family = "-6" if ":" in address else "-4"
    command = ["ip", "-n", namespace, "-j", family, "route", "show", address]
    routes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")
    hops: set[str] = set()
    for route in routes:
        for hop in route.get("nexthops", [route]):
            hops.add(hop.get("gateway") or hop.get("via", {}).get("host", ""))
    return hops


def in_namespace(namespace: str, command: list[str]) -> list[str]:
    """Return the command that runs ``command`` in a namespace."""
    return ["ip", "netns", "exec", namespace, *command]


def router_peer(name: str = "router", **changes: Any) -> BgpPeerPlan:
    """Return the peer that is the router of a world; ``changes`` are fields."""
    defaults: dict[str, Any] = {"address": ROUTER, "asn": ROUTER_ASN, "local_asn": MACHINE_ASN, "hold_s": 9}
    return BgpPeerPlan(name=name, **(defaults | changes))


def bgp_problem() -> str:
    """Return why no world with BGP can be made here; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("bird", "birdc", "bgpd") if not _installed(name)]
    return f"{', '.join(missing)} missing: apt-get install bird2 frr" if missing else ""


def bird_missing() -> str:
    """Return that BIRD is not installed, and how to install it; empty when it is."""
    return "" if _installed("bird") and _installed("birdc") else "BIRD 2 is not installed: apt-get install bird2"


def _installed(name: str) -> bool:
    return any(os.access(Path(path, name), os.X_OK) for path in (*os.get_exec_path(), "/usr/sbin", "/usr/lib/frr"))


def speaker_of(kind: str, directory: Path) -> Speaker:
    """Return the speaker of a machine: ``bird``, ``frr``, or the place of external routes."""
    if kind in {"bird", "frr"}:
        return Bird(directory) if kind == "bird" else Frr(directory)
    return external_speaker(kind)


async def _lines() -> AsyncIterator[dict[str, Any]]:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def _machine(directory: Path, kind: str) -> None:
    """Be a machine: follow the lines of standard input, and report each change to standard output."""

    def report(*, applied: bool = False) -> None:
        states = {"addresses": announcer.addresses(), "sessions": announcer.sessions(), "applied": applied}
        sys.stdout.write(msgspec.json.encode(states).decode() + "\n")
        sys.stdout.flush()

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    how = "BGP" if kind in {"bird", "frr"} else "External"
    announcer = RouteAnnouncer(how, speaker_of(kind, directory), directory, on_change=report)
    running = asyncio.ensure_future(announcer.run())
    async for line in _lines():
        if "plan" in line:
            await announcer.apply(msgspec.convert(line["plan"], MachinePlan), serving=line["serving"])
        else:
            await announcer.withdraw()
        report(applied=True)
    running.cancel()


if __name__ == "__main__":
    asyncio.run(_machine(Path(sys.argv[1]), sys.argv[2]))
