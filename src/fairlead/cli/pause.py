"""``fairlead pause`` and ``fairlead resume``: freeze what is on a load balancer, or on all of a class."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Verbose
from fairlead.cli.run import run_async
from fairlead.cli.subject import Kubeconfig, Namespace, subject_of

_Subject = Annotated[str, typer.Argument(metavar="KIND/NAME", help="lb/NAME, tcplb/NAME, or class/NAME for all of it.")]


def pause(
    subject: _Subject,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Hold all changes and removals until resume; what is held shows in fairlead plan."""
    _set(subject, namespace, kubeconfig, "true")
    print(f"{subject} is paused; what is held: fairlead plan, what lets it through: fairlead resume {subject}")


def resume(
    subject: _Subject,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Let through what was held."""
    _set(subject, namespace, kubeconfig, None)
    print(f"{subject} goes on")


def _set(subject: str, namespace: str, kubeconfig: Kubeconfig, value: str | None) -> None:
    kind, name = subject_of(subject)

    async def write() -> None:
        from fairlead.api.loadbalancer import LOAD_BALANCERS
        from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
        from fairlead.api.names import ANNOTATION_PAUSED, MANAGER_CLI
        from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
        from fairlead.cli.connect import connect

        resources = {one.kind: one for one in (LOAD_BALANCERS, TCP_LOAD_BALANCERS, LOAD_BALANCER_CLASSES)}
        resource = resources[kind]
        patch = {"metadata": {"annotations": {ANNOTATION_PAUSED: value}}}
        async with connect(kubeconfig, name="the hub") as cluster:
            where = namespace if resource.namespaced else ""
            await cluster.merge_patch(resource, where, name, patch, manager=MANAGER_CLI)

    run_async(write)
