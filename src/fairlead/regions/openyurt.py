"""Follow by discovery whether the API serves OpenYurt's NodePools; it may be installed or removed at any time.

    not served ──served──► its pools count, before ours ──another version is served──► that one, once it is read
        ▲                                │
        └──not served, and none is left──┘

In: the API's discovery. Out: a cache in the inventory, run and stopped here.
Never: drops pools because discovery said nothing; a kind that is removed takes its objects along first, one by one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from fairlead.api.meta import AnyResource
from fairlead.api.nodepool import OPENYURT_GROUP, OPENYURT_VERSIONS, openyurt_node_pools
from fairlead.errors import FairleadError
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import served_kinds
from fairlead.regions.changes import Changes

log = structlog.get_logger(__name__)


class OpenYurt:
    """OpenYurt's kind of pools, while it is there."""

    def __init__(self, *, cluster: Cluster, changes: Changes, interval_s: float) -> None:
        self._cluster = cluster
        self._changes = changes
        self._interval_s = interval_s
        self.cache: WatchCache[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    async def find(self) -> None:
        """Ask once, before anything runs.

        Raises:
            FairleadError: the API does not answer.
        """
        kind = await self._served()
        if kind is not None:
            self.cache = self._changes.add_node_pools(kind)

    async def run(self) -> None:
        """Keep the cache of whatever is served, until cancelled."""
        problem = ""
        async with asyncio.TaskGroup() as group:
            if self.cache is not None:
                self._task = group.create_task(self.cache.run())
            while True:
                await self._cluster.clock.sleep(self._interval_s)
                try:
                    await self._update(group)
                    problem = ""
                except FairleadError as error:
                    if error.sentence != problem:
                        log.warning("openyurt", sentence=error.sentence, detail=error.detail)
                    problem = error.sentence

    async def _update(self, group: asyncio.TaskGroup) -> None:
        kind = await self._served()
        if kind is None:
            if self.cache is not None and not len(self.cache):
                self._leave(self.cache, self._task)
                self.cache = self._task = None
                log.info("OpenYurt's NodePools are not served any more, and none was left")
        elif self.cache is None or self.cache.resource.version != kind.version:
            log.info("OpenYurt's NodePools are served", version=kind.api_version)
            await self._turn_to(kind, group)

    async def _turn_to(self, kind: AnyResource, group: asyncio.TaskGroup) -> None:
        cache = self._changes.add_node_pools(kind)
        task = group.create_task(cache.run())
        try:
            await cache.wait_synced(self._interval_s)
        except FairleadError:
            self._leave(cache, task)
            raise
        if self.cache is not None:
            self._leave(self.cache, self._task)
        self.cache, self._task = cache, task

    def _leave(self, cache: WatchCache[Any], task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
        self._changes.drop_node_pools(cache)

    async def _served(self) -> AnyResource | None:
        for version in OPENYURT_VERSIONS:
            if any(kind.name == "nodepools" for kind in await served_kinds(self._cluster, OPENYURT_GROUP, version)):
                return openyurt_node_pools(version)
        return None
