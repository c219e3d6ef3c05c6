"""One change to 1,000 proxies: streams of delta xDS over gRPC, a connection each, in addition to the hub's own Envoy.

The clients acknowledge like Envoys, and are cheap: what is measured is the hub, as far as one machine can keep the two
apart.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from grpc import aio

from bench.figures import Figure, percentile
from bench.fleet import until, until_true
from bench.hub_alone import SPACE, HubAlone, add_tenant, create_load_balancers, hub_alone
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.providers.envoy.fleet_local import GROUP
from fairlead.providers.envoy.resources import ResourceType, delimited, fields_of, text

_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
LOAD_BALANCERS, BACKENDS, CHANGES = 100, 5, 20
POOL = "127.141.0.0/16"
CHANGED = "lb-0"
#: So many connections begin at once.
_AT_ONCE = 50


class Stream:
    """One proxy: asks for clusters, their endpoints and listeners, and acknowledges what it gets."""

    def __init__(self, number: int) -> None:
        self._node = delimited(1, text(1, f"{GROUP}/stream-{number}") + text(2, GROUP))
        self._acks: asyncio.Queue[bytes] = asyncio.Queue()
        self._has: dict[bytes, set[bytes]] = {kind.value.encode(): set() for kind in ResourceType}
        #: When the last endpoints came, by ``time.perf_counter``.
        self.endpoints_at_s = 0.0

    @property
    def complete(self) -> bool:
        """Return whether it has the endpoints of every cluster, and a listener for each."""
        counts = {kind: len(self._has[kind.value.encode()]) for kind in ResourceType}
        return (
            min(counts[ResourceType.CLUSTER], counts[ResourceType.ENDPOINTS], counts[ResourceType.LISTENER])
            >= LOAD_BALANCERS
        )

    async def run(self, socket: str) -> None:
        """Follow the hub until cancelled."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 * 1024 * 1024)]
        async with aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            call = cast("Any", channel.stream_stream(_METHOD))()
            await call.write(self._node + text(2, ResourceType.CLUSTER.value))
            await call.write(text(2, ResourceType.LISTENER.value))
            while isinstance(message := await call.read(), bytes):
                await self._answer(call, message)

    async def _answer(self, call: Any, message: bytes) -> None:
        kind, nonce = next(fields_of(message, 4)), next(fields_of(message, 5))
        names = [next(fields_of(resource, 3)) for resource in fields_of(message, 2)]
        if kind == ResourceType.ENDPOINTS.value.encode():
            self.endpoints_at_s = time.perf_counter()
        has = self._has[kind]
        new = [name for name in names if name not in has]
        has.update(names)
        await call.write(delimited(2, kind) + delimited(6, nonce))
        if kind == ResourceType.CLUSTER.value.encode() and new:
            wanted = b"".join(delimited(3, name) for name in new)
            await call.write(text(2, ResourceType.ENDPOINTS.value) + wanted)


@asynccontextmanager
async def _connected(hub: HubAlone, count: int) -> AsyncGenerator[list[Stream]]:
    """Connect so many proxies, and wait until each has everything."""
    socket = str(hub.data / "xds.sock")
    streams = [Stream(number) for number in range(count)]
    tasks: list[asyncio.Task[None]] = []
    try:
        for begin in range(0, count, _AT_ONCE):
            some = streams[begin : begin + _AT_ONCE]
            tasks += [asyncio.create_task(stream.run(socket)) for stream in some]
            await until(lambda some=some: all(each.complete for each in some), what="proxies in sync", timeout_s=300)
        yield streams
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def one_change(count: int = int(os.environ.get("PROXIES", "1000"))) -> AsyncIterator[Figure]:
    """Change the backends of one load balancer, and look when each proxy has them."""
    async with hub_alone(pool=POOL) as hub:
        await hub.process.start()

        async def ready() -> bool:
            return bool(await hub.page("/readyz"))

        await until_true(ready, what="the hub's /readyz", every_s=0.2)
        await add_tenant(hub.cluster)
        await create_load_balancers(hub.cluster, 0, LOAD_BALANCERS, backends=BACKENDS)

        async def programmed() -> bool:
            return await hub.programmed() == LOAD_BALANCERS

        await until_true(programmed, what="all are programmed", every_s=0.2)
        began_s = time.perf_counter()
        async with _connected(hub, count) as streams:
            yield Figure(
                name=f"{count:,} proxies connect and get {LOAD_BALANCERS} load balancers, {_AT_ONCE} at once",
                value=time.perf_counter() - began_s, unit="s",
            )  # fmt: skip
            await until_true(programmed, what="all are programmed at all proxies", every_s=0.2, timeout_s=300)
            await asyncio.sleep(3)
            latencies_ms: list[float] = []
            slowest_ms: list[float] = []
            before_cpu_s = hub.process.cpu_s
            for number in range(CHANGES):
                body = {"endpoints": [{"addresses": [f"127.98.1.{number + 1}"], "conditions": {"ready": True}}]}
                started_s = time.perf_counter()
                await hub.cluster.merge_patch(ENDPOINT_SLICES, SPACE, f"{CHANGED}-1", body)
                await until(
                    lambda s=started_s: all(each.endpoints_at_s > s for each in streams), what="every proxy has it"
                )
                took_ms = [(each.endpoints_at_s - started_s) * 1e3 for each in streams]
                latencies_ms += took_ms
                slowest_ms.append(max(took_ms))
                await asyncio.sleep(0.5)
            cpu_ms = (hub.process.cpu_s - before_cpu_s) / CHANGES * 1e3
            what = f"one change of endpoints to {count:,} proxies"
            yield Figure(name=f"{what}: p50", value=percentile(latencies_ms, 0.5), unit="ms", limit=150)
            yield Figure(name=f"{what}: p99", value=percentile(latencies_ms, 0.99), unit="ms")
            yield Figure(name=f"{what}: the last of them, p50", value=percentile(slowest_ms, 0.5), unit="ms")
            yield Figure(name=f"{what}: CPU of the hub for it", value=cpu_ms, unit="ms")
            yield Figure(name=f"hub memory with {count:,} proxies", value=hub.process.rss_mb, unit="MB")
