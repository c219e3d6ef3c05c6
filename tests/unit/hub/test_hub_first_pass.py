"""Nothing is published before every key has been reconciled with all that it refers to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from fairlead.hub.app import FirstPass
from fairlead.model.keys import LoadBalancerKey

FIRST, SECOND = (LoadBalancerKey("HTTPLoadBalancer", "tenant-east", name) for name in ("first", "second"))


class Kind:
    """A kind with one load balancer, which refers to what is read when ``read`` is set."""

    def __init__(self, *, refers: bool) -> None:
        self.read = asyncio.Event()
        self.refers = refers
        self.objects = self

    def served(self) -> list[LoadBalancerKey]:
        return [SECOND]

    def key(self, obj: LoadBalancerKey) -> LoadBalancerKey:
        return obj

    async def wait_read(self, _timeout_s: float) -> bool:
        if self.refers:
            await self.read.wait()
        return self.refers


class World:
    """Keys that are woken are reconciled at once, and counted."""

    def __init__(self) -> None:
        self.first_pass = FirstPass()
        self.reconciled: list[LoadBalancerKey] = []
        self._reconcile = self.first_pass.counted(self._look)

    async def _look(self, key: LoadBalancerKey) -> float | None:
        self.reconciled.append(key)
        if len(self.reconciled) == 1:
            raise RuntimeError("a key that fails counts too")
        return None

    def wake(self, keys: Iterable[LoadBalancerKey], _cause: str) -> None:
        self.woken = [asyncio.ensure_future(self._reconcile(key)) for key in keys]

    def run(self, *kinds: Kind) -> asyncio.Task[None]:
        return asyncio.create_task(self.first_pass.run([FIRST, SECOND], cast("Any", kinds), self.wake))


async def test_kinds_that_refer_to_nothing_are_reconciled_once() -> None:
    world = World()
    async with asyncio.timeout(180):
        await world.run(Kind(refers=False))
    await asyncio.gather(*world.woken, return_exceptions=True)
    assert sorted(key.name for key in world.reconciled) == ["first", "second"]


async def test_a_kind_that_refers_to_others_is_reconciled_again_when_these_have_been_read() -> None:
    world, kind = World(), Kind(refers=True)
    running = world.run(Kind(refers=False), kind)
    async with asyncio.timeout(180):
        while len(world.reconciled) < 2:  # noqa: ASYNC110 (nothing to wait for but the loop)
            await asyncio.sleep(0)
        await asyncio.gather(*world.woken, return_exceptions=True)
        assert not running.done()
        kind.read.set()
        await running
    assert [key.name for key in world.reconciled[2:]] == ["second"]


async def test_without_keys_it_is_over_at_once() -> None:
    world = World()
    async with asyncio.timeout(180):
        await world.first_pass.run([], [], world.wake)
    assert world.reconciled == []
