"""The figures of Cluster API: a control plane that is rolled under load, how soon a machine gets and loses traffic.

In: a management cluster of real processes, whose machines are processes too. Out: figures.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure, percentile
from bench.fleet import until_true
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.machines import API_PORT, HOST, ManagementWorld

MACHINES_EACH = 3
#: How many machines come and go for the times of one.
SAMPLES = 20
_PROBES, _PAUSE_S = 4, 0.004


@asynccontextmanager
async def world() -> AsyncGenerator[tuple[ManagementWorld, str]]:
    """Run a management cluster with one Cluster; yields it and the endpoint."""
    with tempfile.TemporaryDirectory(prefix="flc-", dir="/tmp") as name:
        running = ManagementWorld(Path(name))
        try:
            await running.start()
            yield running, await running.create_cluster()
        finally:
            await running.close()


async def rolling_replacement() -> AsyncIterator[Figure]:
    """Replace each of three members, one by one, at 500 requests per second."""
    async with world() as (running, endpoint):
        names = [(await running.start_machine()).name for _ in range(MACHINES_EACH)]
        await running.until_active(*names)
        authority = running.directory / "authority.pem"
        authority.write_bytes(running.authority)
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.https_load", endpoint, str(API_PORT), HOST, str(authority),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert client.stdout is not None
        await client.stdout.readline()
        started = time.perf_counter()
        held: list[float] = []
        for old in list(names):
            names.append((await running.start_machine()).name)
            await running.until_active(*names)
            names.remove(old)
            held.append(await running.delete_machine(old))
            await running.until_active(*names)
        seconds = time.perf_counter() - started
        client.send_signal(signal.SIGTERM)
        counts = json.loads(await client.stdout.readline())
        await client.wait()
        where = "rolling replacement of a control plane of 3"
        yield Figure(name=f"{where}: requests per second", value=counts["sent"] / seconds, unit="/s")
        yield Figure(
            name=f"{where}: requests failed or refused, of {counts['sent']:,}",
            value=counts["sent"] - counts["answered"],
            unit="",
            limit=0,
            compares_with="; ".join(counts["failures"]),
        )
        yield Figure(name=f"{where}: the longest that hooks held a machine", value=max(held), unit="s")


async def one_machine() -> AsyncIterator[Figure]:
    """Measure from an address to the first connection, and from a deletion to the last new one, of one machine."""
    gained: list[float] = []
    lost: list[float] = []
    async with world() as (running, endpoint):
        first = (await running.start_machine()).name
        await running.until_active(first)
        for _ in range(SAMPLES):
            sampler = Sampler(running, endpoint)
            machine = await running.start_machine(serving_first=True)
            announced = machine.announced_s
            await sampler.until_seen(machine.name)
            gained.append(sampler.seen[machine.name][0] - announced)
            await running.until_active(first, machine.name)
            deleted = time.perf_counter()
            await running.delete_machine(machine.name)
            await sampler.stop()
            lost.append(max(0.0, sampler.seen[machine.name][-1] - deleted))
    for name, values, limit in (
        ("machine ready to a connection that it answers", gained, 300.0),
        ("machine deleting to the last new connection that it answers", lost, 150.0),
    ):
        ordered = sorted(value * 1000 for value in values)
        yield Figure(name=f"{name}: p50", value=percentile(ordered, 0.5), unit="ms")
        yield Figure(name=f"{name}: p99 of {SAMPLES}", value=percentile(ordered, 0.99), unit="ms", limit=limit)


class Sampler:
    """New connections to the endpoint, and when each machine answered one; each counts from when it was begun."""

    def __init__(self, running: ManagementWorld, endpoint: str) -> None:
        self.seen: dict[str, list[float]] = {}
        self._client = HttpsClient(HOST, running.authority)
        self._endpoint = endpoint
        self._tasks = [asyncio.create_task(self._run()) for _ in range(_PROBES)]

    async def until_seen(self, name: str) -> None:
        """Wait until this machine has answered."""

        async def answered() -> bool:
            return name in self.seen

        await until_true(answered, what=f"{name} takes traffic", timeout_s=60, every_s=0.002)

    async def stop(self) -> None:
        """End the connections."""
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        failures = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
        assert not failures, failures

    async def _run(self) -> None:
        while True:
            begun = time.perf_counter()
            reader, writer = await self._client.connect(self._endpoint, API_PORT)
            writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            self.seen.setdefault(answer.rpartition("\r\n\r\n")[2].strip(), []).append(begun)
            await asyncio.sleep(_PAUSE_S)
