"""Connections of the kernel path, kept the same at two machines by conntrackd, a process of its own.

    kernel ──events──► conntrackd ──UDP──► conntrackd of the other machine ──► its kernel

The other kernel has each open TCP connection at once. So a takeover has no step of its own: the machine that now has
the address translates the next packet as before. Like Envoy, conntrackd outlives this process, and the next one adopts
it. What is behind or lost is counted for the hub.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

from fairlead.announce.bird import find_binary, source_of
from fairlead.announce.routes import ip_lines
from fairlead.errors import BadConfiguration, FairleadError, Retry
from fairlead.model.machine import ConnectionSyncState
from fairlead.runtime.commands import Running, find_detached, run_command, start_detached, stop_process
from fairlead.runtime.private_file import write_private

_FILE, _PID_FILE, _OUTPUT = "conntrackd.conf", "conntrackd.pid", "conntrackd.out"
_PORT = 3780
_LOOK_S, _ANSWER_S = 5.0, 10.0
#: conntrackd sends something every second.
_SILENT_LOOKS = 2
#: Entries of its tables; a kernel with more connections would need more.
_BUCKETS, _MOST = 65_536, 2_000_000
_RECEIVED, _LOST = re.compile(r"(\d+) Pckts recv"), re.compile(r"(\d+) Lost msgs")
_CONNECTIONS = re.compile(r"current active connections:\s+(\d+)")
_WAITING = re.compile(r"queue (?:tx|rs)queue:\s+current elements:\s+(\d+)")


class ConnectionSync:
    """The conntrackd of a machine; ``peer`` is an address of the other machine, empty to have none.

    ``on_problem`` is called with a sentence, and with an empty one when it is solved.
    """

    def __init__(self, directory: Path, peer: str, *, on_problem: Callable[[str], None]) -> None:
        self._directory = directory
        self._peer = peer
        self._on_problem = on_problem
        self._received = self._silent = 0
        #: None without another machine, and until it was read.
        self.state: ConnectionSyncState | None = None

    async def run(self) -> None:
        """Keep conntrackd running and read its counters, until cancelled; conntrackd then continues."""
        if not self._peer:
            if (running := self._find()) is not None:
                await stop_process(running)
            await asyncio.Event().wait()
        while True:
            try:
                await self._follow()
                self._on_problem(self._silence())
            except FairleadError as error:
                self._on_problem(f"open connections are not synchronized: {error.sentence}")
            except OSError as error:
                self._on_problem(f"open connections are not synchronized: {error}; repair the disk, or free space")
            await asyncio.sleep(_LOOK_S)

    def _silence(self) -> str:
        if self._silent < _SILENT_LOOKS:
            return ""
        return (
            f"open connections are not synchronized: {self._peer} does not answer at UDP port {_PORT}; set "
            "--sync-connections there to an address of this machine"
        )

    async def _follow(self) -> None:
        path = self._directory / _FILE
        route = " ".join(await ip_lines("-o", "route", "get", self._peer)).split()
        place = dict(pairwise(route))
        text = configuration(self._directory, place["src"], self._peer, interface=place["dev"])
        running = self._find()
        if running is not None and path.read_text() != text:
            await stop_process(running)
            running = None
        if running is None:
            await self._start(path, text)
        counters = await self._ask("-s")
        queues = await self._ask("-s", "queue")
        received = sum(map(int, _RECEIVED.findall(counters)))
        self._silent = self._silent + 1 if received == self._received else 0
        self._received = received
        self.state = sync_state(self._peer, counters, queues)

    def _find(self) -> Running | None:
        return find_detached(self._directory, pid_file=_PID_FILE, option="-C", file=_FILE)

    async def _start(self, path: Path, text: str) -> None:
        binary = find_binary("conntrackd", "conntrackd", "conntrackd")
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, text)
        for name in ("lock", "control", _OUTPUT):  # one that was killed leaves them, and the next would not start
            (self._directory / name).unlink(missing_ok=True)
        command = [str(binary), "-C", str(path)]
        running = await start_detached(self._directory, command, pid_file=_PID_FILE, log=_OUTPUT)
        for _ in range(100):
            if running is None or not running.alive():
                output = (self._directory / _OUTPUT).read_text(errors="replace")
                reason = next((line.partition("[ERROR] ")[2] for line in output.splitlines() if "[ERROR]" in line), "")
                raise Retry(f"conntrackd does not start: {reason or 'no message'}; see {self._directory / _OUTPUT}")
            if (self._directory / "control").exists():
                return
            await asyncio.sleep(0.05)

    async def _ask(self, *options: str) -> str:
        try:
            async with asyncio.timeout(_ANSWER_S):
                ended = await run_command("conntrackd", "-C", str(self._directory / _FILE), *options)
        except (OSError, TimeoutError) as error:
            raise Retry("conntrackd does not answer", detail=str(error)) from None
        if ended.code:
            raise Retry("conntrackd does not answer", detail=ended.errors.decode(errors="replace"))
        return ended.output.decode(errors="replace")


def sync_state(peer: str, counters: str, queues: str) -> ConnectionSyncState:
    """Return the output of ``conntrackd -s`` and ``conntrackd -s queue``."""
    return ConnectionSyncState(
        peer=peer,
        connections=sum(map(int, _CONNECTIONS.findall(counters))),
        waiting=sum(map(int, _WAITING.findall(queues))),
        lost=sum(map(int, _LOST.findall(counters))),
    )


def checked_peer(text: str) -> str:
    """Return the address of the other machine, in its usual form; empty for none.

    Raises:
        BadConfiguration: the text is not an address, or is an address of this machine.
    """
    try:
        peer = str(ip_address(text)) if text else ""
    except ValueError:
        raise BadConfiguration(f"--sync-connections: {text!r} is not the address of another machine") from None
    if peer and source_of(peer) == peer:
        raise BadConfiguration(f"--sync-connections: {peer} is an address of this machine; name the other machine's")
    return peer


def configuration(directory: Path, own: str, peer: str, *, interface: str) -> str:
    """Return conntrackd's configuration file, which sends from one of our addresses on an interface."""
    version = 6 if ":" in peer else 4
    # Without an external cache, what the peer sends is in the kernel at once. At its start it gets everything.
    return f"""# Generated by fairlead; changes are overwritten.
Sync {{
  Mode FTFW {{
    DisableExternalCache yes
    StartupResync yes
  }}
  UDP {{
    IPv{version}_address {own}
    IPv{version}_Destination_Address {peer}
    Port {_PORT}
    Interface {interface}
    Checksum on
  }}
}}
General {{
  HashSize {_BUCKETS}
  HashLimit {_MOST}
  LogFile off
  Syslog off
  LockFile {directory / "lock"}
  UNIX {{
    Path {directory / "control"}
  }}
  NetlinkBufferSize 2097152
  NetlinkBufferSizeMaxGrowth 8388608
  Filter From Userspace {{
    Protocol Accept {{
      TCP
    }}
    Address Ignore {{
      IPv4_address 127.0.0.1
      IPv6_address ::1
      IPv{version}_address {own}
      IPv{version}_address {peer}
    }}
  }}
}}
"""
