"""Run the controller for Cluster API as a process, or free the machines of what it put on them.

In: ``CapiSettings``. Out: ``run_capi`` returns after a clean stop, or raises one error with a sentence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.capi.app import Capi, CapiConfig
from fairlead.capi.release import release_hooks
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import Telemetry
from fairlead.standalone.controller_process import (
    ControllerKind,
    ControllerSettings,
    check_sign_in,
    run_controller,
    spawn_beside,
)
from fairlead.standalone.first_calls import FIRST_CALLS, wait_for_api
from fairlead.standalone.identity import Claim

_CLUSTER = "the management cluster"
_KIND = ControllerKind("capi", _CLUSTER, ("fairlead.dev", "loadbalancers"))


class CapiSettings(ControllerSettings, frozen=True, kw_only=True):
    """The options of ``fairlead capi``; ``hub_kubeconfig`` None: the management cluster is the hub."""

    workers: int = 8
    hub_kubeconfig: Path | None = None

    def config(self, claim: Claim | None = None) -> CapiConfig:
        """Return the settings of the controller; ``BadConfiguration`` says what is wrong with them."""
        return self.replica(CapiConfig(identity=""), claim)


async def run_capi(settings: CapiSettings) -> None:
    """Run the controller until SIGTERM."""
    async with _hub_of(settings) as hub:

        def make(cluster: Cluster, claim: Claim | None, telemetry: Telemetry) -> Capi:
            return Capi(cluster=cluster, hub=hub, config=settings.config(claim), telemetry=telemetry)

        if hub is not None and not await wait_for_api(lambda: check_sign_in(hub, _KIND.lists), pages=settings.metrics):
            return
        await run_controller(_KIND, settings, make)


async def free_all(settings: CapiSettings) -> list[str]:
    """Remove what the controller put on machines; return what was released, one line each."""
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
    spawn_beside(supervisor, _KIND, lambda cluster: Capi(cluster=cluster, config=config), kubeconfig)
