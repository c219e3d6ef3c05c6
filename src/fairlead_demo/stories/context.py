"""The common context of all demos: the output of progress, and traffic whose failures are counted."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from rich.console import Console

from fairlead_demo.progress import ProgressOutput
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Connect, Traffic

_EVERY_POD_S = 90.0


class StoryContext(ABC):
    """Output and traffic of one demo; ``traffics`` has the load on each Service by title."""

    def __init__(self, *, console: Console, plain: bool) -> None:
        self.console = console
        self.traffics: dict[str, Traffic] = {}
        self.progress = ProgressOutput(traffics=self.traffics, plain=plain, console=console)

    def failures(self) -> list[str]:
        """Return one sentence for each address with failed requests."""
        return [
            f"{name}: {traffic.count.failed} requests failed ({'; '.join(traffic.count.failures)})"
            for name, traffic in self.traffics.items()
            if traffic.count.failed
        ]

    def check_traffic(self, when: str) -> None:
        """Raise ``ExpectationFailed`` when a request has failed; ``when`` such as "while pods were rolled"."""
        if failures := self.failures():
            raise ExpectationFailed(f"requests failed {when}: {'; '.join(failures)}")

    @abstractmethod
    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary; ``passed``: whether every check has passed."""

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        return []

    async def every_pod_answers(self, pods: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Wait until each of ``pods`` (title of its traffic, name) has answered another request."""
        start = {name: traffic.count.by_pod.copy() for name, traffic in self.traffics.items()}

        async def all_answered() -> bool:
            return all(self.traffics[name].count.by_pod[pod] > start[name][pod] for name, pod in pods())

        await wait_until(all_answered, "every pod answers", timeout_s=_EVERY_POD_S)

    async def stop_traffic(self) -> None:
        """Stop sending requests, and wait for those in flight."""
        await asyncio.gather(*(traffic.stop() for traffic in self.traffics.values()))

    @abstractmethod
    async def close(self) -> None:
        """Stop traffic, processes and networks."""


def instead_of_low_ports() -> list[str]:
    """Return a note that another port is used when this user may not open port 80; empty otherwise."""
    port = service_port(80)
    if port == 80:
        return []
    return [f"this user may not open ports below 1024 (net.ipv4.ip_unprivileged_port_start): {port} stands for 80"]


async def refuses(connect: Connect, address: str, port: int) -> bool:
    """Return whether connections to ``address:port`` are refused."""
    try:
        _, writer = await connect(address, port)
    except OSError:
        return True
    writer.close()
    return False
