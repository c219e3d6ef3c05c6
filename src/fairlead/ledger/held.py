"""Changes that are held, as a status lists them: so that ``plan`` and ``explain`` see what is in a hub's memory only.

In: the held rows of a worker's report, or of a status. Out: the same rows the other way round. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlead.api.intent import HELD_LISTED, HeldChange, IntentStatus
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey


class HeldRows(msgspec.Struct, frozen=True):
    """The held changes of one load balancer: ``total`` changes, and the first of them or all."""

    rows: Sequence[Held] = ()
    total: int = 0


NO_ROWS = HeldRows()


def held_before(key: LoadBalancerKey, status: IntentStatus) -> HeldRows:
    """Return what the status of ``key`` lists as held: by the process that wrote it, until another one has looked."""
    rows = held_changes(key, status.held or ())
    return HeldRows(rows, max(status.held_total, len(rows))) if rows else NO_ROWS


def held_wire(held: Sequence[Held]) -> list[HeldChange] | None:
    """Return the first of ``held`` as a status lists them; None when nothing is held."""
    rows = [
        HeldChange(
            action=row.change.action.value,
            reason=row.change.reason.value,
            held_by=row.reason,
            message=row.message,
            protocol=row.change.listener.protocol.value,
            port=row.change.listener.port,
            address=row.change.key.address,
            backend_port=row.change.key.port,
            source=row.change.target.source,
            backend=row.change.listener.backend,
            owners=list(row.change.target.owners) or None,
        )
        for row in held[:HELD_LISTED]
    ]
    return rows or None


def held_changes(key: LoadBalancerKey, rows: Iterable[HeldChange]) -> tuple[Held, ...]:
    """Return the rows of load balancer ``key`` as its worker held them; rows of a newer release are left out."""
    return tuple(
        Held(
            TargetChange(
                key,
                ListenerKey(Protocol(row.protocol), row.port, row.backend),
                Target(TargetKey(row.address, row.backend_port), owners=tuple(row.owners or ()), source=row.source),
                Action(row.action),
                Reason(row.reason),
            ),
            row.held_by,
            row.message,
        )
        for row in rows
        if row.action in tuple(Action) and row.reason in tuple(Reason)
    )
