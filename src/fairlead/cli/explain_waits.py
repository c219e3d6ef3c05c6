"""The cause for which each backend waits: one predicate for each cause, tried in order.

In: ``Backend``, what is known of one backend. Out: one sentence for each cause that applies; none when it is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from fairlead.api.backendrecord import BackendRecord
from fairlead.api.times import parsed_time
from fairlead.model.change import Action
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.status.formatting import age_text, reason_text
from fairlead.status.object_ref import ObjectRef
from fairlead.status.plan_rows import held_message

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed

Place = tuple[ListenerKey, TargetKey]


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One backend of a load balancer: what is desired, what is recorded, and whether a hub leads ``now``."""

    lb: Previewed
    place: Place
    target: Target | None
    record: BackendRecord | None
    now: datetime
    leading: bool

    @property
    def has_next_change(self) -> bool:
        """Return whether the plan has a row for it that nothing holds."""
        return any((change.listener, change.key) == self.place for change in self.lb.plan.changes)


def waits_for(backend: Backend) -> list[str]:
    """Return what ``backend`` waits for, in the order of ``CAUSES``."""
    return [sentence for cause in CAUSES for sentence in cause(backend)]


def _held(backend: Backend) -> Iterator[str]:
    for row in backend.lb.plan.held:
        if (row.change.listener, row.change.key) == backend.place:
            message = held_message(backend.lb, row.reason, row.message)
            yield f"{row.change.action} ({row.change.reason}) is held, {row.reason}: {message}"


def _next_change(backend: Backend) -> Iterator[str]:
    plan = backend.lb.plan
    when = "is next" + (", once a hub leads" if not backend.leading else "")
    if plan.frontend is not None and plan.frontend.action is Action.ENSURE:
        when += ", after the load balancer itself"
    for change in plan.changes:
        if (change.listener, change.key) == backend.place:
            yield f"{change.action} {when}, {reason_text(change.reason)}"


def _provider_message(backend: Backend) -> Iterator[str]:
    status = backend.record.status if backend.record is not None else None
    if status is None or not status.message:
        return
    quarantined = any(condition.reason == "Quarantined" for condition in backend.lb.conditions)
    again = "; tried again every 5 minutes, and at once when it is changed" if quarantined else "; it is tried again"
    yield f"its provider says: {status.message}{again if status.state == 'Failed' else ''}"


def _drain(backend: Backend) -> Iterator[str]:
    record = backend.record
    if record is None or record.deleting or backend.has_next_change or record.status.state != "Draining":
        return
    translation = backend.lb.translation
    desired, began = translation.desired if translation is not None else None, parsed_time(record.status.since)
    if desired is None or began is None:
        yield "its connections to end"
        return
    ends = began + timedelta(seconds=desired.drain_s)
    left = age_text(max(0.0, (ends - backend.now).total_seconds()))
    yield f"its connections to end, until {ends:%H:%M:%S} UTC at the latest (in {left}); then Deregister"


def _answer(backend: Backend) -> Iterator[str]:
    record = backend.record
    if record is None or record.deleting or backend.has_next_change:
        return
    if record.status.state == "Pending" and not record.status.message:
        yield "an answer of its provider"


def _deregistration(backend: Backend) -> Iterator[str]:
    if backend.record is not None and backend.record.deleting:
        yield "its provider to deregister it; then its record is deleted, too"


def _missing(backend: Backend) -> Iterator[str]:
    if backend.place in backend.lb.drift.missing:
        yield f"nothing, though it was removed at the provider: {ObjectRef(*backend.lb.key).repair}"


def _changed(backend: Backend) -> Iterator[str]:
    if backend.place in backend.lb.drift.changed:
        yield f"nothing, though it was changed at the provider: {ObjectRef(*backend.lb.key).repair}"


def _readiness(backend: Backend) -> Iterator[str]:
    target, recorded = backend.target, backend.record is not None
    if (
        not recorded
        and not backend.lb.served
        and not backend.has_next_change
        and target is not None
        and target.draining
    ):
        yield "to be ready: what is not ready, or terminating, is not registered"


#: In the order in which they are printed.
CAUSES: tuple[Callable[[Backend], Iterator[str]], ...] = (
    _held, _next_change, _provider_message, _drain, _answer, _deregistration, _missing, _changed, _readiness,
)  # fmt: skip
