"""Connections to an address, begun at a steady pace by a process in a network namespace, and what became of each.

    answered   HTTP 200 within 0.9 s: Linux sends a lost first packet again after a second, which would hide the loss
    cut        connected before its address or route moved, and broken by that: a move takes packets, not connections
    failed     anything else

Standard library only: ``python -m fairlead_demo.worlds.attempts HOST PORT EVERY_S`` is the process, which prints a line
for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: A connection without an answer for so long has failed.
ANSWER_S = 0.9
#: Failures that are this far apart are of two gaps.
_APART_S = 0.5


class Attempt(NamedTuple):
    """One connection; times are of the monotonic clock, ``connected_s`` 0 when it never was."""

    began_s: float
    connected_s: float
    answered: bool
    pod: str


class Outcome(NamedTuple):
    """What became of connections; ``gap_s``: the longest time from a failed one to the next one that is answered."""

    tried: int
    failed: int
    cut: int
    gap_s: float


def outcome(attempts: Iterable[Attempt], *, moved_s: float = 0.0) -> Outcome:
    """Count connections; those that were connected until ``moved_s`` may be cut by the move."""
    ordered = sorted(attempts)
    lost = [attempt for attempt in ordered if not attempt.answered]
    cut = [attempt for attempt in lost if 0.0 < attempt.connected_s <= moved_s]
    failed = [attempt.began_s for attempt in lost if attempt not in cut]
    served = [attempt.began_s for attempt in ordered if attempt.answered]
    gap_s = 0.0
    begin_s = failed[0] if failed else 0.0
    for at_s, following_s in itertools.pairwise([*failed, float("inf")]):
        if following_s - at_s > _APART_S:
            end_s = next((other_s for other_s in served if other_s > at_s), at_s)
            gap_s, begin_s = max(gap_s, end_s - begin_s), following_s
    return Outcome(len(ordered), len(failed), len(cut), gap_s)


class Attempts:
    """The connections of one client to one address; ``command`` runs a command where the client is."""

    def __init__(self, name: str, host: str, port: int, every_s: float, *, command: Callable[[list[str]], list[str]]):
        self.name = name
        self.host = host
        self.all: list[Attempt] = []
        program = [sys.executable, "-m", "fairlead_demo.worlds.attempts", host, str(port), str(every_s)]
        self._command = command(program)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to connect."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        self._reader = asyncio.create_task(self._read(self._process))

    def between(self, since_s: float, until_s: float = float("inf")) -> list[Attempt]:
        """Return the connections that began in this time, and have ended."""
        return [attempt for attempt in self.all if since_s <= attempt.began_s < until_s]

    async def stop(self) -> None:
        """End the process."""
        if self._process is not None and self._reader is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            await self._reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            # The last line of a process that is killed may be half of one.
            with contextlib.suppress(ValueError):
                began, connected, pod = line.decode().rstrip("\n").split(" ", 2)
                self.all.append(Attempt(float(began), float(connected), bool(pod), pod))


async def _attempt(host: str, port: int) -> None:
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    loop = asyncio.get_running_loop()
    began_s, connected_s, pod = time.monotonic(), 0.0, ""
    with contextlib.suppress(OSError), opened:  # TimeoutError is an OSError
        async with asyncio.timeout(ANSWER_S):
            await loop.sock_connect(opened, (host, port))
            connected_s = time.monotonic()
            await loop.sock_sendall(opened, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            text = b""
            while part := await loop.sock_recv(opened, 4096):
                text += part
            head, _, body = text.decode(errors="replace").partition("\r\n\r\n")
            # The body ends with the end of a line: without it, the answer was cut short.
            pod = body.strip() if " 200 " in head.partition("\r\n")[0] and body.endswith("\n") else ""
    sys.stdout.write(f"{began_s:.6f} {connected_s:.6f} {pod}\n")
    sys.stdout.flush()


async def _main(host: str, port: int, every_s: float) -> None:
    tasks: set[asyncio.Task[None]] = set()
    due_s = time.monotonic()
    while True:
        task = asyncio.create_task(_attempt(host, port))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due_s = max(due_s + every_s, time.monotonic())
        await asyncio.sleep(due_s - time.monotonic())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
