"""What does the demo of regions show, one step after the other? Each acts, waits for what is promised, and checks it.

In: a running ``RegionsWorld`` and its traffic. Out: lines of the show; ``StepFailed`` for a broken promise.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.demo.process import StepFailed, wait_until
from fairlead.demo.regions_world import SERVICE, RegionsWorld
from fairlead.demo.show import Show
from fairlead.demo.traffic import Traffic

REGIONS = ("hangzhou", "shanghai", "beijing")
_ADDRESS_S = 45.0


class RegionsStage(msgspec.Struct):
    """What the steps work on. ``traffics``: by region, from a client inside it to its own access point."""

    world: RegionsWorld
    show: Show
    traffics: dict[str, Traffic]

    def failures(self) -> list[str]:
        """Return what has gone wrong so far: failed requests, and answers from another region."""
        found = [
            f"{name}: {traffic.count.failed} requests failed ({'; '.join(traffic.count.failures)})"
            for name, traffic in self.traffics.items()
            if traffic.count.failed
        ]
        for name, traffic in self.traffics.items():
            strangers = sorted(pod for pod in traffic.count.by_pod if not pod.startswith(f"{name}-"))
            if strangers:
                found.append(f"{name}: answered by {', '.join(strangers)}")
        return found


async def start_everything(stage: RegionsStage) -> None:
    """Start a cluster and three regions."""
    stage.show.doing("starting one cluster with three regions, each with its own network, hub and Envoy")
    await stage.world.start()
    for name in REGIONS:
        await stage.world.add_region(name)
    networks = [region.network.words for region in stage.world.regions.values()]
    stage.show.done("one cluster runs in three regions", *networks)


async def give_access_points(stage: RegionsStage) -> None:
    """Create one Service and wait for its three access points."""
    stage.show.doing("one Service waits for an access point in each region")
    await stage.world.create_service()
    await _access_points(stage, REGIONS)
    points = await stage.world.addresses()
    shown = ",".join(points[name] for name in sorted(points))
    facts = [f"NAME {SERVICE}   TYPE LoadBalancer   EXTERNAL-IP {shown}   PORT(S) 80/TCP"]
    facts += [f"{name}: {points[name]}" for name in REGIONS]
    stage.show.done("one Service, one access point per region", *facts)


async def stay_in_the_region(stage: RegionsStage) -> None:
    """Send traffic inside each region; nobody sees another region's pods."""
    stage.show.doing("a client in each region talks to its own access point")
    points = await stage.world.addresses()
    for name in REGIONS:
        _start_traffic(stage, name, points[name])
    await _every_pod_answers(stage)
    _no_failures(stage, "at first")
    facts = [f"{name}: {_pods(stage, name)}" for name in REGIONS]
    if stage.world.networks.separate:
        facts.append(await _no_way_between(stage, points))
    stage.show.done("each client reaches the pods of its own region, and no others", *facts)


async def roll_pods(stage: RegionsStage) -> None:
    """Replace every pod of every region, gracefully."""
    stage.show.doing("all pods are replaced, one by one")

    async def roll(name: str) -> None:
        region = stage.world.regions[name]
        for old in [pod for pod in stage.world.pods if pod.name.startswith(f"{name}-")]:
            await stage.world.start_pod(region, old.node)
            await stage.world.retire_pod(old)

    await asyncio.gather(*(roll(name) for name in REGIONS))
    await _every_pod_answers(stage)
    _no_failures(stage, "while pods were rolled")
    stage.show.done("every pod of every region was replaced, and no request failed")


async def move_a_node(stage: RegionsStage) -> None:
    """Move a node from hangzhou to shanghai; the third region sees nothing of it."""
    stage.show.doing("a node moves from hangzhou to shanghai")
    world = stage.world
    before = await _renewed(stage, "beijing")
    node = "hangzhou-2"
    (pod,) = [one for one in world.pods if one.node == node]
    await world.retire_pod(pod)
    await world.write_node(node, world.regions["shanghai"])
    moved = await world.start_pod(world.regions["shanghai"], node)
    await _every_pod_answers(stage)
    _no_failures(stage, "while a node moved")
    if await _renewed(stage, "beijing") != before:
        raise StepFailed("beijing was touched although nothing there has changed")
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
    await _every_pod_answers(stage)
    _no_failures(stage, "while a region was added")
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
        services = {one.metadata.name for one in await world.cluster.list(POOL_SERVICES)}
        balancers = {one.spec.region for one in await world.cluster.list(TCP_LOAD_BALANCERS)}
        return f"{SERVICE}-beijing" not in services and "beijing" not in balancers

    await wait_until(gone, "beijing's load balancer is removed")

    async def refused() -> bool:
        try:
            _, writer = await world.regions["beijing"].network.connect(points["beijing"], 80)
        except OSError:
            return True
        writer.close()
        return False

    await wait_until(refused, f"nobody listens at {points['beijing']} any more")
    after = await world.addresses()
    if any(after[name] != points[name] for name in left):
        raise StepFailed(f"addresses of other regions have changed: {points} became {after}")
    await _every_pod_answers(stage)
    _no_failures(stage, "while a region was deleted")
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
            if not region.hub.running:
                raise StepFailed(
                    f"{region.hub.name} has ended: {region.hub.last_words()}", detail=f"see {region.hub.log}"
                )
        return set(await stage.world.addresses()) == set(names)

    await wait_until(there, f"the Service has access points in {', '.join(names)}", timeout_s=_ADDRESS_S)


def _start_traffic(stage: RegionsStage, name: str, address: str) -> None:
    network = stage.world.regions[name].network
    traffic = stage.traffics[name] = Traffic(host=address, new_per_s=15.0, kept=2, connect=network.connect)
    traffic.start()


async def _every_pod_answers(stage: RegionsStage) -> None:
    """Wait until every pod of now has answered in its own region, and something since now."""
    start = {name: traffic.count.by_pod.copy() for name, traffic in stage.traffics.items()}

    async def all_answered() -> bool:
        return all(
            stage.traffics[name].count.by_pod[pod.name] > start[name][pod.name]
            for pod in stage.world.pods
            if (name := pod.name.partition("-")[0]) in stage.traffics and _running(stage, name)
        )

    await wait_until(all_answered, "every pod answers", timeout_s=25.0)


def _running(stage: RegionsStage, name: str) -> bool:
    return stage.traffics[name].running


async def _no_way_between(stage: RegionsStage, points: dict[str, str]) -> str:
    for here in REGIONS:
        for there in REGIONS:
            if here == there:
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await stage.world.regions[here].network.connect(points[there], 80)
                raise StepFailed(f"{there}'s access point can be reached from {here}")
    return "no region's access point can be reached from another region: their networks are separate"


async def _renewed(stage: RegionsStage, pool: str) -> str | None:
    found = await stage.world.cluster.get(POOL_SERVICES, "default", f"{SERVICE}-{pool}")
    return found.spec.renew_time


def _pods(stage: RegionsStage, name: str) -> str:
    counts = stage.traffics[name].count.by_pod
    return ", ".join(f"{pod} {number}" for pod, number in sorted(counts.items()))


def _no_failures(stage: RegionsStage, when: str) -> None:
    if failures := stage.failures():
        raise StepFailed(f"requests went wrong {when}: {'; '.join(failures)}")
