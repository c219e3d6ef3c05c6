"""``fairlead pause`` and ``fairlead resume``: freeze what is on a load balancer, or on all of a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Verbose
from fairlead.cli.run import run_async
from fairlead.cli.subject import CLASS, Kubeconfig, Namespace, Subject, subject_of

if TYPE_CHECKING:
    from fairlead.cli.look import Looked
    from fairlead.kube.cluster import Cluster

_Subject = Annotated[str, typer.Argument(metavar="KIND/NAME", help="lb/NAME, tcplb/NAME, or class/NAME for all of it.")]


def pause(
    subject: _Subject,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Freeze a load balancer, or all of a class.

    Nothing on it is added, changed or removed until resume, and the condition Paused says so. What is held by that is
    shown here, in fairlead plan and in fairlead explain. A load balancer that was never programmed is not held up, and
    one whose object is deleted goes.
    """
    meant = subject_of(subject, namespace)
    run_async(lambda: _set(meant, kubeconfig, paused=True))


def resume(
    subject: _Subject,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Let through what pause held."""
    meant = subject_of(subject, namespace)
    run_async(lambda: _set(meant, kubeconfig, paused=False))


async def _set(meant: Subject, kubeconfig: Path | None, *, paused: bool) -> None:
    from fairlead.cli.connect import connect
    from fairlead.cli.look import look_at
    from fairlead.cli.options import LogFormat, LogLevel, start_logging

    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, name="the hub") as cluster:
        if paused:
            was = await _write(cluster, meant, paused=True)
            looked = await look_at(cluster, meant)
        else:
            # A hub that runs is done with it before anybody could look.
            looked = await look_at(cluster, meant)
            was = await _write(cluster, meant, paused=False)
    print("\n".join((paused_lines if paused else resumed_lines)(meant, looked, was=was)))


def paused_lines(meant: Subject, looked: Looked, *, was: bool) -> list[str]:
    """Say what is held now; ``was``: it was paused before."""
    from fairlead.cli.plan_rows import lines_of, plan_of

    plans = [plan for plan in (plan_of(one) for one in looked.found if not one.served) if plan.rows]
    held = sum(bool(row.held_by) for plan in plans for row in plan.rows)
    lines = [
        f"{_whole(meant, looked)} {'was paused already' if was else 'is paused'}; {held or 'nothing'} held so far."
    ]
    lines += [line for plan in plans for line in lines_of(plan)]
    lines.append(f"Let it through with: fairlead resume {meant.typed}")
    return [*lines, looked.note] if looked.note else lines


def resumed_lines(meant: Subject, looked: Looked, *, was: bool) -> list[str]:
    """Say what was held and goes on; ``looked`` is from before."""
    import msgspec

    from fairlead.cli.plan_rows import lines_of, plan_of
    from fairlead.cli.words import counted
    from fairlead.sync.guard import PAUSED

    if not was:
        return [f"{_whole(meant, looked)} was not paused."]
    own = "/".join(filter(None, meant))
    still = sorted({who for one in looked.found for who in one.paused if who != own})
    freed = [plan_of(one) for one in looked.found if not one.served and set(one.paused) == {own}]
    plans = [
        msgspec.structs.replace(
            plan, rows=[msgspec.structs.replace(row, held_by="") for row in plan.rows if row.held_by == PAUSED]
        )
        for plan in freed
    ]
    count = sum(len(plan.rows) for plan in plans)
    lines = [f"{_whole(meant, looked)} goes on; it held {counted(count, 'change')}."]
    lines += [line for plan in plans if plan.rows for line in lines_of(plan)]
    lines += [f"{who} is paused still, and holds what is its own: fairlead resume {who}" for who in still]
    return [*lines, looked.note] if looked.note else lines


def _whole(meant: Subject, looked: Looked) -> str:
    from fairlead.cli.words import counted

    return f"{meant.words} ({counted(len(looked.found), 'load balancer')})" if meant.kind == CLASS else meant.words


async def _write(cluster: Cluster, meant: Subject, *, paused: bool) -> bool:
    """Set or remove the annotation; returns whether it was there."""
    from fairlead.api.loadbalancer import LOAD_BALANCERS
    from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
    from fairlead.api.names import ANNOTATION_PAUSED, MANAGER_CLI
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.cli.connect import check_kinds
    from fairlead.errors import NotFound

    await check_kinds(cluster)
    resources = {one.kind: one for one in (LOAD_BALANCERS, TCP_LOAD_BALANCERS, LOAD_BALANCER_CLASSES)}
    resource, where = resources[meant.kind], (meant.namespace, meant.name)
    try:
        known = await cluster.get(resource, *where)
    except NotFound as error:
        raise NotFound(meant.missing, detail=error.sentence) from error
    patch = {"metadata": {"annotations": {ANNOTATION_PAUSED: "true" if paused else None}}}
    await cluster.merge_patch(resource, *where, patch, manager=MANAGER_CLI)
    return str(known.annotation(ANNOTATION_PAUSED, "false")) != "false"
