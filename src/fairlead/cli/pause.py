"""``fairlead pause`` and ``fairlead resume``: freeze what is on a load balancer, or on all of a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_object
from fairlead.cli.options import SUBJECT, Context, Kubeconfig, Labels, Namespace, Output, OutputOption, Verbose
from fairlead.cli.run import run_async
from fairlead.cli.selection import Selection, certain, selection_of
from fairlead.status.object_ref import CLASS, ObjectRef

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot
    from fairlead.kube.cluster import Cluster

_Subject = Annotated[
    str,
    typer.Argument(
        metavar="KIND/NAME",
        help=f"{SUBJECT}. A class is all that is of it; without it: what -l selects.",
        autocompletion=complete_object,
    ),
]


def pause(
    subject: _Subject = "",
    namespace: Namespace = "",
    selector: Labels = "",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Hold all changes of a load balancer, or of a class.

    Nothing on it is added, changed or removed until resume, and the condition Paused says so. What is held by that is
    shown here, in fairlead plan and in fairlead explain. A load balancer that was never programmed is not held up, and
    one whose object is deleted goes.
    """
    selection = certain(selection_of(subject, namespace, selector), "pause")
    run_async(lambda: _set(selection, kubeconfig, context, output, paused=True))


def resume(
    subject: _Subject = "",
    namespace: Namespace = "",
    selector: Labels = "",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Apply the changes that pause held."""
    selection = certain(selection_of(subject, namespace, selector), "resume")
    run_async(lambda: _set(selection, kubeconfig, context, output, paused=False))


async def _set(selection: Selection, kubeconfig: Path | None, context: str, output: Output, *, paused: bool) -> None:
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.options import LogFormat, LogLevel, start_logging
    from fairlead.cli.output import emit
    from fairlead.cli.plan_rows import plan_of
    from fairlead.cli.selection import resolve_one, select
    from fairlead.cli.snapshot import snapshot_of

    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_kinds(cluster)
        if selection.ref is not None and not selection.selector:
            refs = [await resolve_one(cluster, selection.ref)]
            selection = Selection(refs[0])
        else:
            refs = sorted(await select(cluster, selection))
        # Of a resume it is read first: a hub that runs does what was held at once.
        snapshot = await snapshot_of(cluster, selection) if not paused else None
        was = {ref: await _write(cluster, ref, paused=paused) for ref in refs}
        snapshot = snapshot or await snapshot_of(cluster, selection)
    parts = {ref: _part(snapshot, ref) for ref in refs}
    values = [
        {
            "object": ref.path,
            "paused": paused,
            "wasPaused": was[ref],
            "loadBalancers": [plan_of(lb, leading=snapshot.hub.leading) for lb in part.load_balancers],
        }
        for ref, part in parts.items()
    ]
    say_lines = paused_lines if paused else resumed_lines
    emit(
        output,
        {"objects": values} if selection.selector else values[0],
        lines=lambda: [line for ref, part in parts.items() for line in say_lines(ref, part, was=was[ref])],
        names=lambda: [ref.path for ref in refs],
    )


def _part(snapshot: Snapshot, ref: ObjectRef) -> Snapshot:
    """Return what of a snapshot is of one object; of a class it is all that was read for it."""
    if ref.kind == CLASS:
        return snapshot
    own = (ref.kind, ref.namespace, ref.name)
    return snapshot._replace(load_balancers=[lb for lb in snapshot.load_balancers if tuple(lb.key) == own])


def paused_lines(ref: ObjectRef, snapshot: Snapshot, *, was: bool) -> list[str]:
    """Return what is held now; ``was``: it was paused before."""
    from fairlead.cli.plan_rows import lines_of, plan_of

    plans = [plan_of(lb, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]
    held = sum(plan.held for plan in plans)
    lines = [
        f"{_whole(ref, snapshot)} {'was paused already' if was else 'is paused'}; {held or 'nothing'} held so far."
    ]
    lines += [line for plan in plans if plan.rows for line in lines_of(plan)]
    lines.append(f"Apply the held changes with: fairlead resume {ref.argument}")
    return [*lines, snapshot.warning] if snapshot.warning else lines


def resumed_lines(ref: ObjectRef, snapshot: Snapshot, *, was: bool) -> list[str]:
    """Return the changes that were held and are applied now; ``snapshot`` is from before."""
    from fairlead.cli.plan_rows import lines_of, plan_of
    from fairlead.model.in_words import counted

    if not was:
        return [f"{_whole(ref, snapshot)} was not paused."]
    own = "/".join(filter(None, ref))
    still = sorted({name for lb in snapshot.load_balancers for name in lb.paused if name != own})
    freed = [lb for lb in snapshot.load_balancers if set(lb.paused) == {own}]
    plans = [plan_of(lb, leading=snapshot.hub.leading).resumed for lb in freed]
    count = sum(len(plan.rows) + plan.more_held for plan in plans)
    lines = [f"{_whole(ref, snapshot)} is resumed; it held {counted(count, 'change')}."]
    lines += [line for plan in plans if plan.rows for line in lines_of(plan)]
    lines += [f"{name} is paused still, and holds what is its own: fairlead resume {name}" for name in still]
    return [*lines, snapshot.warning] if snapshot.warning else lines


def _whole(ref: ObjectRef, snapshot: Snapshot) -> str:
    from fairlead.model.in_words import counted

    count = counted(len(snapshot.load_balancers), "load balancer")
    return f"{ref.title} ({count})" if ref.kind == CLASS else ref.title


async def _write(cluster: Cluster, ref: ObjectRef, *, paused: bool) -> bool:
    """Set or remove the annotation; return whether it was set before."""
    from fairlead.api.load_balancers import INTENT_KINDS
    from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
    from fairlead.api.names import ANNOTATION_PAUSED, MANAGER_CLI
    from fairlead.errors import NotFound

    resources = {resource.kind: resource for resource in (*INTENT_KINDS, LOAD_BALANCER_CLASSES)}
    resource, where = resources[ref.kind], (ref.namespace, ref.name)
    try:
        known = await cluster.get(resource, *where)
    except NotFound as error:
        raise NotFound(ref.not_found, detail=error.sentence) from error
    patch = {"metadata": {"annotations": {ANNOTATION_PAUSED: "true" if paused else None}}}
    await cluster.merge_patch(resource, *where, patch, manager=MANAGER_CLI)
    return str(known.annotation(ANNOTATION_PAUSED, "false")) != "false"
