"""Processes that outlive the one that started them: start one, find it again, wait for its end, end it.

A process is started detached: its own session, no pipe to us, its output in a log file. It is recognised by its command
line, in which an option names a file of its directory: a process id alone may belong to another program by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import msgspec

from fairlead.errors import BadConfiguration

#: Raised for a process that is gone, or not ours to see. Any other error says nothing of it, as when there are no more
#: files: taken for its end, a second Envoy would be started.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError)
#: Seconds that a process gets to end by SIGTERM.
_PATIENCE_S = 5.0

_START = 'ulimit -n "$(ulimit -Hn)"; log=$1; pid=$2; shift 2; "$@" </dev/null >>"$log" 2>&1 & echo $! >"$pid"'


class Running(msgspec.Struct, frozen=True):
    """A process: its id is only meaningful together with the time at which it was started (clock ticks since boot)."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        return _start_time(self.pid) == self.start_time


def find_detached(directory: Path, *, pid_file: str, option: str, file: str) -> Running | None:
    """Find the process with ``option`` and the path of ``file`` in its command, by its pid file or among all processes.

    It was started by our user, or by the one whose directory this is: any user can write the name of a file into the
    command of a process, and a caller that waits for the answer of another one's ``tail`` starts nothing.
    """
    recorded = ""
    with contextlib.suppress(*_NOT_THERE):
        recorded = (directory / pid_file).read_text().strip()
    marker = (os.fsencode(option), os.fsencode(directory / file))
    users = _users_of(directory)
    candidates = [recorded] if recorded.isdigit() else []
    for pid in [*candidates, *(entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())]:
        with contextlib.suppress(*_NOT_THERE):
            command = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
            start_time = _start_time(int(pid))
            # The recorded process is ours even while it is still the shell that is about to become the program; another
            # shell with this command is the one that starts it.
            is_ours = marker in pairwise(command) and (users is None or _user_of(pid) in users)
            if is_ours and (pid == recorded or not command[0].endswith(b"sh")) and start_time is not None:
                return Running(int(pid), start_time)
    return None


def running_as(pid: int) -> Running | None:
    """Return the process that has this id now; None when there is none."""
    start_time = _start_time(pid)
    return None if start_time is None else Running(pid, start_time)


async def start_detached(directory: Path, command: list[str], *, pid_file: str, log: str) -> Running | None:
    """Start a process that lives on when we die; its output is appended to the file ``log`` in ``directory``.

    None means that it has ended already.
    """
    paths = [str(directory / log), str(directory / pid_file)]
    process = await asyncio.create_subprocess_exec(
        *["/bin/sh", "-c", _START, "sh", *paths, *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    if await process.wait() != 0:
        raise BadConfiguration(f"cannot start {Path(command[0]).name} in {directory}: is the directory writable?")
    return running_as(int((directory / pid_file).read_text()))


async def wait_gone(running: Running) -> None:
    """Return when the process is gone."""
    try:
        descriptor = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    try:
        if running.alive():
            loop.add_reader(descriptor, lambda: gone.done() or gone.set_result(None))
            await gone
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def stop_process(running: Running) -> None:
    """End the process: by SIGTERM, and by SIGKILL when that takes longer than 5 s."""
    for which in (signal.SIGTERM, signal.SIGKILL):
        if not running.alive():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, which)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await wait_gone(running)


def _users_of(data_dir: Path) -> set[int] | None:
    """Return who may have started the Envoy of a directory; None for anyone: root looks for one that was deleted."""
    try:
        return {os.geteuid(), data_dir.stat().st_uid}
    except OSError:
        return {os.geteuid()} if os.geteuid() else None


def _user_of(pid: str) -> int:
    # Not the owner of the folder: that is root for a program that may open ports below 1024.
    lines = Path("/proc", pid, "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))


def _start_time(pid: int) -> int | None:
    """Return when a process was started; None when it is gone or only waits to be reaped."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except _NOT_THERE:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])
