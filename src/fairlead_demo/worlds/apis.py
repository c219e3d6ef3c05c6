"""An API server for each cluster of a testbed.

In: names of clusters. Out: served APIs with a kubeconfig each, which can be killed and started again one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fairlead_demo.worlds.loopback import free_network, free_port
from fairlead_demo.worlds.processes import PATIENCE_S, Child, fairlead


class Apis(Protocol):
    """API servers by the name of their cluster."""

    kind: str

    async def start(self) -> None:
        """Start all of them."""
        ...

    def kubeconfig(self, name: str) -> Path:
        """Return an administrator's kubeconfig."""
        ...

    def network(self, number: int, /) -> str:
        """Return the first three octets of a /24 of local addresses that endpoints may have; one for each number."""
        ...

    async def kill(self, name: str) -> None:
        """End one with SIGKILL."""
        ...

    async def restart(self, name: str) -> None:
        """Start one again, on the data that it had."""
        ...

    async def close(self) -> None:
        """End all of them."""
        ...


class EmbeddedApis:
    """``fairlead apiserver`` with SQLite, one process for each cluster; its data is in ``directory``/name."""

    kind = "embedded"

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        *,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self.children: dict[str, Child] = {}
        for name in names:
            data_dir = directory / name
            data_dir.mkdir(parents=True, exist_ok=True)
            options = ("--data-dir", str(data_dir), "--listen", f"{host}:{free_port(host)}", "--log-format", "json")
            command, log = fairlead("apiserver", *options), data_dir / "apiserver.log"
            self.children[name] = Child(f"{name} API", command, log=log, environment=environment)

    async def start(self) -> None:
        """Start all of them."""
        await asyncio.gather(*map(self.restart, self.children))

    def kubeconfig(self, name: str) -> Path:
        """Return an administrator's kubeconfig."""
        return self._directory / name / "kubeconfig"

    def network(self, _number: int, /) -> str:
        """Return the first three octets of a loopback /24, which the embedded API allows for endpoints."""
        return free_network()

    async def kill(self, name: str) -> None:
        """End one with SIGKILL."""
        await self.children[name].kill()

    async def restart(self, name: str) -> None:
        """Start one and wait until it serves."""
        await self.children[name].start(first_line_s=PATIENCE_S)

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(child.terminate() for child in self.children.values()))
