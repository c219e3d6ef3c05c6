"""Churn on one Gateway with thousands of routes, and the routes that are created meanwhile.

Each route has a Service of its own with one endpoint. Of 20 changes a second, 16 move an endpoint to another address,
two create a route and two delete one. Meanwhile routes are created one at a time and asked for until they answer, and
requests to other routes arrive at a steady rate. The backlog is the time after the last change until it
is in effect.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from bench.cluster_world import (
    ControlPlane,
    Fairlead,
    Load,
    Probe,
    Settings,
    Usage,
    World,
    at_once,
    host_of,
    loaded,
    world,
)
from bench.figures import Figure, percentile
from bench.fleet import until_true
from fairlead.api.gateway import HTTP_ROUTES

CHANGES_PER_S = 20
#: Routes created one at a time while nothing else changes.
QUIET_ROUTES = 10
#: Routes that requests are sent to, and that nothing changes.
STEADY, LOAD_PER_S = 20, 50.0
_SERVED_S = 30.0
_IDLE_S = 10.0
_PROBE_PAUSE_S = 0.25


@dataclass
class Scale:
    """What one side needed for a setup, for quiet, for churn and for what was left of it."""

    routes: int
    setup_s: float = 0.0
    setup: Usage | None = None
    quiet: list[Probe] = field(default_factory=list)
    quiet_usage: Usage | None = None
    idle: Usage | None = None
    probes: list[Probe] = field(default_factory=list)
    changes: int = 0
    churn_s: float = 0.0
    churn: Usage | None = None
    backlog_s: float = 0.0
    settle_s: float = 0.0
    sent: int = 0
    failed: dict[int, int] = field(default_factory=dict)
    memory_mb: float = 0.0


async def measured(settings: Settings) -> AsyncIterator[Figure]:
    """Measure routes on one Gateway while endpoints change, and routes are created and deleted."""
    scale = await measure_scale(Fairlead(), settings)
    for figure in figures(scale, settings):
        yield figure


async def measure_scale(control: ControlPlane, settings: Settings) -> Scale:
    """Set up the routes of one side, and let them be, and change them."""
    scale = Scale(settings.routes)
    async with world(control, real=settings.real) as running:
        before, began_s = await running.usage(), time.perf_counter()
        await at_once(_add(running, number) for number in range(settings.routes))
        await until_attached(running, settings.routes)
        await running.until_served(f"r-{settings.routes - 1}", timeout_s=600)
        scale.setup_s = time.perf_counter() - began_s
        await running.settled()
        scale.setup = await running.usage() - before

        before = await running.usage()
        for number in range(QUIET_ROUTES):
            scale.quiet.append(await _new_route(running, f"quiet-{number}", number))
            await asyncio.sleep(_PROBE_PAUSE_S)
        await running.settled()
        scale.quiet_usage = await running.usage() - before
        before = await running.usage()
        await asyncio.sleep(_IDLE_S)
        scale.idle = await running.usage() - before
        await _churn(running, scale, settings)
        scale.memory_mb = sum(each.rss_mb for each in control.processes)
    return scale


async def until_attached(running: World, count: int) -> None:
    """Wait until the status of the Gateway shows so many routes."""

    async def attached() -> bool:
        return await running.attached() == count

    await until_true(attached, what=f"{count} routes are attached", timeout_s=1800, every_s=0.1)


async def _add(running: World, number: int) -> None:
    await running.add_service(number)
    await running.add_route(f"r-{number}", number)


async def _new_route(running: World, name: str, service: int) -> Probe:
    await running.add_route(name, service)
    return await running.until_served(name, timeout_s=_SERVED_S)


async def _churn(running: World, scale: Scale, settings: Settings) -> None:
    """Change endpoints and routes at a steady rate, with requests and new routes meanwhile."""
    steady = min(STEADY, settings.routes // 2)
    versions = [0] * settings.routes
    hosts = [host_of(f"r-{number}") for number in range(steady)]
    before, began_s = await running.usage(), time.perf_counter()
    ended = asyncio.Event()
    probing = asyncio.create_task(_probe(running, scale, ended))
    async with loaded(Load(running.address, hosts, per_s=LOAD_PER_S)) as load:
        last = await _change(running, versions, steady, settings.seconds)
        scale.churn_s = time.perf_counter() - began_s
        scale.changes = last + 1
        ended.set()
        ended_s = time.perf_counter()
        # What was created last is served once everything before it is.
        await running.add_route("last", 0)
        served = await running.until_served("last", timeout_s=600)
        scale.backlog_s = served.seconds
        await probing
        await running.settled()
        scale.settle_s = time.perf_counter() - ended_s
        scale.churn = await running.usage() - before
    scale.sent, scale.failed = load.sent, dict(load.failed)


async def _change(running: World, versions: list[int], steady: int, seconds: float) -> int:
    """Begin a change every 50 ms; return the number of the last one."""
    began_s, number, pending = time.perf_counter(), 0, set[asyncio.Task[None]]()
    while (due_s := number / CHANGES_PER_S) < seconds:
        await asyncio.sleep(max(0.0, began_s + due_s - time.perf_counter()))
        task = asyncio.create_task(_one_change(running, versions, steady, number))
        pending.add(task)
        task.add_done_callback(pending.discard)
        number += 1
    await asyncio.gather(*pending)
    return number - 1


async def _one_change(running: World, versions: list[int], steady: int, number: int) -> None:
    kind, place = number % 10, number // 10
    if kind == 4:
        await running.add_route(f"churn-{place}", steady + place % (len(versions) - steady))
    elif kind == 9 and place >= CHANGES_PER_S:
        await running.user.delete(HTTP_ROUTES, f"churn-{place - CHANGES_PER_S}")
    else:
        # Far apart from each other, and none of those that requests go to.
        service = steady + number * 7919 % (len(versions) - steady)
        versions[service] ^= 1
        await running.change_endpoint(service, versions[service])


async def _probe(running: World, scale: Scale, ended: asyncio.Event) -> None:
    """Create routes, the next one once the last is served, until the churn has ended."""
    while not ended.is_set():
        number = len(scale.probes)
        scale.probes.append(await _new_route(running, f"probe-{number}", number % STEADY))
        await asyncio.sleep(_PROBE_PAUSE_S)


# --- figures ---------------------------------------------------------------------------------------------------------


def latency_ms(probes: Sequence[Probe], share: float) -> float:
    """Return a percentile in milliseconds, infinite where so many were not served."""
    seconds = sorted(each.seconds for each in probes)
    if not seconds:
        return math.inf
    rank = min(len(seconds) - 1, math.ceil(share * len(seconds)) - 1)
    if math.isinf(seconds[rank]):
        return math.inf
    return percentile([each for each in seconds if not math.isinf(each)], share) * 1000


def figures(scale: Scale, settings: Settings) -> list[Figure]:
    """Return the figures of one side; limits are those of the full size."""
    assert scale.setup is not None
    assert scale.quiet_usage is not None
    assert scale.idle is not None
    assert scale.churn is not None
    full = settings.routes >= 5000 and settings.seconds >= 60

    def limit(value: float) -> float | None:
        return value if full else None

    what, churn = f"{scale.routes:,} routes", f"{settings.seconds:.0f} s of churn"
    errors = sum(each.errors for each in (*scale.quiet, *scale.probes))
    unserved = sum(math.isinf(each.seconds) for each in scale.probes)
    each_s = 1 / len(scale.quiet)
    cpu = "control plane / Envoy / API {0.control_s:.1f} / {0.envoy_s:.1f} / {0.api_s:.1f} s of CPU"
    rows = [
        (f"{what}: until all are served", scale.setup_s, "s", None, scale.setup.by_kind),
        (f"{what}: CPU of the control plane for that", scale.setup.control_s, "s", limit(60), cpu.format(scale.setup)),
        (f"{what}: CPU of Envoy for that", scale.setup.envoy_s, "s", limit(40), _megabytes(scale.setup)),
        (f"a new route among {what}: p50", latency_ms(scale.quiet, 0.5), "ms", limit(60), ""),
        (
            f"a new route among {what}: CPU of the control plane",
            scale.quiet_usage.control_s * each_s, "s", limit(0.03), scale.quiet_usage.by_kind,
        ),
        (f"idle with {what}: control plane", 100 * scale.idle.control_s / _IDLE_S, "% of a core", limit(0.2), ""),
        (f"idle with {what}: Envoy", 100 * scale.idle.envoy_s / _IDLE_S, "% of a core", limit(2), ""),
        (
            f"{churn}: changes a second", scale.changes / scale.churn_s, "/s", None,
            f"{scale.changes} changes besides {len(scale.probes)} new routes",
        ),
        (f"{churn}: CPU of the control plane", scale.churn.control_s, "s", limit(12), cpu.format(scale.churn)),
        (f"{churn}: a new route meanwhile, p50", latency_ms(scale.probes, 0.5), "ms", limit(150), ""),
        (
            f"{churn}: a new route meanwhile, p99", latency_ms(scale.probes, 0.99), "ms", None,
            f"{unserved} of {len(scale.probes)} not served",
        ),
        (f"{churn}: backlog at the end", scale.backlog_s, "s", limit(1), f"all quiet after {scale.settle_s:.1f} s"),
        (f"{churn}: writes", sum(scale.churn.writes.values()), "", None, scale.churn.by_kind),
        (f"{churn}: xDS", scale.churn.xds_bytes / 1e6, "MB", None, ""),
        (
            f"{churn}: failed requests", sum(scale.failed.values()) + errors, "", 0,
            f"of {scale.sent}, by status {scale.failed or 'none'}; new routes: {errors} answers but 404 and 200",
        ),
        (f"{what}: memory of the control plane", scale.memory_mb, "MB", None, ""),
    ]  # fmt: skip
    return [
        Figure(name=name, value=value, unit=unit, limit=bound, compares_with=beside)
        for name, value, unit, bound, beside in rows
    ]


def _megabytes(usage: Usage) -> str:
    return f"{usage.xds_bytes / 1e6:.1f} MB of xDS"
