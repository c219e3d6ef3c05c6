"""DiffTracker: what is desired, what is recorded as done, and which load balancers differ.

In: ``put``/``remove`` from reconciles, results from the worker. Out: dirty keys, each with its two sides.
The done side holds *only what went through our ledger*, so nothing foreign can ever be in a plan. Nothing here
awaits, locks, logs or reads a clock; the cost of a change depends on the size of its load balancer alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fairlead.errors import Bug
from fairlead.model.change import Action, FrontendChange, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Target, Targets
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey


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
        """Say whether it gets no new connections: it is going away, wanted or not."""
        return self.target.draining or self.draining_since is not None


Recorded = dict[ListenerKey, dict[TargetKey, Registered]]


class LoadBalancerState(msgspec.Struct):
    """The two sides of one load balancer. ``desired`` None: it is to be deleted."""

    desired: DesiredLoadBalancer | None = None
    recorded_spec: FrontendSpec | None = None
    recorded: Recorded = msgspec.field(default_factory=dict[ListenerKey, dict[TargetKey, Registered]])
    #: Counts the lives of this key; the results of an earlier life are not applied to this one.
    generation: int = 0
    #: The frontend is ensured again although it did not change (new leader, provider restarted).
    ensure_again: bool = False
    #: Another client has deleted it, as far as can be known: that is why it is ensured again.
    missing: bool = False
    #: ``recorded_spec`` was only asked for: no answer is on record, so nothing of it is there as far as is known.
    unanswered: bool = False
    #: Known from the ledger, and its desired side has not been put yet: nothing is done about it until then.
    awaiting_desired: bool = False
    #: The targets that were planned last; None: a plan looks at each listener.
    planned: Mapping[ListenerKey, Targets] | None = None
    #: The listeners that a plan looks at: of all others the recorded targets were found to be those, and draining ones.
    unsettled: set[ListenerKey] = msgspec.field(default_factory=set[ListenerKey])
    #: Since when the first target of a listener drains that is no longer wanted.
    draining: dict[ListenerKey, float] = msgspec.field(default_factory=dict[ListenerKey, float])

    def entries(self, listener: ListenerKey) -> dict[TargetKey, Registered]:
        """Return the recorded targets of a listener, to be changed."""
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
        """Return what its provider has answered for, None when it never has."""
        return None if self.unanswered else self.recorded_spec

    @property
    def gone(self) -> bool:
        """Return whether nothing is left to do or to remember."""
        return self.desired is None and self.recorded_spec is None and not any(self.recorded.values())


class Tracker:
    """All load balancers of one provider, keyed, with a set of those that may differ."""

    def __init__(self, *, keeps_refused: bool = False) -> None:
        #: A ledger that keeps the record of a refusal needs it removed again when it is no longer wanted.
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
        """Return which those are, oldest first."""
        return self._dirty

    def is_dirty(self, key: LoadBalancerKey) -> bool:
        """Return whether ``key`` waits for the worker."""
        return key in self._dirty

    def state(self, key: LoadBalancerKey) -> LoadBalancerState | None:
        """Return both sides of one load balancer, None when it is unknown; not to be changed by the caller."""
        return self._states.get(key)

    def put(self, desired: DesiredLoadBalancer) -> bool:
        """Set the desired side; False when it was the same already."""
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
        """Have ``key`` deleted; False when it is unknown or was to be deleted already.

        ``though_unknown``: an earlier process may have made it, so the provider is asked to delete it anyway.
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
        """Have the worker run ``keys`` again: a wait is over, or a retry is due."""
        self._dirty.update((key, None) for key in keys if key in self._states)

    def ensure_again(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Have the frontends of ``keys`` ensured again although nothing changed."""
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
            # Else the frontend may have been changed after the last record of it.
            ensure_again=not certain,
            unanswered=unanswered,
            awaiting_desired=True,
        )

    def pop_dirty(self) -> list[LoadBalancerKey]:
        """Hand over the dirty keys, oldest first, and forget that they were dirty."""
        keys = list(self._dirty)
        self._dirty.clear()
        return keys

    def begin_frontend(self, change: FrontendChange) -> None:
        """Note that ``change`` is about to be made: until its result is known, the frontend may be in either state."""
        state = self._states.get(change.load_balancer)
        if state is not None and state.generation == change.generation:
            state.ensure_again = True

    def begin_targets(self, changes: Iterable[TargetChange]) -> None:
        """Note that ``changes`` are about to be made: what is never answered may have happened all the same."""
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
        """Have one target deregistered, wanted or not: its record was deleted."""
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
        """Have targets (None: all) registered again: the provider may have lost them."""
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
        """Have the load balancer made again, and all its targets registered again: another client has deleted it."""
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
