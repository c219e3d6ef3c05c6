"""A whole fleet of real processes to measure: two API servers, a hub with Envoy, an agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from fairlead.api.kubernetes import NAMESPACES
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.loopback import free_port

FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))
POOL = "127.150.0.0/16"


class Process:
    """One process with its log: ``fairlead`` with arguments, or another ``program`` with them."""

    def __init__(self, name: str, *arguments: str, directory: Path, program: Sequence[str] = (FAIRLEAD,)) -> None:
        self.name = name
        self.program = program
        self.arguments = arguments
        self.log = directory / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.program, *self.arguments, stdout=log, stderr=log, start_new_session=True
            )

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(how)
        try:
            await asyncio.wait_for(self.process.wait(), 15)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    @property
    def cpu_s(self) -> float:
        """Return the processor time used so far, in seconds (Linux)."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def rss_mb(self) -> float:
        """Return the resident memory in MB (Linux)."""
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"{self.name} is gone: {self.log.read_text()[-2000:]}")


class Fleet:
    """One hub and one member, each a real process with its own embedded API."""

    def __init__(self, *, directory: Path, target: str) -> None:
        self.directory = directory
        self.metrics_port = free_port()
        self._clusters: list[Cluster] = []
        hub_api, member_api = directory / "hub-api", directory / "member-api"
        self.hub_config, self.member_config = hub_api / "kubeconfig", member_api / "kubeconfig"
        self.agent_config = directory / "agent.kubeconfig"
        self.hub_api = Process("hub-api", "apiserver", "--memory", "--data-dir", str(hub_api), directory=directory)
        self.member_api = Process(
            "member-api", "apiserver", "--memory", "--data-dir", str(member_api), directory=directory
        )
        self.hub = Process(
            "hub", "hub", "--kubeconfig", str(self.hub_config), "--address-pool", POOL,
            "--data-dir", str(directory / "h"), "--metrics", f"127.0.0.1:{self.metrics_port}",
            "--stop-proxy", "--envoy-threads", "1", "--tenant-ports", "0",
            directory=directory,
        )  # fmt: skip
        self.agent = Process(
            "agent", "agent", "--kubeconfig", str(self.member_config), "--hub-kubeconfig", str(self.agent_config),
            "--tenant", "bench", "--target", target, directory=directory,
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def _start(self) -> None:
        await self.hub_api.start()
        await self.member_api.start()
        for path in (self.hub_config, self.member_config):
            await until(path.exists, what=f"{path.name} of an API server")
        self.hub_cluster = Cluster.from_kubeconfig(self.hub_config, name="hub", qps=10_000)
        self.member_cluster = Cluster.from_kubeconfig(self.member_config, name="member", qps=10_000)
        self._clusters += [self.hub_cluster, self.member_cluster]
        await self.hub.start()
        await self.wait_ready()
        answer = await asyncio.create_subprocess_exec(
            FAIRLEAD, "tenant", "add", "bench", "--kubeconfig", str(self.hub_config), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await answer.communicate()
        self.agent_config.write_bytes(out)

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for process in (self.agent, self.hub, self.member_api, self.hub_api):
            await process.stop()
            if _error is not None and process.log.exists():
                print(f"--- end of the log of {process.name} ---\n{process.log.read_text()[-3000:]}", file=sys.stderr)
        for pid_file in self.directory.rglob("envoy.pid"):
            try:
                os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                continue
        for cluster in self._clusters:
            await cluster.aclose()

    async def wait_ready(self) -> None:
        """Wait for the hub's /readyz."""

        async def ready() -> bool:
            return await self._page("/readyz") is not None

        await until_true(ready, what="the hub's /readyz")

    async def metrics(self) -> dict[str, float]:
        """Return the hub's metrics, summed over labels."""
        text = await self._page("/metrics")
        metrics: dict[str, float] = {}
        for line in (text or "").splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                short = name.split("{", 1)[0]
                metrics[short] = metrics.get(short, 0.0) + float(value)
        return metrics

    async def _page(self, path: str) -> str | None:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.metrics_port}{path}") as answer,
            ):
                return await answer.text() if answer.status == 200 else None
        except aiohttp.ClientError:
            return None


async def until(true: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> None:
    """Wait until ``true()`` holds."""

    async def ask() -> bool:
        return true()

    await until_true(ask, what=what, timeout_s=timeout_s)


async def until_true(
    true: Callable[[], Awaitable[bool]], *, what: str, timeout_s: float = 60.0, every_s: float = 0.02
) -> None:
    """Ask until ``await true()`` holds."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await true():
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise TimeoutError(f"not so after {timeout_s:g} s: {what}") from None


async def until_namespace(cluster: Cluster, name: str) -> None:
    """Wait until the hub has made the namespace of a member."""

    async def there() -> bool:
        try:
            await cluster.get(NAMESPACES, "", name)
        except NotFound:
            return False
        return True

    await until_true(there, what=f"namespace {name}")


@asynccontextmanager
async def fleet(*, target: str) -> AsyncGenerator[Fleet]:
    """Run a fleet in a directory of its own, short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="flb-", dir="/tmp") as name:
        async with Fleet(directory=Path(name), target=target) as running:
            yield running
