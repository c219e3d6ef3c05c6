"""Say why the local Envoy cannot open its ports: usually the Envoy of a second hub on this machine has them.

Every replica serves its proxies, so that a standby whose machine takes the addresses over is warm. On *one* machine
that cannot be: an address and port has one owner, and a second Envoy is refused. Two hubs there share a data directory,
and so the Envoy, one after the other.
In: what proxies have refused. Out: one sentence in the log whenever it becomes true, and one when it is over.
Never: ends an Envoy that is not ours.
Source: proc_pid_net(5), for the tables of sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import structlog

from fairlead.model.in_words import listed
from fairlead.providers.envoy.local_machine import directory_of, hub_directory
from fairlead.runtime.clock import Clock

_TAKEN = "Address already in use"
_POLL_S = 1.0
_NET, _PROC = Path("/proc/self/net"), Path("/proc")

log = structlog.get_logger(__name__)


class Owner(NamedTuple):
    """A process, and how it was started."""

    pid: int
    command: tuple[str, ...]


def owner_of(place: str) -> Owner | None:
    """Return the process that listens at ``address:port``; None without one, or when we may not see it."""
    address, _, port = place.rpartition(":")
    address = address.strip("[]")
    any_address, tables = ("::", ("tcp6", "udp6")) if ":" in address else ("0.0.0.0", ("tcp", "udp"))
    with contextlib.suppress(OSError, ValueError):
        wanted = {f"{_hex(bound)}:{int(port):04X}" for bound in (address, any_address)}
        rows = [row.split() for table in tables for row in (_NET / table).read_text().splitlines()[1:]]
        # 0A is TCP's LISTEN, 07 an open UDP socket.
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1] in wanted and row[3] in {"0A", "07"}}
        for process in _PROC.iterdir():
            if process.name.isdigit() and _has_one_of(process, sockets):
                command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return Owner(int(process.name), tuple(map(os.fsdecode, command)))
    return None


def taken_ports(refusals: Sequence[str], owner: Callable[[str], Owner | None] = owner_of) -> str:
    """Return one sentence about ports that another process has; empty when there are none."""
    taken = [text for text in refusals if _TAKEN in text]
    if not taken:
        return ""
    places = [text.partition("cannot bind '")[2].partition("'")[0] or text for text in taken]
    start = f"this hub's Envoy cannot open {listed(places, 1)}"
    process = owner(places[0])
    if process is None:
        return f"{start}: another process of this machine has it; end that one, or take it out of --address-pool"
    directory = directory_of(process.command)
    if directory is None:
        name = Path(process.command[0]).name
        return f"{start}: process {process.pid} ({name}) has it; end that one, or take it out of --address-pool"
    return (
        f"{start}: another hub's Envoy has it (process {process.pid}, --data-dir {hub_directory(directory)}). Hubs of "
        "one API on one machine take turns with one --data-dir: start this hub with that directory once the other has "
        "ended, or end that Envoy. A hub of another API needs an --address-pool of its own"
    )


async def watch_ports(refusals: Callable[[], Sequence[str]], *, clock: Clock) -> None:
    """Log the sentence whenever it becomes true, until cancelled."""
    logged: list[str] = []
    while True:
        now = [text for text in refusals() if _TAKEN in text]
        if now != logged:
            logged = now
            if sentence := await asyncio.to_thread(taken_ports, now):
                log.error("ports are taken", sentence=sentence)
            else:
                log.info("all ports are open")
        await clock.sleep(_POLL_S)


def _hex(address: str) -> str:
    """Write an address as the tables do: every four bytes in the machine's own order."""
    packed = ip_address(address).packed
    parts = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


def _has_one_of(process: Path, sockets: set[str]) -> bool:
    with contextlib.suppress(OSError):
        return any(_link(descriptor) in sockets for descriptor in process.joinpath("fd").iterdir())
    return False


def _link(descriptor: Path) -> str:
    with contextlib.suppress(OSError):
        return str(descriptor.readlink())
    return ""
