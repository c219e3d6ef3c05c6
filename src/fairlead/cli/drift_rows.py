"""Compare a load balancer at its provider with its ledger: entries of ours that were changed, and foreign ones.

In: a load balancer as previewed. Out: the rows that ``-o json`` prints, and the same as lines for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.conditions import condition_of, is_true
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.model.in_words import counted
from fairlead.status.object_ref import ObjectRef

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed


#: Of load balancers of the hub's own proxies.
AS_SERVED = "its proxies have what the hub has sent; only the hub configures them"


class Changed(msgspec.Struct, frozen=True):
    """One field of an entry of ours: its value in the ledger, and at the provider."""

    listener: str
    target: str
    field: str
    ledger: str
    there: str


class DriftOf(msgspec.Struct, frozen=True):
    """The differences of one load balancer from its ledger.

    ``foreign`` are entries that are not ours: listed, and no drift. ``unread``: why it could not be read back, and then
    ``hub_says`` is the result of the hub's own read-back. ``repair`` is the command that puts back what is ours, empty
    when nothing is to be put back, or that is not for us to do; ``outlook`` is what becomes of it without that.
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
        return "the hub has not looked at it yet"
    return "" if programmed.status == "True" else programmed.message or programmed.reason


def _can_be_repaired(lb: Previewed) -> bool:
    drifted = lb.drift.ours or (lb.unread and is_true(lb.conditions, "Drifted"))
    return bool(drifted) and not lb.drift.kept_by_others and not lb.gone


def _outlook(lb: Previewed) -> str:
    desired = lb.side.desired
    if desired is not None and desired.repair_s and not lb.drift.gone:
        return f"it is repaired by itself, every {desired.repair_s:g} s (ensurePolicy Always)"
    return lb.drift.outlook


def ours_of(row: DriftOf) -> list[str]:
    """Return one sentence for each entry of ours that is not as recorded."""
    return [
        *(["gone: the load balancer itself was deleted"] if row.gone else []),
        *(f"{entry}: not there any more" for entry in row.missing),
        *(
            f"{entry.listener} {entry.target}: {entry.field} {entry.ledger} on record, {entry.there} there"
            for entry in row.changed
        ),
    ]


def counted_kinds(paths: Iterable[str]) -> str:
    """Return how many load balancers and names there are, of KIND/NAMESPACE/NAME: 2 load balancers and 1 name."""
    are_names = [path.startswith(f"{HOSTNAMES.kind}/") for path in paths]
    names, others = sum(are_names), len(are_names) - sum(are_names)
    parts = [counted(others, "load balancer")] if others or not names else []
    return " and ".join([*parts, *([counted(names, "name")] if names else [])])


def summary(rows: Sequence[DriftOf]) -> str:
    """Return what was found, in one sentence: what could not be read is not called undrifted."""
    if not rows:
        return "There is nothing to read back: no load balancer has a ledger yet."
    all_rows = counted_kinds(row.load_balancer for row in rows)
    drifted, unread = sum(bool(row.ours) for row in rows), sum(bool(row.unread) for row in rows)
    if unread == len(rows):
        return f"Not known whether anything drifted: nothing of {all_rows} could be read back."
    text = f"{drifted} of {all_rows} drifted" if drifted else "Nothing of ours drifted"
    return f"{text}; {unread} could not be read back." if unread else f"{text}."


def lines_of(row: DriftOf) -> list[str]:
    """Return the lines for people."""
    fine = f": {AS_SERVED}" if row.provider == DEFAULT_CLASS else ": as recorded"
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
