"""Measures statuses and writes when all load balancers lose their backends at once and get them back.

One server is their only backend, so all of them lose it in one moment. A watch of the hub's API counts the writes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress

from bench.figures import Figure
from bench.fleet import Fleet, fleet, until_true
from bench.objects import endpoint_slice, service
from bench.traffic import programmed
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.kube.cache import WatchCache

COUNT = 5000
BACKEND, PORT = "127.99.4.1", 8080
_AT_ONCE = 32


class _Statuses:
    """What the hub writes of its load balancers: how many say each status of Serving, and writes for each."""

    def __init__(self, cache: WatchCache[TCPLoadBalancer]) -> None:
        self.writes: Counter[str] = Counter()
        self._cache = cache
        cache.on_change(self._changed)

    def _changed(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        if old is not None and new is not None:
            self.writes[new.metadata.name] += 1

    async def all_say(self, status: str) -> bool:
        return all(
            any(each.type == "Serving" and each.status == status for each in load_balancer.status.conditions or ())
            for load_balancer in self._cache.values()
        )


async def all_at_once() -> AsyncIterator[Figure]:
    """Serve 5,000 Services, end their backend, and start it again."""
    async with fleet(target="Pod") as running:
        cache = WatchCache(running.hub_cluster, TCP_LOAD_BALANCERS)
        async with asyncio.TaskGroup() as tasks:
            with _backend():
                await _serve(running)
                following = tasks.create_task(cache.run())
                await cache.wait_synced(60)
                statuses = _Statuses(cache)
                await until_true(lambda: statuses.all_say("True"), what="all serve", timeout_s=300, every_s=1)
                await asyncio.sleep(10)
                statuses.writes.clear()
            async for figure in _measured(statuses, "False", "all lose their backends at once"):
                yield figure
            with _backend():
                async for figure in _measured(statuses, "True", "all get them back"):
                    yield figure
            following.cancel()


async def _serve(running: Fleet) -> None:
    """Have 5,000 Services with one backend programmed."""
    await _fill(running)
    await running.agent.start()

    async def done() -> bool:
        return await programmed(running, COUNT)

    await until_true(done, what=f"{COUNT:,} load balancers", timeout_s=600, every_s=1)


async def _measured(statuses: _Statuses, status: str, what: str) -> AsyncIterator[Figure]:
    """Wait until all say so and nothing more is written; the count of writes starts again afterwards."""
    started = time.perf_counter()
    await until_true(lambda: statuses.all_say(status), what=f"Serving {status} of all", timeout_s=120, every_s=0.05)
    took_s = time.perf_counter() - started
    await asyncio.sleep(10)
    most = max(statuses.writes.values(), default=0)
    name = f"{COUNT:,} load balancers, {what}"
    yield Figure(
        name=f"{name}: until Serving {status} is in every status", value=took_s, unit="s", limit=15,
        compares_with="two checks 5 s apart are 5 to 10 s of it",
    )  # fmt: skip
    yield Figure(name=f"{name}: writes for the one that was written most", value=most, unit="", limit=1)
    statuses.writes.clear()


@contextmanager
def _backend() -> Generator[None]:
    """Accept connections inside the block, in a thread: two thousand checks a second would hold up what measures."""

    def accept() -> None:
        with suppress(OSError):  # it has ended
            while True:
                server.accept()[0].close()

    server = socket.create_server((BACKEND, PORT), backlog=4096)
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        # Wakes the thread, which closing does not.
        server.shutdown(socket.SHUT_RDWR)
        server.close()


async def _fill(running: Fleet) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def create(name: str) -> None:
        async with slots:
            await running.member_cluster.create(SERVICES, service(name))
            await running.member_cluster.create(ENDPOINT_SLICES, endpoint_slice(name, [BACKEND], port=PORT))

    await asyncio.gather(*(create(f"svc-{number}") for number in range(COUNT)))
