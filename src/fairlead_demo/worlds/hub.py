"""A hub as a process: started until it is ready, read by its pages, and its Envoy, which outlives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.standalone.process import stop_machine
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import Child, ExpectationFailed, wait_until

_PAGE_S = 60.0


class HubProcess(Child):
    """``fairlead hub`` or ``fairlead standalone``; ``envoy_directory`` is where it keeps its Envoy."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        envoy_directory: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.pages = f"127.0.0.1:{free_port()}"
        self.envoy_directory = envoy_directory
        super().__init__(name, [*command, "--metrics", self.pages], log=log, environment=environment)

    async def start_ready(self) -> None:
        """Start it and wait until its /readyz says so."""
        await self.start()
        await wait_until(self.ready, f"{self.name} is ready")

    async def ready(self) -> bool:
        """Return whether its /readyz says so; ``ExpectationFailed`` when it has ended."""
        self.check_running()
        return (await self.page("/readyz"))[0] == 200

    async def page(self, path: str) -> tuple[int, str]:
        """Return HTTP status and text of a page; status 0 when nothing answers."""
        timeout = aiohttp.ClientTimeout(total=_PAGE_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{self.pages}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def metric(self, name: str, *labels: str) -> float:
        """Return the sum of a metric over its samples with all of ``labels``, such as ``provider="haproxy"``."""
        status, text = await self.page("/metrics")
        if status != 200:
            raise ExpectationFailed(f"{self.name} shows no metrics")
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(
            float(value)
            for sample, value in rows
            if sample.partition("{")[0] == name and all(label in sample for label in labels)
        )

    async def envoy_page(self, path: str) -> str:
        """Return a page of the admin interface of its Envoy."""
        status, text = await admin_get(self.envoy_directory / "admin.sock", path, timeout_s=_PAGE_S)
        if status != 200:
            raise ExpectationFailed(f"the Envoy of {self.name} does not answer", detail=text)
        return text

    async def envoy_hosts(self) -> set[str]:
        """Return the addresses of the backends that Envoy knows, draining ones included."""
        rows = (line.split("::") for line in (await self.envoy_page("/clusters")).splitlines())
        return {row[1].rpartition(":")[0] for row in rows if len(row) > 2 and row[2] == "health_flags"} - {""}

    async def close(self) -> None:
        """End it, and its Envoy."""
        await self.terminate()
        await stop_machine(self.envoy_directory)
