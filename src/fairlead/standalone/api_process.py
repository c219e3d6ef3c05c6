"""Run the embedded API in a process of its own: what a tenant does to the API stalls the API alone.

    start ─► its first line on stdout ─► served ─┬─ it dies: started again, at the same port
                                                 ├─ we stop: its stdin ends, it answers what is under way and ends
                                                 └─ we are killed: it is, too

In: a data directory and where to listen. Out: ``DIR/kubeconfig`` of a served API, until the block ends.
Never: serves anything itself, or leaves the API behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import structlog
import yaml

from fairlead.errors import BadConfiguration, FairleadError, Unreachable
from fairlead.model.in_words import host_port
from fairlead.runtime.background import end, keep_running
from fairlead.runtime.queue import backoff_s

_START_S = 60.0
_STOP_S = 6.0
_HEALTHY_S = 30.0
_USAGE = 2
log = structlog.get_logger(__name__)


class ApiProcess:
    """``fairlead apiserver`` as a child; ``options`` are more of its command line."""

    def __init__(self, data_dir: Path, host: str, port: int, *, options: Sequence[str] = ()) -> None:
        self.kubeconfig = data_dir
        self._data_dir = data_dir
        self._host = host
        self._port = port
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._output = bytearray()
        self._serves = False
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Return the id of the process, 0 while there is none."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def __aenter__(self) -> Self:
        """Start it, and wait until it serves.

        Raises:
            BadConfiguration: it says that it cannot work like this.
            Unreachable: it has ended, or does not serve in time.
        """
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        await self._end()

    async def run(self) -> None:
        """Start it again whenever it has ended, until cancelled."""
        clock, failures = asyncio.get_running_loop().time, 0
        while True:
            started_s = clock()
            if self._process is not None:
                code = await self._process.wait()
                log.error("the API server has ended; it is started again", code=code)
            failures = 0 if clock() - started_s > _HEALTHY_S else failures + 1
            if failures > 1:
                await asyncio.sleep(backoff_s(failures - 1, base_s=0.2, limit_s=5.0))
            await self._end()
            try:
                await self._start()
            except FairleadError as error:
                log.warning("the API server did not start", sentence=error.sentence, detail=error.detail)

    async def _start(self) -> None:
        listen = host_port(self._host, self._port)
        command = ("apiserver", "--data-dir", str(self._data_dir), "--listen", listen, "--end-with-parent")
        self._output.clear()
        self._serves = False
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlead.cli.main", *command, *self._options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C at the terminal reaches us only: the hub gives its leases back before the API ends.
            start_new_session=True,
        )
        process = self._process
        self._listening = keep_running("log of the API server", lambda: self._listen(process))
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                if self._process.stdout is not None:
                    line = await self._process.stdout.readline()
        if not line:
            raise await self._why()
        self._serves = True
        self._pass_on(b"")
        self.kubeconfig = Path(line.decode().strip())
        # The port that it got is the one that its clients come back to.
        self._port = _port_of(self.kubeconfig) or self._port

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        if process.stderr is not None:
            while output := await process.stderr.read(65_536):
                self._pass_on(output)

    def _pass_on(self, output: bytes) -> None:
        """Write its log to stderr; until it serves the log is buffered, since it may have the reason of a failure."""
        self._output += output
        if self._serves:
            # If stderr was closed, nothing can be logged; it must still be read: with a full pipe
            # the API server would stand still.
            with contextlib.suppress(OSError):
                sys.stderr.write(self._output.decode(errors="replace"))
                sys.stderr.flush()
            self._output.clear()
        del self._output[:-65_536]

    async def _why(self) -> FairleadError:
        process, listening = self._process, self._listening
        if process is None or listening is None:
            return Unreachable("The API server was not started.")
        with contextlib.suppress(TimeoutError, ProcessLookupError):
            async with asyncio.timeout(_STOP_S):
                await asyncio.shield(listening)
                await process.wait()
        lines = self._output.decode(errors="replace").splitlines()
        sentence = next((line for line in reversed(lines) if line.startswith("fairlead: ")), "").removeprefix(
            "fairlead: "
        )
        kind = BadConfiguration if process.returncode == _USAGE else Unreachable
        return kind(sentence or f"The API server did not start within {_START_S:g} s.", detail="\n".join(lines[-20:]))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            log.warning("the API server did not stop in time", deadline_s=_STOP_S)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=_STOP_S)
            await end(self._listening)


def _port_of(kubeconfig: Path) -> int | None:
    written = yaml.safe_load(kubeconfig.read_text())
    return urlsplit(str(written["clusters"][0]["cluster"]["server"])).port
