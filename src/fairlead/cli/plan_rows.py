"""The rows of ``fairlead plan``: each change with its reason and, field by field, recorded, observed and wanted.

In: a load balancer as previewed. Out: the rows that ``-o json`` prints, and the same as lines for people.
Never: a row that the worker would not do; a row that a guard holds is marked. Of the hub's own proxies, whose ledger
is in the hub's memory, the rows are what the hub says that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.cli.drift_rows import counted_kinds, drift_row, ours_of
from fairlead.model.change import Action
from fairlead.status.formatting import columns, reason_text
from fairlead.status.plan_rows import Field, Row, rows_of
from fairlead.sync.guard import PAUSED

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed

_SIGNS = {
    Action.ENSURE: "~", Action.UPDATE: "~", Action.REGISTER: "+",
    Action.DRAIN: "-", Action.DEREGISTER: "-", Action.DELETE: "-",
}  # fmt: skip
_AGAIN = "as before: it was asked for, and no answer is on record"
_NEWER = "its spec has changed since the hub looked at it last"
_NOT_LED = "no hub leads, and only a hub knows which backends its own proxies have"
_COUNTED = {"+": "add", "~": "change", "-": "remove"}


class PlanOf(msgspec.Struct, frozen=True):
    """The plan of one load balancer; ``problem``: why nothing is planned, ``unread``: not read back.

    ``more_held`` counts held rows that are not listed. ``drift``: what others changed of ours, which stands until
    ``repair``, the command that puts it back.
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
            lines.append("      " + (_NEWER if plan.provider == DEFAULT_CLASS else _AGAIN))
        if row.held_by:
            lines.append(f"      held: {row.held_by}, {row.message}")
    if plan.more_held:
        lines.append(f"  = and {plan.more_held} more held")
    lines += [f"  ! {text}" for text in plan.drift]
    if plan.repair:
        lines.append(f"      that stands until: {plan.repair}")
    if plan.unread:
        lines.append(f"  not read back: {plan.unread}")
    return lines


def summary(plans: Sequence[PlanOf]) -> str:
    """Return how many changes there are, in one line."""
    if not plans:
        return (
            "There are no load balancers here yet; a LoadBalancer object makes one, and so does a Service of type "
            "LoadBalancer in a member."
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
