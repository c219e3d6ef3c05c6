"""The result of executing one plan.

    Finished          every row of the plan that was not held was done
    InProgress        the provider is still working: polled at a constant interval
    Failed            a row was not done: retried with exponential backoff
    UnexpectedError   an exception that is a bug: retried slowly, its text is only logged

In: the outcome of a plan, or the error that ended it. Out: a ``Result``. Never: a decision about when exactly.
"""

from __future__ import annotations

import msgspec

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome, OutcomeStatus


class Finished(msgspec.Struct, frozen=True):
    """Nothing is left to do now."""


class InProgress(msgspec.Struct, frozen=True):
    """``after_s``: seconds after which the provider wants to be polled again; 0 without a preference."""

    after_s: float = 0.0


class Failed(msgspec.Struct, frozen=True):
    """``message`` and ``reason`` for the status; ``after_s`` the least pause in seconds that the provider asks for."""

    message: str
    reason: str
    after_s: float = 0.0


class UnexpectedError(msgspec.Struct, frozen=True):
    """``message`` and ``reason`` for the status."""

    message: str = "an internal error of the hub; its log says more"
    reason: str = "InternalError"


Result = Finished | InProgress | Failed | UnexpectedError


def result_of(undone: Outcome | None) -> Result:
    """Return the result of a plan by its first outcome that was not a success; None: all were."""
    if undone is None:
        return Finished()
    if undone.status is OutcomeStatus.RUNNING:
        return InProgress(undone.retry_after_s)
    return Failed(undone.message, undone.status.value, undone.retry_after_s)


def result_of_error(error: Exception) -> Result:
    """Return the result of a plan that ended with ``error``."""
    match error:
        case Retry():
            return Failed(error.sentence, error.reason, error.after_s or 0.0)
        case FairleadError():
            return Failed(error.sentence, error.reason)
        case _:
            return UnexpectedError()


def failure_of(result: Result) -> tuple[str, str]:
    """Return message and reason of a failure; empty strings for other results."""
    match result:
        case Failed() | UnexpectedError():
            return result.message, result.reason
        case Finished() | InProgress():
            return "", ""
