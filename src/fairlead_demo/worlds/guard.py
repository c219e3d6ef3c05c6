"""Kill all processes that this process has started after it has ended, even by SIGKILL.

Whatever is started after ``guard`` inherits a mark in its environment, detached programs (Envoy) included. A small
process of its own waits for the end of this one, and then ends every process with that mark. Then it
runs the commands of ``run_afterwards``, which delete what else there is, such as network namespaces.
Standard library only: ``python -m fairlead_demo.worlds.guard MARK`` is that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

_PREFIX = "FAIRLEAD_WORLD_"
_ROUNDS, _PAUSE_S = 20, 0.05


def guard() -> None:
    """Mark the processes that are started from now on, and have them killed after this process; once per process."""
    if _Guard.process == os.getpid():
        return
    _Guard.process = os.getpid()
    mark = f"{_PREFIX}{secrets.token_hex(8)}"
    ours = dict(os.environ)
    os.environ[mark] = "1"
    # Only this process has the write end of the pipe, so the guard reads EOF when it ends.
    read, _Guard.pipe = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, read, 0)]
    command = [sys.executable, "-m", "fairlead_demo.worlds.guard", mark]
    # In its own session, so that Ctrl-C at the terminal does not reach it.
    os.posix_spawn(sys.executable, command, ours, file_actions=actions, setsid=True)
    os.close(read)


def run_afterwards(*command: str) -> None:
    """Have the guard run a command after this process has ended, also when that is by SIGKILL; it may fail."""
    if _Guard.process == os.getpid():
        os.write(_Guard.pipe, json.dumps(command).encode() + b"\n")


class _Guard:
    #: The id of the guarded process; it differs in a fork.
    process = 0
    pipe = -1


def _marked(mark: str) -> list[int]:
    wanted = f"{mark}=1".encode()
    pids: list[int] = []
    for process in Path("/proc").iterdir():
        # Processes that have ended meanwhile, or of other users, cannot be read.
        with contextlib.suppress(OSError):
            if process.name.isdigit() and wanted in process.joinpath("environ").read_bytes().split(b"\0"):
                pids.append(int(process.name))
    return pids


def _main(mark: str) -> None:
    commands = [json.loads(line) for line in sys.stdin.buffer]
    _end(mark)
    for command in commands:
        subprocess.run(command, check=False, capture_output=True)


def _end(mark: str) -> None:
    for _ in range(_ROUNDS):
        # Repeated, because one of them may just have started another one.
        pids = _marked(mark)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    _main(sys.argv[1])
