"""The controller for Cluster API as a process: caches, one loop, wired together.

    1 the kinds of Fairlead are installed   else it exits with the missing ones
    2 Cluster API is installed              else it reports that, and waits
    3 it leads                              enqueues every key once, then those that changes concern

In: a management cluster, the hub where that is another one, and settings. Out: a running controller. Losing the
lease stops every write.
"""

from __future__ import annotations

import asyncio

import structlog

from fairlead.api.clusterapi import CLUSTERS
from fairlead.api.meta import ObjectKey
from fairlead.api.names import CAPI_LEASE, MANAGER_CAPI
from fairlead.capi.facts import ClusterFacts, Resolve, system_resolver
from fairlead.capi.inventory import CapiInventory
from fairlead.capi.reconcile import CapiReconciler, LoadBalancerCreator
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import ensure_own_kinds, read_cluster_uid
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.kube.lease import Leadership, ReplicaConfig
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry

log = structlog.get_logger(__name__)

#: How often the identity of the management cluster is requested while it cannot be read.
_IDENTITY_S = 30.0


class CapiConfig(ReplicaConfig, frozen=True, kw_only=True):
    """The settings of the controller; ``probe_s``: how often an endpoint is probed."""

    workers: int = 8
    look_s: float = 3.0
    probe_s: float = 10.0


class Capi:
    """One replica of the controller."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        hub: Cluster | None = None,
        config: CapiConfig,
        telemetry: Telemetry | None = None,
        resolve: Resolve = system_resolver,
    ) -> None:
        config.check()
        self._cluster = cluster
        #: Where LoadBalancers and their groups are.
        self._hub = hub or cluster
        self._config = config
        self._telemetry = telemetry or Telemetry()
        self._events = EventRecorder(cluster, component="fairlead-capi")
        self._hub_events = EventRecorder(hub, component="fairlead-capi") if hub is not None else self._events
        self.term = Leadership(self._hub, CAPI_LEASE, config)
        self.queue: KeyedQueue[ObjectKey] = KeyedQueue(clock=cluster.clock)
        self.namespaces: KeyedQueue[str] = KeyedQueue(clock=cluster.clock)
        self.inventory = CapiInventory(
            cluster, hub=self._hub, wake=self.queue.add, wake_namespace=self.namespaces.add, look_s=config.look_s
        )
        self.facts = ClusterFacts(
            cluster, changed=self.queue.add, probe_s=config.probe_s, resolve=resolve, telemetry=self._telemetry
        )
        of_clusters = EventWriter(recorder=self._events, resource=CLUSTERS)
        self.inventory.targets.clusters.on_change(of_clusters.forget_deleted)
        self._reconciler = CapiReconciler(
            cluster=cluster,
            hub=self._hub,
            inventory=self.inventory,
            facts=self.facts,
            events=of_clusters,
            hub_events=self._hub_events,
            leading=self.term.may_write,
        )

        self._maker = LoadBalancerCreator(
            hub=self._hub, inventory=self.inventory, events=of_clusters, leading=self.term.may_write
        )

    @property
    def leading(self) -> bool:
        """Return whether this replica may write right now."""
        return self.term.may_write()

    def not_ready(self) -> list[str]:
        """Return the reasons why this replica is not ready, one sentence each; empty if it is ready."""
        own = [
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in (
                ("loadbalancers", self.inventory.load_balancers),
                ("groups", self.inventory.groups),
                ("policies", self.inventory.policies),
            )
            if cache.problem or not cache.synced
        ]
        problem = self.inventory.targets.problem
        return [*own, *([problem] if problem else [])]

    async def prepare(self) -> None:
        """Install our kinds, or check that they are there, and make our namespace.

        Raises:
            BadConfiguration: a kind is missing, and it may not be installed.
        """
        await ensure_own_kinds(self._hub, component="The controller for Cluster API", manager=MANAGER_CAPI)

    async def _read_identity(self) -> None:
        """Read the identity of the management cluster; until it is known, no LoadBalancer goes with its Cluster."""
        while not self.inventory.management:
            try:
                self.inventory.management = await read_cluster_uid(self._cluster)
            except FairleadError as error:
                log.warning("LoadBalancers are not deleted with their Clusters", sentence=error.sentence)
            await self._cluster.clock.sleep(0.0 if self.inventory.management else _IDENTITY_S)
        self._begin()

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            BadConfiguration: a kind of ours is not installed, and we may not install it.
        """
        await self.prepare()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.inventory.run())
            group.create_task(self._events.run())
            if self._hub_events is not self._events:
                group.create_task(self._hub_events.run())
            group.create_task(self.facts.run())
            group.create_task(self._report())
            if self._hub is not self._cluster:
                group.create_task(self._read_identity())
            await self.inventory.wait_synced()
            group.create_task(
                run_workers(
                    self.queue,
                    self._reconciler.reconcile,
                    workers=self._config.workers,
                    name="capi",
                    telemetry=self._telemetry,
                )
            )
            group.create_task(
                run_workers(
                    self.namespaces, self._maker.reconcile, workers=1, name="capi-policies", telemetry=self._telemetry
                )
            )
            group.create_task(self.term.run(self._begin, events={self._events, self._hub_events}))

    def _begin(self) -> None:
        for key in self.inventory.served():
            self.queue.add(key)
        for namespace in self.inventory.namespaces():
            self.namespaces.add(namespace)

    async def _report(self) -> None:
        """Log why Cluster API cannot be watched, once for each reason."""
        reported = ""
        while True:
            problem = self.inventory.targets.problem
            if problem != reported:
                reported = problem
                if problem:
                    log.warning("waiting", sentence=problem)
            await self._cluster.clock.sleep(self._config.look_s)
