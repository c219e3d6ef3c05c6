"""Restores at the beginning of a term what was done before: records and frontends become the tracker's done side.

    Registered                  registered
    Pending, Failed             it may be registered
    Draining                    it is leaving, since then
    Deregistering, or deleted   its removal is finished first

In: records. Out: a tracker in which nothing is decided yet. Never: a call, a write, or a guess about what is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from fairlead.api.backendrecord import BackendRecord
from fairlead.api.provisioned import Provisioned
from fairlead.ledger.wire import facts_of, listener_of, load_balancer_of, spec_of, target_of
from fairlead.model.contract import RestoredBackend
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.runtime.clock import Clock
from fairlead.sync.tracker import Recorded, Registered, Tracker

_NOTHING = Provisioned("")


class Restored(msgspec.Struct, frozen=True):
    """One load balancer that was, or may have been, made before: what its provider is to be reminded of."""

    spec: FrontendSpec
    info: Mapping[str, str]
    backends: Sequence[RestoredBackend] = ()


def restore(
    tracker: Tracker,
    records: Iterable[BackendRecord],
    frontends: Mapping[LoadBalancerKey, Provisioned],
    clock: Clock,
) -> list[Restored]:
    """Fill ``tracker``; returns every load balancer in it, ordered by key."""
    by_key: dict[LoadBalancerKey, list[BackendRecord]] = {}
    for record in records:
        by_key.setdefault(load_balancer_of(record), []).append(record)
    out: list[Restored] = []
    for key in sorted(by_key.keys() | frontends.keys()):
        own_records = by_key.get(key, [])
        frontend = frontends.get(key, _NOTHING)
        spec = frontend.spec(key)
        certain = spec is not None and frontend.state == "Ensured"
        if spec is None:
            if not own_records:
                continue
            spec = spec_of(own_records)
        done: Recorded = {}
        for record in own_records:
            registered = registered_of(record, clock)
            targets: dict[TargetKey, Registered] = done.setdefault(listener_of(record), {})
            targets[registered.target.key] = registered
        answered = bool(certain or frontend.info or frontend.addresses or frontend.epoch)
        # What is registered was registered somewhere; and records without their object are all that is left of it.
        unanswered = not answered and bool(frontend.state) and all(map(_may_not_be_there, own_records))
        tracker.restore(spec, done, certain=certain, unanswered=unanswered)
        info = frontend.info or (own_records[0].spec.load_balancer.info if own_records else {}) or {}
        out.append(Restored(spec, info, restored_backends(own_records, clock)))
    return out


def restored_backends(records: Iterable[BackendRecord], clock: Clock) -> tuple[RestoredBackend, ...]:
    """Return those of ``records`` whose backends are certainly registered, or drained."""
    known = ((record, registered_of(record, clock)) for record in records)
    return tuple(
        RestoredBackend(listener_of(record), registered.target, facts_of(record))
        for record, registered in known
        if not registered.unknown
    )


def registered_of(record: BackendRecord, clock: Clock) -> Registered:
    """Return one record as the tracker sees it."""
    state, target = record.status.state, target_of(record)
    if record.deleting or state == "Deregistering":
        return Registered(target, unknown=True, deregistering=True)
    if state == "Draining" and not target.draining:
        since_s = clock.monotonic() - _age_s(record.status.since, clock)
        return Registered(msgspec.structs.replace(target, draining=True), draining_since=since_s)
    return Registered(target, unknown=state not in ("Registered", "Draining"))


def _may_not_be_there(record: BackendRecord) -> bool:
    return not record.deleting and record.status.state in ("", "Pending", "Failed")


def place_of(record: BackendRecord) -> tuple[LoadBalancerKey, ListenerKey, TargetKey]:
    """Return which backend a record is about."""
    return load_balancer_of(record), listener_of(record), target_of(record).key


def _age_s(since: str | None, clock: Clock) -> float:
    try:
        when = datetime.strptime(since or "", "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, (clock.now() - when).total_seconds())
