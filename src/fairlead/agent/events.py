"""How does the agent speak to the author of a Service? In notes, which become Events.

In: nothing. Out: the value that the pure parts answer with and that ``teller`` tells.
"""

from __future__ import annotations

import msgspec


class Note(msgspec.Struct, frozen=True):
    """One Event on the Service: a PascalCase reason, and a sentence that says what to do."""

    warning: bool
    reason: str
    message: str


def warn(reason: str, message: str) -> Note:
    """Make a note of a problem."""
    return Note(True, reason, message)
