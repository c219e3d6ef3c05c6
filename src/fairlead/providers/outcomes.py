"""Outcomes of the changes of a batch, worded the same way by every provider.

In: the error of the call that carried a change. Out: an ``Outcome``. Pure.
"""

from __future__ import annotations

from fairlead.errors import Retry
from fairlead.model.change import Outcome, OutcomeStatus


def outcome_from_error(error: Retry) -> Outcome:
    """Return the outcome of a change whose own call failed, with the delay that the other side asked for."""
    return Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0)
