"""The rows of ``fairlead gc``: records without a load balancer, and entries of ours without a record.

In: orphans, and what was done about them. Out: the rows that ``-o json`` prints, and the same as lines for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.model.in_words import counted
from fairlead.status.formatting import columns

if TYPE_CHECKING:
    from fairlead.hub.inspect.orphans import Orphan
    from fairlead.hub.inspect.preview import Previewed


class OrphanRow(msgspec.Struct, frozen=True):
    """One orphan; ``kind`` Record: without a load balancer, Entry: at the provider, without a record."""

    kind: str
    load_balancer: str = msgspec.field(name="loadBalancer")
    provider: str
    listener: str
    target: str
    record: str
    done: str


def lines_of(rows: list[OrphanRow], unread: dict[str, str], *, warning: str, served: int = 0) -> list[str]:
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
    lines += [f"Not read back, so entries there are not known: {key}: {why}" for key, why in unread.items()]
    left = sum(not row.done for row in rows)
    if not rows:
        without = f" {counted(served, 'load balancer')} of the hub's own proxies can have none." if served else ""
        lines.append(f"No orphans.{without}")
    elif left:
        lines.append(f"{counted(left, 'orphan')} left; have the hub deregister them with: fairlead gc --delete")
    else:
        lines.append("All of it is requested already; watch the progress with: kubectl get br -A")
    return [*lines, warning] if warning and rows else lines


def orphan_row(lb: Previewed, orphan: Orphan, done: str) -> OrphanRow:
    """Return one orphan; ``done``: what was done about it, empty while nothing was."""
    return OrphanRow(
        orphan.kind, str(lb.key), lb.provider, str(orphan.listener), str(orphan.target), "/".join(orphan.record), done
    )
