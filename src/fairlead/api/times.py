"""Times as objects have them: RFC 3339, in UTC, to the second, as Kubernetes does."""

from __future__ import annotations

from datetime import UTC, datetime


def wire_time(moment: datetime) -> str:
    """Write an aware ``moment``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parsed_time(text: str | None) -> datetime | None:
    """Return the moment that RFC 3339 text says; None for anything else, and for a time without a zone."""
    try:
        time = datetime.fromisoformat(text or "")
        return time.astimezone(UTC) if time.tzinfo is not None else None
    except (ValueError, OverflowError):  # a zone may lead out of the years 1 to 9999
        return None
