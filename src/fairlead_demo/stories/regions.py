"""One Service in three regions: an access point in each, rolled pods, a moved node, a region added and one deleted.

In: a ``RegionsContext``. Out: lines of progress; ``ExpectationFailed`` with one sentence when a check fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console

from fairlead.api.poolservice import NODE_POOLS, POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead_demo.stories.context import StoryContext, instead_of_low_ports, refuses
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.regions import HTTP, SERVICE, RegionsWorld
from fairlead_demo.worlds.traffic import Traffic

REGIONS = ("hangzhou", "shanghai", "beijing")


class RegionsContext(StoryContext):
    """The context of this demo; ``traffics`` by region, from a client inside it to its own access point."""

    def __init__(self, *, world: RegionsWorld, console: Console, plain: bool) -> None:
        super().__init__(console=console, plain=plain)
        self.world = world

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (region, name) of every pod of the regions that have traffic."""
        running = [name for name, traffic in self.traffics.items() if traffic.running]
        return ((name, pod.name) for name in running for pod in self.world.pods_of(name))

    def failures(self) -> list[str]:
        """Return one sentence for each failure: failed requests, and answers from another region."""
        failures = super().failures()
        for name, traffic in self.traffics.items():
            elsewhere = sorted(pod for pod in traffic.count.by_pod if not pod.startswith(f"{name}-"))
            if elsewhere:
                failures.append(f"{name}: answered by {', '.join(elsewhere)}")
        return failures

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: what was checked in addition to failed requests."""
        return ", none answered by another region" if passed else ""

    async def close(self) -> None:
        """End traffic, processes and networks."""
        await self.stop_traffic()
        await self.world.close()


async def start_everything(context: RegionsContext) -> None:
    """Start a cluster and three regions."""
    context.progress.step_started("starting one cluster with three regions, each with its own network, hub and Envoy")
    await context.world.start()
    for name in REGIONS:
        await context.world.add_region(name)
    networks = [region.network.description for region in context.world.regions.values()]
    # Inside a network namespace this process may listen on every port.
    facts = networks if context.world.networks.separate else [*networks, *instead_of_low_ports()]
    context.progress.step_done("one cluster runs in three regions", *facts)


async def give_access_points(context: RegionsContext) -> None:
    """Create one Service and wait for its three access points."""
    context.progress.step_started("one Service waits for an access point in each region")
    await context.world.create_service()
    await _access_points(context, REGIONS)
    points = await context.world.addresses()
    external_ip = ",".join(points[name] for name in sorted(points))
    facts = [f"NAME {SERVICE}   TYPE LoadBalancer   EXTERNAL-IP {external_ip}   PORT(S) {HTTP}/TCP"]
    facts += [f"{name}: {points[name]}" for name in REGIONS]
    context.progress.step_done("one Service, one access point per region", *facts)


async def stay_in_the_region(context: RegionsContext) -> None:
    """Send traffic inside each region; check that only pods of the same region answer."""
    context.progress.step_started("a client in each region talks to its own access point")
    points = await context.world.addresses()
    for name in REGIONS:
        _start_traffic(context, name, points[name])
    await context.every_pod_answers(context.pods)
    context.check_traffic("at first")
    facts = [f"{name}: {_pods(context, name)}" for name in REGIONS]
    if context.world.networks.separate:
        facts.append(await _no_way_between(context, points))
    context.progress.step_done("each client reaches the pods of its own region, and no others", *facts)


async def roll_pods(context: RegionsContext) -> None:
    """Replace every pod of every region, gracefully."""
    context.progress.step_started("all pods are replaced, one by one")
    world = context.world
    await asyncio.gather(*(world.workload.roll(world.pods_of(name)) for name in REGIONS))
    await context.every_pod_answers(context.pods)
    context.check_traffic("while pods were rolled")
    context.progress.step_done("every pod of every region was replaced, and no request failed")


async def move_a_node(context: RegionsContext) -> None:
    """Move a node from hangzhou to shanghai; check that the third region is not changed."""
    context.progress.step_started("a node moves from hangzhou to shanghai")
    world = context.world
    before = await _renewed(context, "beijing")
    node, shanghai = "hangzhou-2", world.regions["shanghai"]
    (pod,) = [pod for pod in world.workload.pods if pod.host.node == node]
    await world.workload.retire_pod(pod)
    await world.put_node(node, shanghai)
    moved = await world.workload.start_pod(shanghai.host(node))
    await context.every_pod_answers(context.pods)
    context.check_traffic("while a node moved")
    if await _renewed(context, "beijing") != before:
        raise ExpectationFailed("beijing was changed although nothing there has changed")
    context.progress.step_done(
        "a node moved from hangzhou to shanghai, and no request failed",
        f"{moved.name} on {node} answers in shanghai only; the PoolService of beijing was not written",
    )


async def add_a_region(context: RegionsContext) -> None:
    """Add a fourth region."""
    context.progress.step_started("a region is added: guangzhou")
    await context.world.add_region("guangzhou", nodes=1)
    await _access_points(context, (*REGIONS, "guangzhou"))
    points = await context.world.addresses()
    _start_traffic(context, "guangzhou", points["guangzhou"])
    await context.every_pod_answers(context.pods)
    context.check_traffic("while a region was added")
    context.progress.step_done(
        "a region was added, and the Service has a fourth access point", f"guangzhou: {points['guangzhou']}"
    )


async def delete_a_region(context: RegionsContext) -> None:
    """Delete a region: its access point leaves the Service first, then its load balancer goes."""
    context.progress.step_started("a region is deleted: beijing")
    world = context.world
    points = await world.addresses()
    await context.traffics["beijing"].stop()  # its clients have moved to other regions
    await world.cluster.delete(NODE_POOLS, "", "beijing")
    remaining = tuple(name for name in (*REGIONS, "guangzhou") if name != "beijing")
    await _access_points(context, remaining)

    async def balancer_gone() -> bool:
        services = {service.metadata.name for service in await world.cluster.list(POOL_SERVICES)}
        balancers = {balancer.spec.region for balancer in await world.cluster.list(TCP_LOAD_BALANCERS)}
        return f"{SERVICE}-beijing" not in services and "beijing" not in balancers

    await wait_until(balancer_gone, "beijing's load balancer is removed")

    async def refused() -> bool:
        return await refuses(world.regions["beijing"].network.connect, points["beijing"], HTTP)

    await wait_until(refused, f"nothing listens at {points['beijing']} now")
    after = await world.addresses()
    if any(after[name] != points[name] for name in remaining):
        raise ExpectationFailed(f"addresses of other regions have changed: {points} became {after}")
    await context.every_pod_answers(context.pods)
    context.check_traffic("while a region was deleted")
    context.progress.step_done(
        "a region was deleted: its access point left the Service, then its load balancer went; the others saw nothing",
        f"{points['beijing']} is free; addresses of the others are the same",
    )


STEPS = (
    start_everything,
    give_access_points,
    stay_in_the_region,
    roll_pods,
    move_a_node,
    add_a_region,
    delete_a_region,
)


async def _access_points(context: RegionsContext, names: tuple[str, ...]) -> None:
    async def all_present() -> bool:
        for region in context.world.regions.values():
            region.hub.check_running()
        return set(await context.world.addresses()) == set(names)

    await wait_until(all_present, f"the Service has access points in {', '.join(names)}")


def _start_traffic(context: RegionsContext, name: str, address: str) -> None:
    network = context.world.regions[name].network
    traffic = context.traffics[name] = Traffic(host=address, new_per_s=15.0, kept=2, connect=network.connect)
    traffic.start()


async def _no_way_between(context: RegionsContext, points: dict[str, str]) -> str:
    for source in REGIONS:
        for target in REGIONS:
            if source == target:
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await context.world.regions[source].network.connect(points[target], HTTP)
                raise ExpectationFailed(f"{target}'s access point can be reached from {source}")
    return "no region's access point can be reached from another region: their networks are separate"


async def _renewed(context: RegionsContext, pool: str) -> str | None:
    service = await context.world.cluster.get(POOL_SERVICES, "default", f"{SERVICE}-{pool}")
    return service.spec.renew_time


def _pods(context: RegionsContext, name: str) -> str:
    counts = context.traffics[name].count.by_pod
    return ", ".join(f"{pod} {number}" for pod, number in sorted(counts.items()))
