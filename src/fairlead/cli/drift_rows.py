"""Compare a load balancer at its provider with its ledger: entries of ours that were changed, and foreign ones.

In: a load balancer as previewed. Out: the rows that ``-o json`` prints, and the same as lines for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed


class Changed(msgspec.Struct, frozen=True):
    """One field of an entry of ours: its value in the ledger, and at the provider."""

    listener: str
    target: str
    field: str
    ledger: str
    there: str


class DriftOf(msgspec.Struct, frozen=True):
    """How one load balancer differs from its ledger.

    ``foreign`` are entries that are not ours: listed, and no drift. ``unread``: why it could not be read back, and then
    ``hub_says`` is the result of the hub's own read-back.
    """

    load_balancer: str = msgspec.field(name="loadBalancer")
    provider: str
    gone: bool = msgspec.field(name="vanished")
    missing: list[str]
    changed: list[Changed]
    foreign: list[str]
    unread: str
    hub_says: str = msgspec.field(name="hubSays")

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
    drifted = next((c.message for c in lb.conditions if c.type == "Drifted" and c.status == "True"), "")
    return DriftOf(
        str(lb.key),
        lb.provider,
        lb.drift.gone,
        [f"{listener} {key}" for listener, key in lb.drift.missing],
        changed,
        list(lb.drift.foreign),
        lb.unread,
        drifted if lb.unread else "",
    )


def lines_of(row: DriftOf) -> list[str]:
    """Return the lines for people."""
    lines = [f"{row.load_balancer} (provider {row.provider})" + ("" if row.ours or row.unread else ": as recorded")]
    if row.gone:
        lines.append("  ours     gone: the load balancer itself was deleted")
    lines += [f"  ours     {entry}: not there any more" for entry in row.missing]
    lines += [
        f"  ours     {entry.listener} {entry.target}: {entry.field} {entry.ledger} on record, {entry.there} there"
        for entry in row.changed
    ]
    lines += [f"  foreign  {entry}" for entry in row.foreign]
    if row.unread:
        lines.append(f"  unknown  not read back: {row.unread}")
    if row.hub_says:
        lines.append(f"  the hub says: {row.hub_says}")
    return lines


def _yes(value: bool) -> str:
    return "yes" if value else "no"
