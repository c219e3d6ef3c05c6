"""Numbers and lists as sentences have them. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 load balancer, 2 load balancers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first ``most`` of ``texts`` with commas between them, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
