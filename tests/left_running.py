"""Finds the processes that a command has left behind, by a mark in the environment that they inherit.

In: an environment made by ``marked``. Out: the processes that still have its mark, detached ones (Envoy) included.
``passed_demo`` is what the tests of all demos have in common.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_NAME = "FAIRLEAD_TEST_MARK"
#: A demo takes a minute or two, on a busy machine some more.
_DEMO_S = 800.0


class Left(NamedTuple):
    """A process that still runs."""

    pid: int
    command: str


def marked(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with a new mark, added to ``environment`` (default: this process's own)."""
    return {**(os.environ if environment is None else environment), _NAME: secrets.token_hex(8)}


def left_running(environment: Mapping[str, str], *, patience_s: float = 60.0) -> list[Left]:
    """Return the processes that were started with the mark of ``environment`` and do not end in time.

    What ends the rest of a command that was killed needs a moment itself.
    """
    end_s = time.monotonic() + patience_s
    while (left := _marked(environment)) and time.monotonic() < end_s:
        time.sleep(0.1)
    return left


def _marked(environment: Mapping[str, str]) -> list[Left]:
    mark = f"{_NAME}={environment[_NAME]}".encode()
    left: list[Left] = []
    for process in Path("/proc").iterdir():
        # A process that ends meanwhile, or that is another user's, cannot be read.
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark in process.joinpath("environ").read_bytes().split(b"\0"):
                command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
                left.append(Left(int(process.name), command.decode(errors="replace")[:160]))
    return left


def end(left: list[Left]) -> None:
    """End these with SIGKILL."""
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def passed_demo(command: Sequence[str]) -> str:
    """Run a demo, and return what it printed: it has passed, and left no process behind."""
    environment = marked()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    try:
        out = (await asyncio.wait_for(process.communicate(), _DEMO_S))[0].decode()
    finally:
        left = left_running(environment)
        end(left)
    assert process.returncode == 0, out
    assert "PASSED" in out
    assert " 0 failed" in out
    assert left == []
    return out
