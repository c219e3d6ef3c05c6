"""The promise of a durable ledger, kept in memory: what is recorded outlives the process that recorded it.

In: intents and outcomes. Out: ``recall``, what the next process must believe was, or may have been, done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.api.load_balancers import INTENT_KINDS
from fairlead.api.meta import AnyResource
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured
from fairlead.sync.tracker import Recorded, Registered

#: The resource of a kind of intent, as a ledger asks for it.
resource_of: Callable[[str], AnyResource] = {each.kind: each for each in INTENT_KINDS}.__getitem__

_Key = tuple[LoadBalancerKey, ListenerKey, TargetKey]


class SurvivingLedger:
    """Remembers one entry for each target that is, or may be, on a load balancer."""

    def __init__(self) -> None:
        self.entries: dict[_Key, TargetChange] = {}
        self.specs: dict[LoadBalancerKey, FrontendSpec] = {}

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Store what the load balancer is about to be."""
        self.specs[spec.key] = spec

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Store nothing more."""

    async def withdraw(self, key: LoadBalancerKey) -> None:
        """Drop what was never asked for."""
        self.specs.pop(key, None)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is gone."""
        self.specs.pop(key, None)

    async def record(self, spec: FrontendSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange]:
        """Store that these changes are about to be made."""
        self.specs[spec.key] = spec
        for change in changes:
            if change.action is not Action.DEREGISTER:
                self.entries[self._key(change)] = change
        return changes

    async def settle(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Forget what is gone for certain."""
        del spec
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.action is Action.DEREGISTER and outcome.status is OutcomeStatus.DONE:
                self.entries.pop(self._key(change), None)
        return outcomes

    def recorded(self, key: LoadBalancerKey) -> Recorded:
        """Return what may be on ``key``, in the form that ``Tracker.restore`` takes; nothing of it is certain."""
        done: Recorded = {}
        for (load_balancer, listener, target), change in self.entries.items():
            if load_balancer == key:
                done.setdefault(listener, {})[target] = Registered(change.target, unknown=True)
        return done

    @staticmethod
    def _key(change: TargetChange) -> _Key:
        return (change.load_balancer, change.listener, change.key)
