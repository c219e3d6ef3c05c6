"""Run other programs, and kill them.

In: a command. Out: a real process whose log is a file, ended by SIGTERM or SIGKILL. Never leaves one behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from fairlead.errors import Terminal

_POLL_S = 0.1
#: How long an effect may take, also on a busy machine: a wait that succeeds costs no more than the effect.
PATIENCE_S = 180.0


class ExpectationFailed(Terminal):
    """An expected effect did not occur in time, or a check failed."""


async def wait_until(condition: Callable[[], Awaitable[object]], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until ``condition`` returns a true value; ``ExpectationFailed`` names ``what`` after ``timeout_s``."""
    end_s = asyncio.get_running_loop().time() + timeout_s
    while not await condition():
        if asyncio.get_running_loop().time() >= end_s:
            raise ExpectationFailed(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(_POLL_S)


class Child:
    """One program, which may be started again after it has ended. ``environment`` is added to this process's own."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.environment = dict(environment or {})
        self._process: asyncio.subprocess.Process | None = None
        #: Where the log of the present run begins.
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Return the process id, 0 while it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    @property
    def running(self) -> bool:
        """Return whether it runs."""
        return bool(self.pid)

    async def start(self, *, first_line_s: float = 0.0) -> str:
        """Start it; with ``first_line_s`` wait that long for its first line on stdout, and return it.

        Raises:
            ExpectationFailed: it ended, or printed nothing in time.
        """
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if first_line_s else log,
                stderr=log,
                env={**os.environ, **self.environment},
                # Ctrl-C at the terminal reaches this process only, which ends its children in the right order.
                start_new_session=True,
            )
        stdout = self._process.stdout
        if stdout is None:
            return ""
        try:
            async with asyncio.timeout(first_line_s):
                line = (await stdout.readline()).decode().strip()
        except TimeoutError:
            line = ""
        if not line:
            raise ExpectationFailed(f"{self.name} did not start: {self.log_tail()}", detail=f"see {self.log}")
        return line

    def check_running(self) -> None:
        """Raise ``ExpectationFailed`` with the end of its log when it does not run."""
        if not self.running:
            raise ExpectationFailed(f"{self.name} has ended: {self.log_tail()}", detail=f"see {self.log}")

    @property
    def lost_its_port(self) -> bool:
        """Return whether it reports that another process listens at its port; not every program ends then."""
        try:
            text = self.log.read_bytes()[self._log_start :].lower()
        except OSError:
            return False
        return b"address already in use" in text or b"address in use" in text

    async def kill(self) -> None:
        """End it with SIGKILL."""
        await self._end(signal.SIGKILL)

    async def terminate(self, *, patience_s: float = 60.0) -> None:
        """End it with SIGTERM, and after ``patience_s`` with SIGKILL."""
        try:
            async with asyncio.timeout(patience_s):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self._end(signal.SIGKILL)

    async def ended(self) -> int:
        """Return its exit code once it has ended."""
        return await self._process.wait() if self._process is not None else 0

    def log_of_this_run(self) -> str:
        """Return its log since it was started last."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def log_tail(self) -> str:
        """Return the end of its log."""
        try:
            return self.log.read_text(errors="replace")[-400:].strip() or "the log is empty"
        except OSError:
            return "no log was written"

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.wait()


def fairlead(*arguments: str) -> list[str]:
    """Return the command line of Fairlead itself, in this installation."""
    return [sys.executable, "-m", "fairlead.cli.main", *arguments]


async def run_fairlead(
    *arguments: str, timeout_s: float = 2 * PATIENCE_S, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a command of Fairlead to its end; return its exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *fairlead(*arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    try:
        out, problem = await asyncio.wait_for(process.communicate(), timeout_s)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, out.decode(), problem.decode()
