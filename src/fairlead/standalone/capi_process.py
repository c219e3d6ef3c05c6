"""Run the controller for Cluster API as a process; the API is asked first, so that a wrong address is one sentence.

In: ``CapiSettings``. Out: ``run_capi`` returns after a clean stop, or raises one error with a sentence.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.capi.app import Capi
from fairlead.capi.config import CapiConfig
from fairlead.capi.release import release_hooks
from fairlead.kube.cluster import Cluster
from fairlead.kube.metrics import KubeMetrics
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.standalone.first_calls import FIRST_CALLS, reached
from fairlead.standalone.identity import Claim, claim_for

_QPS, _BURST = 1000.0, 2000
_STOP_S = 4.0


class CapiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ``fairlead capi`` was called. A kubeconfig of None is the default one; ``metrics`` None: no pages.

    ``context`` empty: the current one of the kubeconfig. ``identity`` empty: it is kept in ``data_dir``, or in
    ``STATE_DIR``.
    """

    kubeconfig: Path | None = None
    context: str = ""
    workers: int = 8
    identity: str = ""
    data_dir: Path | None = None
    lease_s: float = 15.0
    metrics: tuple[str, int] | None = None

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
    registry = CollectorRegistry()
    metrics = KubeMetrics(registry)
    async with Cluster.from_kubeconfig(
        settings.kubeconfig,
        context=settings.context or None,
        name="the management cluster",
        metrics=metrics,
        qps=_QPS,
        burst=_BURST,
    ) as cluster:
        if not await reached(lambda: _check(cluster), pages=settings.metrics):
            return
        own = supervisor or Supervisor(stop_deadline_s=_STOP_S)
        with ExitStack() as kept:
            claim: Claim | None = None
            if not settings.identity:
                claim = kept.enter_context(claim_for("capi", cluster.server, data_dir=settings.data_dir))
            capi = Capi(cluster=cluster, config=settings.config(claim), telemetry=Telemetry(registry))
            if settings.metrics is not None:
                own.spawn("pages", StatusServer(*settings.metrics, registry, capi.not_ready).run)
            own.spawn("capi", capi.run)
            await own.run_until_stopped()


async def free_all(settings: CapiSettings) -> list[str]:
    """Free every machine of what the controller put on it; return what was freed, one line each."""
    async with Cluster.from_kubeconfig(
        settings.kubeconfig, context=settings.context or None, name="the management cluster", policy=FIRST_CALLS
    ) as cluster:
        return await release_hooks(cluster)


async def _check(cluster: Cluster) -> None:
    async with Cluster(cluster.config, name=cluster.name, policy=FIRST_CALLS) as first:
        # A review needs a sign-in; /version answers without one, and would not show a wrong token.
        await first.can_i("list", "fairlead.dev", "loadbalancers")
