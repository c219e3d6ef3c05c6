"""Run the controller for Cluster API as a process, or free the machines of what it put on them.

In: ``CapiSettings``. Out: ``run_capi`` returns after a clean stop, or raises one error with a sentence.
"""

from __future__ import annotations

from fairlead.capi.app import Capi
from fairlead.capi.config import CapiConfig
from fairlead.capi.release import release_hooks
from fairlead.kube.cluster import Cluster
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import Telemetry
from fairlead.standalone.controller_process import ControllerKind, ControllerSettings, run_controller
from fairlead.standalone.first_calls import FIRST_CALLS
from fairlead.standalone.identity import Claim

_CLUSTER = "the management cluster"
_KIND = ControllerKind("capi", _CLUSTER, ("fairlead.dev", "loadbalancers"))


class CapiSettings(ControllerSettings, frozen=True, kw_only=True):
    """How ``fairlead capi`` was called."""

    workers: int = 8

    def config(self, claim: Claim | None = None) -> CapiConfig:
        """Return the settings of the controller; ``BadConfiguration`` says what is wrong with them."""
        config = CapiConfig(
            identity=claim.identity if claim is not None else self.identity,
            workers=self.workers,
            lease_s=self.lease_s,
            reclaim_lease=claim is not None and claim.lock is not None,
        )
        config.check()
        return config


async def run_capi(settings: CapiSettings, *, supervisor: Supervisor | None = None) -> None:
    """Run the controller until SIGTERM."""

    def make(cluster: Cluster, claim: Claim | None, telemetry: Telemetry) -> Capi:
        return Capi(cluster=cluster, config=settings.config(claim), telemetry=telemetry)

    await run_controller(_KIND, settings, make, supervisor=supervisor)


async def free_all(settings: CapiSettings) -> list[str]:
    """Free every machine of what the controller put on it; return what was freed, one line each."""
    async with Cluster.from_kubeconfig(
        settings.kubeconfig, context=settings.context or None, name=_CLUSTER, policy=FIRST_CALLS
    ) as cluster:
        return await release_hooks(cluster)
