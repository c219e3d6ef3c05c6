"""Objects that a provider has refused for good: parked, reported and tried again, so that they hold up no others.

    a backend            the others of its load balancer are registered without it
    a load balancer      it is served unchanged, and changes of its backends go on; a new one waits

A rejection is about exactly the request. A change is tried at once; what stays the same is tried again
after ``PARK_S``, since quotas grow and drivers are repaired. In: refusals and plans. Out: plans without what is known
to be refused, which is reported with the provider's message. Never: a removal is parked, except of parts
that a refused load balancer would no longer have.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.errors import Terminal
from fairlead.model.change import Held, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.sync.plan import Plan
from fairlead.sync.tracker import LoadBalancerState

PARK_S = 300.0
QUARANTINED = "Quarantined"


class _Parked(msgspec.Struct, frozen=True):
    target: Target
    message: str
    until_s: float


class Refusal(msgspec.Struct, frozen=True):
    """A load balancer that is not made, or not changed, as it was asked for."""

    spec: FrontendSpec
    message: str
    reason: str
    until_s: float


class Quarantine:
    """The objects that one provider has refused."""

    def __init__(self) -> None:
        self._parked: dict[LoadBalancerKey, dict[tuple[ListenerKey, TargetKey], _Parked]] = {}
        self._refused: dict[LoadBalancerKey, Refusal] = {}

    def __len__(self) -> int:
        """Return how many backends are parked."""
        return sum(len(parked) for parked in self._parked.values())

    @property
    def load_balancers(self) -> int:
        """Return how many load balancers are parked."""
        return len(self._refused)

    def add(self, change: TargetChange, message: str, *, now_s: float) -> None:
        """Park one backend."""
        parked = self._parked.setdefault(change.load_balancer, {})
        parked[change.listener, change.key] = _Parked(change.target, message, now_s + PARK_S)

    def refuse(self, spec: FrontendSpec, error: Terminal, *, now_s: float) -> None:
        """Park one load balancer."""
        self._refused[spec.key] = Refusal(spec, error.sentence, error.reason, now_s + PARK_S)

    def refusal(self, key: LoadBalancerKey) -> Refusal | None:
        """Return the refusal of the desired frontend, None when it is not parked."""
        return self._refused.get(key)

    def exclude_refused(self, plan: Plan, state: LoadBalancerState, *, now_s: float) -> tuple[Plan, tuple[Held, ...]]:
        """Return ``plan`` without parked objects, and the rows of parked backends."""
        plan = self._exclude_frontend(plan, state, now_s)
        known = self._parked.get(plan.load_balancer)
        if not known:
            return plan, ()
        kept: list[TargetChange] = []
        parked: list[Held] = []
        still: dict[tuple[ListenerKey, TargetKey], _Parked] = {}
        for change in plan.changes:
            place = (change.listener, change.key)
            refused = known.get(place)
            if refused is None or not change.is_addition or refused.target != change.target or refused.until_s <= now_s:
                kept.append(change)
            else:
                parked.append(Held(change, QUARANTINED, refused.message))
                still[place] = refused
        # Changes that are in no plan are no longer requested.
        if still:
            self._parked[plan.load_balancer] = still
            plan = _woken(plan, min(refused.until_s for refused in still.values()))
        else:
            del self._parked[plan.load_balancer]
        return msgspec.structs.replace(plan, changes=tuple(kept)), tuple(parked)

    def _exclude_frontend(self, plan: Plan, state: LoadBalancerState, now_s: float) -> Plan:
        refused = self._refused.get(plan.load_balancer)
        if refused is None:
            return plan
        planned = plan.frontend is not None
        if state.desired is None or state.desired.spec != refused.spec or (planned and refused.until_s <= now_s):
            del self._refused[plan.load_balancer]
            return plan
        if not planned:
            # A guard holds everything: the rejection is kept, and the provider is not called.
            return plan
        changes = tuple(without_refused(plan.changes, state))
        return _woken(msgspec.structs.replace(plan, frontend=None, changes=changes), refused.until_s)


def without_refused(changes: Iterable[TargetChange], state: LoadBalancerState) -> list[TargetChange]:
    """Return the rows that do not depend on the refused frontend; none when no frontend was ever made."""
    made = state.made
    listeners_present = frozenset(listener.key for listener in made.listeners) if made is not None else ()
    return [
        change
        for change in changes
        if change.listener in listeners_present
        and (change.reason is not Reason.LISTENER_REMOVED or _recalled(change, state))
    ]


def _recalled(change: TargetChange, state: LoadBalancerState) -> bool:
    registered = state.recorded.get(change.listener, {}).get(change.key)
    return registered is not None and registered.deregistering


def _woken(plan: Plan, at_s: float) -> Plan:
    return msgspec.structs.replace(plan, wake_at_s=at_s if plan.wake_at_s is None else min(plan.wake_at_s, at_s))
