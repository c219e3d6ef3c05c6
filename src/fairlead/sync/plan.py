"""The plan for one load balancer, row by row, each with its reason.

The table that ``_row`` implements (D = desired, L = ledger):

    D ready      L nothing                 REGISTER    New
    D ready      L the same                -
    D ready      L another, or leaving     UPDATE      Changed
    D ready      L unknown                 REGISTER    New         (whatever the lost answer was)
    D ready      L the same, other owners  UPDATE      OwnersChanged (for the ledger only; also: is terminating)
    D any        L of another object       DEREGISTER  Replaced    (then New: addresses are used again)
    D any        L deregistering           DEREGISTER  Deregistering (then New, if it is wanted)
    D draining   L nothing                 -           (what is about to go is not added)
    D draining   L ready, or unknown       UPDATE      Terminating
    D draining   L draining                -
    D nothing    L ready                   DRAIN       Absent
    D nothing    L ready, its owners gone  DRAIN       OwnerDeleted
    D bars it    L anything but leaving    DEREGISTER  Replaced
    D nothing    L draining, terminating   DRAIN       Terminating   (its drain time starts now)
    D nothing    L leaving, time left      -           (wake when it is over)
    D nothing    L leaving, time over      DEREGISTER  Drained
    listener gone from D                   DEREGISTER  ListenerRemoved
    load balancer gone from D              DEREGISTER  OwnerDeleted, then DELETE

In: one ``LoadBalancerState`` and the time. Out: a ``Plan``. Never: what the provider says is there, and never a
decision about *whether* a removal is safe, which is the guard's.
"""

from __future__ import annotations

import msgspec

from fairlead.model.change import Action, FrontendChange, Held, Reason, TargetChange
from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.sync.tracker import LoadBalancerState, Registered


class Plan(msgspec.Struct, frozen=True):
    """The plan for one load balancer.

    ``wake_at_s`` is the (monotonic) second at which a later plan will say more, None when only a change can.
    """

    load_balancer: LoadBalancerKey
    frontend: FrontendChange | None = None
    changes: tuple[TargetChange, ...] = ()
    held: tuple[Held, ...] = ()
    wake_at_s: float | None = None

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to do now."""
        return self.frontend is None and not self.changes


def plan_load_balancer(key: LoadBalancerKey, state: LoadBalancerState, *, now_s: float) -> Plan:
    """Compare both sides of ``key`` at ``now_s`` (monotonic seconds)."""
    desired = state.desired
    if state.undecided:
        return Plan(key)
    if desired is None:
        return _plan_deletion(key, state)
    changes: list[TargetChange] = []
    wake_at_s: float | None = None
    for listener, wanted in desired.targets.items():
        done = state.recorded.get(listener, {})
        # Registered targets that are exactly as wanted are the common case, and need no row.
        for target_key, target in wanted.items():
            registered = done.get(target_key)
            row = _wanted_row(target, registered)
            if row is not None:
                subject = registered.target if registered is not None and row[0] is Action.DEREGISTER else target
                changes.append(_change(key, listener, subject, *row, state.generation))
        for target_key, registered in done.items():
            if target_key in wanted:
                continue
            if registered.deregistering:
                row = (Action.DEREGISTER, Reason.DEREGISTERING)
                changes.append(_change(key, listener, registered.target, *row, state.generation))
                continue
            ends_s = (registered.draining_since or 0.0) + desired.drain_s
            if registered.draining_since is not None and ends_s > now_s:
                wake_at_s = ends_s if wake_at_s is None else min(wake_at_s, ends_s)
                continue
            row = _unwanted_row(registered, desired, listener)
            changes.append(_change(key, listener, registered.target, *row, state.generation))
    for listener, done in state.recorded.items():
        if listener not in desired.targets:
            changes += [
                _change(key, listener, registered.target, Action.DEREGISTER, Reason.LISTENER_REMOVED, state.generation)
                for registered in done.values()
            ]
    return Plan(key, _frontend(desired, state), tuple(changes), wake_at_s=wake_at_s)


def _plan_deletion(key: LoadBalancerKey, state: LoadBalancerState) -> Plan:
    changes = tuple(
        _change(key, listener, registered.target, Action.DEREGISTER, Reason.OWNER_DELETED, state.generation)
        for listener, done in state.recorded.items()
        for registered in done.values()
    )
    frontend = FrontendChange(key, state.recorded_spec, Action.DELETE, Reason.OWNER_DELETED, state.generation)
    return Plan(key, frontend, changes)


def _frontend(desired: DesiredLoadBalancer, state: LoadBalancerState) -> FrontendChange | None:
    if state.recorded_spec is None:
        return FrontendChange(desired.key, desired.spec, Action.ENSURE, Reason.NEW, state.generation)
    if state.missing:
        return FrontendChange(desired.key, desired.spec, Action.ENSURE, Reason.VANISHED, state.generation)
    if state.recorded_spec != desired.spec or state.ensure_again:
        return FrontendChange(desired.key, desired.spec, Action.ENSURE, Reason.CHANGED, state.generation)
    return None


def _wanted_row(target: Target, registered: Registered | None) -> tuple[Action, Reason] | None:
    if registered is None:
        return None if target.draining else (Action.REGISTER, Reason.NEW)
    if registered.deregistering:
        return (Action.DEREGISTER, Reason.DEREGISTERING)
    if registered.target.source != target.source and registered.target.source and target.source:
        return (Action.DEREGISTER, Reason.REPLACED)
    if registered.unknown:
        return (Action.UPDATE, Reason.TERMINATING) if target.draining else (Action.REGISTER, Reason.NEW)
    if registered.target == target and registered.draining_since is None:
        return None
    if target.draining:
        # Already leaving, or already draining: it stays as it is until it is gone or ready again.
        return None if registered.target.draining else (Action.UPDATE, Reason.TERMINATING)
    if registered.draining_since is None and _same_but_owners(registered.target, target):
        if not registered.target.owners and msgspec.structs.replace(registered.target, owners=target.owners) == target:
            # A record of an earlier version, which stored no owners for it: its next write adds them.
            return None
        return (Action.UPDATE, Reason.OWNERS_CHANGED)
    return (Action.UPDATE, Reason.CHANGED)


def _same_but_owners(recorded: Target, wanted: Target) -> bool:
    """Return whether nothing of ``wanted`` concerns the provider: that it is terminating is for later plans."""
    ledger_only = msgspec.structs.replace(
        recorded, owners=wanted.owners, source=wanted.source, terminating=wanted.terminating
    )
    return ledger_only == wanted


def _unwanted_row(registered: Registered, desired: DesiredLoadBalancer, listener: ListenerKey) -> tuple[Action, Reason]:
    if registered.draining_since is not None:
        return (Action.DEREGISTER, Reason.DRAINED)
    if registered.target.key in desired.barred:
        return (Action.DEREGISTER, Reason.REPLACED)
    owners, present = registered.target.owners, desired.owners.get(listener)
    if owners and present is not None and present.isdisjoint(owners):
        reason = Reason.OWNER_DELETED
    else:
        reported = registered.target.draining or registered.target.terminating
        reason = Reason.TERMINATING if reported else Reason.ABSENT
    return (Action.DRAIN if desired.drain_s > 0 else Action.DEREGISTER, reason)


def _change(
    key: LoadBalancerKey, listener: ListenerKey, target: Target, action: Action, reason: Reason, generation: int
) -> TargetChange:
    if action is Action.DRAIN and not target.draining:
        target = msgspec.structs.replace(target, draining=True)
    return TargetChange(key, listener, target, action, reason, generation)
