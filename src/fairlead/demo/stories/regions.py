"""One Service in three regions: an access point in each, rolled pods, a moved node, a region added and one deleted.

In: a ``RegionsStage``. Out: lines of the show; ``ExpectationFailed`` with one sentence for a broken promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console

from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.demo.stories.stage import Stage, instead_of_low_ports, refuses
from fairlead.testing.worlds.processes import ExpectationFailed, wait_until
from fairlead.testing.worlds.regions import HTTP, SERVICE, RegionsWorld
from fairlead.testing.worlds.traffic import Traffic

REGIONS = ("hangzhou", "shanghai", "beijing")
_ADDRESS_S = 90.0


class RegionsStage(Stage):
    """``traffics``: by region, from a client inside it to its own access point."""

    def __init__(self, *, world: RegionsWorld, console: Console, plain: bool) -> None:
        super().__init__(console=console, plain=plain)
        self.world = world

    def pods(self) -> Iterator[tuple[str, str]]:
        """Return every pod of the regions that have traffic, with the name of its region."""
        running = [name for name, traffic in self.traffics.items() if traffic.running]
        return ((name, pod.name) for name in running for pod in self.world.pods_of(name))

    def failures(self) -> list[str]:
        """Return what has gone wrong so far: failed requests, and answers from another region."""
        failures = super().failures()
        for name, traffic in self.traffics.items():
            elsewhere = sorted(pod for pod in traffic.count.by_pod if not pod.startswith(f"{name}-"))
            if elsewhere:
                failures.append(f"{name}: answered by {', '.join(elsewhere)}")
        return failures

    def ending(self, *, passed: bool) -> str:
        """Return what else was checked."""
        return ", none answered by another region" if passed else ""

    async def close(self) -> None:
        """End traffic, processes and networks."""
        await self.stop_traffic()
        await self.world.close()


async def start_everything(stage: RegionsStage) -> None:
    """Start a cluster and three regions."""
    stage.show.doing("starting one cluster with three regions, each with its own network, hub and Envoy")
    await stage.world.start()
    for name in REGIONS:
        await stage.world.add_region(name)
    networks = [region.network.description for region in stage.world.regions.values()]
    # In a network namespace every port may be opened.
    facts = networks if stage.world.networks.separate else [*networks, *instead_of_low_ports()]
    stage.show.done("one cluster runs in three regions", *facts)


async def give_access_points(stage: RegionsStage) -> None:
    """Create one Service and wait for its three access points."""
    stage.show.doing("one Service waits for an access point in each region")
    await stage.world.create_service()
    await _access_points(stage, REGIONS)
    points = await stage.world.addresses()
    shown = ",".join(points[name] for name in sorted(points))
    facts = [f"NAME {SERVICE}   TYPE LoadBalancer   EXTERNAL-IP {shown}   PORT(S) {HTTP}/TCP"]
    facts += [f"{name}: {points[name]}" for name in REGIONS]
    stage.show.done("one Service, one access point per region", *facts)


async def stay_in_the_region(stage: RegionsStage) -> None:
    """Send traffic inside each region; no client reaches another region's pods."""
    stage.show.doing("a client in each region talks to its own access point")
    points = await stage.world.addresses()
    for name in REGIONS:
        _start_traffic(stage, name, points[name])
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("at first")
    facts = [f"{name}: {_pods(stage, name)}" for name in REGIONS]
    if stage.world.networks.separate:
        facts.append(await _no_way_between(stage, points))
    stage.show.done("each client reaches the pods of its own region, and no others", *facts)


async def roll_pods(stage: RegionsStage) -> None:
    """Replace every pod of every region, gracefully."""
    stage.show.doing("all pods are replaced, one by one")
    world = stage.world
    await asyncio.gather(*(world.workload.roll(world.pods_of(name)) for name in REGIONS))
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while pods were rolled")
    stage.show.done("every pod of every region was replaced, and no request failed")


async def move_a_node(stage: RegionsStage) -> None:
    """Move a node from hangzhou to shanghai; the third region is not touched."""
    stage.show.doing("a node moves from hangzhou to shanghai")
    world = stage.world
    before = await _renewed(stage, "beijing")
    node, shanghai = "hangzhou-2", world.regions["shanghai"]
    (pod,) = [pod for pod in world.workload.pods if pod.host.node == node]
    await world.workload.retire_pod(pod)
    await world.put_node(node, shanghai)
    moved = await world.workload.start_pod(shanghai.host(node))
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while a node moved")
    if await _renewed(stage, "beijing") != before:
        raise ExpectationFailed("beijing was touched although nothing there has changed")
    stage.show.done(
        "a node moved from hangzhou to shanghai, and no request failed",
        f"{moved.name} on {node} answers in shanghai only; the PoolService of beijing was not written",
    )


async def add_a_region(stage: RegionsStage) -> None:
    """Add a fourth region."""
    stage.show.doing("a region is added: guangzhou")
    await stage.world.add_region("guangzhou", nodes=1)
    await _access_points(stage, (*REGIONS, "guangzhou"))
    points = await stage.world.addresses()
    _start_traffic(stage, "guangzhou", points["guangzhou"])
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while a region was added")
    stage.show.done(
        "a region was added, and the Service has a fourth access point", f"guangzhou: {points['guangzhou']}"
    )


async def delete_a_region(stage: RegionsStage) -> None:
    """Delete a region: its access point leaves the Service first, then its load balancer goes."""
    stage.show.doing("a region is deleted: beijing")
    world = stage.world
    points = await world.addresses()
    await stage.traffics["beijing"].stop()  # its users have gone elsewhere
    await world.cluster.delete(NODE_POOLS, "", "beijing")
    left = tuple(name for name in (*REGIONS, "guangzhou") if name != "beijing")
    await _access_points(stage, left)

    async def gone() -> bool:
        services = {service.metadata.name for service in await world.cluster.list(POOL_SERVICES)}
        balancers = {balancer.spec.region for balancer in await world.cluster.list(TCP_LOAD_BALANCERS)}
        return f"{SERVICE}-beijing" not in services and "beijing" not in balancers

    await wait_until(gone, "beijing's load balancer is removed")

    async def refused() -> bool:
        return await refuses(world.regions["beijing"].network.connect, points["beijing"], HTTP)

    await wait_until(refused, f"nothing listens at {points['beijing']} any more")
    after = await world.addresses()
    if any(after[name] != points[name] for name in left):
        raise ExpectationFailed(f"addresses of other regions have changed: {points} became {after}")
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while a region was deleted")
    stage.show.done(
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


async def _access_points(stage: RegionsStage, names: tuple[str, ...]) -> None:
    async def there() -> bool:
        for region in stage.world.regions.values():
            region.hub.check_running()
        return set(await stage.world.addresses()) == set(names)

    await wait_until(there, f"the Service has access points in {', '.join(names)}", timeout_s=_ADDRESS_S)


def _start_traffic(stage: RegionsStage, name: str, address: str) -> None:
    network = stage.world.regions[name].network
    traffic = stage.traffics[name] = Traffic(host=address, new_per_s=15.0, kept=2, connect=network.connect)
    traffic.start()


async def _no_way_between(stage: RegionsStage, points: dict[str, str]) -> str:
    for here in REGIONS:
        for there in REGIONS:
            if here == there:
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await stage.world.regions[here].network.connect(points[there], HTTP)
                raise ExpectationFailed(f"{there}'s access point can be reached from {here}")
    return "no region's access point can be reached from another region: their networks are separate"


async def _renewed(stage: RegionsStage, pool: str) -> str | None:
    service = await stage.world.cluster.get(POOL_SERVICES, "default", f"{SERVICE}-{pool}")
    return service.spec.renew_time


def _pods(stage: RegionsStage, name: str) -> str:
    counts = stage.traffics[name].count.by_pod
    return ", ".join(f"{pod} {number}" for pod, number in sorted(counts.items()))
