"""Serve the embedded API in this process, or in its own process, where a tenant's load stalls only the API.

    start ─► its first line on stdout ─► served ─┬─ it dies: started again, at the same port
                                                 ├─ we stop: its stdin ends, it answers what is under way and ends
                                                 └─ we are killed: it is, too

In: a data directory and where to listen. Out: a served API and ``DIR/kubeconfig``. Never: leaves a process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import structlog
import yaml

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.names import ANNOTATION_CHANGED_BY
from fairlead.errors import BadConfiguration, FairleadError, Unreachable
from fairlead.model.in_words import host_port
from fairlead.runtime.background import end, keep_running
from fairlead.runtime.private_file import make_private
from fairlead.runtime.queue import backoff_s
from podless.failure import ConfigurationError
from podless.kinds.allocations import SERVICE_RANGE, service_networks
from podless.server import ApiServer

KUBECONFIG = "kubeconfig"
_PR_SET_PDEATHSIG = 1
#: Kinds whose objects say who changed them last.
USER_ANNOTATIONS = {kind.full_name: ANNOTATION_CHANGED_BY for kind in (*INTENT_KINDS, LOAD_BALANCER_ROUTES)}


@asynccontextmanager
async def running_api(
    data_dir: Path, host: str, port: int, *, memory: bool = False, service_range: str = SERVICE_RANGE
) -> AsyncGenerator[Path]:
    """Serve the API inside the block; the value is the path of its kubeconfig.

    ``service_range``: where cluster IPs are from, one range for each family.

    Raises:
        BadConfiguration: the directory cannot be written, the address cannot be listened on, or a range is none.
    """
    try:
        service_networks(service_range)
    except ValueError as error:
        raise BadConfiguration(
            f"--service-cluster-ip-range: {service_range} is not a range of cluster IPs ({error}); "
            f"write one of each family, such as {SERVICE_RANGE}"
        ) from error
    path = data_dir / KUBECONFIG
    try:
        make_private(data_dir)
        # The requested port is the one in the kubeconfig, to which clients reconnect after a restart.
        server = ApiServer(
            None if memory else data_dir,
            host=host,
            tls_port=port,
            service_range=service_range,
            name="fairlead",
            user_annotations=USER_ANNOTATIONS,
        )
        await server.start()
        server.write_kubeconfig(path)
    except ConfigurationError as error:
        raise BadConfiguration(error.sentence, detail=error.detail) from error
    except OSError as error:
        raise BadConfiguration(
            f"--data-dir: {data_dir} cannot be used ({error.strerror}); make it writable or choose another"
        ) from error
    try:
        yield path
    finally:
        await server.stop()


async def serve_api(
    data_dir: Path,
    host: str,
    port: int,
    *,
    memory: bool,
    ready: Callable[[Path], None],
    service_range: str = SERVICE_RANGE,
) -> None:
    """Serve the API until cancelled; ``ready`` gets the path of its kubeconfig."""
    async with running_api(data_dir, host, port, memory=memory, service_range=service_range) as path:
        ready(path)
        await asyncio.get_running_loop().create_future()


async def end_with_parent(stop: Callable[[], None]) -> None:
    """Call ``stop`` when stdin ends, and on Linux die at once when the process that started us is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(4096):
            pass
    finally:
        transport.close()
    stop()


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
            BadConfiguration: the process reports an invalid configuration.
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
        """Restart the process whenever it ends, until cancelled."""
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
        # Clients reconnect to the assigned port.
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
