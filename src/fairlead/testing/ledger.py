"""An in-memory implementation of a durable ledger, which outlives the process that is simulated.

In: intents and outcomes. Out: ``recorded``, the targets that were, or may have been, registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.meta import AnyResource
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured
from fairlead.sync.plan import Recorded, Registered

#: The resource of a kind of intent, as a ledger asks for it.
resource_of: Callable[[str], AnyResource] = {kind.kind: kind for kind in INTENT_KINDS}.__getitem__

_Key = tuple[LoadBalancerKey, ListenerKey, TargetKey]


class PersistentLedger:
    """A ledger with one entry for each target that is, or may be, registered."""

    def __init__(self) -> None:
        self.entries: dict[_Key, TargetChange] = {}
        self.specs: dict[LoadBalancerKey, FrontendSpec] = {}

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Store the intended frontend."""
        self.specs[spec.key] = spec

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Do nothing."""

    def forget(self, key: LoadBalancerKey) -> None:
        """Delete all entries of a load balancer."""
        self.specs.pop(key, None)

    async def record(self, spec: FrontendSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange]:
        """Store the intended changes."""
        self.specs[spec.key] = spec
        for change in changes:
            if change.action is not Action.DEREGISTER:
                self.entries[self._key(change)] = change
        return changes

    async def settle(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Delete the entries of targets whose deregistration has succeeded."""
        del spec
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.action is Action.DEREGISTER and outcome.status is OutcomeStatus.DONE:
                self.entries.pop(self._key(change), None)
        return outcomes

    def recorded(self, key: LoadBalancerKey) -> Recorded:
        """Return the targets that may be registered at ``key``, as input for ``Tracker.restore``."""
        done: Recorded = {}
        for (load_balancer, listener, target), change in self.entries.items():
            if load_balancer == key:
                done.setdefault(listener, {})[target] = Registered(change.target, unknown=True)
        return done

    @staticmethod
    def _key(change: TargetChange) -> _Key:
        return (change.load_balancer, change.listener, change.key)
