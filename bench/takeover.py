"""Measures how long another hub takes to lead when the leader dies or is suspended, and what connections see.

Two hubs at one API, each with an Envoy; connections go to a load balancer at the first one's, which outlives its hub.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from bench.figures import Figure
from bench.fleet import Process, until_true
from bench.hub_alone import SPACE, HubAlone, add_tenant, endpoint_slice, hub_alone, load_balancer
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

POOL, OTHER_POOL = "127.142.0.0/16", "127.143.0.0/16"
BACKEND, PORT = "127.98.9.1", 8080
ROUNDS = 3
#: The hub's lease is of 15 s.
LIMIT_S = 16.0
_EVERY_S = 0.02


async def takeover() -> AsyncIterator[Figure]:
    """Measure both ways to lose a leader, several times each, the two hubs in turn."""
    server = await asyncio.start_server(_answer, BACKEND, PORT)
    try:
        async with hub_alone(pool=POOL) as first, _beside(first) as second:
            await first.process.start()
            await until_true(lambda: _leads(first), what="the first hub leads")
            await add_tenant(first.cluster)
            await first.cluster.create(ENDPOINT_SLICES, endpoint_slice("web", [BACKEND], port=PORT))
            await first.cluster.create(TCP_LOAD_BALANCERS, load_balancer("web"))
            await until_true(lambda: _answers(first), what="the load balancer serves")
            await second.process.start()
            await until_true(lambda: _ready(second), what="the second hub is ready")
            counts = {True: 0, False: 0}
            clients = asyncio.create_task(_connect(first, counts))
            leader, other = first, second
            for what, number in (("killed", signal.SIGKILL), ("suspended", signal.SIGSTOP)):
                took_s: list[float] = []
                for _ in range(ROUNDS):
                    took_s.append(await _lose(leader, other, number))
                    leader, other = other, leader
                yield Figure(
                    name=f"the leader is {what}: seconds until another one leads, longest of {ROUNDS}",
                    value=max(took_s), unit="s", limit=LIMIT_S,
                )  # fmt: skip
            clients.cancel()
            await asyncio.gather(clients, return_exceptions=True)
            yield Figure(name="connections meanwhile", value=counts[True] + counts[False], unit="")
            yield Figure(name="failed connections", value=counts[False], unit="", limit=0)
    finally:
        server.close()


@asynccontextmanager
async def _beside(first: HubAlone) -> AsyncGenerator[HubAlone]:
    """Add a second hub at the API of the first, with a directory and addresses of its own; it is not started yet."""
    directory = first.data.parent
    hub = HubAlone(directory, first.cluster, api=first.api, pool=OTHER_POOL)
    hub.data = directory / "i"
    given = list(hub.process.arguments)
    given[given.index("--data-dir") + 1] = str(hub.data)
    hub.process = Process("second-hub", *given, directory=directory)
    try:
        yield hub
    finally:
        await hub.process.kill()
        hub.end_envoys()


async def _lose(leader: HubAlone, other: HubAlone, number: signal.Signals) -> float:
    """Take the leader away, and bring it back once the other one leads; return how long that took, in seconds."""
    process = leader.process.process
    assert process is not None
    os.kill(process.pid, number)
    began_s = time.perf_counter()
    await until_true(lambda: _leads(other), what="the other hub leads")
    took_s = time.perf_counter() - began_s
    if number is signal.SIGSTOP:
        os.kill(process.pid, signal.SIGCONT)
    else:
        await process.wait()
        await leader.process.start()
    await until_true(lambda: _ready(leader), what="the hub is back")
    # What comes back leads no more, whatever it believed before.
    await asyncio.sleep(3)
    if await _leads(leader):
        raise RuntimeError("two hubs lead")
    return took_s


async def _leads(hub: HubAlone) -> bool:
    return await hub.metric("fairlead_hub_leading") == 1


async def _ready(hub: HubAlone) -> bool:
    return bool(await hub.page("/readyz"))


async def _answers(hub: HubAlone) -> bool:
    address = (await hub.cluster.get(TCP_LOAD_BALANCERS, SPACE, "web")).status.address
    return bool(address) and await _once(address)


async def _connect(hub: HubAlone, counts: dict[bool, int]) -> None:
    """Connect again and again until cancelled."""
    address = (await hub.cluster.get(TCP_LOAD_BALANCERS, SPACE, "web")).status.address
    while True:
        counts[await _once(address)] += 1
        await asyncio.sleep(_EVERY_S)


async def _once(address: str) -> bool:
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(address, 80)
            answer = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return False
    return answer == b"ok"


async def _answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"ok")
    await writer.drain()
    writer.close()
