"""The next step for one member of one load balancer: the state machine, as a table.

    member     at the load balancer   what is done                 status
    alive      absent, leaving        add                          adding
    alive      pending                wait                         adding
    alive      draining, out          add                          adding
    alive      active                 -                            active
    disabled   absent                 -                            disabled
    disabled   pending, active        drain                        disabling
    disabled   draining, leaving      wait                         disabling
    disabled   out                    -                            disabled
    leaving    pending, active        drain                        removing
    leaving    draining, leaving      wait                         removing
    leaving    out                    remove                       removing
    leaving    absent                 release hooks and finalizer  removed

``leaving`` members are being deleted, or are not selected any more. A disabled member never falls through to what is
done about one that is alive. In: what the member wants, what the load balancer's group says. Out: a ``Step``.
Never: ``RELEASE`` before the load balancer has reported that the deregistration has taken effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Goal(StrEnum):
    """The goal for a member."""

    ALIVE = "alive"
    DISABLED = "disabled"
    LEAVING = "leaving"


class Presence(StrEnum):
    """The presence of a member at a load balancer, the least far out first."""

    ACTIVE = "active"
    PENDING = "pending"
    DRAINING = "draining"
    #: Registered, and no proxy sends it new connections.
    OUT = "out"
    #: Not asked for any more, and not yet known to be deregistered.
    LEAVING = "leaving"
    ABSENT = "absent"


class Action(StrEnum):
    """The action of a step."""

    NONE = "none"
    WAIT = "wait"
    ADD = "add"
    DRAIN = "drain"
    REMOVE = "remove"
    RELEASE = "release"


class Step(NamedTuple):
    """The action for a member, and the status that it shows."""

    action: Action
    status: str


ADDING, ACTIVE, DISABLING, DISABLED, REMOVING, REMOVED = (
    "adding", "active", "disabling", "disabled", "removing", "removed",
)  # fmt: skip

TABLE: dict[tuple[Goal, Presence], Step] = {
    (Goal.ALIVE, Presence.ABSENT): Step(Action.ADD, ADDING),
    (Goal.ALIVE, Presence.LEAVING): Step(Action.ADD, ADDING),
    (Goal.ALIVE, Presence.PENDING): Step(Action.WAIT, ADDING),
    (Goal.ALIVE, Presence.DRAINING): Step(Action.ADD, ADDING),
    (Goal.ALIVE, Presence.OUT): Step(Action.ADD, ADDING),
    (Goal.ALIVE, Presence.ACTIVE): Step(Action.NONE, ACTIVE),
    (Goal.DISABLED, Presence.ABSENT): Step(Action.NONE, DISABLED),
    (Goal.DISABLED, Presence.PENDING): Step(Action.DRAIN, DISABLING),
    (Goal.DISABLED, Presence.ACTIVE): Step(Action.DRAIN, DISABLING),
    (Goal.DISABLED, Presence.DRAINING): Step(Action.WAIT, DISABLING),
    (Goal.DISABLED, Presence.LEAVING): Step(Action.WAIT, DISABLING),
    (Goal.DISABLED, Presence.OUT): Step(Action.NONE, DISABLED),
    (Goal.LEAVING, Presence.PENDING): Step(Action.DRAIN, REMOVING),
    (Goal.LEAVING, Presence.ACTIVE): Step(Action.DRAIN, REMOVING),
    (Goal.LEAVING, Presence.DRAINING): Step(Action.WAIT, REMOVING),
    (Goal.LEAVING, Presence.LEAVING): Step(Action.WAIT, REMOVING),
    (Goal.LEAVING, Presence.OUT): Step(Action.REMOVE, REMOVING),
    (Goal.LEAVING, Presence.ABSENT): Step(Action.RELEASE, REMOVED),
}


def step(goal: Goal, presence: Presence) -> Step:
    """Return the step for a member with ``goal`` and ``presence``, by the table above."""
    return TABLE[goal, presence]


def presence_of(*, requested: bool, draining: bool, listed: str, in_effect: bool) -> Presence:
    """Return the presence of one backend at the load balancer.

    ``requested`` and ``draining``: whether the group's spec lists it, as what. ``listed``: its state in the group's
    status, empty without an entry. ``in_effect``: that status is about the group's present spec.
    """
    if not requested:
        return Presence.ABSENT if in_effect and not listed else Presence.LEAVING
    if draining:
        return Presence.OUT if in_effect and listed in ("", "Draining") else Presence.DRAINING
    return Presence.ACTIVE if listed == "Registered" else Presence.PENDING


def together(presences: Iterable[Presence]) -> Presence:
    """Return the presence of a member with several backends: that of the one that is least far out.

    One that is pending counts before one that is active: the member is active when all of its backends are.
    """
    known = set(presences)
    if Presence.PENDING in known and Presence.ACTIVE in known:
        return Presence.PENDING
    return min(known, key=list(Presence).index, default=Presence.ABSENT)
