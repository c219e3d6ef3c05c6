"""The result of executing one plan: one of four, each with all that is to be known of it.

    Finished   everything that the plan let through was done
    UnderWay   the provider is still busy with it: asked again soon, and not more slowly each time
    Failed     something was not done: tried again, after a growing pause
    Mistake    an error that is not ours to expect: tried again slowly, and its text is for the log only

In: the outcome of a plan, or the error that ended it. Out: a ``Result``. Never: a decision about when exactly.
"""

from __future__ import annotations

import msgspec

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome, OutcomeStatus


class Finished(msgspec.Struct, frozen=True):
    """Nothing is left to do now."""


class UnderWay(msgspec.Struct, frozen=True):
    """``after_s``: seconds after which the provider wants to be asked again; 0 when it does not say."""

    after_s: float = 0.0


class Failed(msgspec.Struct, frozen=True):
    """``message`` and ``reason`` for the status; ``after_s`` the least pause in seconds that the provider asks for."""

    message: str
    reason: str
    after_s: float = 0.0


class Mistake(msgspec.Struct, frozen=True):
    """``message`` and ``reason`` for the status."""

    message: str = "an internal error of the hub; its log says more"
    reason: str = "InternalError"


Result = Finished | UnderWay | Failed | Mistake


def result_of(undone: Outcome | None) -> Result:
    """Return the result of a plan, of which ``undone`` was not done; None: all of it was."""
    if undone is None:
        return Finished()
    if undone.status is OutcomeStatus.RUNNING:
        return UnderWay(undone.retry_after_s)
    return Failed(undone.message, undone.status.value, undone.retry_after_s)


def result_of_error(error: Exception) -> Result:
    """Return the result of a plan that ended with ``error``."""
    match error:
        case Retry():
            return Failed(error.sentence, error.reason, error.after_s or 0.0)
        case FairleadError():
            return Failed(error.sentence, error.reason)
        case _:
            return Mistake()


def failure_of(result: Result) -> tuple[str, str]:
    """Return message and reason of what has failed; empty when nothing has."""
    match result:
        case Failed() | Mistake():
            return result.message, result.reason
        case Finished() | UnderWay():
            return "", ""
