"""The controller for Cluster API as a process: caches, one loop, wired together.

    1 our kinds are there         or it refuses to start and says which are missing
    2 Cluster API is there        or it says so, and waits
    3 leading                     every key once, then each that a change concerns

In: a management cluster and settings. Out: a running controller. Losing the lease stops every write.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import ObjectKey
from fairlead.api.names import API_VERSION, CAPI_LEASE, MANAGER_CAPI, SYSTEM_NAMESPACE
from fairlead.capi.config import CapiConfig
from fairlead.capi.facts import Facts
from fairlead.capi.inventory import Inventory
from fairlead.capi.reconcile import Reconciler
from fairlead.errors import AlreadyExists, BadConfiguration, Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderElector
from fairlead.kube.preflight import install_crds
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry

log = structlog.get_logger(__name__)


class Capi:
    """One replica of the controller."""

    def __init__(self, *, cluster: Cluster, config: CapiConfig, telemetry: Telemetry | None = None) -> None:
        config.check()
        self._cluster = cluster
        self._config = config
        self._telemetry = telemetry or Telemetry()
        self._events = EventRecorder(cluster, component="fairlead-capi")
        self._in_term = False
        self.queue: KeyedQueue[ObjectKey] = KeyedQueue(clock=cluster.clock)
        self.inventory = Inventory(cluster, wake=self.queue.add, look_s=config.look_s)
        self.facts = Facts(cluster, changed=self.queue.add, probe_s=config.probe_s)
        self._reconciler = Reconciler(
            cluster=cluster,
            inventory=self.inventory,
            facts=self.facts,
            events=self._events,
            leading=self._may_write,
        )
        self.elector = LeaderElector(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=CAPI_LEASE,
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

    def not_ready(self) -> list[str]:
        """Return the reasons why this replica is not ready, one sentence each; none when it is."""
        own = [
            f"{name}: {cache.problem or 'not read yet'}"
            for name, cache in (("loadbalancers", self.inventory.load_balancers), ("groups", self.inventory.groups))
            if cache.problem or not cache.synced
        ]
        problem = self.inventory.targets.problem
        return [*own, *([problem] if problem else [])]

    async def prepare(self) -> None:
        """Install our kinds, or check that they are there, and make our namespace.

        Raises:
            BadConfiguration: a kind is missing, and it may not be installed.
        """
        problems = await install_crds(self._cluster, all_crds(), MANAGER_CAPI) if self._config.install_crds else []
        if not self._config.install_crds:
            try:
                await self._cluster.raw("GET", f"/apis/{API_VERSION}")
            except NotFound:
                problems = [f"{self._cluster.name} does not serve {API_VERSION}: apply `fairlead crds` first."]
        if problems:
            raise BadConfiguration(f"The controller for Cluster API cannot start. {' '.join(problems)}")
        # Where that is not allowed, the operator who gave us our rights has made it.
        with suppress(AlreadyExists, Forbidden):
            await self._cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            BadConfiguration: a kind of ours is not installed, and we may not install it.
        """
        await self.prepare()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.inventory.run())
            group.create_task(self._events.run())
            group.create_task(self.facts.run())
            group.create_task(self._report())
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
            group.create_task(self.elector.run(self._lead))

    async def _lead(self, epoch: int) -> None:
        log.info("leading", epoch=epoch, identity=self._config.identity)
        self._in_term = True
        try:
            for key in self.inventory.served():
                self.queue.add(key)
            await asyncio.Event().wait()
        finally:
            self._in_term = False

    async def _report(self) -> None:
        """Say what Cluster API lacks, once for each that is lacking."""
        said = ""
        while True:
            problem = self.inventory.targets.problem
            if problem != said:
                said = problem
                if problem:
                    log.warning("waiting", sentence=problem)
            await self._cluster.clock.sleep(self._config.look_s)

    def _may_write(self) -> bool:
        return self._in_term and self.elector.is_leader
