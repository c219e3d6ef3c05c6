"""Which backends a provider has refused for good, so that they stop nobody else: parked, told, and tried again.

A refusal stands for one backend exactly as it was asked for. What is changed is tried at once; what stays the same is
tried again after ``PARK_S``, since quotas grow and drivers are repaired. In: refusals and plans. Out: plans without the
refused additions, which are listed with the provider's own words. Never: a removal is parked.
"""

from __future__ import annotations

import msgspec

from fairlead.model.change import Action, Held, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.sync.plan import Plan

PARK_S = 300.0
QUARANTINED = "Quarantined"

_ADDS = frozenset({Action.REGISTER, Action.UPDATE})


class _Parked(msgspec.Struct, frozen=True):
    target: Target
    message: str
    until_s: float


class Quarantine:
    """The refused backends of one provider."""

    def __init__(self) -> None:
        self._parked: dict[LoadBalancerKey, dict[tuple[ListenerKey, TargetKey], _Parked]] = {}

    def __len__(self) -> int:
        return sum(len(parked) for parked in self._parked.values())

    def add(self, change: TargetChange, message: str, *, now_s: float) -> None:
        """Park one backend."""
        parked = self._parked.setdefault(change.load_balancer, {})
        parked[change.listener, change.key] = _Parked(change.target, message, now_s + PARK_S)

    def sift(self, plan: Plan, *, now_s: float) -> tuple[Plan, tuple[Held, ...]]:
        """Take the additions out of ``plan`` that are known to be refused, and list them."""
        known = self._parked.get(plan.load_balancer)
        if not known:
            return plan, ()
        kept: list[TargetChange] = []
        parked: list[Held] = []
        still: dict[tuple[ListenerKey, TargetKey], _Parked] = {}
        for change in plan.changes:
            place = (change.listener, change.key)
            one = known.get(place)
            if one is None or change.action not in _ADDS or one.target != change.target or one.until_s <= now_s:
                kept.append(change)
            else:
                parked.append(Held(change, QUARANTINED, one.message))
                still[place] = one
        # What is in no plan any more is not asked for any more.
        if still:
            self._parked[plan.load_balancer] = still
            soonest_s = min(one.until_s for one in still.values())
            wake_at_s = soonest_s if plan.wake_at_s is None else min(plan.wake_at_s, soonest_s)
            plan = msgspec.structs.replace(plan, wake_at_s=wake_at_s)
        else:
            del self._parked[plan.load_balancer]
        return msgspec.structs.replace(plan, changes=tuple(kept)), tuple(parked)
