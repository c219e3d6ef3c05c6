"""The rows of a plan, each with its reason, their outcomes, and the history that keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import BackendKey, ListenerKey, LoadBalancerKey, TargetKey


class Action(StrEnum):
    """The six actions on a load balancer, in the order in which they are performed."""

    ENSURE = "Ensure"
    REGISTER = "Register"
    UPDATE = "Update"
    DRAIN = "Drain"
    DEREGISTER = "Deregister"
    DELETE = "Delete"


class Reason(StrEnum):
    """The reason of a row in the plan; every removal of a target carries one of these, in Event, log and status."""

    NEW = "New"
    CHANGED = "Changed"
    #: The load balancer was deleted at the provider by another client; the hub creates it again.
    VANISHED = "Vanished"
    #: Only its owners changed: the ledger records that, and the provider is not called.
    OWNERS_CHANGED = "OwnersChanged"
    #: The target was wanted again while being deregistered, or its record was deleted by another client: removal comes
    #: first.
    DEREGISTERING = "Deregistering"
    #: Another object has the address now: the old backend is removed first.
    REPLACED = "Replaced"
    #: The target was reported terminating or not ready before it disappeared: positive knowledge.
    TERMINATING = "Terminating"
    #: The target disappeared without being reported as terminating.
    ABSENT = "Absent"
    #: The drain time of the target has expired.
    DRAINED = "Drained"
    LISTENER_REMOVED = "ListenerRemoved"
    #: The load balancer's object is gone, or every group that wanted this target is, or names it no longer.
    OWNER_DELETED = "OwnerDeleted"


class BackendFacts(msgspec.Struct, frozen=True):
    """The facts that a ledger keeps of one backend for a provider that keeps nothing itself (a webhook driver).

    ``record_id`` is the same for all calls about one record, across restarts. ``generated_address`` and
    ``injected_info`` are what an earlier ``Outcome`` said. ``origin`` is what an address is generated from, in the
    terms of the driver protocol (``podBackend`` or ``serviceBackend``); empty when the address is given.
    """

    record_id: str = ""
    generated_address: str = ""
    injected_info: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    origin: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])


class TargetChange(msgspec.Struct, frozen=True, gc=False):
    """One row about one target; ``generation`` is that of the desired state: results of an older one are ignored."""

    load_balancer: LoadBalancerKey
    listener: ListenerKey
    target: Target
    action: Action
    reason: Reason
    generation: int = 0
    facts: BackendFacts | None = None

    @property
    def key(self) -> TargetKey:
        """Return the identity of the target."""
        return self.target.key

    @property
    def backend_key(self) -> BackendKey:
        """Return the identity of the target behind this listener of this load balancer."""
        return BackendKey(self.load_balancer, self.listener, self.target.key)

    @property
    def is_removal(self) -> bool:
        """Return whether the change takes its target out of service: a removal, or a drain before one."""
        return self.action in (Action.DRAIN, Action.DEREGISTER)

    @property
    def is_addition(self) -> bool:
        """Return whether its target is, or stays, in service."""
        return self.action in (Action.REGISTER, Action.UPDATE)


class FrontendChange(msgspec.Struct, frozen=True):
    """One row about the load balancer itself: ENSURE or DELETE."""

    load_balancer: LoadBalancerKey
    spec: FrontendSpec | None
    action: Action
    reason: Reason
    generation: int = 0


class Held(msgspec.Struct, frozen=True, gc=False):
    """A removal that a guard holds back: the row, and the guard's message."""

    change: TargetChange
    reason: str
    message: str


class OutcomeStatus(StrEnum):
    """The result of one change at a provider."""

    DONE = "Done"
    #: In progress, not failed: ask again after ``retry_after_s``, without back-off.
    RUNNING = "Running"
    RETRY = "Retry"
    REJECTED = "Rejected"


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one change; ``retry_after_s`` is what the provider asks for, in seconds.

    ``generated_address`` and ``injected_info`` (None: keep what there was) are to be stored by the ledger whatever the
    status, and come back in the ``BackendFacts`` of later changes.
    """

    status: OutcomeStatus
    message: str = ""
    retry_after_s: float = 0.0
    generated_address: str = ""
    injected_info: Mapping[str, str] | None = None


DONE = Outcome(OutcomeStatus.DONE)


class HistoryKind(StrEnum):
    """The kinds of entries."""

    #: A change caused the load balancer to be reconciled: the text names the change.
    WOKEN = "Woken"
    #: The hub decided something before any provider was called (accepted, refused, another provider).
    DECIDED = "Decided"
    #: The provider was called without a failure.
    APPLIED = "Applied"
    #: A guard held all changes.
    HELD = "Held"
    #: A call failed, or the provider rejected a change permanently.
    FAILED = "Failed"
    #: The object was changed: the revision says by which user, and how.
    CHANGED = "Changed"


class RowAnswer(StrEnum):
    """The outcome of a row of a plan."""

    DONE = "Done"
    #: Skipped in this run; the text of the entry gives the reason, unless the provider is still working on it.
    OPEN = "Open"
    #: A guard held the change; the message is the guard's.
    HELD = "Held"
    #: The provider rejected the change, so the next attempt is delayed; the message is the provider's.
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


class Revision(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A change of an object: Created, Changed or Deleted.

    ``manager`` is the name that the client gave itself. ``user`` is empty where the API server does not store it, and
    ``claimed`` where a client has written it. ``part`` is the object, as Kind/name, where it is not the load balancer.
    ``fields`` have name, old and new value, empty for none; ``more`` counts those that are not listed.
    """

    operation: str
    user: str = ""
    claimed: bool = False
    manager: str = ""
    part: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()
    more: int = 0

    @property
    def who(self) -> str:
        """Return the user, else the manager."""
        return f"{self.user}{' (claimed)' if self.claimed else ''}" or self.manager or "unknown"

    @property
    def sentence(self) -> str:
        """Return the revision as a sentence."""
        fields = [f"{name}: {old or '-'} -> {new or '-'}" for name, old, new in self.fields]
        fields += [f"and {self.more} more"] if self.more else []
        what = f" {self.part}" if self.part else ""
        return f"{self.who} {self.operation.lower()}{what}{' ' if fields else ''}{', '.join(fields)}"


#: A time with a zone: times without one cannot be compared with it.
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
    #: Of a change of the object.
    revision: Revision | None = None

    @property
    def lasting(self) -> bool:
        """Return whether the entry explains a removal, failure, hold or drift; such entries are kept longer."""
        return self.kept or self.kind in _ENTRY_KINDS_KEPT or any(row.action in _REMOVALS for row in self.rows)

    def same_as(self, other: HistoryEntry) -> bool:
        """Return whether both entries are equal except for their times."""
        mine, theirs = ((entry.text, entry.kind, entry.provider, entry.rows) for entry in (self, other))
        return mine == theirs and self.revision == other.revision
