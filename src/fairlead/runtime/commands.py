"""Programs run to their end, such as ``ip``, ``nft`` or a sign-in plugin; and processes that outlive their starter.

A program that is run to its end never outlives its caller. A detached process has a session of its own, no pipe to us,
and its output in a log file. It is recognised by its command line, in which an option names a file of its directory: a
process id alone may belong to another program by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead.errors import BadConfiguration, Retry

_LONGEST_OUTPUT = 64 << 20
#: Seconds in which the pipes of a program that was killed are read to their end.
_KILLED_S = 2.0
#: The time limit of a network program.
_NETWORK_S = 30.0
_PACKAGES = {"ip": "iproute2", "nft": "nftables"}


class Ended(NamedTuple):
    """How a program ended: its exit code (of a signal: minus its number), stdout and stderr."""

    code: int
    output: bytes
    errors: bytes


async def run_command(
    *command: str,
    stdin: bytes | None = b"",
    environment: Mapping[str, str] | None = None,
    longest_output: int = _LONGEST_OUTPUT,
) -> Ended:
    """Run a program and return how it ended. It is killed when the caller is cancelled.

    ``stdin`` is its input, None for that of this process; ``environment`` replaces that of this process.

    Raises:
        OSError: it cannot be started, or wrote more than ``longest_output`` bytes.
    """
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=None if stdin is None else PIPE, stdout=PIPE, stderr=PIPE
    )
    pipes = [
        asyncio.create_task(_output(process.stdout, longest_output)),
        asyncio.create_task(_output(process.stderr, longest_output)),
        asyncio.create_task(_feed(process.stdin, stdin or b"")),
    ]
    try:
        output, errors, _ = await asyncio.gather(*pipes)
        await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for pipe in pipes:
            pipe.cancel()
        await asyncio.wait(pipes)
        # The process counts as ended once its pipes are read to the end; a child of the program may hold them open.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
                await process.wait()
        raise
    return Ended(process.returncode or 0, output, errors)


async def run_network_program(program: str, *arguments: str, text: str = "", ignored: Collection[str] = ()) -> bytes:
    """Run ``ip``, ``nft`` or ``conntrack`` to the end with ``text`` as input; return the output.

    Errors that contain one of ``ignored`` are ignored.

    Raises:
        BadConfiguration: the program is missing, or this process lacks NET_ADMIN.
        Retry: the program failed, or does not end.
    """
    try:
        async with asyncio.timeout(_NETWORK_S):
            ended = await run_command(program, *arguments, stdin=text.encode())
    except FileNotFoundError:
        raise BadConfiguration(f"{program} is missing here; install {_PACKAGES.get(program, program)}") from None
    except TimeoutError:
        raise Retry(f"{program} did not end within {_NETWORK_S:.0f} s", detail=text[:500]) from None
    except OSError as error:
        raise Retry(f"{program} cannot be run: {error}") from error
    lines = [line.strip() for line in ended.errors.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("Command failed")]
    failed = [line for line in lines if not any(part in line for part in ignored)]
    if ended.code == 0 or (lines and not failed):
        return ended.output
    if any("not permitted" in line for line in failed):
        raise BadConfiguration(
            "the capability NET_ADMIN is missing: run this process as root, or give NET_ADMIN to the container"
        )
    raise Retry(f"{program} failed: {next(iter(failed), f'exit code {ended.code}')}", detail=text[:500])


async def _feed(stream: asyncio.StreamWriter | None, text: bytes) -> bytes:
    if stream:
        # A program may end without reading all of its input; its exit code says whether that was an error.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stream.write(text)
            await stream.drain()
        stream.close()
    return b""


async def _output(stream: asyncio.StreamReader | None, longest: int) -> bytes:
    output = bytearray()
    while chunk := await stream.read(1 << 20) if stream else b"":
        output += chunk
        if len(output) > longest:
            raise OSError(f"wrote more than {longest} bytes")
    return bytes(output)


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream and await stream.read(1 << 20):
        pass


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
        """Return whether this process still runs."""
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
    """Start a process that survives our exit; its output is appended to the file ``log`` in ``directory``.

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


def prefer(pid: int, niceness: int) -> None:
    """Let a process, and all that it starts, run before programs of a higher niceness, as far as that is permitted."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        if os.getpriority(os.PRIO_PROCESS, pid) > niceness:
            os.setpriority(os.PRIO_PROCESS, pid, niceness)


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
