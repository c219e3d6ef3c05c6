"""Failover of addresses that are announced at layer 2, and what five thousand of them cost.

Machines, bridge and client are in network namespaces of their own. No hub runs, so its death at the same time is part
of each figure. A gap is the longest time without a new connection, of a client that tries every 20 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

from bench.figures import Figure
from fairlead.errors import Terminal
from tests.worlds.layer2_link import Layer2Link, Machine, Probe

ADDRESS = "10.77.1.1"
ROUNDS = 10
MANY, IDLE_ADDRESSES, IDLE_S = 1000, 5000, 30.0


async def measured() -> AsyncIterator[Figure]:
    """Failover at layer 2: gaps for new connections, a take-over of 1,000, idle with 5,000 addresses."""
    if os.geteuid() != 0:
        raise Terminal("The case l2 makes network namespaces, which needs root. Run it as root.")
    load = f"load {os.getloadavg()[0]:.1f}; keepalived at 100 ms: 0.35 s"
    for name, fast, fault, repair in (
        ("owner killed", False, _kill, _boot),
        ("link cut", False, _cut, _plug_in),
        ("link cut, fast", True, _cut, _plug_in),
    ):
        gaps = await _gaps(fast=fast, fault=fault, repair=repair)
        limit, worst = (0.5, 2.0) if fast else (1.0, 2.0)
        median_s = statistics.median(gaps)
        yield Figure(
            name=f"l2, {name}: gap, median of {ROUNDS}", value=median_s, unit="s", limit=limit, compares_with=load
        )
        yield Figure(name=f"l2, {name}: gap, worst", value=max(gaps), unit="s", limit=worst)
    async for figure in _thousand():
        yield figure
    async for figure in _idle():
        yield figure


def _cut(machine: Machine) -> None:
    machine.set_cable(plugged=False)


def _plug_in(machine: Machine) -> None:
    machine.set_cable(plugged=True)


def _kill(machine: Machine) -> None:
    machine.lose_power()


def _boot(machine: Machine) -> None:
    machine.boot()


@contextlib.asynccontextmanager
async def _link(addresses: list[str], *, fast: bool = False) -> AsyncGenerator[Layer2Link]:
    with tempfile.TemporaryDirectory() as directory, contextlib.closing(Layer2Link(Path(directory))) as link:
        link.plan(dict.fromkeys(addresses, link.machines), fast=fast)
        await link.start()
        await link.eventually(lambda: len(link.machines[0].addresses() & set(addresses)) == len(addresses))
        await link.eventually(lambda: not link.machines[1].addresses() & set(addresses))
        yield link


async def _gaps(*, fast: bool, fault: Callable[[Machine], None], repair: Callable[[Machine], None]) -> list[float]:
    gaps: list[float] = []
    async with _link([ADDRESS], fast=fast) as link, Probe(link.client, ADDRESS) as probe:
        first, second = link.machines
        for _ in range(ROUNDS):
            await probe.works()
            at_s = time.monotonic()
            fault(first)
            await link.taken(ADDRESS, second.name)
            await probe.works()
            gaps.append(probe.raw_gap_s(at_s))
            repair(first)
            await link.settled(ADDRESS, first.name)
    return gaps


async def _thousand() -> AsyncIterator[Figure]:
    addresses = [f"10.77.{100 + number // 250}.{number % 250 + 1}" for number in range(MANY)]
    async with _link(addresses) as link:
        second = link.machines[1]
        async with Probe(link.client, addresses[0]) as probe, Probe(link.client, addresses[-1]) as last:
            at_s = time.monotonic()
            link.machines[0].lose_power()
            await link.eventually(lambda: len(second.addresses() & set(addresses)) == MANY)
            await asyncio.gather(probe.works(), last.works())
            gap_s = max(probe.raw_gap_s(at_s), last.raw_gap_s(at_s))
        took_s = sum(float(seconds) for seconds in re.findall(r"change=added .*took_s=([0-9.]+)", second.log_text()))
    name = f"l2, {MANY:,} addresses taken over: "
    yield Figure(name=f"{name}gap of the slower of two", value=gap_s, unit="s", limit=2.0)
    yield Figure(name=f"{name}on the interface and announced", value=took_s, unit="s", limit=1.0)


async def _idle() -> AsyncIterator[Figure]:
    addresses = [f"10.77.{20 + number // 250}.{number % 250 + 1}" for number in range(IDLE_ADDRESSES)]
    async with _link(addresses) as link:
        # The rounds of renewals after a take-over grow to 30 s in more than a minute; idle begins then.
        await asyncio.sleep(120)
        machine = link.machines[0]
        began, cpu_s = time.monotonic(), machine.cpu_s()
        await asyncio.sleep(IDLE_S)
        share = (machine.cpu_s() - cpu_s) / (time.monotonic() - began) * 100
        other, cpu_s = link.machines[1], link.machines[1].cpu_s()
        await asyncio.sleep(IDLE_S / 2)
        standby = (other.cpu_s() - cpu_s) / (IDLE_S / 2) * 100
    yield Figure(name=f"l2, idle with {IDLE_ADDRESSES:,} addresses: CPU of the owner", value=share, unit="%", limit=1.0)
    yield Figure(
        name=f"l2, idle with {IDLE_ADDRESSES:,} addresses: CPU of the other", value=standby, unit="%", limit=1.0
    )
