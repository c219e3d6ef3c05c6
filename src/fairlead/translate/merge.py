"""The targets of all groups of one load balancer: two groups that select one address own it together.

In: groups one by one, ordered by (namespace, name). Out: targets by listener, ordered, and condition Conflicted for
each group whose parameters for a shared address differ from those of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.desired import Listener, Target, Targets
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.translate.backendgroup import targets_of_group
from fairlead.translate.endpoints import EndpointState, TargetPolicy, in_service
from fairlead.translate.view import GroupKey, GroupView, LoadBalancerView


class MergedTargets:
    """Targets by listener; the first group by name sets the parameters, and a target stays while it has an owner."""

    def __init__(self, view: LoadBalancerView, listeners: Sequence[Listener], policy: TargetPolicy) -> None:
        self._policy = policy
        self._recorded = view.recorded
        self._listeners = listeners
        self._name = view.name
        self._targets: dict[ListenerKey, dict[TargetKey, Target]] = {listener.key: {} for listener in listeners}
        self._states: dict[ListenerKey, dict[TargetKey, EndpointState]] = {listener.key: {} for listener in listeners}
        self.conflicts: dict[GroupKey, Condition] = {}

    def add(self, view: GroupView, parameters: Mapping[str, str]) -> set[str]:
        """Add the targets of a group with ``parameters``; return the addresses that may not be targets."""
        refused: set[str] = set()
        offered = targets_of_group(view, parameters, self._listeners, self._policy, self._recorded, refused)
        for listener, target, state in offered:
            by_key, states = self._targets[listener], self._states[listener]
            present = by_key.get(target.key)
            by_key[target.key] = target if present is None else self._together(view, present, target)
            states[target.key] = max(state, states.get(target.key, state))
        return refused

    def targets(self) -> dict[ListenerKey, Targets]:
        """Return all targets, ordered by key within each listener."""
        return {listener: self._by_state(listener, by_key) for listener, by_key in self._targets.items()}

    def _by_state(self, listener: ListenerKey, by_key: Mapping[TargetKey, Target]) -> Targets:
        states = self._states[listener]
        serving = in_service(states)
        return {
            key: msgspec.structs.replace(
                target, draining=key not in serving, terminating=key in serving and states[key].is_terminating
            )
            for key, target in sorted(by_key.items())
        }

    def _together(self, view: GroupView, present: Target, other: Target) -> Target:
        if present.parameters != other.parameters:
            first = present.owners[0].removeprefix("BackendGroup/")
            text = (
                f"{present.key} on LoadBalancer {self._name} has other parameters in BackendGroup {first} than in "
                f"{'/'.join(view.group.key)}: those of the first by name count, {first}; make them equal"
            )
            conflict = Condition(ConditionType.CONFLICTED, True, ConditionReason.PARAMETERS_DIFFER, text)
            self.conflicts.setdefault(view.group.key, conflict)
        return msgspec.structs.replace(
            present,
            # Ordered by name, as the groups are added: the first owner is the one whose parameters are in force.
            owners=tuple(sorted({*present.owners, *other.owners})),
            source=present.source or other.source,
        )
