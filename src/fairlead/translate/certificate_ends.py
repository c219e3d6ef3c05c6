"""The ends of the certificates that the hub gets itself: those that end soon, and the first one.

In: ManagedCertificates, a moment. Out: moments, and what is to be looked at with its reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.times import parsed_time

#: What was to be renewed before, and ends within this time.
SOON = timedelta(days=14)


class EndingCertificate(msgspec.Struct, frozen=True):
    """A certificate that has ended, ends soon, or could not be had; ``ends`` None: there is none yet."""

    namespace: str
    name: str
    hosts: tuple[str, ...]
    ends: datetime | None
    why: str


def end_of(obj: ManagedCertificate) -> datetime | None:
    """Return when what is served ends, None while there is nothing."""
    return parsed_time(obj.status.not_after) if obj.status.digest else None


def first_ends(there: Iterable[ManagedCertificate]) -> dict[str, datetime]:
    """Return by namespace when the first certificate ends."""
    ends: dict[str, datetime] = {}
    for obj in there:
        end = end_of(obj)
        if end is not None:
            namespace = obj.metadata.namespace
            ends[namespace] = min(end, ends.get(namespace, end))
    return ends


def ending(there: Iterable[ManagedCertificate], now: datetime, *, within: timedelta = SOON) -> list[EndingCertificate]:
    """Return what is to be looked at: what ends within this time, and what could not be had; the first end first."""
    rows: list[EndingCertificate] = []
    for obj in there:
        end = end_of(obj)
        if end is not None and end - now > within:
            continue
        conditions = {each.type: each.message for each in obj.status.conditions or () if each.message}
        why = conditions.get("Stale") or conditions.get("Ready") or "it is being ordered"
        if end is not None or obj.status.failures:
            rows.append(EndingCertificate(obj.metadata.namespace, obj.metadata.name, obj.spec.hosts, end, why))
    return sorted(rows, key=lambda row: (row.ends is not None, row.ends or now, row.namespace, row.name))
