"""The states of a BackendRecord: which one an intent sets, and which one an answer of the provider leads to.

    about to be asked      intent stored        before             state
    register, update       the new spec         none, any other    Pending, until the provider has answered
    register, update       the owners alone     any                the same: no call is made
    drain                  that it drains       any                Draining
    deregister             that it goes         any                Deregistering, and the object is deleted

    asked                  answer               before             after
    register, update       Done                 any                Registered (Draining, when the target drains)
    register, update       Retry, Rejected      Registered         the same: it is registered as it was
    register, update       Retry, Rejected      any other          Failed
    register, update       Running              Failed             Pending
    register, update       Running              any other          the same
    drain, deregister      any                  any                the same: the intent has set it

In: a change, its outcome and the state before. Out: the state to store. Never: a write; ``records`` stores them.
"""

from __future__ import annotations

from fairlead.api.backendrecord import RecordState
from fairlead.errors import Bug
from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange

#: By action: the state that its intent sets.
_INTENDED: dict[Action, RecordState] = {
    Action.REGISTER: "Pending",
    Action.UPDATE: "Pending",
    Action.DRAIN: "Draining",
    Action.DEREGISTER: "Deregistering",
}

#: By (answer, state before); what is not listed stays as it was.
_AFTER: dict[tuple[OutcomeStatus, RecordState], RecordState] = {
    (OutcomeStatus.RUNNING, "Failed"): "Pending",
    **{
        (status, state): "Failed"
        for status in (OutcomeStatus.RETRY, OutcomeStatus.REJECTED)
        for state in ("", "Pending", "Draining", "Deregistering", "Failed")
    },
}


def state_intended(before: RecordState, change: TargetChange) -> RecordState:
    """Return the state of a record once it is stored that ``change`` is about to be asked for.

    Raises:
        Bug: it is no change of a backend.
    """
    if change.reason is Reason.OWNERS_CHANGED:
        return before
    if change.action not in _INTENDED:
        raise Bug(f"{change.action} is not a change of a backend")
    return _INTENDED[change.action]


def state_after(before: RecordState, change: TargetChange, status: OutcomeStatus) -> RecordState:
    """Return the state of a record once ``change`` was answered with ``status``."""
    if change.is_removal:
        return before  # its intent has set the state already
    if status is OutcomeStatus.DONE:
        return "Draining" if change.target.draining else "Registered"
    return _AFTER.get((status, before), before)
