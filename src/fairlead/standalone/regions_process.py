"""Run regions as a process: the API is checked first, so that a wrong address or key is one sentence.

In: ``RegionsSettings``. Out: ``run_regions`` returns after a clean stop, or raises one error with a sentence.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.kube.cluster import Cluster
from fairlead.kube.metrics import KubeMetrics
from fairlead.regions.app import Regions
from fairlead.regions.config import RegionsConfig
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.standalone.first_calls import FIRST_CALLS, reached
from fairlead.standalone.identity import Claim, claim_for

#: One Service in fifty regions is fifty writes: the default of a client is too slow for a cold start of thousands.
_QPS, _BURST = 1000.0, 2000
_STOP_S = 4.0


class RegionsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ``fairlead regions`` was called. A kubeconfig of None is the default one; ``metrics`` None: no pages.

    ``context`` empty: the current one of the kubeconfig. ``identity`` empty: it is kept in ``data_dir``, or in
    ``STATE_DIR``.
    """

    kubeconfig: Path | None = None
    context: str = ""
    workers: int = 3
    balancer: bool = True
    identity: str = ""
    data_dir: Path | None = None
    lease_s: float = 15.0
    metrics: tuple[str, int] | None = None

    def config(self, claim: Claim | None = None) -> RegionsConfig:
        """Return the settings of regions; ``BadConfiguration`` says what is wrong with them."""
        config = RegionsConfig(
            identity=claim.identity if claim is not None else self.identity,
            workers=self.workers,
            balancer=self.balancer,
            lease_s=self.lease_s,
            reclaim_lease=claim is not None and claim.lock is not None,
        )
        config.check()
        return config


async def run_regions(settings: RegionsSettings, *, supervisor: Supervisor | None = None) -> None:
    """Run regions until SIGTERM."""
    registry = CollectorRegistry()
    metrics = KubeMetrics(registry)
    async with Cluster.from_kubeconfig(
        settings.kubeconfig, context=settings.context, name="regions", metrics=metrics, qps=_QPS, burst=_BURST
    ) as cluster:
        if not await reached(lambda: _check(cluster), pages=settings.metrics):
            return
        own = supervisor or Supervisor(stop_deadline_s=_STOP_S)
        with ExitStack() as kept:
            claim: Claim | None = None
            if not settings.identity:
                claim = kept.enter_context(claim_for("regions", cluster.server, data_dir=settings.data_dir))
            regions = Regions(cluster=cluster, config=settings.config(claim), telemetry=Telemetry(registry))
            if settings.metrics is not None:
                own.spawn("pages", StatusServer(*settings.metrics, registry, regions.not_ready).run)
            own.spawn("regions", regions.run)
            await own.run_until_stopped()


async def _check(cluster: Cluster) -> None:
    async with Cluster(cluster.config, name="regions", policy=FIRST_CALLS) as first:
        # A review needs a sign-in; /version answers without one, and would not show a wrong token.
        await first.can_i("list", "", "services")


def spawn_regions(supervisor: Supervisor, kubeconfig: Path | None, *, identity: str, context: str = "") -> None:
    """Add regions to the process that serves their API; ``identity`` is its own."""
    config = RegionsConfig(identity=identity, reclaim_lease=True)

    async def beside() -> None:
        async with Cluster.from_kubeconfig(
            kubeconfig, context=context or None, name="regions", qps=_QPS, burst=_BURST
        ) as cluster:
            await Regions(cluster=cluster, config=config).run()

    supervisor.spawn("regions", beside, restart=True)
