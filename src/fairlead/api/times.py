"""Times as objects have them: RFC 3339, in UTC, to the second, as Kubernetes does."""

from __future__ import annotations

from datetime import UTC, datetime


def wire_time(moment: datetime) -> str:
    """Write an aware ``moment``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
