"""Five works that others publish figures of, with Fairlead alone or next to Envoy Gateway; the sides take turns.

    probe       routes one after the other, each asked for every 5 ms until 404 has become 200
    changes     one route changed every 200 ms, with requests to it meanwhile
    attached    many routes at once on one Gateway, and their removal: status writes
    scale       routes with Services of their own, quiet and under churn (as ``storm``)
    node        an address of one of ten nodes changed, under 100 load balancers; Fairlead only

Both sides run against the same kind of API server with the same client. CPU seconds, writes, bytes and errors count;
times on a busy machine are only compared within a run.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence

from bench.cluster_world import (
    Client,
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
from bench.envoy_gateway import EnvoyGateway
from bench.figures import Figure, percentile
from bench.fleet import until_true
from bench.gateway_objects import route_spec
from bench.objects import node, service
from bench.storm import figures, latency_ms, measure_scale, until_attached
from fairlead.api.gateway import HTTP_ROUTES
from fairlead.api.kubernetes import NODES, SERVICES
from fairlead.api.meta import JSONObject

CHANGES, CHANGE_EVERY_S = 60, 0.2
#: Of the probes, so many of the last are compared: the first ones find few routes.
LAST = 100
NODES_COUNT, LOAD_BALANCERS = 10, 100
_LOAD_PER_S = 200.0
_FIRST_NODE_PORT = 30_100


async def measured(settings: Settings) -> AsyncIterator[Figure]:
    """Measure five works alone, or with --compare next to Envoy Gateway: CPU, writes, bytes, errors, ratios."""
    sides: list[Callable[[], ControlPlane]] = [Fairlead, EnvoyGateway] if settings.compare else [Fairlead]
    for work in (_probe, _changes, _attached, _scale):
        rows: list[list[list[Figure]]] = [[] for _ in sides]
        for _ in range(settings.runs):
            for side, of_side in zip(sides, rows, strict=True):
                of_side.append(await work(side(), settings))
        for figure in _side_by_side(rows):
            yield figure
    for figure in await _node(settings):
        yield figure


def _side_by_side(rows: Sequence[Sequence[Sequence[Figure]]]) -> list[Figure]:
    """Return the medians of our runs, next to those of the other side where there is one."""
    ours = rows[0]
    shown: list[Figure] = []
    for number, figure in enumerate(ours[-1]):
        value = statistics.median(run[number].value for run in ours)
        beside = figure.compares_with
        if len(rows) > 1:
            other = statistics.median(run[number].value for run in rows[1])
            ratio = f", {value / other:.2f} x" if other else ""
            notes = {"Fairlead": beside, "Envoy Gateway": rows[1][-1][number].compares_with}
            beside = f"Envoy Gateway {other:,.4g} {figure.unit}{ratio}"
            beside += "".join(f"; {side}: {note}" for side, note in notes.items() if note)
        limit = figure.limit
        shown.append(Figure(name=figure.name, value=value, unit=figure.unit, limit=limit, compares_with=beside))
    return shown


def _used(name: str, used: Usage, *, limit: float | None = None) -> list[Figure]:
    """Return what a work needed."""
    others = f"Envoy / API {used.envoy_s:.1f} / {used.api_s:.1f} s"
    return [
        Figure(
            name=f"{name}: CPU of the control plane", value=used.control_s, unit="s", limit=limit, compares_with=others
        ),
        Figure(name=f"{name}: CPU of Envoy", value=used.envoy_s, unit="s"),
        Figure(name=f"{name}: writes", value=sum(used.writes.values()), unit="", compares_with=used.by_kind),
        Figure(name=f"{name}: xDS", value=used.xds_bytes / 1e6, unit="MB"),
    ]  # fmt: skip


# --- probe -----------------------------------------------------------------------------------------------------------


async def _probe(control: ControlPlane, settings: Settings) -> list[Figure]:
    count = max(20, settings.routes // 10)
    async with world(control, real=settings.real) as running:
        await running.add_service(0)
        await running.add_route("first", 0)
        await running.until_served("first")
        await running.settled()
        before = await running.usage()
        probes: list[Probe] = []
        async with Client(running.address) as client:
            for number in range(count):
                await running.add_route(f"r-{number}", 0)
                probes.append(await client.until_served(host_of(f"r-{number}"), timeout_s=30))
        await running.settled()
        used = await running.usage() - before
    name, last = f"probe of {count:,} routes", probes[-LAST:]
    full = count >= 500
    return [
        Figure(
            name=f"{name}: p50 of the last {len(last)}", value=latency_ms(last, 0.5), unit="ms",
            limit=25 if full else None,
        ),
        Figure(name=f"{name}: p99 of all", value=latency_ms(probes, 0.99), unit="ms"),
        Figure(name=f"{name}: answers but 404 and 200", value=sum(each.errors for each in probes), unit="", limit=0),
        *_used(name, used),
    ]  # fmt: skip


# --- changes ---------------------------------------------------------------------------------------------------------


async def _changes(control: ControlPlane, settings: Settings) -> list[Figure]:
    seconds: list[float] = []
    async with world(control, real=settings.real) as running:
        for number in range(2):
            await running.add_service(number)
        await running.add_route("shop", 0)
        await running.until_served("shop")
        await running.settled()
        before = await running.usage()
        async with loaded(Load(running.address, [host_of("shop")], per_s=_LOAD_PER_S)) as load:
            for number in range(CHANGES):
                began_s = time.perf_counter()
                target = (number + 1) % 2
                spec = route_spec("edge", host_of("shop"), {f"s-{target}": 1})
                await running.user.patch(HTTP_ROUTES, "shop", {"spec": spec})
                async with Client(running.address) as client:
                    while (await client.get(host_of("shop")))[1] != running.backend(target):
                        if time.perf_counter() - began_s > 30:
                            raise TimeoutError("a changed route is not in effect after 30 s")
                        await asyncio.sleep(0.001)
                seconds.append(time.perf_counter() - began_s)
                await asyncio.sleep(max(0.0, began_s + CHANGE_EVERY_S - time.perf_counter()))
        used = await running.usage() - before
    name = f"a route changed every {CHANGE_EVERY_S * 1000:g} ms under load"
    beside = f"of {load.sent}, by status {dict(load.failed) or 'none'}"
    failed = sum(load.failed.values())
    return [
        Figure(name=f"{name}: until visible, p50", value=percentile(seconds, 0.5) * 1000, unit="ms", limit=18),
        Figure(name=f"{name}: until visible, p99", value=percentile(seconds, 0.99) * 1000, unit="ms"),
        Figure(name=f"{name}: failed requests", value=failed, unit="", limit=0, compares_with=beside),
        *_used(name, used),
    ]


# --- attached routes -------------------------------------------------------------------------------------------------


async def _attached(control: ControlPlane, settings: Settings) -> list[Figure]:
    count = max(20, settings.routes // 5)
    async with world(control, real=settings.real) as running:
        await running.add_service(0)
        await running.settled()
        before, began_s = await running.usage(), time.perf_counter()
        await at_once(running.add_route(f"r-{number}", 0) for number in range(count))
        created_s = time.perf_counter()
        await until_attached(running, count)
        setup_s = time.perf_counter()
        await running.settled()
        setup = await running.usage() - before
        before = await running.usage()
        await at_once(running.user.delete(HTTP_ROUTES, f"r-{number}") for number in range(count))
        deleted_s = time.perf_counter()
        await until_attached(running, 0)
        teardown_s = time.perf_counter() - deleted_s
        await running.settled()
        teardown = await running.usage() - before
    name = f"{count:,} attached routes"
    full = count >= 1000

    def limit(value: float) -> float | None:
        return value if full else None

    gateways, routes = setup.written("gateways/status"), setup.written("httproutes/status")
    beside = f"created in {created_s - began_s:.1f} s"
    return [
        Figure(name=f"{name}: until the status shows all", value=setup_s - began_s, unit="s", compares_with=beside),
        Figure(name=f"{name}: Gateway status writes", value=gateways, unit="", limit=limit(60)),
        Figure(name=f"{name}: HTTPRoute status writes", value=routes, unit="", limit=count),
        *_used(name, setup, limit=limit(12)),
        Figure(name=f"{name}: teardown after the last deletion", value=teardown_s, unit="s"),
        Figure(
            name=f"{name}: writes for a deletion", value=sum(teardown.writes.values()) / count, unit="", limit=1,
            compares_with=teardown.by_kind,
        ),
    ]  # fmt: skip


# --- scale -----------------------------------------------------------------------------------------------------------


async def _scale(control: ControlPlane, settings: Settings) -> list[Figure]:
    return figures(await measure_scale(control, settings), settings)


# --- node ------------------------------------------------------------------------------------------------------------


def _node_address(running: World, number: int, version: int = 0) -> str:
    return running.backend(30_000 + number, version)


async def _node(settings: Settings, changes: int = 5) -> list[Figure]:
    """Change the address of one node: until Envoy has it in every load balancer."""
    count = LOAD_BALANCERS
    seconds: list[float] = []
    ports = [_FIRST_NODE_PORT + number for number in range(count)]
    async with world(Fairlead(target="Node"), real=settings.real, node_ports=ports) as running:
        for number in range(NODES_COUNT):
            body = node(f"node-{number}", _node_address(running, number))
            await running.user.create(NODES, {"metadata": body["metadata"]})
            await _set_node(running, number, 0)
        await at_once(running.user.create(SERVICES, _at_nodes(number, port)) for number, port in enumerate(ports))
        await _until_in_envoy(running, _node_address(running, 0), count)
        await running.settled(timeout_s=120)
        before = await running.usage()
        for number in range(changes):
            version = (number + 1) % 2
            began_s = time.perf_counter()
            await _set_node(running, 0, version)
            await _until_in_envoy(running, _node_address(running, 0, version), count)
            seconds.append(time.perf_counter() - began_s)
            await running.settled()
        used = await running.usage() - before
    name = f"a node's address changed, {count} load balancers"
    writes = sum(used.writes.values()) / changes
    return [
        Figure(name=f"{name}: in all of them, median", value=statistics.median(seconds) * 1000, unit="ms", limit=100),
        Figure(name=f"{name}: writes", value=writes, unit="", limit=3, compares_with=f"of all: {used.by_kind}"),
        Figure(
            name=f"{name}: CPU of the control plane", value=used.control_s / changes * 1000, unit="ms", limit=20,
            compares_with=f"Envoy {used.envoy_s / changes * 1000:.0f} ms; until all is quiet, {changes} changes",
        ),
    ]  # fmt: skip


def _at_nodes(number: int, node_port: int) -> JSONObject:
    body = service(f"lb-{number}", node_target=True)
    body["spec"]["ports"][0]["nodePort"] = node_port
    return body


async def _set_node(running: World, number: int, version: int) -> None:
    body = node(f"node-{number}", _node_address(running, number, version))
    await running.user.patch(NODES, f"node-{number}", {"status": body["status"]}, namespace="", subresource="status")


async def _until_in_envoy(running: World, address: str, count: int) -> None:
    """Wait until so many clusters of Envoy send connections to an address; one that was removed may still drain."""

    async def there() -> bool:
        page = await running.control.admin("/clusters")
        lines = (line for line in page.splitlines() if f"::{address}:" in line)
        return sum(line.endswith("::health_flags::healthy") for line in lines) >= count

    await until_true(there, what=f"{address} is in {count} clusters", timeout_s=120, every_s=0.02)
