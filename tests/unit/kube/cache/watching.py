"""A cache that watches Services of a scripted API, and what is seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from kube_scripted import ScriptedApi, is_list

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import SystemClock

Changes = list[tuple[str | None, str | None]]


class QuickClock(SystemClock):
    """The machine's clock, on which waits are a hundred times shorter; it remembers what was asked for."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await asyncio.sleep(seconds / 100)


@asynccontextmanager
async def running(cluster: Cluster, **more: Any) -> AsyncGenerator[tuple[WatchCache[Service], Changes]]:
    wait = more.pop("wait", True)
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES, **more)
    changes: Changes = []
    cache.on_change(
        lambda old, new: changes.append((old.metadata.name if old else None, new.metadata.name if new else None))
    )
    task = asyncio.create_task(cache.run())
    try:
        if wait:
            await cache.wait_synced(5)
        yield cache, changes
    finally:
        assert not task.done() or task.exception() is None
        task.cancel()
        await asyncio.wait({task})


def names(cache: WatchCache[Service]) -> list[str]:
    return sorted(obj.metadata.name for obj in cache.values())


def relists(cluster: Cluster) -> float | None:
    labels = {"cluster": cluster.name, "resource": "services", "event": "relist"}
    return cluster.metrics.registry.get_sample_value("fairlead_kube_cache_events_total", labels)


def lists(api: ScriptedApi) -> int:
    return sum(1 for seen in api.seen if is_list(seen))
