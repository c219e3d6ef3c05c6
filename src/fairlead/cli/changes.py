"""The verbs about changes: ``plan``, ``drift``, ``repair``, ``gc``, ``pause`` and ``resume``.

In: an object, labels or a namespace. Out: what would change, what others changed, orphans; requests to the hub as
annotations, and their answers. Never: a call of a provider that changes anything; there is one writer, the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import (
    HubApi,
    Output,
    OutputOption,
    Watch,
    duration_s,
    takes_groups,
)
from fairlead.cli.run import ATTENTION, FAILED, OK, run_async, run_for_code
from fairlead.cli.selection import Selected, SelectedToChange, Selection, certain
from fairlead.status.object_ref import CLASS, ObjectRef

if TYPE_CHECKING:
    from fairlead.api.meta import WireCondition
    from fairlead.cli.hub_reader import Snapshot
    from fairlead.cli.plan_rows import DriftOf, OrphanRow
    from fairlead.kube.cluster import Cluster


@takes_groups
def plan(
    selected: Selected,
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show what would change, and why; exit code 4 when something would.

    Field by field, what is on record -> what is wanted, and what is really there where that differs. What is held
    (=) does not count as a change, and what others changed (!) stays until fairlead repair. -o wide also lists load
    balancers to which nothing would be done.
    """
    selection = selected.selection
    run_for_code(lambda: _show(selection, api, output, watch=watch))


async def _show(selection: Selection, api: HubApi, output: Output, *, watch: bool) -> int:
    from fairlead.cli.hub_reader import take_snapshot
    from fairlead.cli.output import VerbAnswer, show
    from fairlead.cli.plan_rows import lines_of, plan_of, summary

    async def ask() -> VerbAnswer:
        snapshot = await take_snapshot(api, selection)
        plans = [plan_of(lb, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]
        changes = any(not row.held_by for plan in plans for row in plan.rows)

        def lines() -> list[str]:
            printed = [plan for plan in plans if plan.says_something or output is Output.WIDE]
            return [
                *(line for plan in printed for line in lines_of(plan)),
                summary(plans),
                *([snapshot.warning] if snapshot.warning else []),
            ]

        value = {"wouldChange": changes, "hubLeads": snapshot.hub.leading, "loadBalancers": plans}
        names = [plan.load_balancer for plan in plans if plan.rows]
        return VerbAnswer(value, lines, lambda: names, ATTENTION if changes else OK)

    return await show(ask, output, watch=watch)


@takes_groups
def drift(
    selected: Selected,
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show what others changed at the provider, and how it is repaired; exit code 4 when an entry of ours was.

    Every load balancer with a ledger is read back. Foreign entries are listed separately and do not count as drift.
    Only the hub configures its own proxies: for their load balancers, it shows whether they have the newest state.
    """
    selection = selected.selection
    run_for_code(lambda: _drift_show(selection, api, output, watch=watch))


async def _drift_show(selection: Selection, api: HubApi, output: Output, *, watch: bool) -> int:
    from fairlead.cli.hub_reader import take_snapshot
    from fairlead.cli.output import VerbAnswer, show
    from fairlead.cli.plan_rows import drift_lines, drift_row, drift_summary

    async def ask() -> VerbAnswer:
        snapshot = await take_snapshot(api, selection)
        read = [lb for lb in snapshot.load_balancers if lb.served or lb.unread or lb.side.recorded_spec is not None]
        rows = [drift_row(lb) for lb in read]
        drifted, unread = any(row.ours for row in rows), any(row.unread for row in rows)
        return VerbAnswer(
            {"drifted": drifted, "loadBalancers": rows},
            lambda: [*(line for row in rows for line in drift_lines(row)), drift_summary(rows)],
            lambda: [row.load_balancer for row in rows if row.ours],
            ATTENTION if drifted else FAILED if unread else OK,
        )

    return await show(ask, output, watch=watch)


@takes_groups
def gc(
    selected: Selected,
    delete: Annotated[
        bool, typer.Option("--delete", help="Have the hub deregister them, without a prompt; one line each.")
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List orphaned backends, and delete them; exit code 4 when some are left.

    Orphans are records whose load balancer is gone, and entries of ours at a provider without a record. Foreign
    entries are never changed. The hub's own proxies have only the hub's state, and so no orphans.
    """
    selection = selected.selection
    run_for_code(lambda: _collect(selection, api, output, delete=delete))


async def _collect(selection: Selection, api: HubApi, output: Output, *, delete: bool) -> int:
    from fairlead.cli.hub_reader import connect_hub, snapshot_of
    from fairlead.cli.output import emit
    from fairlead.cli.plan_rows import orphan_lines, orphan_row
    from fairlead.hub.inspect.orphans import orphans_of, remove_orphan

    rows: list[OrphanRow] = []
    unread: dict[str, str] = {}
    async with connect_hub(api, quiet=True) as cluster:
        snapshot = await snapshot_of(cluster, selection)
        for lb in snapshot.load_balancers:
            if lb.unread and not lb.served:
                unread[str(lb.key)] = lb.unread
            for orphan in orphans_of(lb):
                done = await remove_orphan(cluster, lb, orphan) if delete else ""
                rows.append(orphan_row(lb, orphan, done or ("already being removed" if orphan.leaving else "")))
    left = [row for row in rows if not row.done]
    served = sum(lb.served for lb in snapshot.load_balancers)
    emit(
        output,
        {"left": len(left), "orphans": rows, "unread": unread},
        lines=lambda: orphan_lines(rows, unread, warning=snapshot.warning, served=served),
        names=lambda: dict.fromkeys(row.load_balancer for row in left),
    )
    return ATTENTION if left else FAILED if unread else OK


_POLL_S = 0.5


@takes_groups
def repair(
    selected: SelectedToChange,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be reverted.")] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="DURATION", help="How long to wait for the hub's answer, such as 90s or 2m."),
    ] = "30s",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Revert, once, what others changed in our entries at a provider; fairlead drift shows it first.

    Shows what will be reverted, requests it from the hub and waits for the answer. Foreign entries are not changed.
    Exit code 1 when something still differs, or when nothing could be read back.
    """
    selection = certain(selected.selection, "repair")
    timeout_s = duration_s(timeout, "--timeout")
    run_for_code(lambda: _repair(selection, api, output, dry_run=dry_run, timeout_s=timeout_s))


async def _repair(selection: Selection, api: HubApi, output: Output, *, dry_run: bool, timeout_s: float) -> int:
    from fairlead.cli.hub_reader import connect_hub, snapshot_of
    from fairlead.cli.output import emit
    from fairlead.cli.plan_rows import drift_row

    async with connect_hub(api, quiet=True) as cluster:
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
    by_type = {condition.type: condition for condition in conditions}
    programmed, drifted = by_type.get("Programmed"), by_type.get("Drifted")
    if programmed is not None and programmed.status == "False":
        return programmed.message or programmed.reason
    return drifted.message if drifted is not None and drifted.status == "True" else None


def _resources():
    from fairlead.api.kinds import INTENT_KINDS

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
    from fairlead.cli.plan_rows import drift_lines

    lines = [line for row in rows for line in drift_lines(row)]
    if not asked:
        lines.append(f"Nothing of {what} needs to be reverted.")
    elif dry_run:
        lines.append("To revert it, run the same command without --dry-run.")
    elif not left:
        lines.append("The hub has reverted it.")
    elif snapshot.hub.leading:
        named = ", ".join(each.path for each in left)
        lines += [f"  missing  {each.path}: {missing}" for each, missing in left.items() if missing]
        why = f"fairlead explain {next(iter(left)).argument}"
        lines.append(f"Requested, but not done yet: {named}; see why with: {why}")
    else:
        lines.append("Requested; a hub reverts it as soon as it leads.")
    return [*lines, snapshot.warning] if snapshot.warning else lines


@takes_groups
def pause(
    selected: SelectedToChange,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Hold all changes of a load balancer, or of a class.

    Nothing is added, changed or removed until resume; the condition Paused reports it. The held changes are shown here,
    in fairlead plan and in fairlead explain. A load balancer that was never programmed is still programmed, and one
    whose object is deleted is still removed.
    """
    selection = certain(selected.selection, "pause")
    run_async(lambda: _set(selection, api, output, paused=True))


@takes_groups
def resume(
    selected: SelectedToChange,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Apply the changes that pause held."""
    selection = certain(selected.selection, "resume")
    run_async(lambda: _set(selection, api, output, paused=False))


async def _set(selection: Selection, api: HubApi, output: Output, *, paused: bool) -> None:
    from fairlead.cli.hub_reader import check_kinds, connect_hub, snapshot_of
    from fairlead.cli.output import emit
    from fairlead.cli.plan_rows import plan_of
    from fairlead.cli.selection import resolve_one, select

    async with connect_hub(api, quiet=True) as cluster:
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
    lines += [f"{name} is still paused and holds its own changes: fairlead resume {name}" for name in still]
    return [*lines, snapshot.warning] if snapshot.warning else lines


def _whole(ref: ObjectRef, snapshot: Snapshot) -> str:
    from fairlead.model.in_words import counted

    count = counted(len(snapshot.load_balancers), "load balancer")
    return f"{ref.title} ({count})" if ref.kind == CLASS else ref.title


async def _write(cluster: Cluster, ref: ObjectRef, *, paused: bool) -> bool:
    """Set or remove the annotation; return whether it was set before."""
    from fairlead.api.kinds import INTENT_KINDS
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
