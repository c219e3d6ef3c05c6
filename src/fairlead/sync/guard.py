"""The guard: named predicates over a plan that hold removals back, with reasons.

    stale view      nothing is removed because information is missing
    paused          nothing changes while the pause annotation is set
    dry run         nothing is written at all, not even what was never programmed
    warming         what takes over all traffic gets a moment for its first health check
    last targets    never fewer ready targets than the class's minimum of those that vanish without a positive reason
    too many        never more than the class's share at once of targets that vanish without a positive reason; a list
                    that was replaced as a whole is not a loss
    unhealthy       what vanishes without a positive reason, and passes its check, serves until another one passes its

A guarded plan does its additions, holds its removals and says so. What is held goes on serving: where its provider has
lost it (unknown, though it was acknowledged) it is registered again as it is on record. Removals with a reason that is
positive knowledge (reported terminating or not ready, listener removed, owner deleted) pass the last three predicates;
the owner's deletion passes all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Seen
from fairlead.sync.plan import Plan
from fairlead.sync.tracker import LoadBalancerState, Registered

#: Seconds between two runs of removals that the "too many" predicate lets through in portions.
PACE_S = 5.0
#: Seconds that new targets have for their first health check before all the old ones may go.
WARM_S = 1.0
#: A new target whose first check has not ended after this many seconds counts as not checked.
FIRST_CHECK_S = 15.0

STALE_VIEW = "StaleView"
PAUSED = "Paused"
DRY_RUN = "DryRun"
LAST_TARGETS = "LastTargets"
TOO_MANY = "TooManyRemovals"
WARMING = "Warming"
UNHEALTHY_REPLACEMENT = "UnhealthyReplacement"

_DELIBERATE = frozenset(
    {Reason.OWNER_DELETED, Reason.LISTENER_REMOVED, Reason.DRAINED, Reason.DEREGISTERING, Reason.REPLACED}
)
PAUSED_MESSAGE = "paused; the held changes are applied when the pause ends"
Judgement = tuple[list[TargetChange], list[Held]]


#: What is seen of one target of a listener.
SeenOf = Callable[[LoadBalancerKey, ListenerKey, TargetKey], Seen]


class _Case(msgspec.Struct, frozen=True):
    """The input of a predicate: recorded and desired state, and the rows that it does not decide on."""

    state: LoadBalancerState
    desired: DesiredLoadBalancer
    allowed: list[TargetChange]
    now_s: float
    seen_of: SeenOf


def unseen(_key: LoadBalancerKey, _listener: ListenerKey, _target: TargetKey) -> Seen:
    """Return that nothing is known of a target."""
    return Seen.UNCHECKED


def guard_plan(plan: Plan, state: LoadBalancerState, *, now_s: float, seen_of: SeenOf = unseen) -> Plan:
    """Return ``plan`` with the rows that a predicate holds moved from ``changes`` to ``held``."""
    desired = state.desired
    if desired is None:
        return plan
    if desired.dry_run:
        return _hold_all(plan, DRY_RUN, desired.dry_run)
    if desired.paused and state.made is not None:
        # What was never programmed is not paused, but judged like all others.
        return _kept_in_service(_hold_all(plan, PAUSED, PAUSED_MESSAGE), state)
    removals = [change for change in plan.changes if _takes_away(change)]
    if not removals:
        return plan
    removing = {id(change) for change in removals}
    allowed = [change for change in plan.changes if id(change) not in removing]
    case = _Case(state, desired, allowed, now_s, seen_of)
    held: list[Held] = []
    for predicate in _PREDICATES:
        removals, more = predicate(removals, case)
        held += more
    reasons = {row.reason for row in held}
    waits_s = [pause_s for reason, pause_s in _PAUSES_S.items() if reason in reasons]
    wake_at_s = min((now_s + min(waits_s),) if waits_s else (), default=plan.wake_at_s)
    if plan.wake_at_s is not None and wake_at_s is not None:
        wake_at_s = min(wake_at_s, plan.wake_at_s)
    kept = allowed + removals
    plan = msgspec.structs.replace(plan, changes=tuple(kept), held=tuple(held), wake_at_s=wake_at_s)
    return _kept_in_service(plan, state)


def _kept_in_service(plan: Plan, state: LoadBalancerState) -> Plan:
    """Add to ``plan`` the registrations of held targets that their provider may have lost."""
    if state.missing and plan.frontend is None:
        # It is not there to be registered at, and may not be made again now.
        return plan
    again: list[TargetChange] = []
    for change in (row.change for row in plan.held):
        registered = state.recorded.get(change.listener, {}).get(change.key)
        if registered is not None and registered.unknown and _serves(registered):
            again.append(
                msgspec.structs.replace(change, target=registered.target, action=Action.REGISTER, reason=Reason.NEW)
            )
    return msgspec.structs.replace(plan, changes=(*plan.changes, *again)) if again else plan


def _serves(registered: Registered) -> bool:
    """Return whether, by the record, the target gets new connections."""
    return (
        not registered.target.draining
        and registered.draining_since is None
        and not registered.deregistering
        and not registered.unacknowledged
    )


def _takes_away(change: TargetChange) -> bool:
    """Return whether the row makes a ready target stop getting new connections, for a reason that a guard may doubt."""
    if change.reason in _DELIBERATE:
        return False
    return change.is_removal or (change.action is Action.UPDATE and change.target.draining)


def _stale_view(removals: list[TargetChange], case: _Case) -> Judgement:
    if not case.desired.stale:
        return removals, []
    return [], [Held(change, STALE_VIEW, case.desired.stale) for change in removals]


def _warming(removals: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals that would leave a listener only targets that are being added in this run.

    A load balancer that checks its targets sends nothing to one that it has not checked yet.
    """
    if case.desired.spec.health_check is None:
        return removals, []
    kept: list[TargetChange] = []
    held: list[Held] = []
    for listener, rows in _by_listener(removals).items():
        adds = any(change.listener == listener and change.is_addition for change in case.allowed)
        if adds and not _ready(case.state, listener) - {change.key for change in rows}:
            message = f"listener {listener} gets all new targets; the old ones go {WARM_S:g} s after they are there"
            held += [Held(change, WARMING, message) for change in rows]
        else:
            kept += rows
    return kept, held


def _last_targets(removals: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals without a positive reason of a listener that would be left with too few ready targets."""
    minimum = case.desired.guard.min_targets
    kept: list[TargetChange] = []
    held: list[Held] = []
    for listener, rows in _by_listener(removals).items():
        ready = _ready(case.state, listener)
        perhaps_ready = ready | _unknown(case.state, listener)
        removed = {change.key for change in rows}
        removed_ready = removed & perhaps_ready
        added = {
            change.key
            for change in case.allowed
            if change.listener == listener
            and change.is_addition
            and not change.target.draining
            and change.key not in ready
        }
        remaining = len(ready - removed) + len(added)
        if removed_ready and remaining < minimum:
            message = (
                f"listener {listener} would be left with {remaining} ready targets, fewer than guard.minBackends "
                f"{minimum}; the last known ones stay until others are ready"
            )
            kept += [row for row in rows if row.reason is Reason.TERMINATING]
            held += [Held(row, LAST_TARGETS, message) for row in rows if row.reason is not Reason.TERMINATING]
        else:
            kept += rows
    return kept, held


def _unhealthy_successors(removals: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals of targets that may pass their check, while no target that stays in the listener does.

    Those that were reported as not ready or terminating go all the same. A target that is not checked yet is waited
    for, but not longer than a first check takes.
    """
    if case.desired.spec.health_check is None:
        return removals, []
    kept: list[TargetChange] = []
    held: list[Held] = []
    for listener, rows in _by_listener(removals).items():
        stay = _ready(case.state, listener) - {change.key for change in rows}
        absent = {change.key for change in rows if change.reason is Reason.ABSENT}
        state = _best_seen(case, listener, stay) if stay and absent else Seen.UNCHECKED
        serving = {key for key in absent if state in _UNPROVEN and _may_answer(case, listener, key)}
        if state is Seen.UNHEALTHY:
            reason, message = (
                UNHEALTHY_REPLACEMENT,
                (
                    f"none of the {len(stay)} targets of listener {listener} that stay passes its health check; "
                    "the former ones that do serve until one of them does"
                ),
            )
        else:
            reason, message = WARMING, f"the new targets of listener {listener} are being checked for the first time"
        kept += [change for change in rows if change.key not in serving]
        held += [Held(change, reason, message) for change in rows if change.key in serving]
    return kept, held


_UNPROVEN = frozenset({Seen.UNHEALTHY, Seen.WAITING})


def _may_answer(case: _Case, listener: ListenerKey, key: TargetKey) -> bool:
    """Return whether a target passes its check, or has not failed its first one."""
    return case.seen_of(case.desired.key, listener, key) in {Seen.HEALTHY, Seen.WAITING}


def _best_seen(case: _Case, listener: ListenerKey, keys: Iterable[TargetKey]) -> Seen:
    """Return what is seen of the best of ``keys``: one that is healthy, or may be, says that the others need not."""
    states = {_seen(case, listener, key) for key in keys}
    return next(state for state in (Seen.HEALTHY, Seen.UNCHECKED, Seen.WAITING, Seen.UNHEALTHY) if state in states)


def _seen(case: _Case, listener: ListenerKey, key: TargetKey) -> Seen:
    state = case.seen_of(case.desired.key, listener, key)
    registered = case.state.recorded.get(listener, {}).get(key)
    since_s = registered.since if registered is not None else None
    late = since_s is None or case.now_s - since_s > FIRST_CHECK_S
    return Seen.UNCHECKED if state is Seen.WAITING and late else state


def _too_many(removals: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals without a positive reason above the share of the class, by order of address."""
    percent = case.desired.guard.max_removal_percent
    kept: list[TargetChange] = []
    held: list[Held] = []
    for listener, rows in _by_listener(removals).items():
        unexplained = sorted((row for row in rows if row.reason is Reason.ABSENT), key=lambda row: row.key)
        if _is_replaced(case.state, listener, unexplained):
            kept += rows
            continue
        limit = max(1, len(_ready(case.state, listener)) * percent // 100)
        kept += [row for row in rows if row.reason is not Reason.ABSENT] + unexplained[:limit]
        if len(unexplained) > limit:
            message = (
                f"{len(unexplained)} of {len(_ready(case.state, listener))} targets of listener {listener} "
                f"vanished at once; guard.maxRemovalPercent {percent} lets {limit} go now and more every {PACE_S:g} s"
            )
            held += [Held(row, TOO_MANY, message) for row in unexplained[limit:]]
    return kept, held


def _is_replaced(state: LoadBalancerState, listener: ListenerKey, absent: list[TargetChange]) -> bool:
    """Return whether all ready targets that are left were registered after all that vanished.

    Then the list was replaced as a whole, as a Service that selects other pods does, and no part of it was lost.
    """
    recorded = state.recorded.get(listener, {})
    gone = {row.key for row in absent}
    new = [recorded[key].since for key in _ready(state, listener) - gone if key in recorded]
    old = [recorded[row.key].since or 0.0 for row in absent if row.key in recorded]
    oldest_new = min((since or 0.0 for since in new), default=0.0)
    return bool(new) and oldest_new > max(old, default=0.0)


Predicate = Callable[[list[TargetChange], _Case], Judgement]
#: The order is the order in which a person would ask.
_PREDICATES: tuple[Predicate, ...] = (_stale_view, _warming, _last_targets, _too_many, _unhealthy_successors)
_PAUSES_S = {TOO_MANY: PACE_S, WARMING: WARM_S, UNHEALTHY_REPLACEMENT: PACE_S}


def _hold_all(plan: Plan, reason: str, message: str) -> Plan:
    """Hold every row."""
    held = tuple(Held(change, reason, message) for change in plan.changes)
    return msgspec.structs.replace(plan, frontend=None, changes=(), held=held, wake_at_s=None)


def _by_listener(changes: list[TargetChange]) -> dict[ListenerKey, list[TargetChange]]:
    grouped: dict[ListenerKey, list[TargetChange]] = {}
    for change in changes:
        grouped.setdefault(change.listener, []).append(change)
    return grouped


def _ready(state: LoadBalancerState, listener: ListenerKey) -> set[TargetKey]:
    """Return the keys of the targets that get new connections now, as far as the provider has answered."""
    return {
        key
        for key, registered in state.recorded.get(listener, {}).items()
        if not registered.unknown and _serves(registered)
    }


def _unknown(state: LoadBalancerState, listener: ListenerKey) -> set[object]:
    """Return the keys of the targets that may get new connections now: an answer about them was lost."""
    return {
        key
        for key, registered in state.recorded.get(listener, {}).items()
        if registered.unknown and not registered.target.draining
    }
