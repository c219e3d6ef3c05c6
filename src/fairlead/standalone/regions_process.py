"""Run regions as a process, alone or beside the API that they work at.

In: ``RegionsSettings``. Out: ``run_regions`` returns after a clean stop, or raises one error with a sentence.
"""

from __future__ import annotations

from pathlib import Path

from fairlead.kube.cluster import Cluster
from fairlead.regions.app import Regions, RegionsConfig
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import Telemetry
from fairlead.standalone.controller_process import ControllerKind, ControllerSettings, run_controller, spawn_beside
from fairlead.standalone.identity import Claim

_KIND = ControllerKind("regions", "regions", ("", "services"))


class RegionsSettings(ControllerSettings, frozen=True, kw_only=True):
    """The options of ``fairlead regions``."""

    workers: int = 3
    balancer: bool = True

    def config(self, claim: Claim | None = None) -> RegionsConfig:
        """Return the settings of regions; ``BadConfiguration`` says what is wrong with them."""
        return self.replica(RegionsConfig(identity="", balancer=self.balancer), claim)


async def run_regions(settings: RegionsSettings) -> None:
    """Run regions until SIGTERM."""

    def make(cluster: Cluster, claim: Claim | None, telemetry: Telemetry) -> Regions:
        return Regions(cluster=cluster, config=settings.config(claim), telemetry=telemetry)

    await run_controller(_KIND, settings, make)


def spawn_regions(supervisor: Supervisor, kubeconfig: Path | None, *, identity: str, context: str = "") -> None:
    """Add regions to the process that serves their API; ``identity`` is its own."""
    config = RegionsConfig(identity=identity, reclaim_lease=True)
    spawn_beside(supervisor, _KIND, lambda cluster: Regions(cluster=cluster, config=config), kubeconfig, context)
