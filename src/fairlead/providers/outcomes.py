"""Outcomes of the changes of a batch, worded the same way by every provider.

In: a change, or the error of the call that carried it. Out: an ``Outcome``, or what kind of change it is. Pure.
"""

from __future__ import annotations

from fairlead.errors import Retry
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange


def is_removal(change: TargetChange) -> bool:
    """Return whether the change takes its target out of service: a removal or a drain."""
    return change.action in (Action.DEREGISTER, Action.DRAIN)


def outcome_from_error(error: Retry) -> Outcome:
    """Return the outcome of a change whose own call failed, with the delay that the other side asked for."""
    return Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0)
