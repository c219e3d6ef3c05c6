"""The verbs about changes: ``plan``, ``drift``, ``repair``, ``gc``, ``pause`` and ``resume``.

In: an object, labels or a namespace. Out: what would change, what others changed, orphans, as rows for ``-o json`` and
lines for people; requests to the hub as annotations, and their answers. The ledger of the hub's own proxies is in the
hub's memory: of these, the rows are what the hub reports as held. Never: a call of a provider that changes anything;
there is one writer, the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import WireCondition, condition_of, is_true
from fairlead.api.names import ANNOTATION_PAUSED, ANNOTATION_REPAIR, MACHINE_PROVIDERS, MANAGER_CLI
from fairlead.cli.hub_reader import Snapshot, check_kinds, connect_hub, snapshot_of, take_snapshot
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import VerbAnswer, emit, show
from fairlead.cli.run import ATTENTION, FAILED, OK
from fairlead.cli.selection import Selection, resolve_one, select
from fairlead.errors import NotFound
from fairlead.hub.inspect.preview import Orphan, Previewed, orphans_of, remove_orphan
from fairlead.kube.cluster import Cluster
from fairlead.model.change import Action
from fairlead.model.in_words import counted
from fairlead.status.formatting import columns, reason_text
from fairlead.status.object_ref import CLASS, ObjectRef
from fairlead.status.plan_rows import Field, Row, rows_of
from fairlead.sync.plan import PAUSED


async def show_plan(selection: Selection, api: HubApi, output: Output, *, watch: bool) -> int:
    """Print what would change; return the exit code."""

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


async def show_drift(selection: Selection, api: HubApi, output: Output, *, watch: bool) -> int:
    """Print what others changed; return the exit code."""

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


async def collect_orphans(selection: Selection, api: HubApi, output: Output, *, delete: bool) -> int:
    """List orphaned backends, or have the hub deregister them; return the exit code."""
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


async def revert(selection: Selection, api: HubApi, output: Output, *, dry_run: bool, timeout_s: float) -> int:
    """Have the hub revert what others changed, and print what still differs; return the exit code."""
    async with connect_hub(api, quiet=True) as cluster:
        snapshot = await snapshot_of(cluster, selection)
        rows = [drift_row(lb) for lb in snapshot.load_balancers]
        asked = [ObjectRef(*lb.key) for lb, row in zip(snapshot.load_balancers, rows, strict=True) if row.repair]
        left = dict.fromkeys(asked, "")
        if asked and not dry_run:
            patch = {
                "metadata": {"annotations": {ANNOTATION_REPAIR: datetime.now(UTC).isoformat(timespec="milliseconds")}}
            }
            resources = _resources()
            for ref in asked:
                await cluster.merge_patch(resources[ref.kind], ref.namespace, ref.name, patch, manager=MANAGER_CLI)
            left = await _wait(cluster, asked, timeout_s) if snapshot.hub.leading else left
    # After an answer the hub registers at once; what is left has none.
    value = {"repaired": [ref.path for ref in asked if ref not in left], "left": [ref.path for ref in left]}
    emit(
        output,
        {**value, "loadBalancers": rows},
        lines=lambda: lines_of_repair(selection.title, snapshot, rows, asked, left, dry_run=dry_run),
        names=lambda: [ref.path for ref in asked],
    )
    unread = any(row.unread and not row.hub_says for row in rows)
    return FAILED if unread or (left and not dry_run) else OK


async def _wait(cluster: Cluster, refs: list[ObjectRef], timeout_s: float) -> dict[ObjectRef, str]:
    """Wait until the hub has answered and has put everything back; returns what it has not, each with what is missing.

    What is missing is empty while there is no answer.
    """
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
    lines = [line for row in rows for line in drift_lines(row)]
    if not asked:
        lines.append(f"Nothing of {what} needs to be reverted.")
    elif dry_run:
        lines.append("To revert it, run the same command without --dry-run.")
    elif not left:
        lines.append("The hub has reverted it.")
    elif snapshot.hub.leading:
        named = ", ".join(ref.path for ref in left)
        lines += [f"  missing  {ref.path}: {missing}" for ref, missing in left.items() if missing]
        why = f"fairlead explain {next(iter(left)).argument}"
        lines.append(f"Requested, but not done yet: {named}; see why with: {why}")
    else:
        lines.append("Requested; a hub reverts it as soon as it leads.")
    return [*lines, snapshot.warning] if snapshot.warning else lines


async def set_paused(selection: Selection, api: HubApi, output: Output, *, paused: bool) -> None:
    """Pause or resume load balancers, and print what is held."""
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
    count = counted(len(snapshot.load_balancers), "load balancer")
    return f"{ref.title} ({count})" if ref.kind == CLASS else ref.title


async def _write(cluster: Cluster, ref: ObjectRef, *, paused: bool) -> bool:
    """Set or remove the annotation; return whether it was set before."""
    resources = {resource.kind: resource for resource in (*INTENT_KINDS, LOAD_BALANCER_CLASSES)}
    resource, where = resources[ref.kind], (ref.namespace, ref.name)
    try:
        known = await cluster.get(resource, *where)
    except NotFound as error:
        raise NotFound(ref.not_found, detail=error.sentence) from error
    patch = {"metadata": {"annotations": {ANNOTATION_PAUSED: "true" if paused else None}}}
    await cluster.merge_patch(resource, *where, patch, manager=MANAGER_CLI)
    return str(known.annotation(ANNOTATION_PAUSED, "false")) != "false"


_SIGNS = {
    Action.ENSURE: "~", Action.UPDATE: "~", Action.REGISTER: "+",
    Action.DRAIN: "-", Action.DEREGISTER: "-", Action.DELETE: "-",
}  # fmt: skip
_AGAIN = "unchanged: requested before, and no answer is recorded"
_NEWER = "the spec has changed since the hub last read it"
_NOT_LED = "no hub leads, and only a hub knows the backends of its own proxies"
_COUNTED = {"+": "add", "~": "change", "-": "remove"}


class PlanOf(msgspec.Struct, frozen=True):
    """The plan of one load balancer; ``problem``: why nothing is planned, ``unread``: not read back.

    ``more_held`` counts held rows that are not listed. ``drift``: what others changed of ours, which stays until
    the command ``repair`` is run.
    """

    load_balancer: str = msgspec.field(name="loadBalancer")
    provider: str
    problem: str
    unread: str
    rows: list[Row]
    more_held: int = msgspec.field(name="moreHeld", default=0)
    drift: list[str] = msgspec.field(default_factory=list[str])
    repair: str = ""

    @property
    def says_something(self) -> bool:
        """Return whether there is anything to say about it."""
        return bool(self.rows or self.problem or self.unread or self.drift)

    @property
    def held(self) -> int:
        """Return how many changes are held, listed or not."""
        return sum(bool(row.held_by) for row in self.rows) + self.more_held

    @property
    def resumed(self) -> PlanOf:
        """Return what a pause holds, as it is done without the pause."""
        freed = [msgspec.structs.replace(row, held_by="", message="") for row in self.rows if row.held_by == PAUSED]
        return msgspec.structs.replace(self, rows=freed, drift=[], repair="", more_held=self.more_held if freed else 0)


def plan_of(lb: Previewed, *, leading: bool = True) -> PlanOf:
    """Return the plan of one load balancer; ``leading``: whether a hub leads."""
    drift = drift_row(lb)
    unread = lb.unread or (_NOT_LED if lb.served and not leading else "")
    return PlanOf(
        str(lb.key), lb.provider, problem_of(lb), unread, rows_of(lb), lb.more_held, ours_of(drift), drift.repair
    )


def problem_of(lb: Previewed) -> str:
    """Return why nothing is planned for a load balancer that exists; empty when something is."""
    if lb.translation is None or lb.translation.desired is not None:
        return ""
    bad = next((condition for condition in lb.translation.conditions if not condition.status), None)
    if bad is not None and bad.status is None:
        return ""  # nothing was asked for
    return f"{bad.reason}: {bad.message}" if bad is not None else "not decided yet"


def lines_of(plan: PlanOf) -> list[str]:
    """Return the plan for people."""
    without = "in no DNSZone" if plan.load_balancer.startswith(f"{HOSTNAMES.kind}/") else "provider unknown"
    lines = [f"{plan.load_balancer} ({f'provider {plan.provider}' if plan.provider else without})"]
    if plan.problem:
        lines.append(f"  ! nothing is planned: {plan.problem}")
    heads = columns([_head(row) for row in plan.rows])
    for row, head in zip(plan.rows, heads, strict=True):
        lines.append(head)
        lines += [f"      {_change(field)}" for field in row.fields]
        if row.action == Action.ENSURE and not row.fields:
            lines.append("      " + (_NEWER if plan.provider in MACHINE_PROVIDERS else _AGAIN))
        if row.held_by:
            lines.append(f"      held: {row.held_by}, {row.message}")
    if plan.more_held:
        lines.append(f"  = and {plan.more_held} more held")
    lines += [f"  ! {text}" for text in plan.drift]
    if plan.repair:
        lines.append(f"      revert with: {plan.repair}")
    if plan.unread:
        lines.append(f"  not read back: {plan.unread}")
    return lines


def summary(plans: Sequence[PlanOf]) -> str:
    """Return how many changes there are, in one line."""
    if not plans:
        return (
            "No load balancers found. Create a LoadBalancer to get one, or a Service of type LoadBalancer in a member."
        )
    rows = [row for plan in plans for row in plan.rows]
    counts = {word: sum(not row.held_by and _sign(row) == sign for row in rows) for sign, word in _COUNTED.items()}
    parts = [f"{count} to {word}" for word, count in counts.items() if count]
    text = ", ".join(parts) if parts else "Nothing would change"
    held, drifted = sum(plan.held for plan in plans), sum(len(plan.drift) for plan in plans)
    text += f", {held} held" if held else ""
    text += f", {drifted} changed by others" if drifted else ""
    return f"{text}; {counted_kinds(plan.load_balancer for plan in plans)} compared."


def _head(row: Row) -> tuple[str, str, str]:
    sign = "=" if row.held_by else _sign(row)
    action = f"hold {row.action}" if row.held_by else row.action
    what = " ".join(filter(None, (row.listener, row.target, f"({row.source})" if row.source else "")))
    return f"{sign} {action}", what or "the load balancer itself", reason_text(row.reason)


def _sign(row: Row) -> str:
    return _SIGNS[Action(row.action)]


def _change(field: Field) -> str:
    text = f"{field.field}: {field.ledger or '-'} -> {field.wanted or '-'}"
    differs = field.there is not None and field.there != field.ledger
    return f"{text} (there: {field.there or '-'})" if differs else text


#: Of load balancers of the hub's own proxies.
AS_SERVED = "proxies have the newest state; only the hub configures them"


class Changed(msgspec.Struct, frozen=True):
    """One field of an entry of ours: its value in the ledger, and at the provider."""

    listener: str
    target: str
    field: str
    ledger: str
    there: str


class DriftOf(msgspec.Struct, frozen=True):
    """The differences of one load balancer from its ledger.

    ``foreign`` are entries of other owners, which are listed and do not count as drift.
    ``unread``: why it could not be read back, and then ``hub_says`` is the result of the hub's own read-back.
    ``repair`` is the command that restores Fairlead's entries, empty when none is missing or another owner must
    restore them; ``outlook`` is what happens without that command.
    """

    load_balancer: str = msgspec.field(name="loadBalancer")
    provider: str
    gone: bool = msgspec.field(name="vanished")
    missing: list[str]
    changed: list[Changed]
    foreign: list[str]
    unread: str
    hub_says: str = msgspec.field(name="hubSays")
    repair: str = ""
    outlook: str = ""
    #: Why the hub's own proxies do not have it as it is wanted.
    not_programmed: str = msgspec.field(default="", name="notProgrammed")

    @property
    def ours(self) -> int:
        """Return how many entries of ours are not as recorded."""
        return self.gone + len(self.missing) + len(self.changed)


def drift_row(lb: Previewed) -> DriftOf:
    """Return how one load balancer differs."""
    there = {(entry.listener, entry.key): entry for entry in (lb.observed.targets or ())} if lb.observed else {}
    changed: list[Changed] = []
    for place in lb.drift.changed:
        listener, key = place
        target, entry = lb.side.recorded[listener][key].target, there[place]
        for field, ledger, now in (
            ("weight", str(target.weight), str(entry.weight)),
            ("draining", _yes(target.draining), _yes(entry.draining)),
        ):
            if ledger != now:
                changed.append(Changed(str(listener), str(key), field, ledger, now))
    drifted = condition_of(lb.conditions, "Drifted")
    return DriftOf(
        str(lb.key),
        lb.provider,
        lb.drift.gone,
        [f"{listener} {key}" for listener, key in lb.drift.missing],
        changed,
        list(lb.drift.foreign),
        lb.unread,
        drifted.message if lb.unread and drifted is not None and drifted.status == "True" else "",
        ObjectRef(*lb.key).repair if _can_be_repaired(lb) else "",
        _outlook(lb) if lb.drift.ours else "",
        _not_programmed(lb) if lb.served else "",
    )


def _not_programmed(lb: Previewed) -> str:
    programmed = condition_of(lb.conditions, "Programmed")
    if programmed is None:
        return "the hub has not processed it yet"
    return "" if programmed.status == "True" else programmed.message or programmed.reason


def _can_be_repaired(lb: Previewed) -> bool:
    drifted = lb.drift.ours or (lb.unread and is_true(lb.conditions, "Drifted"))
    return bool(drifted) and not lb.drift.kept_by_others and not lb.gone


def _outlook(lb: Previewed) -> str:
    desired = lb.side.desired
    if desired is not None and desired.repair_s and not lb.drift.gone:
        return f"the hub reverts it automatically, every {desired.repair_s:g} s (ensurePolicy Always)"
    return lb.drift.outlook


def ours_of(row: DriftOf) -> list[str]:
    """Return one sentence for each entry of ours that is not as recorded."""
    return [
        *(["gone: the load balancer itself was deleted"] if row.gone else []),
        *(f"{entry}: no longer at the provider" for entry in row.missing),
        *(
            f"{entry.listener} {entry.target}: {entry.field} {entry.ledger} recorded, {entry.there} at the provider"
            for entry in row.changed
        ),
    ]


def counted_kinds(paths: Iterable[str]) -> str:
    """Return how many load balancers and names there are, of KIND/NAMESPACE/NAME: 2 load balancers and 1 name."""
    are_names = [path.startswith(f"{HOSTNAMES.kind}/") for path in paths]
    names, others = sum(are_names), len(are_names) - sum(are_names)
    parts = [counted(others, "load balancer")] if others or not names else []
    return " and ".join([*parts, *([counted(names, "name")] if names else [])])


def drift_summary(rows: Sequence[DriftOf]) -> str:
    """Return what was found, in one sentence: what could not be read is not called undrifted."""
    if not rows:
        return "Nothing to read back: no load balancer has a ledger yet."
    all_rows = counted_kinds(row.load_balancer for row in rows)
    drifted, unread = sum(bool(row.ours) for row in rows), sum(bool(row.unread) for row in rows)
    if unread == len(rows):
        return f"Unknown whether anything drifted: {all_rows} could not be read back."
    text = f"{drifted} of {all_rows} drifted" if drifted else "Nothing of ours drifted"
    return f"{text}; {unread} could not be read back." if unread else f"{text}."


def drift_lines(row: DriftOf) -> list[str]:
    """Return the lines for people."""
    fine = f": {AS_SERVED}" if row.provider in MACHINE_PROVIDERS else ": as recorded"
    if row.not_programmed:
        fine = f": not programmed: {row.not_programmed}"
    lines = [f"{row.load_balancer} (provider {row.provider or 'unknown'}){'' if row.ours or row.unread else fine}"]
    lines += [f"  ours     {text}" for text in ours_of(row)]
    if row.outlook:
        lines.append(f"  then     {row.outlook}")
    if row.repair:
        lines.append(f"  repair   {row.repair}")
    lines += [f"  foreign  {entry}" for entry in row.foreign]
    if row.unread:
        lines.append(f"  unknown  not read back: {row.unread}")
    if row.hub_says:
        lines.append(f"  the hub says: {row.hub_says}")
    return lines


def _yes(value: bool) -> str:
    return "yes" if value else "no"


class OrphanRow(msgspec.Struct, frozen=True):
    """One orphan; ``kind`` Record: without a load balancer, Entry: at the provider, without a record."""

    kind: str
    load_balancer: str = msgspec.field(name="loadBalancer")
    provider: str
    listener: str
    target: str
    record: str
    done: str


def orphan_lines(rows: list[OrphanRow], unread: dict[str, str], *, warning: str, served: int = 0) -> list[str]:
    """Return the report for people."""
    lines: list[str] = []
    for kind, title in (
        ("Record", "Records whose load balancer is gone:"),
        ("Entry", "Entries of ours without a record:"),
    ):
        orphans = [row for row in rows if row.kind == kind]
        if orphans:
            lines.append(title)
            lines += columns(
                [(row.load_balancer, f"{row.listener} {row.target}", row.done or "orphaned") for row in orphans]
            )
    lines += [f"Not read back, so orphans there are unknown: {key}: {why}" for key, why in unread.items()]
    left = sum(not row.done for row in rows)
    if not rows:
        without = f" {counted(served, 'load balancer')} of the hub's own proxies can have none." if served else ""
        lines.append(f"No orphans.{without}")
    elif left:
        lines.append(f"{counted(left, 'orphan')} left; have the hub deregister them with: fairlead gc --delete")
    else:
        lines.append("Removal is already requested; watch the progress with: kubectl get br -A")
    return [*lines, warning] if warning and rows else lines


def orphan_row(lb: Previewed, orphan: Orphan, done: str) -> OrphanRow:
    """Return one orphan; ``done``: what was done about it, empty while nothing was."""
    return OrphanRow(
        orphan.kind, str(lb.key), lb.provider, str(orphan.listener), str(orphan.target), "/".join(orphan.record), done
    )
