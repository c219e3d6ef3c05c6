"""Measures how soon an exported Service is imported by all members of a cluster set.

In: a hub, three members with their API servers, and an agent for each, all in this process. Out: figures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from bench.figures import Figure, percentile
from tests.scenario.multicluster.multicluster_world import Member, new_set

EXPORTS = 100


async def measured() -> AsyncIterator[Figure]:
    """Measure exports, one after the other, until every member has the ServiceImport with its addresses."""
    async with new_set("east", "north", "west") as world:
        exporter = world.members["west"]
        latencies_ms, cpu_s = list[float](), time.process_time()
        for number in range(EXPORTS):
            name = f"web-{number}"
            await exporter.service(name, f"10.1.0.{number + 1}")
            await asyncio.sleep(0.1)
            began_s = time.perf_counter()
            await exporter.export(name)
            await asyncio.gather(*(_imported(member, name) for member in world.members.values()))
            latencies_ms.append((time.perf_counter() - began_s) * 1e3)
        cpu_ms = (time.process_time() - cpu_s) / EXPORTS * 1e3
        beside = f"p50 {percentile(latencies_ms, 0.5):.0f} ms; {cpu_ms:.0f} ms of CPU of all programs for each"
        name = f"{EXPORTS} exports to all three members: p99"
        yield Figure(name=name, value=percentile(latencies_ms, 0.99), unit="ms", limit=500, compares_with=beside)


async def _imported(member: Member, name: str) -> None:
    while (copy := await member.find_import(name)) is None or not copy.spec.ips:
        await asyncio.sleep(0.005)
