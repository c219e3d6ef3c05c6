"""The difference tracker, and the plan of each load balancer: ordered rows with reasons, and held removals.

``DiffTracker`` keeps the desired and the recorded state, and the load balancers that differ. The recorded side holds
only what went through the ledger, so a plan never contains entries of others. The cost of a change depends only on the
size of its load balancer. Nothing here awaits, locks, logs or reads a clock.

The table that the plan implements (D = desired, L = ledger):

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
    D excludes   L anything but leaving    DEREGISTER  Replaced
    D nothing    L draining, terminating   DRAIN       Terminating   (its drain time starts now)
    D nothing    L leaving, time left      -           (wake when it is over)
    D nothing    L leaving, time over      DEREGISTER  Drained
    listener gone from D                   DEREGISTER  ListenerRemoved
    load balancer gone from D              DEREGISTER  OwnerDeleted, then DELETE

The predicates of the guard, which moves rows of the plan to ``held``:

    stale view      nothing is removed because information is missing
    paused          nothing changes while the pause annotation is set
    dry run         nothing is written at all, not even what was never programmed
    warming         what takes over all traffic gets a moment for its first health check
    last targets    never fewer ready targets than the class's minimum of those that vanish without a positive reason
    too many        never more than the class's share at once of targets that vanish without a positive reason; a list
                    that was replaced as a whole is not a loss
    unhealthy       what vanishes without a positive reason, and passes its check, serves until another one passes its

What is held keeps serving: where its provider has lost it (unknown, though it was acknowledged) it is registered again
as it is on record. Removals with a reason that is positive knowledge (reported terminating or not ready, listener
removed, owner deleted) pass the last three predicates; the owner's deletion passes all.

In: one ``LoadBalancerState`` and the time. Out: a ``Plan``. Never: what the provider says is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from fairlead.errors import Bug
from fairlead.model.change import Action, FrontendChange, Held, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Target, Targets
from fairlead.model.http import differing_keys
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Seen


class Registered(msgspec.Struct, frozen=True, gc=False):
    """One target that is, or may be, on the load balancer.

    ``draining_since`` is the (monotonic) second at which its drain began, None while it is wanted. ``unknown`` while
    a call about it is under way, and after one whose answer was lost: it may have been carried out or not.
    ``unacknowledged`` when no call about it was ever answered, so that it may not be there at all. ``deregistering``
    once its removal is on record: that is finished before anything else is done about it, wanted again or not.
    ``since`` is the (monotonic) second at which it was registered, or began to drain, and ``reason`` why; None for what
    an earlier process did.
    """

    target: Target
    draining_since: float | None = None
    unknown: bool = False
    unacknowledged: bool = False
    deregistering: bool = False
    since: float | None = None
    reason: Reason | None = None

    @property
    def draining(self) -> bool:
        """Return whether the target gets no new connections because it is about to be removed."""
        return self.target.draining or self.draining_since is not None


Recorded = dict[ListenerKey, dict[TargetKey, Registered]]


class LoadBalancerState(msgspec.Struct):
    """The desired and recorded state of one load balancer. ``desired`` None: it is to be deleted."""

    desired: DesiredLoadBalancer | None = None
    recorded_spec: FrontendSpec | None = None
    recorded: Recorded = msgspec.field(default_factory=dict[ListenerKey, dict[TargetKey, Registered]])
    #: Counts the incarnations of this key; results of an earlier incarnation are not applied to this one.
    generation: int = 0
    #: The frontend is ensured again although it did not change (new leader, provider restarted).
    ensure_again: bool = False
    #: Another client has probably deleted it, which is why it is ensured again.
    missing: bool = False
    #: ``recorded_spec`` was requested, but no answer is recorded, so it may not exist.
    unanswered: bool = False
    #: Known from the ledger only: nothing is changed until the desired state is set.
    awaiting_desired: bool = False
    #: The targets that were planned last; None: a plan looks at each listener.
    planned: Mapping[ListenerKey, Targets] | None = None
    #: The listeners that a plan looks at; the recorded targets of all others match the desired ones.
    unsettled: set[ListenerKey] = msgspec.field(default_factory=set[ListenerKey])
    #: Since when the first unwanted target of a listener has been draining.
    draining: dict[ListenerKey, float] = msgspec.field(default_factory=dict[ListenerKey, float])

    def entries(self, listener: ListenerKey) -> dict[TargetKey, Registered]:
        """Return the recorded targets of a listener; the caller may change them."""
        self.unsettled.add(listener)
        return self.recorded.setdefault(listener, {})

    def drop_entry(self, listener: ListenerKey, target: TargetKey) -> None:
        """Drop one recorded target."""
        entries = self.entries(listener)
        entries.pop(target, None)
        if not entries:
            del self.recorded[listener]

    @property
    def made(self) -> FrontendSpec | None:
        """Return the frontend that the provider has confirmed; None if it has confirmed none."""
        return None if self.unanswered else self.recorded_spec

    def has_weights_of(self, desired: DesiredLoadBalancer, listeners: Iterable[ListenerKey]) -> bool:
        """Return whether the provider has confirmed the shares of ``listeners`` and the weights of their targets.

        Targets without a registration are skipped: they have no connections, and the provider may refuse them.
        """
        made = self.made
        if self.ensure_again or made is None:
            return False
        return all(
            made.shares_of(listener) == desired.spec.shares_of(listener)
            and all(
                registered.unacknowledged or (registered.target.weight == target.weight and not registered.unknown)
                for key, target in desired.targets[listener].items()
                if (registered := self.recorded.get(listener, {}).get(key)) is not None
            )
            for listener in listeners
        )

    @property
    def gone(self) -> bool:
        """Return whether the state can be dropped: nothing is desired or recorded."""
        return self.desired is None and self.recorded_spec is None and not any(self.recorded.values())


class Tracker:
    """All load balancers of one provider by key, with the set of those that may differ."""

    def __init__(self, *, keeps_refused: bool = False) -> None:
        #: A ledger that recorded the refused target must remove the record when the target is no longer desired.
        self._keeps_refused = keeps_refused
        self._states: dict[LoadBalancerKey, LoadBalancerState] = {}
        self._dirty: dict[LoadBalancerKey, None] = {}
        self._generation = 0

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, key: LoadBalancerKey) -> bool:
        return key in self._states

    def __iter__(self) -> Iterator[LoadBalancerKey]:
        return iter(self._states)

    @property
    def dirty(self) -> int:
        """Return how many load balancers wait for the worker."""
        return len(self._dirty)

    @property
    def dirty_keys(self) -> Iterable[LoadBalancerKey]:
        """Return the keys of the load balancers that wait for the worker, oldest first."""
        return self._dirty

    def is_dirty(self, key: LoadBalancerKey) -> bool:
        """Return whether ``key`` waits for the worker."""
        return key in self._dirty

    def state(self, key: LoadBalancerKey) -> LoadBalancerState | None:
        """Return the state of one load balancer, None if it is unknown; the caller must not change it."""
        return self._states.get(key)

    def put(self, desired: DesiredLoadBalancer) -> bool:
        """Set the desired state; return False if it did not change."""
        state = self._states.get(desired.key)
        if state is None:
            self._generation += 1
            state = self._states[desired.key] = LoadBalancerState(generation=self._generation)
        elif state.desired == desired:
            return False
        state.desired = desired
        state.awaiting_desired = False
        self._dirty[desired.key] = None
        return True

    def remove(self, key: LoadBalancerKey, *, though_unknown: bool = False) -> bool:
        """Request the deletion of ``key``; return False if it is unknown or its deletion was already requested.

        ``though_unknown``: an earlier process may have created it, so the provider is asked to delete it anyway.
        """
        state = self._states.get(key)
        if state is None and though_unknown:
            self._generation += 1
            self._states[key] = LoadBalancerState(generation=self._generation)
            self._dirty[key] = None
            return True
        if state is None or (state.desired is None and not state.awaiting_desired):
            return False
        state.desired = None
        state.awaiting_desired = False
        self._dirty[key] = None
        return True

    def touch(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Mark ``keys`` as dirty, because a wait is over or a retry is due."""
        self._dirty.update((key, None) for key in keys if key in self._states)

    def ensure_again(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Request that the frontends of ``keys`` are ensured again although nothing changed."""
        for key in keys:
            if (state := self._states.get(key)) is not None:
                state.ensure_again = True
                self._dirty[key] = None

    def restore(
        self,
        spec: FrontendSpec,
        done: Mapping[ListenerKey, Mapping[TargetKey, Registered]],
        *,
        certain: bool = False,
        unanswered: bool = False,
    ) -> None:
        """Take over what a durable ledger says was done before this process started; its desired side is not known yet.

        ``certain``: the frontend is on record exactly as it was last ensured, and need not be ensured again.
        ``unanswered``: it was asked for, and no answer is on record.
        """
        if spec.key in self._states:
            raise Bug(f"{spec.key} is restored twice, or after it was put")
        self._generation += 1
        self._states[spec.key] = LoadBalancerState(
            recorded_spec=spec,
            recorded={listener: dict(targets) for listener, targets in done.items()},
            generation=self._generation,
            # Otherwise the frontend may have changed after its last record.
            ensure_again=not certain,
            unanswered=unanswered,
            awaiting_desired=True,
        )

    def pop_dirty(self) -> list[LoadBalancerKey]:
        """Remove and return the dirty keys, oldest first."""
        keys = list(self._dirty)
        self._dirty.clear()
        return keys

    def begin_frontend(self, change: FrontendChange) -> None:
        """Note that ``change`` is about to be sent: until its result is known, the frontend may be in either state."""
        state = self._states.get(change.load_balancer)
        if state is not None and state.generation == change.generation:
            state.ensure_again = True

    def begin_targets(self, changes: Iterable[TargetChange]) -> None:
        """Note that ``changes`` are about to be sent: a change without an answer may still have been made."""
        for change in changes:
            state = self._states.get(change.load_balancer)
            if state is None or state.generation != change.generation:
                continue
            targets = state.entries(change.listener)
            known = targets.get(change.key)
            leaves = change.action is Action.DEREGISTER
            targets[change.key] = (
                Registered(change.target, unknown=True, unacknowledged=True, deregistering=leaves)
                if known is None
                else msgspec.structs.replace(known, unknown=True, deregistering=known.deregistering or leaves)
            )

    # --- what others do -----------------------------------------------------------------------------------------

    def observe(
        self, key: LoadBalancerKey, listener: ListenerKey, registered: Registered, *, anew: bool = False
    ) -> None:
        """Apply an entry of the ledger that another process wrote; ``anew`` replaces the known state."""
        state = self._states.get(key)
        if state is None:
            return
        targets = state.entries(listener)
        if anew or registered.target.key not in targets:
            targets[registered.target.key] = registered
            self._dirty[key] = None

    def request_deregister(self, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey) -> None:
        """Request that one target is deregistered, even if it is desired, because its record was deleted."""
        registered = self._registered(key, listener, target)
        if registered is not None and not registered.deregistering:
            self._states[key].entries(listener)[target] = msgspec.structs.replace(registered, deregistering=True)
            self._dirty[key] = None

    def forget(self, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey) -> None:
        """Drop one target without a call: its record was deleted, so Fairlead no longer owns it."""
        if self._registered(key, listener, target) is not None:
            self._states[key].drop_entry(listener, target)
            self._dirty[key] = None

    def mark_unknown(
        self, key: LoadBalancerKey, targets: Iterable[tuple[ListenerKey, TargetKey]] | None = None
    ) -> None:
        """Request that targets (None: all) are registered again, because the provider may have lost them."""
        state = self._states.get(key)
        if state is None:
            return
        wanted = None if targets is None else set(targets)
        state.planned = None
        for listener, entries in state.recorded.items():
            for target, registered in entries.items():
                if wanted is None or (listener, target) in wanted:
                    entries[target] = msgspec.structs.replace(registered, unknown=True)
        state.ensure_again = state.ensure_again or wanted is None
        self._dirty[key] = None

    def mark_missing(self, key: LoadBalancerKey) -> None:
        """Request that the load balancer is created again with all its targets: another client deleted it."""
        state = self._states.get(key)
        if state is not None and state.desired is not None and state.recorded_spec is not None:
            state.missing = True
            self.mark_unknown(key)

    def _registered(self, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey) -> Registered | None:
        state = self._states.get(key)
        return None if state is None else state.recorded.get(listener, {}).get(target)

    # --- what came of it ----------------------------------------------------------------------------------------

    def apply_frontend_result(self, change: FrontendChange, outcome: Outcome) -> None:
        """Record the outcome of a change of the frontend."""
        state = self._states.get(change.load_balancer)
        if state is None or state.generation != change.generation or outcome.status is not OutcomeStatus.DONE:
            return
        if change.action is Action.DELETE:
            state.recorded_spec = None
            state.recorded.clear()
            state.planned = None
            state.ensure_again = state.missing = state.unanswered = False
            if state.desired is None:
                del self._states[change.load_balancer]
                self._dirty.pop(change.load_balancer, None)
            return
        state.recorded_spec = change.spec
        state.ensure_again = state.missing = state.unanswered = False

    def apply_results(self, changes: Iterable[TargetChange], outcomes: Iterable[Outcome], *, now_s: float) -> None:
        """Record the outcomes of target changes; only a success changes the recorded state."""
        for change, outcome in zip(changes, outcomes, strict=True):
            state = self._states.get(change.load_balancer)
            if state is None or state.generation != change.generation:
                continue
            if outcome.status is OutcomeStatus.REJECTED and not self._keeps_refused:
                _forget_attempt(state, change)
            if outcome.status is not OutcomeStatus.DONE:
                continue
            targets = state.entries(change.listener)
            match change.action:
                case Action.REGISTER | Action.UPDATE:
                    targets[change.key] = _registered_now(change, targets.get(change.key), now_s)
                case Action.DRAIN:
                    targets[change.key] = Registered(
                        change.target, draining_since=now_s, since=now_s, reason=change.reason
                    )
                case Action.DEREGISTER:
                    state.drop_entry(change.listener, change.key)
                case Action.ENSURE | Action.DELETE:
                    raise Bug(f"{change.action} is not a change of a target")


def _registered_now(change: TargetChange, known: Registered | None, now_s: float) -> Registered:
    if known is not None and known.since is not None and known.draining == change.target.draining:
        return Registered(change.target, since=known.since, reason=known.reason)
    return Registered(change.target, since=now_s, reason=change.reason)


def _forget_attempt(state: LoadBalancerState, change: TargetChange) -> None:
    """Undo ``begin_targets``: a rejection means that the call had no effect."""
    known = state.recorded.get(change.listener, {}).get(change.key)
    if known is None:
        return
    if not known.unacknowledged:
        state.entries(change.listener)[change.key] = msgspec.structs.replace(known, unknown=False)
    else:
        state.drop_entry(change.listener, change.key)


class Plan(msgspec.Struct, frozen=True):
    """The plan for one load balancer.

    ``wake_at_s`` is when a later plan can differ without a change (monotonic seconds), None if never.
    """

    load_balancer: LoadBalancerKey
    frontend: FrontendChange | None = None
    changes: tuple[TargetChange, ...] = ()
    held: tuple[Held, ...] = ()
    wake_at_s: float | None = None

    @property
    def empty(self) -> bool:
        """Return whether the plan has no rows."""
        return self.frontend is None and not self.changes

    def woken_at(self, at_s: float) -> Plan:
        """Return this plan with a wake-up at ``at_s`` or earlier."""
        return msgspec.structs.replace(self, wake_at_s=at_s if self.wake_at_s is None else min(self.wake_at_s, at_s))


def plan_load_balancer(key: LoadBalancerKey, state: LoadBalancerState, *, now_s: float) -> Plan:
    """Compare both sides of ``key`` at ``now_s`` (monotonic seconds)."""
    desired = state.desired
    if state.awaiting_desired:
        return Plan(key)
    if desired is None:
        return _plan_deletion(key, state)
    changes: list[TargetChange] = []
    for listener in _unsettled(state, desired, now_s):
        done, before = state.recorded.get(listener, {}), len(changes)
        drains_s: list[float] = []
        wanted = desired.targets.get(listener)
        if wanted is None:
            row = (Action.DEREGISTER, Reason.LISTENER_REMOVED)
            changes += [_change(key, listener, each.target, *row, state.generation) for each in done.values()]
            if not done:
                state.unsettled.discard(listener)
            continue
        # Registered targets that match the desired ones are the common case, and need no row.
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
            if registered.draining_since is not None and registered.draining_since + desired.drain_s > now_s:
                drains_s.append(registered.draining_since)
                continue
            row = _unwanted_row(registered, desired, listener)
            changes.append(_change(key, listener, registered.target, *row, state.generation))
        if drains_s:
            state.draining[listener] = min(drains_s)
        if len(changes) == before and len(done) == len(wanted) + len(drains_s):
            state.unsettled.discard(listener)
    wake_at_s = min(state.draining.values()) + desired.drain_s if state.draining else None
    return Plan(key, _frontend(desired, state), tuple(changes), wake_at_s=wake_at_s)


def _unsettled(state: LoadBalancerState, desired: DesiredLoadBalancer, now_s: float) -> list[ListenerKey]:
    """Return the listeners whose recorded targets may not be the wanted ones and those that drain, ordered."""
    targets = desired.targets
    if state.planned is None:
        state.unsettled, state.draining = {*targets, *state.recorded}, {}
    elif state.planned is not targets:
        state.unsettled |= differing_keys(state.planned, targets)
    state.planned = targets
    state.unsettled |= {key for key, since_s in state.draining.items() if since_s + desired.drain_s <= now_s}
    for listener in state.unsettled & state.draining.keys():
        del state.draining[listener]
    return sorted(state.unsettled)


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
        # A target that is leaving or draining stays unchanged until it is gone or ready again.
        return None if registered.target.draining else (Action.UPDATE, Reason.TERMINATING)
    if registered.draining_since is None and _same_but_owners(registered.target, target):
        if not registered.target.owners and msgspec.structs.replace(registered.target, owners=target.owners) == target:
            # A record of an earlier version has no owners; its next write adds them.
            return None
        return (Action.UPDATE, Reason.OWNERS_CHANGED)
    return (Action.UPDATE, Reason.CHANGED)


def _same_but_owners(recorded: Target, wanted: Target) -> bool:
    """Return whether ``wanted`` differs only in fields that the provider does not get, such as terminating."""
    ledger_only = msgspec.structs.replace(
        recorded, owners=wanted.owners, source=wanted.source, terminating=wanted.terminating
    )
    return ledger_only == wanted


def _unwanted_row(registered: Registered, desired: DesiredLoadBalancer, listener: ListenerKey) -> tuple[Action, Reason]:
    if registered.draining_since is not None:
        return (Action.DEREGISTER, Reason.DRAINED)
    if registered.target.key in desired.excluded_targets:
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


_ADD = 0
_TAKE = 1


def order_changes(changes: Iterable[TargetChange]) -> tuple[Sequence[TargetChange], Sequence[TargetChange]]:
    """Split ``changes`` into (additions and shifts, removals), each in the order of listener and address."""
    phases: tuple[list[TargetChange], list[TargetChange]] = ([], [])
    for change in changes:
        phases[_phase(change)].append(change)
    for phase in phases:
        phase.sort(key=lambda change: (change.listener, change.key))
    return phases


def _phase(change: TargetChange) -> int:
    if change.action is Action.REGISTER or (change.action is Action.UPDATE and not change.target.draining):
        return _ADD
    return _TAKE


#: Time between two portions of removals that the "too many" predicate allows, in seconds.
PACE_S = 5.0
#: Time for the first health check of new targets before all old ones may be removed, in seconds.
WARM_S = 1.0
#: Without a result after this time (seconds), the first check of a new target counts as missing.
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


#: The observation of one target of a listener.
SeenOf = Callable[[LoadBalancerKey, ListenerKey, TargetKey], Seen]


class _Case(msgspec.Struct, frozen=True):
    """The input of a predicate: recorded and desired state, and the rows that the predicate does not decide on."""

    state: LoadBalancerState
    desired: DesiredLoadBalancer
    allowed: list[TargetChange]
    now_s: float
    seen_of: SeenOf


def unseen(_key: LoadBalancerKey, _listener: ListenerKey, _target: TargetKey) -> Seen:
    """Return the observation of an unknown target."""
    return Seen.UNCHECKED


def guard_plan(plan: Plan, state: LoadBalancerState, *, now_s: float, seen_of: SeenOf = unseen) -> Plan:
    """Return ``plan`` with the rows that a predicate holds moved from ``changes`` to ``held``."""
    desired = state.desired
    if desired is None:
        return plan
    if desired.dry_run:
        return _hold_all(plan, DRY_RUN, desired.dry_run)
    if desired.paused and state.made is not None:
        # A load balancer that was never programmed is not paused, but guarded like all others.
        return _kept_in_service(_hold_all(plan, PAUSED, PAUSED_MESSAGE), state)
    removals = [change for change in plan.changes if _takes_away(change)]
    if not removals:
        return plan
    removing = {id(change) for change in removals}
    allowed = [change for change in plan.changes if id(change) not in removing]
    case = _Case(state, desired, allowed, now_s, seen_of)
    held: list[Held] = []
    for predicate in _PREDICATES:
        by_listener, removals = _by_listener(removals), list[TargetChange]()
        for listener, rows in by_listener.items():
            kept, more = predicate(listener, rows, case)
            removals += kept
            held += more
    reasons = {row.reason for row in held}
    plan = msgspec.structs.replace(plan, changes=tuple(allowed + removals), held=tuple(held))
    for reason in reasons & _PAUSES_S.keys():
        plan = plan.woken_at(now_s + _PAUSES_S[reason])
    return _kept_in_service(plan, state)


def _kept_in_service(plan: Plan, state: LoadBalancerState) -> Plan:
    """Add to ``plan`` the registrations of held targets that their provider may have lost."""
    if state.missing and plan.frontend is None:
        # The load balancer does not exist, and must not be created again now.
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
    """Return whether the target gets new connections according to the record."""
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


def _stale_view(_listener: ListenerKey, rows: list[TargetChange], case: _Case) -> Judgement:
    return ([], [Held(row, STALE_VIEW, case.desired.stale) for row in rows]) if case.desired.stale else (rows, [])


def _warming(listener: ListenerKey, rows: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals that would leave a listener only targets that are being added in this run.

    A load balancer that checks its targets sends nothing to one that it has not checked yet.
    """
    if case.desired.spec.health_check is None or _ready(case.state, listener) - {row.key for row in rows}:
        return rows, []
    if not any(change.listener == listener and change.is_addition for change in case.allowed):
        return rows, []
    message = f"listener {listener} gets all new targets; the old ones go {WARM_S:g} s after they are there"
    return [], [Held(row, WARMING, message) for row in rows]


def _last_targets(listener: ListenerKey, rows: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals without a positive reason of a listener that would be left with too few ready targets."""
    minimum = case.desired.guard.min_targets
    ready, removed = _ready(case.state, listener), {row.key for row in rows}
    added = {
        change.key
        for change in case.allowed
        if change.listener == listener and change.is_addition and not change.target.draining and change.key not in ready
    }
    remaining = len(ready - removed) + len(added)
    if remaining >= minimum or not removed & (ready | _unknown(case.state, listener)):
        return rows, []
    message = (
        f"listener {listener} would be left with {remaining} ready targets, fewer than guard.minBackends "
        f"{minimum}; the last known ones stay until others are ready"
    )
    kept = [row for row in rows if row.reason is Reason.TERMINATING]
    return kept, [Held(row, LAST_TARGETS, message) for row in rows if row.reason is not Reason.TERMINATING]


def _unhealthy_successors(listener: ListenerKey, rows: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals of targets that may pass their check, while no target that stays in the listener does.

    Targets that were reported as not ready or terminating are removed anyway. The removal waits for a target without a
    check result, but no longer than a first check takes.
    """
    stay = _ready(case.state, listener) - {row.key for row in rows}
    absent = {row.key for row in rows if row.reason is Reason.ABSENT}
    if case.desired.spec.health_check is None or not stay or not absent:
        return rows, []
    state = _best_seen(case, listener, stay)
    if state is Seen.UNHEALTHY:
        reason, message = (
            UNHEALTHY_REPLACEMENT,
            f"none of the {len(stay)} targets of listener {listener} that stay passes its health check; "
            "the former ones that do serve until one of them does",
        )
    elif state is Seen.WAITING:
        reason, message = WARMING, f"the new targets of listener {listener} are being checked for the first time"
    else:
        return rows, []
    serving = {key for key in absent if _may_answer(case, listener, key)}
    kept = [row for row in rows if row.key not in serving]
    return kept, [Held(row, reason, message) for row in rows if row.key in serving]


def _may_answer(case: _Case, listener: ListenerKey, key: TargetKey) -> bool:
    """Return whether a target passes its check, or has not failed its first one."""
    return case.seen_of(case.desired.key, listener, key) in {Seen.HEALTHY, Seen.WAITING}


def _best_seen(case: _Case, listener: ListenerKey, keys: Iterable[TargetKey]) -> Seen:
    """Return the best observation among ``keys``: one that is healthy, or may be, is sufficient."""
    states = set[Seen]()
    for key in keys:
        if (state := _seen(case, listener, key)) is Seen.HEALTHY:
            return state
        states.add(state)
    order = (Seen.UNCHECKED, Seen.SILENT, Seen.WAITING, Seen.UNHEALTHY)
    return next(state for state in order if state in states)


def _seen(case: _Case, listener: ListenerKey, key: TargetKey) -> Seen:
    state = case.seen_of(case.desired.key, listener, key)
    registered = case.state.recorded.get(listener, {}).get(key)
    since_s = registered.since if registered is not None else None
    late = since_s is None or case.now_s - since_s > FIRST_CHECK_S
    return Seen.UNCHECKED if state is Seen.WAITING and late else state


def _too_many(listener: ListenerKey, rows: list[TargetChange], case: _Case) -> Judgement:
    """Hold the removals without a positive reason above the share of the class, by order of address."""
    percent, ready = case.desired.guard.max_removal_percent, _ready(case.state, listener)
    unexplained = sorted((row for row in rows if row.reason is Reason.ABSENT), key=lambda row: row.key)
    if _is_replaced(case.state, listener, unexplained):
        return rows, []
    limit = max(1, len(ready) * percent // 100)
    message = (
        f"{len(unexplained)} of {len(ready)} targets of listener {listener} vanished at once; "
        f"guard.maxRemovalPercent {percent} lets {limit} go now and more every {PACE_S:g} s"
    )
    kept = [row for row in rows if row.reason is not Reason.ABSENT] + unexplained[:limit]
    return kept, [Held(row, TOO_MANY, message) for row in unexplained[limit:]]


def _is_replaced(state: LoadBalancerState, listener: ListenerKey, absent: list[TargetChange]) -> bool:
    """Return whether all remaining ready targets were registered after all that vanished.

    If so, the list was replaced as a whole, as when a Service selects other pods, and no part of it was lost.
    """
    recorded = state.recorded.get(listener, {})
    gone = {row.key for row in absent}
    new = [recorded[key].since for key in _ready(state, listener) - gone if key in recorded]
    old = [recorded[row.key].since or 0.0 for row in absent if row.key in recorded]
    oldest_new = min((since or 0.0 for since in new), default=0.0)
    return bool(new) and oldest_new > max(old, default=0.0)


#: Decides on the removals of one listener: which are allowed, and which are held.
Predicate = Callable[[ListenerKey, list[TargetChange], _Case], Judgement]
#: The predicates are in the order in which a person would ask.
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
    """Return the keys of the targets that the provider has confirmed to get new connections."""
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
