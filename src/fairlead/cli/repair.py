"""``fairlead repair``: put back what others changed of ours at a provider.

In: an object, and what was read back. Out: what is put back, then a request on each object that has drifted, which the
hub that leads answers. Never: a call of a provider that changes anything; there is one writer, the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_object
from fairlead.cli.exit_codes import FAILED, OK
from fairlead.cli.options import (
    SUBJECT,
    Context,
    Kubeconfig,
    Labels,
    Namespace,
    Output,
    OutputOption,
    Verbose,
    duration_s,
)
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import Selection, certain, selection_of
from fairlead.status.object_ref import ObjectRef

if TYPE_CHECKING:
    from fairlead.api.meta import WireCondition
    from fairlead.cli.drift_rows import DriftOf
    from fairlead.cli.snapshot import Snapshot
    from fairlead.kube.cluster import Cluster

_POLL_S = 0.5


def repair(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help=f"{SUBJECT}. A class is all that is of it; without it: what -l selects.",
            autocompletion=complete_object,
        ),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be put back.")] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="DURATION", help="How long to wait for the hub's answer, such as 90s or 2m."),
    ] = "30s",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Revert, once, what others changed in our entries at a provider; fairlead drift shows it first.

    It shows what it puts back, asks the hub for it, and waits for the answer. What is not ours is not touched.
    Exit code 1 when something still differs, or when nothing could be read back.
    """
    selection = certain(selection_of(subject, namespace, selector), "repair")
    timeout_s = duration_s(timeout, "--timeout")
    run_for_code(lambda: _repair(selection, kubeconfig, context, output, dry_run=dry_run, timeout_s=timeout_s))


async def _repair(
    selection: Selection, kubeconfig: Path | None, context: str, output: Output, *, dry_run: bool, timeout_s: float
) -> int:
    from fairlead.cli.connect import connect
    from fairlead.cli.drift_rows import drift_row
    from fairlead.cli.options import LogFormat, LogLevel, start_logging
    from fairlead.cli.output import emit
    from fairlead.cli.snapshot import snapshot_of

    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        snapshot = await snapshot_of(cluster, selection)
        rows = [drift_row(lb) for lb in snapshot.load_balancers]
        asked = [ObjectRef(*lb.key) for lb, row in zip(snapshot.load_balancers, rows, strict=True) if row.repair]
        left = dict.fromkeys(asked, "")
        if asked and not dry_run:
            await _ask(cluster, asked)
            left = await _wait(cluster, asked, timeout_s) if snapshot.hub.leading else left
    # After an answer the hub registers at once; what is left has none.
    value = {"repaired": [each.path for each in asked if each not in left], "left": [each.path for each in left]}
    emit(
        output,
        {**value, "loadBalancers": rows},
        lines=lambda: lines_of_repair(selection.title, snapshot, rows, asked, left, dry_run=dry_run),
        names=lambda: [each.path for each in asked],
    )
    unread = any(row.unread and not row.hub_says for row in rows)
    return FAILED if unread or (left and not dry_run) else OK


async def _ask(cluster: Cluster, refs: list[ObjectRef]) -> None:
    from fairlead.api.names import ANNOTATION_REPAIR, MANAGER_CLI

    patch = {"metadata": {"annotations": {ANNOTATION_REPAIR: datetime.now(UTC).isoformat(timespec="milliseconds")}}}
    resources = _resources()
    for ref in refs:
        await cluster.merge_patch(resources[ref.kind], ref.namespace, ref.name, patch, manager=MANAGER_CLI)


async def _wait(cluster: Cluster, refs: list[ObjectRef], timeout_s: float) -> dict[ObjectRef, str]:
    """Wait until the hub has answered and has put everything back; returns what it has not, each with what is missing.

    What is missing is empty while there is no answer.
    """
    from fairlead.api.names import ANNOTATION_REPAIR

    resources = _resources()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    while True:
        objects = [(ref, await cluster.get(resources[ref.kind], ref.namespace, ref.name)) for ref in refs]
        left: dict[ObjectRef, str] = {}
        for ref, obj in objects:
            answered = obj.status.repaired == obj.annotation(ANNOTATION_REPAIR)
            missing = still_missing(obj.status.conditions or ())
            if not answered or missing is not None:
                left[ref] = (missing or "") if answered else ""
        if not left or loop.time() >= end_s:
            return left
        await asyncio.sleep(_POLL_S)


def still_missing(conditions: Iterable[WireCondition]) -> str | None:
    """Return what the hub says is not as it should be, None when it says that nothing is."""
    by_type = {each.type: each for each in conditions}
    programmed, drifted = by_type.get("Programmed"), by_type.get("Drifted")
    if programmed is not None and programmed.status == "False":
        return programmed.message or programmed.reason
    return drifted.message if drifted is not None and drifted.status == "True" else None


def _resources():
    from fairlead.api.load_balancers import INTENT_KINDS

    return {resource.kind: resource for resource in INTENT_KINDS}


def lines_of_repair(
    what: str,
    snapshot: Snapshot,
    rows: list[DriftOf],
    asked: list[ObjectRef],
    left: Mapping[ObjectRef, str],
    *,
    dry_run: bool,
) -> list[str]:
    """Return what is put back, and what became of it: ``asked`` for, and ``left`` with what is missing."""
    from fairlead.cli.drift_rows import lines_of

    lines = [line for row in rows for line in lines_of(row)]
    if not asked:
        lines.append(f"Nothing of {what} is to be put back.")
    elif dry_run:
        lines.append("Put it back with the same command without --dry-run.")
    elif not left:
        lines.append("The hub has put it back.")
    elif snapshot.hub.leading:
        named = ", ".join(each.path for each in left)
        lines += [f"  missing  {each.path}: {missing}" for each, missing in left.items() if missing]
        why = f"fairlead explain {next(iter(left)).argument}"
        lines.append(f"Requested, and not done yet: {named}; see why with: {why}")
    else:
        lines.append("Requested; it is done once a hub leads.")
    return [*lines, snapshot.warning] if snapshot.warning else lines
