"""Print what ``fairlead explain`` has built, as lines for people."""

from __future__ import annotations

from datetime import datetime

from fairlead.api.times import parsed_time
from fairlead.cli.explain_rows import BackendRow, ConditionRow, Explained
from fairlead.model.observed import Seen
from fairlead.status.formatting import age_text, columns, reason_text


def lines_of(row: Explained, *, now: datetime) -> list[str]:
    """Return the lines of one load balancer."""
    class_name = f"class {row.class_name}" if row.class_name else "its object is gone"
    lines = [f"{row.load_balancer}: {class_name}, provider {row.provider or 'unknown'}"]
    lines += columns(
        [
            (condition.type, condition.status, _ago(condition.since, now), _why(condition))
            for condition in row.conditions
        ]
    )
    lines.append("Backends:" if row.backends else "Backends: none")
    for backend, head in zip(row.backends, columns([_head(backend, now) for backend in row.backends]), strict=True):
        lines.append(head)
        lines += [f"      waits: {text}" for text in backend.waits_for]
    if row.exclusions:
        lines.append("Left out:")
        lines += columns([(exclusion.what, f"{exclusion.why} ({exclusion.owner})") for exclusion in row.exclusions])
    return lines + [f"Note: {text}" for text in row.notes]


def _head(row: BackendRow, now: datetime) -> tuple[str, str, str, str, str]:
    health = {True: ", healthy", False: ", unhealthy", None: ""}[row.healthy if row.state != Seen.UNHEALTHY else None]
    reason = row.reason if row.state == "Registered" else reason_text(row.reason)
    why = f"{reason}; " if row.reason else ""
    owners = f"for {', '.join(row.owners)}" if row.owners else ""
    source = f"{row.source} " if row.source else ""
    return row.listener, row.address, row.state + health, _ago(row.since, now), f"{source}{why}{owners}".rstrip("; ")


def _why(condition: ConditionRow) -> str:
    reason = "" if condition.reason == condition.type else condition.reason
    return ": ".join(filter(None, (reason, condition.message)))


def _ago(since: str, now: datetime) -> str:
    when = parsed_time(since)
    return age_text(max(0.0, (now - when).total_seconds())) if when is not None else "-"
