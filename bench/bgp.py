"""Measures how soon a router drops and gets back the routes of a machine, and what a restart of the announcer costs.

In: a router (BIRD) and two machines in network namespaces; needs root, bird2 and frr. Out: figures. All times are those
at which the kernel of the router changed its routes. The proxy's death is the report of it: its detection is not in it.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bench.figures import Figure
from fairlead.errors import BadConfiguration
from fairlead.model.machine import BgpPeerPlan
from fairlead_demo.worlds.bgp import BgpWorld, bgp_problem, router_peer

ROUNDS = 10
WEB = "192.0.2.1"
MANY = 5_000
LEAVES = 3
_UNTUNED = "BIRD with defaults: 63 s back"


async def measured() -> AsyncIterator[Figure]:
    """Measure each event ten times."""
    if problem := bgp_problem():
        raise BadConfiguration(problem)
    with tempfile.TemporaryDirectory(prefix="fairlead-bgp-") as directory:
        world = BgpWorld(Path(directory))
        try:
            async for figure in _events(world):
                yield figure
        finally:
            await world.close()


async def _events(world: BgpWorld) -> AsyncIterator[Figure]:
    router = world.start_router("bfd on; graceful restart on;")
    peers = (router_peer(bfd=True, graceful_restart=True),)
    first, second = await world.add_machine(), await world.add_machine()
    for machine in (first, second):
        await machine.apply({WEB: True}, peers=peers)
    for machine in (first, second):
        await machine.until_up()
    await world.until_hops(WEB, 2)

    withdrawn: list[float] = []
    for _ in range(ROUNDS):
        at = time.time()
        await first.apply({WEB: False}, peers=peers)
        withdrawn.append(await world.log.changed(at, WEB))
        await first.apply({WEB: True}, peers=peers)
        await world.until_hops(WEB, 2)
    for figure in _two("proxy reported dead, to the route being gone", withdrawn, 1.0, ""):
        yield figure

    gone: list[float] = []
    back: list[float] = []
    for _ in range(ROUNDS):
        await first.until(lambda: first.sessions["router"].bfd == "Up")
        at = time.time()
        world.link(first, up=False)
        gone.append(await world.log.changed(at, WEB))
        await first.until(lambda: not first.sessions["router"].up)
        at = time.time()
        world.link(first, up=True)
        back.append(await world.log.changed(at, WEB))
        await first.until_up()
    for figure in (*_two("link cut, BFD 100 ms x 3", gone, 0.5, ""), *_two("back after a cut", back, 5.0, _UNTUNED)):
        yield figure

    crashed: list[float] = []
    for _ in range(ROUNDS):
        await first.until(lambda: first.sessions["router"].bfd == "Up")
        at = time.time()
        os.kill(first.speaker_pid(), signal.SIGKILL)
        crashed.append(await world.log.changed(at, WEB, number=2))
        await first.until_up()
    for figure in _two("speaker killed, to the route being back (the other machine serves)", crashed, 5.0, ""):
        yield figure

    async for figure in _leaves(world, peers):
        yield figure

    before = router.updates()
    for _ in range(ROUNDS):
        await first.kill()
        await first.start()
        await first.apply({WEB: None}, peers=peers)
    updates = sum(router.updates()) - sum(before)
    yield Figure(
        name=f"announcer killed and started {ROUNDS} times: updates at the router", value=updates, unit="", limit=0
    )

    addresses = {f"198.18.{number // 250}.{1 + number % 250}": True for number in range(MANY)}
    last = list(addresses)[-1]
    at = time.time()
    await second.apply({WEB: True, **addresses}, peers=peers)
    await world.until_hops(last, 1)  # the log of changes may lose some of so many
    yield Figure(name=f"{MANY:,} addresses: last route at the router", value=time.time() - at, unit="s")
    at = time.time()
    await second.apply({WEB: True, **addresses, last: False}, peers=peers)
    await world.until_hops(last, 0)
    yield Figure(name=f"one of {MANY:,} withdrawn, with the plan as JSON", value=time.time() - at, unit="s")


async def _leaves(world: BgpWorld, peers: tuple[BgpPeerPlan, ...]) -> AsyncIterator[Figure]:
    third = await world.add_machine()
    for how, resilient, limit in (("plain multipath", False, None), ("resilient next hops", True, 0)):
        cut = others = 0
        for _ in range(LEAVES):
            await third.apply({WEB: True}, peers=peers)
            await world.until_hops(WEB, 3)
            now_cut, now_others = await world.cut_by_a_leave(WEB, third, resilient=resilient, peers=peers)
            cut, others = cut + now_cut, others + now_others
        name = f"one of three machines leaves, {how}: of {others} connections to the others, cut"
        yield Figure(name=name, value=cut, unit="", limit=limit)
    await third.close()
    world.machines.remove(third)


def _two(name: str, values: Sequence[float], limit: float, compares_with: str) -> list[Figure]:
    return [
        Figure(
            name=f"{name}: p50", value=statistics.median(values), unit="s", limit=limit, compares_with=compares_with
        ),
        Figure(name=f"{name}: worst of {len(values)}", value=max(values), unit="s", limit=limit),
    ]
