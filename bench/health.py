"""Measures how soon the hub reports that a load balancer no longer serves, and the cost while nothing changes.

In: a fleet of real processes with 10, then 1,000 load balancers, each with a backend that no process serves. Out:
figures. Each probe is a Service with one real backend, which dies once: nothing here comes back, so nothing flaps.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.figures import Figure, percentile
from bench.fleet import Fleet, Process, fleet, until_true
from bench.objects import create_services, endpoint_slice, service
from bench.traffic import programmed
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.api.meta import condition_of
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound

TENANT_NAMESPACE = "tenant-bench"
PORT = 8080
PROBES = 5
IDLE_S = 10.0
_CHECKS = "5 to 10 s: two checks 5 s apart, as a class has by default"


async def death_to_status() -> AsyncIterator[Figure]:
    """Measure with few load balancers present and with many: seconds to the status, and the hub's CPU meanwhile."""
    async with fleet(target="Pod") as running:
        await running.agent.start()
        present = 0
        for total in (10, 1000):
            await create_services(running.member_cluster, present, total - present, endpoints=1)
            count = total + (PROBES if present else 0)
            present = total

            async def done(count: int = count) -> bool:
                return await programmed(running, count)

            await until_true(done, what=f"{total} load balancers", timeout_s=300, every_s=1)
            latencies = await _deaths(running, total)
            where = f"backend's death to Serving False in the status, {total:,} load balancers"
            for name, share in (("p50", 0.5), ("max", 1.0)):
                value = percentile(sorted(latencies), share) if share < 1 else max(latencies)
                yield Figure(name=f"{where}: {name}", value=value, unit="s", compares_with=_CHECKS)
            before_s = _cpu_s(running.hub)
            await asyncio.sleep(IDLE_S)
            share = (_cpu_s(running.hub) - before_s) / IDLE_S * 100
            yield Figure(name=f"hub's CPU while {total:,} are checked by one Envoy", value=share, unit="% of a core")


async def _deaths(running: Fleet, total: int) -> list[float]:
    """Serve each probe, wait until it serves, end its backend; returns seconds to the status."""
    latencies: list[float] = []
    for number in range(PROBES):
        name, address = f"probe-{total}-{number}", f"127.99.{1 + total % 250}.{number + 1}"
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), address, PORT)
        await running.member_cluster.create(SERVICES, service(name))
        await running.member_cluster.create(ENDPOINT_SLICES, endpoint_slice(name, [address], port=PORT))
        await _serving(running, name, "True")
        # Soon after its first check: nearly the longest that the next two can take.
        await asyncio.sleep(number / PROBES)
        server.close()
        await server.wait_closed()
        started = time.perf_counter()
        await _serving(running, name, "False")
        latencies.append(time.perf_counter() - started)
    return latencies


async def _serving(running: Fleet, name: str, status: str) -> None:
    async def said() -> bool:
        try:
            load_balancer = await running.hub_cluster.get(TCP_LOAD_BALANCERS, TENANT_NAMESPACE, f"default.{name}")
        except NotFound:
            return False
        serving = condition_of(load_balancer.status.conditions, "Serving")
        return serving is not None and serving.status == status

    await until_true(said, what=f"Serving {status} of {name}", timeout_s=60, every_s=0.02)


def _cpu_s(process: Process) -> float:
    """Return the CPU seconds that a process has used (Linux)."""
    assert process.process is not None
    fields = Path(f"/proc/{process.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
