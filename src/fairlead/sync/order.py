"""In which order the rows of a plan are done: ensure, add, shift, drain, remove, delete.

In: target changes. Out: the same in phases. When additions failed, the removals are judged once more, by what is there
without them: that is what "add before remove" means when a provider fails half-way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.model.change import Action, TargetChange

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
