"""Format what people are shown: reasons with their meaning, counts, ages and aligned columns. Pure.

In: rows, whose words others may have written. Out: text in which nothing of them acts on a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.change import Reason
from fairlead.runtime.logs import legible

REASONS = {
    Reason.NEW: "wanted, and not on record",
    Reason.VANISHED: "deleted by another party; it is made again",
    Reason.CHANGED: "wanted differently than on record",
    Reason.OWNERS_CHANGED: "only its owners have changed; the provider is not called",
    Reason.DEREGISTERING: "its removal was begun, and is finished first",
    Reason.REPLACED: "its address belongs to another object now",
    Reason.TERMINATING: "reported as terminating, or as not ready",
    Reason.ABSENT: "not listed any more, and never reported as terminating",
    Reason.DRAINED: "its drain time is over",
    Reason.LISTENER_REMOVED: "its listener was removed",
    Reason.OWNER_DELETED: "its owner was deleted",
}


def reason_text(reason: str) -> str:
    """Return a reason with its meaning; a reason that is not one of ``Reason`` (a provider's own) is returned as is."""
    meaning = REASONS.get(Reason(reason)) if reason in tuple(Reason) else None
    return f"{reason}: {meaning}" if meaning else reason


def columns(rows: Sequence[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Return one line for each row of cells, aligned; the last column is not padded."""
    rows = [[legible(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(max(map(len, rows), default=1) - 1)] if rows else []
    return [
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]


def age_text(age_s: float | None) -> str:
    """Return an age as kubectl prints it: 7s, 3m, 5h, 2d."""
    if age_s is None:
        return "never"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if age_s < limit:
            return f"{int(age_s // size)}{unit}"
    return f"{int(age_s // 86_400)}d"
