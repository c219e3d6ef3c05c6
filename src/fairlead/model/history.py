"""The entries of a load balancer's history, as they are kept, stored and printed (JSON).

One entry is one wake-up, one decision, or one run of the worker with its rows. In: values. Out: values. Never: a clock.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from fairlead.model.change import Action


class HistoryKind(StrEnum):
    """The kinds of entries."""

    #: Something changed, so that the load balancer was reconciled: the text names it.
    WOKEN = "Woken"
    #: The hub decided something before any provider was called (accepted, refused, another provider).
    DECIDED = "Decided"
    #: The provider was called, and nothing failed.
    APPLIED = "Applied"
    #: A guard held everything that was to be done.
    HELD = "Held"
    #: A call failed, or the provider refused something for good.
    FAILED = "Failed"


class RowAnswer(StrEnum):
    """The outcome of a row of a plan."""

    DONE = "Done"
    #: Not done in this run; the text of the entry says why, unless the provider is still working on it.
    OPEN = "Open"
    #: A guard held it back; the message is the guard's.
    HELD = "Held"
    #: The provider refuses it, so it is not asked again for a while; the message is the provider's.
    QUARANTINED = "Quarantined"


_REMOVALS = frozenset({Action.DRAIN, Action.DEREGISTER, Action.DELETE})
_ENTRY_KINDS_KEPT = frozenset({HistoryKind.HELD, HistoryKind.FAILED})


class HistoryRow(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``count`` rows of a plan with the same action, reason and answer.

    ``targets`` names the first of them as "listener address", with the object behind it where that is known. The call
    is ``ensure`` for Ensure, ``delete`` for Delete and ``apply`` for all others (none at all for OwnersChanged).
    """

    action: Action
    reason: str
    answer: RowAnswer
    count: int = 1
    message: str = ""
    targets: tuple[str, ...] = ()


#: A time with a zone: others cannot be compared with it.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class HistoryEntry(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An event that happened ``count`` times, first at ``at`` and last at ``last_at`` (None: once only).

    ``sequence`` orders the entries of one process, whatever the wall clock does.
    """

    sequence: int
    at: Moment
    kind: HistoryKind
    text: str
    provider: str = ""
    rows: tuple[HistoryRow, ...] = ()
    count: int = 1
    last_at: Moment | None = None
    #: It is kept as long as a removal, though it is none: what others did at the provider, and its repair.
    kept: bool = False

    @property
    def lasting(self) -> bool:
        """Say whether it explains why something is missing (a removal, failure, hold or drift): kept longer."""
        return self.kept or self.kind in _ENTRY_KINDS_KEPT or any(row.action in _REMOVALS for row in self.rows)

    def same_as(self, other: HistoryEntry) -> bool:
        """Return whether both entries are equal except for their times."""
        return (self.text, self.kind, self.provider, self.rows) == (other.text, other.kind, other.provider, other.rows)
