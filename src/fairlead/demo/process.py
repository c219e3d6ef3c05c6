"""How does a demo run other programs, and how does it kill them?

In: a command. Out: a real process with its log in a file, ended politely or with SIGKILL, and never left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from fairlead.errors import Terminal

_LOOK_S = 0.1


class StepFailed(Terminal):
    """Something that the demo promises did not happen."""


async def wait_until(condition: Callable[[], Awaitable[object]], what: str, *, timeout_s: float = 30.0) -> None:
    """Return once ``condition`` answers something true; ``StepFailed`` names ``what`` when it never does."""
    end_s = asyncio.get_running_loop().time() + timeout_s
    while not await condition():
        if asyncio.get_running_loop().time() >= end_s:
            raise StepFailed(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(_LOOK_S)


class Child:
    """One program of the demo; ``start`` it as often as it has ended."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Return the process id, 0 while it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    @property
    def running(self) -> bool:
        """Say whether it runs."""
        return bool(self.pid)

    async def start(self, *, first_line_s: float = 0.0) -> str:
        """Start it; with ``first_line_s`` wait that long for its first line on stdout, and return it.

        Raises:
            StepFailed: it ended, or said nothing in time.
        """
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if first_line_s else log,
                stderr=log,
                # Ctrl-C at the terminal is ours alone to hand on, in the right order.
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
            raise StepFailed(f"{self.name} did not start: {self.last_words()}", detail=f"see {self.log}")
        return line

    async def kill(self) -> None:
        """End it with SIGKILL: it gets no chance to tidy up."""
        await self._end(signal.SIGKILL)

    async def terminate(self, *, patience_s: float = 6.0) -> None:
        """End it with SIGTERM, and after a while with SIGKILL."""
        try:
            async with asyncio.timeout(patience_s):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self._end(signal.SIGKILL)

    async def ended(self) -> int:
        """Return its exit code once it has ended."""
        return await self._process.wait() if self._process is not None else 0

    def last_words(self) -> str:
        """Return the end of its log."""
        try:
            return self.log.read_text(errors="replace")[-400:].strip() or "it said nothing"
        except OSError:
            return "it said nothing"

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.wait()


def fairlead(*arguments: str) -> list[str]:
    """Return the command line of Fairlead itself, in this very installation."""
    return [sys.executable, "-m", "fairlead.cli.main", *arguments]
