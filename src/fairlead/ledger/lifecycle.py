"""The states of a BackendRecord: which one an answer of the provider leads to.

    asked                  answer               before             after
    register, update       Done                 any                Registered (Draining, when the target drains)
    register, update       Retry, Rejected      Registered         the same: it is registered as it was
    register, update       Retry, Rejected      any other          Failed
    register, update       Running              Failed             Pending
    register, update       Running              any other          the same
    drain, deregister      any                  any                the same: the intent has set it

In: a change, its outcome and the state before. Out: the state after. Never: the intents, which ``records`` stores.
"""

from __future__ import annotations

from fairlead.api.backendrecord import RecordState
from fairlead.model.change import Action, OutcomeStatus, TargetChange

#: By (answer, state before); what is not listed stays as it was.
_AFTER: dict[tuple[OutcomeStatus, RecordState], RecordState] = {
    (OutcomeStatus.RUNNING, "Failed"): "Pending",
    **{
        (status, state): "Failed"
        for status in (OutcomeStatus.RETRY, OutcomeStatus.REJECTED)
        for state in ("", "Pending", "Draining", "Deregistering", "Failed")
    },
}


def is_removal(change: TargetChange) -> bool:
    """Say whether ``change`` takes a backend away, so that its intent has set the state already."""
    return change.action in (Action.DRAIN, Action.DEREGISTER)


def state_after(before: RecordState, change: TargetChange, status: OutcomeStatus) -> RecordState:
    """Return the state of a record once ``change`` was answered with ``status``."""
    if is_removal(change):
        return before
    if status is OutcomeStatus.DONE:
        return "Draining" if change.target.draining else "Registered"
    return _AFTER.get((status, before), before)
