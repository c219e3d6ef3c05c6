"""The rows of ``fairlead tenant list``: one for each member, as the hub sees it.

In: Tenants, their agents' Leases, load balancers, and the time at the hub's API. Out: rows ordered by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from fairlead.api.conditions import condition_of
from fairlead.api.heartbeat import ANNOTATION_VERSION, StampedLease, age_s
from fairlead.api.intent import IntentObject
from fairlead.api.tenant import Tenant, state_by_age
from fairlead.kube.server_clock import NOTICEABLE_S
from fairlead.model.in_words import listed
from fairlead.status.formatting import age_text

#: So many addresses are in a table; -o wide has all.
_ADDRESSES = 3
HEADER = ("NAME", "READY", "STATE", "HEARD", "LOAD BALANCERS", "ADDRESSES", "REGION", "VERSION", "CLOCK")


class TenantRow(msgspec.Struct, frozen=True, rename="camel"):
    """One member: how its agent is, when it was heard, what it has at the hub, and how wrong its clock is (seconds).

    ``heard_s`` and ``clock_ahead_s`` are None while its agent was never heard.
    """

    name: str
    namespace: str
    region: str
    ready: bool
    reason: str
    message: str
    state: str
    heard_s: float | None
    load_balancers: int
    addresses: list[str]
    version: str
    clock_ahead_s: float | None
    deleting: bool


def tenant_rows(
    tenants: Sequence[Tenant],
    leases: Mapping[str, StampedLease],
    load_balancers: Sequence[IntentObject],
    *,
    now: datetime,
) -> list[TenantRow]:
    """Return the rows; ``leases`` are the agents', by namespace, ``now`` the time at the API that stamped them."""
    return [
        _row(tenant, leases.get(tenant.namespace), load_balancers, now)
        for tenant in sorted(tenants, key=lambda tenant: tenant.metadata.name)
    ]


def cells(row: TenantRow, *, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of a row under ``HEADER``; ``wide``: with all addresses, of which there may be thousands."""
    return (
        row.name,
        "Deleting" if row.deleting else str(row.ready),
        row.state,
        age_text(row.heard_s),
        str(row.load_balancers),
        listed(row.addresses, len(row.addresses) if wide else _ADDRESSES) or "-",
        row.region or "-",
        row.version or "-",
        _clock(row.clock_ahead_s),
    )


def _row(
    tenant: Tenant, lease: StampedLease | None, load_balancers: Sequence[IntentObject], now: datetime
) -> TenantRow:
    silent_s = age_s(lease, now) if lease is not None else None
    mine = [each for each in load_balancers if each.metadata.namespace == tenant.namespace]
    ready = condition_of(tenant.status.conditions, "Ready")
    ahead_s = lease.clock_ahead_s if lease is not None and silent_s is not None else None
    return TenantRow(
        name=tenant.metadata.name,
        namespace=tenant.namespace,
        region=tenant.spec.region,
        ready=ready is not None and ready.status == "True",
        reason=ready.reason if ready is not None else "",
        message=ready.message if ready is not None else "",
        state=state_by_age(silent_s),
        heard_s=None if silent_s is None else round(silent_s, 1),
        load_balancers=len(mine),
        addresses=sorted({address for each in mine for address in each.status.addresses}),
        version=lease.annotation(ANNOTATION_VERSION) if lease is not None else "",
        clock_ahead_s=None if ahead_s is None else round(ahead_s, 1) if abs(ahead_s) >= NOTICEABLE_S else 0.0,
        deleting=tenant.deleting,
    )


def _clock(ahead_s: float | None) -> str:
    if ahead_s is None:
        return "-"
    return f"{age_text(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}" if ahead_s else "ok"
