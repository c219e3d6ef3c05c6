"""Regions as a process: caches, controllers and workers wired together, started in order.

    1 the kinds are installed  else it exits with the missing ones
    2 caches are synced        nothing is decided on a partial view
    3 it leads                 enqueues every key once, then those that changes concern

In: a Cluster and settings. Out: a running layer 1, and our layer 2 beside it. Losing the lease stops every write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fairlead.api.names import MANAGER_REGIONS, REGIONS_LEASE
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.leadership import Leadership, ReplicaConfig
from fairlead.kube.own_kinds import ensure_own_kinds
from fairlead.regions.access_points import AccessPointsController
from fairlead.regions.balancer.reconcile import Balancer
from fairlead.regions.changes import Changes
from fairlead.regions.inventory import Inventory
from fairlead.regions.node_conflicts import NodeConflicts
from fairlead.regions.openyurt import OpenYurt
from fairlead.regions.pool_endpoints import PoolEndpointsController
from fairlead.regions.pool_service import PoolServiceController
from fairlead.regions.pool_service_writer import PoolServiceWriter
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry


class RegionsConfig(ReplicaConfig, frozen=True, kw_only=True):
    """The settings of regions; ``balancer`` off leaves layer 2 wholly to others."""

    workers: int = 3
    look_s: float = 30.0
    balancer: bool = True


class _Loop(NamedTuple):
    """One controller: its queue, what is done with a key, and every key that there is."""

    name: str
    queue: KeyedQueue[Any]
    reconcile: Callable[[Any], Awaitable[float | None]]
    everything: Callable[[], Sequence[Any]]


class Regions:
    """One replica of layer 1, with our layer 2."""

    def __init__(self, *, cluster: Cluster, config: RegionsConfig, telemetry: Telemetry | None = None) -> None:
        config.check()
        self._cluster = cluster
        self._config = config
        self._telemetry = telemetry or Telemetry()
        self._events = EventRecorder(cluster, component="fairlead-regions")
        self.inventory: Inventory | None = None
        self.changes: Changes | None = None
        self.balancer: Balancer | None = None
        self.queues: dict[str, KeyedQueue[Any]] = {}
        self.term = Leadership(cluster, REGIONS_LEASE, config)

    @property
    def leading(self) -> bool:
        """Return whether this replica may write, at this very moment."""
        return self.term.may_write()

    @property
    def caches(self) -> dict[str, WatchCache[Any]]:
        """Return every cache by the full name of its kind; a kind that is installed later comes later."""
        if self.inventory is None:
            return {}
        return {**self.inventory.caches, **(self.balancer.watch.caches if self.balancer is not None else {})}

    def not_ready(self) -> list[str]:
        """Return the reasons why this replica is not ready, one sentence each; none when it is."""
        if self.inventory is None:
            return ["regions: not started yet"]
        return [
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in self.caches.items()
            if cache.problem or not cache.synced
        ]

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            BadConfiguration: a kind that is needed is not installed, and we may not install it.
        """
        await self.prepare()
        inventory = self.inventory = Inventory(self._cluster)
        changes = self.changes = Changes(cluster=self._cluster, inventory=inventory)
        openyurt = OpenYurt(cluster=self._cluster, changes=changes, interval_s=self._config.look_s)
        await openyurt.find()
        loops = self._loops(inventory, changes)
        self.queues = {loop.name: loop.queue for loop in loops}
        conflicts = NodeConflicts(inventory=inventory, events=self._events, leading=self.term.may_write)
        changes.on_pools.append(lambda _pool: conflicts.emit())

        def begin() -> None:
            for loop in loops:
                for key in loop.everything():
                    loop.queue.add(key)
            conflicts.emit()

        async with asyncio.TaskGroup() as group:
            for cache in self.caches.values():
                if cache is not openyurt.cache:
                    group.create_task(cache.run())
            group.create_task(openyurt.run())
            group.create_task(self._events.run())
            for cache in list(self.caches.values()):
                await cache.wait_synced()
            for loop in loops:
                workers = self._config.workers
                group.create_task(
                    run_workers(loop.queue, loop.reconcile, workers=workers, name=loop.name, telemetry=self._telemetry)
                )
            group.create_task(self.term.run(begin))

    async def prepare(self) -> None:
        """Install our kinds, or check that they are there, and make our namespace."""
        await ensure_own_kinds(self._cluster, component="Regions", manager=MANAGER_REGIONS)

    def _loops(self, inventory: Inventory, changes: Changes) -> list[_Loop]:
        cluster, events, leading = self._cluster, self._events, self.term.may_write
        writer = PoolServiceWriter(cluster=cluster, inventory=inventory, events=events, leading=leading)
        services = PoolServiceController(
            cluster=cluster, inventory=inventory, changes=changes, writer=writer, leading=leading
        )
        endpoints = PoolEndpointsController(
            clock=cluster.clock, inventory=inventory, changes=changes, writer=writer, leading=leading
        )
        access = AccessPointsController(
            cluster=cluster, inventory=inventory, changes=changes, events=events, leading=leading
        )
        loops = [
            _Loop("pool-service", services.queue, services.reconcile, inventory.service_keys),
            # Every region is reconciled with its Service, so there is nothing to begin with here.
            _Loop("pool-endpoints", endpoints.queue, endpoints.reconcile, list[Any]),
            _Loop("access-points", access.queue, access.reconcile, inventory.service_keys),
        ]
        if self._config.balancer:
            balancer = self.balancer = Balancer(
                cluster=cluster, inventory=inventory, changes=changes, events=events, leading=leading
            )
            loops.append(_Loop("balancer", balancer.watch.queue, balancer.reconcile, balancer.watch.keys))
        return loops
