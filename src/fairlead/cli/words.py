"""What do the reasons of a plan mean, in words that a person reads once and understands?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.model.change import Reason

REASONS = {
    Reason.NEW: "wanted, and not on record",
    Reason.VANISHED: "deleted by somebody else; it is made again",
    Reason.CHANGED: "wanted differently than on record",
    Reason.OWNERS_CHANGED: "only who wants it has changed; the provider is not called",
    Reason.DEREGISTERING: "its removal was begun, and is finished first",
    Reason.REPLACED: "its address belongs to another object now",
    Reason.TERMINATING: "reported as going, or as not ready",
    Reason.ABSENT: "not listed any more, and nobody said that it was going",
    Reason.DRAINED: "its drain time is over",
    Reason.LISTENER_REMOVED: "its listener was removed",
    Reason.OWNER_DELETED: "whoever wanted it was deleted",
}


def reason_words(reason: str) -> str:
    """Return a reason with its meaning; what a provider made up stands as it is."""
    meaning = REASONS.get(Reason(reason)) if reason in tuple(Reason) else None
    return f"{reason}: {meaning}" if meaning else reason


def counted(count: int, noun: str) -> str:
    """Write a number with its noun: 1 load balancer, 2 load balancers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def columns(rows: Sequence[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Align rows of cells; the last column is as wide as it is."""
    widths = [max(len(row[at]) for row in rows) for at in range(max(map(len, rows), default=1) - 1)] if rows else []
    return [
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]


def print_json(value: Any) -> None:
    """Print what programs read."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
