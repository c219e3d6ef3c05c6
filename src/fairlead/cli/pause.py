"""``fairlead pause`` and ``fairlead resume``: freeze what is on a load balancer, or on all of a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.object_ref import CLASS, Kubeconfig, Namespace, ObjectRef, parse_object_ref
from fairlead.cli.options import Verbose
from fairlead.cli.run import run_async

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot
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
    ref = parse_object_ref(subject, namespace)
    run_async(lambda: _set(ref, kubeconfig, paused=True))


def resume(
    subject: _Subject,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Let through what pause held."""
    ref = parse_object_ref(subject, namespace)
    run_async(lambda: _set(ref, kubeconfig, paused=False))


async def _set(ref: ObjectRef, kubeconfig: Path | None, *, paused: bool) -> None:
    from fairlead.cli.connect import connect
    from fairlead.cli.options import LogFormat, LogLevel, start_logging
    from fairlead.cli.snapshot import snapshot_of

    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, name="the hub") as cluster:
        if paused:
            was = await _write(cluster, ref, paused=True)
            snapshot = await snapshot_of(cluster, ref)
        else:
            # Read first: a hub that runs does what was held at once.
            snapshot = await snapshot_of(cluster, ref)
            was = await _write(cluster, ref, paused=False)
    print("\n".join((paused_lines if paused else resumed_lines)(ref, snapshot, was=was)))


def paused_lines(ref: ObjectRef, snapshot: Snapshot, *, was: bool) -> list[str]:
    """Return what is held now; ``was``: it was paused before."""
    from fairlead.cli.plan_rows import lines_of, plan_of

    plans = [plan for plan in (plan_of(lb) for lb in snapshot.load_balancers if not lb.served) if plan.rows]
    held = sum(bool(row.held_by) for plan in plans for row in plan.rows)
    lines = [
        f"{_whole(ref, snapshot)} {'was paused already' if was else 'is paused'}; {held or 'nothing'} held so far."
    ]
    lines += [line for plan in plans for line in lines_of(plan)]
    lines.append(f"Let it through with: fairlead resume {ref.argument}")
    return [*lines, snapshot.warning] if snapshot.warning else lines


def resumed_lines(ref: ObjectRef, snapshot: Snapshot, *, was: bool) -> list[str]:
    """Return what was held and goes on; ``snapshot`` is from before."""
    import msgspec

    from fairlead.cli.formatting import counted
    from fairlead.cli.plan_rows import lines_of, plan_of
    from fairlead.sync.guard import PAUSED

    if not was:
        return [f"{_whole(ref, snapshot)} was not paused."]
    own = "/".join(filter(None, ref))
    still = sorted({name for lb in snapshot.load_balancers for name in lb.paused if name != own})
    freed = [plan_of(lb) for lb in snapshot.load_balancers if not lb.served and set(lb.paused) == {own}]
    plans = [
        msgspec.structs.replace(
            plan, rows=[msgspec.structs.replace(row, held_by="") for row in plan.rows if row.held_by == PAUSED]
        )
        for plan in freed
    ]
    count = sum(len(plan.rows) for plan in plans)
    lines = [f"{_whole(ref, snapshot)} goes on; it held {counted(count, 'change')}."]
    lines += [line for plan in plans if plan.rows for line in lines_of(plan)]
    lines += [f"{name} is paused still, and holds what is its own: fairlead resume {name}" for name in still]
    return [*lines, snapshot.warning] if snapshot.warning else lines


def _whole(ref: ObjectRef, snapshot: Snapshot) -> str:
    from fairlead.cli.formatting import counted

    count = counted(len(snapshot.load_balancers), "load balancer")
    return f"{ref.title} ({count})" if ref.kind == CLASS else ref.title


async def _write(cluster: Cluster, ref: ObjectRef, *, paused: bool) -> bool:
    """Set or remove the annotation; return whether it was set before."""
    from fairlead.api.loadbalancer import LOAD_BALANCERS
    from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
    from fairlead.api.names import ANNOTATION_PAUSED, MANAGER_CLI
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.cli.connect import check_kinds
    from fairlead.errors import NotFound

    await check_kinds(cluster)
    resources = {resource.kind: resource for resource in (LOAD_BALANCERS, TCP_LOAD_BALANCERS, LOAD_BALANCER_CLASSES)}
    resource, where = resources[ref.kind], (ref.namespace, ref.name)
    try:
        known = await cluster.get(resource, *where)
    except NotFound as error:
        raise NotFound(ref.not_found, detail=error.sentence) from error
    patch = {"metadata": {"annotations": {ANNOTATION_PAUSED: "true" if paused else None}}}
    await cluster.merge_patch(resource, *where, patch, manager=MANAGER_CLI)
    return str(known.annotation(ANNOTATION_PAUSED, "false")) != "false"
