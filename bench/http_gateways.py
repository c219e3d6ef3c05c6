"""An HTTPRoute changed at the member until requests go by the new rule, where the routes are spread over Gateways.

A Gateway has an address and routes of its own, so what a change costs depends on how many routes the same Gateway has,
50 here, and neither time nor bytes on how many other Gateways there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bench.figures import Figure, percentile
from bench.fleet import Fleet, fleet, until_true
from bench.gateway_objects import gateway, install_gateway_api, meta, route_spec
from bench.http import BACKEND_PORT, BACKENDS, HOST, backend, change_figures, changes, settled
from bench.objects import endpoint_slice
from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.kube.cluster import Cluster

ROUTES_EACH = 50
_AT_ONCE = 32


async def change_to_effect() -> AsyncIterator[Figure]:
    """Change one HTTPRoute among 100, 1,000 and 5,000, with 50 for each Gateway; one fleet that grows."""
    smallest, present = 0.0, 0
    runners = [await backend(name, address) for name, address in BACKENDS.items()]
    try:
        async with fleet(target="Pod") as running:
            member = running.member_cluster
            await install_gateway_api(member)
            for name, address in BACKENDS.items():
                ports = [{"name": "http", "port": 80, "targetPort": BACKEND_PORT}]
                await member.create(SERVICES, {**meta(name), "spec": {"type": "ClusterIP", "ports": ports}})
                await member.create(ENDPOINT_SLICES, endpoint_slice(name, [address], port=BACKEND_PORT))
            await running.agent.start()
            for total in (100, 1000, 5000):
                await _add(member, present, total)
                present = total
                address = await _programmed(running, total // ROUTES_EACH)
                before = await _pushed_bytes(running)
                seconds = await changes(lambda service: _change(member, service), f"http://{address}/")
                pushed = (await _pushed_bytes(running) - before) / len(seconds)
                smallest = smallest or percentile(seconds, 0.5)
                name = (
                    f"an HTTPRoute changed at the member to a request by the new rule, {total:,} routes of "
                    f"{total // ROUTES_EACH} Gateways"
                )
                for figure in change_figures(name, seconds, smallest):
                    yield figure
                yield Figure(name=f"{name}: pushed to Envoy for each", value=pushed / 1000, unit="kB")
    finally:
        for runner in runners:
            await runner.cleanup()


async def _add(member: Cluster, first: int, end: int) -> None:
    """Create the Gateways and routes with these numbers; number 0 is the probe."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def create(number: int) -> None:
        host = HOST if number == 0 else f"h{number}.example.com"
        spec = route_spec(f"gw-{number // ROUTES_EACH}", host, {"first": 1})
        async with slots:
            await member.create(HTTP_ROUTES, {**meta(f"r-{number}"), "spec": spec})

    for number in range(first // ROUTES_EACH, end // ROUTES_EACH):
        await member.create(GATEWAYS, gateway(f"gw-{number}", port=80))
    await asyncio.gather(*(create(number) for number in range(first, end)))


async def _programmed(running: Fleet, gateways: int) -> str:
    """Wait until Envoy has acknowledged all; returns the address of the probe's Gateway."""

    async def all_there() -> bool:
        load_balancers = await running.hub_cluster.list(HTTP_LOAD_BALANCERS)
        return len(load_balancers) == gateways and all(
            each.status.routes == ROUTES_EACH
            and any(
                condition.type == "Programmed"
                and condition.status == "True"
                and condition.observed_generation == each.metadata.generation
                for condition in each.status.conditions or ()
            )
            for each in load_balancers
        )

    await until_true(all_there, what=f"{gateways} Gateways are programmed", timeout_s=1200, every_s=1)
    await settled(running, GATEWAYS, HTTP_ROUTES)
    probe = await running.member_cluster.get(GATEWAYS, "default", "gw-0")
    return next(each.value for each in probe.status.addresses or ())


async def _change(member: Cluster, service: str) -> None:
    await member.merge_patch(HTTP_ROUTES, "default", "r-0", {"spec": route_spec("gw-0", HOST, {service: 1})})


async def _pushed_bytes(running: Fleet) -> float:
    return (await running.metrics()).get("fairlead_xds_bytes_sent_total", float("nan"))
