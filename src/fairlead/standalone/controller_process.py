"""Run one controller as a process; the API is asked first, so that a wrong address is one sentence.

In: how it was called, and how to make it. Out: ``run_controller`` returns after a clean stop, or raises one error
with a sentence. Never: decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.kube.lease import ReplicaConfig
from fairlead.kube.metrics import KubeMetrics
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.standalone.first_calls import FIRST_CALLS, wait_for_api
from fairlead.standalone.identity import Claim, claim_for

_STOP_S = 4.0

C = TypeVar("C", bound=ReplicaConfig)


class Controller(Protocol):
    """The controller of the process, which runs until it is cancelled."""

    def not_ready(self) -> list[str]:
        """Return the reasons why it is not ready, one sentence each."""
        ...

    async def run(self) -> None:
        """Run until cancelled."""
        ...


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
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
    """Its name, that of its cluster, and the kind (group, plural) that it must be able to list there."""

    name: str
    cluster: str
    lists: tuple[str, str]


Make = Callable[[Cluster, "Claim | None", Telemetry], Controller]


async def run_controller(kind: ControllerKind, settings: ControllerSettings, make: Make) -> None:
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
    make: Callable[[Cluster], Controller],
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
    """Ask the API once, as who we are; ``lists`` is a kind (group, plural) that the controller lists.

    Raises:
        FairleadError: it is not reached, or does not know us.
    """
    async with Cluster(cluster.config, name=cluster.name, policy=FIRST_CALLS) as first:
        # A review needs a sign-in; /version answers without one, and would not show a wrong token.
        await first.can_i("list", *lists)
