"""Regions as a process: caches, controllers and workers wired together, started in order.

    1 the kinds are there      or it refuses to start and says which are missing
    2 caches synced            nothing is decided on half a view
    3 leading                  every key once, then whatever wakes one

In: a Cluster and settings. Out: a running layer 1, and our layer 2 beside it. Losing the lease stops every write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import structlog

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import API_VERSION, MANAGER_REGIONS, REGIONS_LEASE, SYSTEM_NAMESPACE
from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import AlreadyExists, BadConfiguration, Forbidden, NotFound, Retry
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderElector
from fairlead.kube.preflight import install_crds
from fairlead.regions.access_points import AccessPointsController
from fairlead.regions.balancer import Balancer
from fairlead.regions.inventory import Inventory
from fairlead.regions.openyurt import OpenYurt
from fairlead.regions.pool_endpoints import PoolEndpointsController
from fairlead.regions.pool_service import PoolServiceController
from fairlead.regions.pool_service_writer import Keeper
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry

log = structlog.get_logger(__name__)

#: The Warning on a NodePool that claims a node which another one has.
NODE_CLAIMED_TWICE = "NodeClaimedTwice"
_RIGHTS_S = 30.0


class RegionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How regions run. ``workers`` is for each controller; ``balancer`` off leaves layer 2 wholly to others.

    ``reclaim_lease``: nobody else can have this identity, so a restart leads again at once. ``look_s``: how often
    OpenYurt's NodePools are looked for.
    """

    identity: str
    workers: int = 3
    balancer: bool = True
    lease_s: float = 15.0
    reclaim_lease: bool = False
    install_crds: bool = True
    look_s: float = 30.0

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            BadConfiguration: names the setting.
        """
        if self.workers < 1:
            raise BadConfiguration(f"--workers is {self.workers}: it must be at least 1.")


_KINDS = (NODE_POOLS, POOL_SERVICES, TCP_LOAD_BALANCERS, LOAD_BALANCER_CLASSES)


class _Loop(NamedTuple):
    """One controller: its queue, what is done with a key, and every key that there is."""

    name: str
    queue: KeyedQueue[Any]
    reconcile: Callable[[Any], Awaitable[float | None]]
    everything: Callable[[], Sequence[Any]]


def _patient(reconcile: Callable[[Any], Awaitable[float | None]]) -> Callable[[Any], Awaitable[float | None]]:
    """Have a missing right looked at again: when it is granted, nothing else would wake the key."""

    async def patiently(key: Any) -> float | None:
        try:
            return await reconcile(key)
        except Forbidden as error:
            raise Retry(error.sentence, detail=error.detail, reason=error.reason, after_s=_RIGHTS_S) from error

    return patiently


class Regions:
    """One replica of layer 1, with our layer 2."""

    def __init__(self, *, cluster: Cluster, config: RegionsConfig, telemetry: Telemetry | None = None) -> None:
        config.check()
        self._cluster = cluster
        self._config = config
        self._telemetry = telemetry or Telemetry()
        self._events = EventRecorder(cluster, component="fairlead-regions")
        self._lead = False
        self._told: dict[str, tuple[str, str]] = {}
        self.inventory: Inventory | None = None
        self.balancer: Balancer | None = None
        self.queues: dict[str, KeyedQueue[Any]] = {}
        self.elector = LeaderElector(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=REGIONS_LEASE,
            identity=config.identity,
            lease_s=config.lease_s,
            renew_s=config.lease_s * 2 / 3,
            retry_s=config.lease_s / 8,
            reclaim=config.reclaim_lease,
        )

    @property
    def leading(self) -> bool:
        """Say whether this replica may write, at this very moment."""
        return self._may_write()

    @property
    def caches(self) -> dict[str, WatchCache[Any]]:
        """Return every cache by the full name of its kind; a kind that is installed later comes later."""
        if self.inventory is None:
            return {}
        return {**self.inventory.caches, **(self.balancer.caches if self.balancer is not None else {})}

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
        openyurt = OpenYurt(cluster=self._cluster, inventory=inventory, look_s=self._config.look_s)
        await openyurt.look()
        keeper = Keeper(cluster=self._cluster, inventory=inventory, events=self._events, leading=self._may_write)
        loops = self._loops(inventory, keeper)
        self.queues = {loop.name: loop.queue for loop in loops}
        inventory.on_pools.append(lambda _pool: self._tell_conflicts(inventory, keeper))

        async def lead(epoch: int) -> None:
            log.info("leading", epoch=epoch, identity=self._config.identity)
            self._lead = True
            try:
                for loop in loops:
                    for key in loop.everything():
                        loop.queue.add(key)
                self._tell_conflicts(inventory, keeper)
                await asyncio.Event().wait()
            finally:
                self._lead = False

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
                    run_workers(
                        loop.queue, _patient(loop.reconcile), workers=workers, name=loop.name, telemetry=self._telemetry
                    )
                )
            group.create_task(self.elector.run(lead))

    def _loops(self, inventory: Inventory, keeper: Keeper) -> list[_Loop]:
        cluster = self._cluster
        services = PoolServiceController(cluster=cluster, inventory=inventory, keeper=keeper, leading=self._may_write)
        endpoints = PoolEndpointsController(
            clock=cluster.clock, inventory=inventory, keeper=keeper, leading=self._may_write
        )
        access = AccessPointsController(cluster=cluster, inventory=inventory, keeper=keeper, leading=self._may_write)
        loops = [
            _Loop("pool-service", services.queue, services.reconcile, inventory.service_keys),
            # Every region is looked at with its Service, so there is nothing to begin with here.
            _Loop("pool-endpoints", endpoints.queue, endpoints.reconcile, list[Any]),
            _Loop("access-points", access.queue, access.reconcile, inventory.service_keys),
        ]
        if self._config.balancer:
            balancer = self.balancer = Balancer(
                cluster=cluster, inventory=inventory, keeper=keeper, leading=self._may_write
            )
            loops.append(_Loop("balancer", balancer.queue, balancer.reconcile, balancer.keys))
        return loops

    def _may_write(self) -> bool:
        return self._lead and self.elector.is_leader

    async def prepare(self) -> None:
        """See that the kinds are there."""
        if self._config.install_crds:
            problems = await install_crds(self._cluster, all_crds(), MANAGER_REGIONS)
        else:
            problems = await self._missing_kinds()
        if problems:
            raise BadConfiguration(f"Regions cannot start. {' '.join(problems)}")
        with suppress(AlreadyExists):
            await self._cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})

    async def _missing_kinds(self) -> list[str]:
        """Return a sentence about the kinds that the server does not serve."""
        try:
            body = await self._cluster.raw("GET", f"/apis/{API_VERSION}")
        except NotFound:
            body = b""
        missing = [kind.full_name for kind in _KINDS if f'"{kind.plural}"'.encode() not in body]
        if not missing:
            return []
        names = ", ".join(missing)
        return [f"{self._cluster.name} does not serve {names}: apply `fairlead crds | kubectl apply -f -` first."]

    def _tell_conflicts(self, inventory: Inventory, keeper: Keeper) -> None:
        """Tell each NodePool that goes short of a node, once for each such node."""
        if not self._may_write():
            return
        conflicts = inventory.membership.conflicts()
        for pool, (node, owner) in conflicts.items():
            if self._told.get(pool) == (node, owner):
                continue
            for cache in inventory.node_pools:
                obj = cache.get("", pool)
                if obj is not None:
                    sentence = f"node {node} is in NodePool {owner} already, which is older, and stays there"
                    keeper.tell(cache.resource, obj, "Warning", NODE_CLAIMED_TWICE, sentence)
        self._told = conflicts
