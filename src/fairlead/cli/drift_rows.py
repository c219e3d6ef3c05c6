"""How does a load balancer differ from its ledger? Entries of ours that were changed, and members that are not ours.

In: what a preview found. Out: the rows that ``-o json`` prints, and the same as lines for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed


class Changed(msgspec.Struct, frozen=True):
    """One field of an entry of ours: on record, and there."""

    listener: str
    target: str
    field: str
    ledger: str
    there: str


class DriftOf(msgspec.Struct, frozen=True):
    """How one load balancer differs from its ledger.

    ``foreign`` are members that are not ours: told, and no drift. ``unread``: why it could not be read back, and then
    ``hub_says`` is what the hub's own read-back has found.
    """

    load_balancer: str = msgspec.field(name="loadBalancer")
    provider: str
    vanished: bool
    missing: list[str]
    changed: list[Changed]
    foreign: list[str]
    unread: str
    hub_says: str = msgspec.field(name="hubSays")

    @property
    def ours(self) -> int:
        """Return how many entries of ours are not as recorded."""
        return self.vanished + len(self.missing) + len(self.changed)


def drift_row(one: Previewed) -> DriftOf:
    """Return how one load balancer differs."""
    there = {(each.listener, each.key): each for each in (one.observed.targets or ())} if one.observed else {}
    changed: list[Changed] = []
    for place in one.drift.changed:
        listener, key = place
        target, found = one.side.done[listener][key].target, there[place]
        for field, ledger, now in (
            ("weight", str(target.weight), str(found.weight)),
            ("draining", _yes(target.draining), _yes(found.draining)),
        ):
            if ledger != now:
                changed.append(Changed(str(listener), str(key), field, ledger, now))
    said = next((each.message for each in one.conditions if each.type == "Drifted" and each.status == "True"), "")
    return DriftOf(
        str(one.key),
        one.provider,
        one.drift.vanished,
        [f"{listener} {key}" for listener, key in one.drift.missing],
        changed,
        list(one.drift.foreign),
        one.unread,
        said if one.unread else "",
    )


def lines_of(row: DriftOf) -> list[str]:
    """Return it for people."""
    lines = [f"{row.load_balancer} (provider {row.provider})" + ("" if row.ours or row.unread else ": as recorded")]
    if row.vanished:
        lines.append("  ours     gone: somebody deleted the load balancer itself")
    lines += [f"  ours     {one}: not there any more" for one in row.missing]
    lines += [
        f"  ours     {one.listener} {one.target}: {one.field} {one.ledger} on record, {one.there} there"
        for one in row.changed
    ]
    lines += [f"  foreign  {one}" for one in row.foreign]
    if row.unread:
        lines.append(f"  unknown  not read back: {row.unread}")
    if row.hub_says:
        lines.append(f"  the hub says: {row.hub_says}")
    return lines


def _yes(value: bool) -> str:
    return "yes" if value else "no"
