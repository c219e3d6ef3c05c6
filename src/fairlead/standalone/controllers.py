"""Run a controller, regions or Cluster API, as a process of its own or in the process that serves its API.

In: settings. Out: ``run_regions`` and ``run_capi`` return after a clean stop, or raise one error with a sentence: the
API is asked first. ``free_all`` removes the controller's hooks from machines. Never: decides anything.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.capi.app import Capi, CapiConfig
from fairlead.capi.reconcile import release_hooks
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.kube.lease import ReplicaConfig
from fairlead.kube.transport import KubeMetrics
from fairlead.regions.app import Regions, RegionsConfig
from fairlead.runtime.background import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.standalone.process import FIRST_CALLS, Claim, claim_for, wait_for_api

_STOP_S = 4.0

C = TypeVar("C", bound=ReplicaConfig)


class ControllerProcess(Protocol):
    """The controller of the process, which runs until it is cancelled."""

    def not_ready(self) -> list[str]:
        """Return the reasons why it is not ready, one sentence each."""
        ...

    async def run(self) -> None:
        """Run until cancelled."""
        ...


class ControllerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a controller. A kubeconfig of None is the default one; ``metrics`` None: no pages.

    ``context`` empty: the current one of the kubeconfig. ``identity`` empty: it is kept in ``data_dir``, or in
    ``state_dir``.
    """

    workers: int
    kubeconfig: Path | None = None
    context: str = ""
    identity: str = ""
    data_dir: Path | None = None
    metrics: tuple[str, int] | None = None

    def replica(self, config: C, claim: Claim | None) -> C:
        """Return ``config`` with these settings, under a claimed identity or their own.

        Raises:
            BadConfiguration: a setting is invalid.
        """
        config = msgspec.structs.replace(
            config,
            identity=claim.identity if claim is not None else self.identity,
            workers=self.workers,
            reclaim_lease=claim is not None and claim.lock is not None,
        )
        config.check()
        return config


class ControllerKind(NamedTuple):
    """The controller's name, its cluster's name, and the kind (group, plural) that it must be able to list."""

    name: str
    cluster: str
    lists: tuple[str, str]


Make = Callable[[Cluster, "Claim | None", Telemetry], ControllerProcess]


async def run_controller(kind: ControllerKind, settings: ControllerOptions, make: Make) -> None:
    """Run the controller that ``make`` returns until SIGTERM."""
    registry = CollectorRegistry()
    async with Cluster.from_kubeconfig(
        settings.kubeconfig,
        context=settings.context,
        name=kind.cluster,
        metrics=KubeMetrics(registry),
        qps=CONTROLLER_QPS,
    ) as cluster:
        if not await wait_for_api(lambda: check_sign_in(cluster, kind.lists), pages=settings.metrics):
            return
        supervisor = Supervisor(stop_deadline_s=_STOP_S)
        with ExitStack() as kept:
            claim: Claim | None = None
            if not settings.identity:
                claim = kept.enter_context(claim_for(kind.name, cluster.server, data_dir=settings.data_dir))
            controller = make(cluster, claim, Telemetry(registry))
            if settings.metrics is not None:
                supervisor.spawn("pages", StatusServer(*settings.metrics, registry, controller.not_ready).run)
            supervisor.spawn(kind.name, controller.run)
            await supervisor.run_until_stopped()


def spawn_beside(
    supervisor: Supervisor,
    kind: ControllerKind,
    make: Callable[[Cluster], ControllerProcess],
    kubeconfig: Path | None,
    context: str = "",
) -> None:
    """Add the controller that ``make`` returns to the process that serves its API."""

    async def beside() -> None:
        async with Cluster.from_kubeconfig(
            kubeconfig, context=context, name=kind.cluster, qps=CONTROLLER_QPS
        ) as cluster:
            await make(cluster).run()

    supervisor.spawn(kind.name, beside, restart=True)


async def check_sign_in(cluster: Cluster, lists: tuple[str, str]) -> None:
    """Ask the API once with our credentials; ``lists`` is a kind (group, plural) that the controller lists.

    Raises:
        FairleadError: it is not reached, or does not know us.
    """
    async with Cluster(cluster.config, name=cluster.name, policy=FIRST_CALLS) as first:
        # A review needs a sign-in; /version answers without one, and would not show a wrong token.
        await first.can_i("list", *lists)


_CLUSTER = "the management cluster"
_CAPI = ControllerKind("capi", _CLUSTER, ("fairlead.dev", "loadbalancers"))


class CapiSettings(ControllerOptions, frozen=True, kw_only=True):
    """The options of ``fairlead capi``; ``hub_kubeconfig`` None: the management cluster is the hub."""

    workers: int = 8
    hub_kubeconfig: Path | None = None

    def config(self, claim: Claim | None = None) -> CapiConfig:
        """Return the settings of the controller; raise ``BadConfiguration`` if they are invalid."""
        return self.replica(CapiConfig(identity=""), claim)


async def run_capi(settings: CapiSettings) -> None:
    """Run the controller until SIGTERM."""
    async with _hub_of(settings) as hub:

        def make(cluster: Cluster, claim: Claim | None, telemetry: Telemetry) -> Capi:
            return Capi(cluster=cluster, hub=hub, config=settings.config(claim), telemetry=telemetry)

        if hub is not None and not await wait_for_api(lambda: check_sign_in(hub, _CAPI.lists), pages=settings.metrics):
            return
        await run_controller(_CAPI, settings, make)


async def free_all(settings: CapiSettings) -> list[str]:
    """Remove the controller's marks from machines; return the released objects, one line each."""
    async with (
        Cluster.from_kubeconfig(
            settings.kubeconfig, context=settings.context, name=_CLUSTER, policy=FIRST_CALLS
        ) as cluster,
        _hub_of(settings) as hub,
    ):
        return await release_hooks(cluster, hub)


@asynccontextmanager
async def _hub_of(settings: CapiSettings) -> AsyncGenerator[Cluster | None]:
    """Connect to the hub, where it is another cluster than that of the Clusters."""
    if settings.hub_kubeconfig is None:
        yield None
        return
    async with Cluster.from_kubeconfig(settings.hub_kubeconfig, name="the hub", qps=CONTROLLER_QPS) as hub:
        yield hub


def spawn_capi(supervisor: Supervisor, kubeconfig: Path, *, identity: str) -> None:
    """Add the controller to the process that serves the API of its hub; ``identity`` is its own."""
    config = CapiConfig(identity=identity, reclaim_lease=True)
    spawn_beside(supervisor, _CAPI, lambda cluster: Capi(cluster=cluster, config=config), kubeconfig)


_REGIONS = ControllerKind("regions", "regions", ("", "services"))


class RegionsSettings(ControllerOptions, frozen=True, kw_only=True):
    """The options of ``fairlead regions``."""

    workers: int = 3
    balancer: bool = True

    def config(self, claim: Claim | None = None) -> RegionsConfig:
        """Return the settings of regions; raise ``BadConfiguration`` if they are invalid."""
        return self.replica(RegionsConfig(identity="", balancer=self.balancer), claim)


async def run_regions(settings: RegionsSettings) -> None:
    """Run regions until SIGTERM."""

    def make(cluster: Cluster, claim: Claim | None, telemetry: Telemetry) -> Regions:
        return Regions(cluster=cluster, config=settings.config(claim), telemetry=telemetry)

    await run_controller(_REGIONS, settings, make)


def spawn_regions(supervisor: Supervisor, kubeconfig: Path | None, *, identity: str, context: str = "") -> None:
    """Add regions to the process that serves their API; ``identity`` is its own."""
    config = RegionsConfig(identity=identity, reclaim_lease=True)
    spawn_beside(supervisor, _REGIONS, lambda cluster: Regions(cluster=cluster, config=config), kubeconfig, context)
