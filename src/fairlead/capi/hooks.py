"""The state machine of one member of a load balancer, and the marks on the member's object.

    hooks       pre-drain and pre-terminate, with a suffix of our own for each load balancer; on Machines only
    finalizer   one for each load balancer
    markers     name and status of Cluster API, when the object is a member of one load balancer of ours; else ``name``
                has all of them, ``status`` the one that is least far, and ``status.<name>`` each

``TABLE`` says for each goal and presence what is done. In: the goal of a member, its presence at the load balancer; the
present annotations and finalizers. Out: the next step; what the marks should be. Pure. Never: touches the hooks,
finalizers or annotations of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from fairlead.api.clusterapi import MARKER_DISABLED, MARKER_NAME, MARKER_STATUS, PRE_DRAIN_HOOK, PRE_TERMINATE_HOOK
from fairlead.api.names import fit

# --- the state machine of a member -----------------------------------------------------------------------------------
#
# The next step for one member of one load balancer: the state machine, as a table.
#
#     member     at the load balancer   what is done                 status
#     alive      absent, leaving        add                          adding
#     alive      pending                wait                         adding
#     alive      draining, out          add                          adding
#     alive      active                 -                            active
#     disabled   absent                 -                            disabled
#     disabled   pending, active        drain                        disabling
#     disabled   draining, leaving      wait                         disabling
#     disabled   out                    -                            disabled
#     leaving    pending, active        drain                        removing
#     leaving    draining, leaving      wait                         removing
#     leaving    out                    remove                       removing
#     leaving    absent                 release hooks and finalizer  removed
#
# ``leaving`` members are being deleted, or are no longer selected. A disabled member never falls through to what is
# done about one that is alive.


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
    #: No longer requested, and not yet known to be deregistered.
    LEAVING = "leaving"
    ABSENT = "absent"


class MemberAction(StrEnum):
    """The action of a step."""

    NONE = "none"
    WAIT = "wait"
    ADD = "add"
    DRAIN = "drain"
    REMOVE = "remove"
    RELEASE = "release"


class Step(NamedTuple):
    """The action for a member, and the status that it shows."""

    action: MemberAction
    status: str


ADDING, ACTIVE, DISABLING, DISABLED, REMOVING, REMOVED = (
    "adding", "active", "disabling", "disabled", "removing", "removed",
)  # fmt: skip

TABLE: dict[tuple[Goal, Presence], Step] = {
    (Goal.ALIVE, Presence.ABSENT): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.LEAVING): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.PENDING): Step(MemberAction.WAIT, ADDING),
    (Goal.ALIVE, Presence.DRAINING): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.OUT): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.ACTIVE): Step(MemberAction.NONE, ACTIVE),
    (Goal.DISABLED, Presence.ABSENT): Step(MemberAction.NONE, DISABLED),
    (Goal.DISABLED, Presence.PENDING): Step(MemberAction.DRAIN, DISABLING),
    (Goal.DISABLED, Presence.ACTIVE): Step(MemberAction.DRAIN, DISABLING),
    (Goal.DISABLED, Presence.DRAINING): Step(MemberAction.WAIT, DISABLING),
    (Goal.DISABLED, Presence.LEAVING): Step(MemberAction.WAIT, DISABLING),
    (Goal.DISABLED, Presence.OUT): Step(MemberAction.NONE, DISABLED),
    (Goal.LEAVING, Presence.PENDING): Step(MemberAction.DRAIN, REMOVING),
    (Goal.LEAVING, Presence.ACTIVE): Step(MemberAction.DRAIN, REMOVING),
    (Goal.LEAVING, Presence.DRAINING): Step(MemberAction.WAIT, REMOVING),
    (Goal.LEAVING, Presence.LEAVING): Step(MemberAction.WAIT, REMOVING),
    (Goal.LEAVING, Presence.OUT): Step(MemberAction.REMOVE, REMOVING),
    (Goal.LEAVING, Presence.ABSENT): Step(MemberAction.RELEASE, REMOVED),
}


def step(goal: Goal, presence: Presence) -> Step:
    """Return the step for a member with ``goal`` and ``presence``, by the table above."""
    return TABLE[goal, presence]


def presence_of(*, requested: bool, draining: bool, state: str, in_effect: bool) -> Presence:
    """Return the presence of one backend at the load balancer.

    ``requested`` and ``draining``: whether the group's spec lists it, as what. ``state``: its state in the group's
    status, empty without an entry. ``in_effect``: that status is about the group's present spec.
    """
    if not requested:
        return Presence.ABSENT if in_effect and not state else Presence.LEAVING
    if draining:
        return Presence.OUT if in_effect and state in ("", "Draining") else Presence.DRAINING
    return Presence.ACTIVE if state == "Registered" else Presence.PENDING


def together(presences: Iterable[Presence]) -> Presence:
    """Return the presence of a member with several backends: that of the one that is least far out.

    One that is pending counts before one that is active: the member is active when all of its backends are.
    """
    distinct = set(presences)
    if Presence.PENDING in distinct and Presence.ACTIVE in distinct:
        return Presence.PENDING
    return min(distinct, key=list(Presence).index, default=Presence.ABSENT)


OWNER = "fairlead.dev"
_SUFFIX = "fairlead-"
_FINALIZER = "loadbalancer.fairlead.dev/"
#: The order in which the status of several load balancers becomes one.
_LEAST_FIRST = (REMOVING, DISABLING, ADDING, DISABLED, ACTIVE, REMOVED)


class Marks(msgspec.Struct, frozen=True):
    """Annotations and finalizers of one object."""

    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None, finalizers: Sequence[str] | None) -> Marks:
        """Return those of an object as it was read."""
        return cls(dict(annotations or {}), tuple(finalizers or ()))


def hook_keys(load_balancer: str) -> tuple[str, str]:
    """Return the annotations that hold up the deletion of a Machine for a load balancer."""
    suffix = fit(_SUFFIX + load_balancer)
    return f"{PRE_DRAIN_HOOK}/{suffix}", f"{PRE_TERMINATE_HOOK}/{suffix}"


def finalizer_of(load_balancer: str) -> str:
    """Return the finalizer that a load balancer puts on its members."""
    return _FINALIZER + fit(load_balancer)


def status_key(load_balancer: str) -> str:
    """Return the annotation with the status of one of several load balancers."""
    prefix, name = MARKER_STATUS.split("/")
    return f"{prefix}/{fit(f'{name}.{load_balancer}')}"


def is_disabled(annotations: Mapping[str, str] | None, load_balancer: str) -> bool:
    """Return whether an annotation disables the member, for every load balancer or for this one."""
    prefix, name = MARKER_DISABLED.split("/")
    keys = (MARKER_DISABLED, f"{prefix}/{fit(f'{name}.{load_balancer}')}")
    return any((annotations or {}).get(key, "false") != "false" for key in keys)


def is_held(marks: Marks, load_balancer: str, *, hooks: bool) -> bool:
    """Return whether the object has all hooks and finalizers that registration requires."""
    held = finalizer_of(load_balancer) in marks.finalizers
    return held and (not hooks or all(key in marks.annotations for key in hook_keys(load_balancer)))


def is_marked(marks: Marks, load_balancer: str) -> bool:
    """Return whether the object has a hook, finalizer or marker of this load balancer."""
    keys = (*hook_keys(load_balancer), status_key(load_balancer))
    return finalizer_of(load_balancer) in marks.finalizers or any(key in marks.annotations for key in keys)


def held(marks: Marks, load_balancer: str, status: str, *, hooks: bool, deleting: bool) -> Marks:
    """Return ``marks`` with the hooks, finalizer and markers of a member of ``load_balancer``.

    An object that is being deleted gets no new finalizer, which the API server would refuse.
    """
    annotations = dict(marks.annotations)
    if hooks and not deleting:
        annotations |= dict.fromkeys(hook_keys(load_balancer), OWNER)
    annotations[status_key(load_balancer)] = status
    finalizer = finalizer_of(load_balancer)
    add = () if deleting or finalizer in marks.finalizers else (finalizer,)
    return Marks(_summed(annotations), (*marks.finalizers, *add))


def released(marks: Marks, load_balancer: str, *, status: str = "") -> Marks:
    """Return ``marks`` without those of ``load_balancer``; ``status``: the last value of its marker."""
    removed = {*hook_keys(load_balancer), status_key(load_balancer)}
    annotations = {key: value for key, value in marks.annotations.items() if key not in removed}
    finalizers = tuple(finalizer for finalizer in marks.finalizers if finalizer != finalizer_of(load_balancer))
    summed = _summed(annotations)
    if status and MARKER_STATUS not in summed:
        summed = {**summed, MARKER_NAME: load_balancer, MARKER_STATUS: status}
    return Marks(summed, finalizers)


def released_of_all(marks: Marks) -> Marks:
    """Return ``marks`` without those of any load balancer of Fairlead."""
    ours = (f"{PRE_DRAIN_HOOK}/{_SUFFIX}", f"{PRE_TERMINATE_HOOK}/{_SUFFIX}", f"{MARKER_STATUS}.")
    annotations = {key: value for key, value in marks.annotations.items() if not key.startswith(ours)}
    finalizers = tuple(finalizer for finalizer in marks.finalizers if not finalizer.startswith(_FINALIZER))
    return Marks(_summed(annotations), finalizers)


def patch_of(before: Marks, after: Marks) -> dict[str, object]:
    """Return the merge patch of ``metadata`` that makes ``before`` into ``after``; empty when they are the same."""
    patch: dict[str, object] = {}
    changed: dict[str, str | None] = {
        key: value for key, value in after.annotations.items() if before.annotations.get(key) != value
    }
    changed |= dict.fromkeys(before.annotations.keys() - after.annotations.keys())
    if changed:
        patch["annotations"] = dict(sorted(changed.items()))
    if after.finalizers != before.finalizers:
        patch["finalizers"] = list(after.finalizers)
    return patch


def _summed(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return ``annotations`` with the markers without a suffix as they follow from those that have one."""
    start = f"{MARKER_STATUS}."
    statuses = {key.removeprefix(start): value for key, value in annotations.items() if key.startswith(start)}
    rest = {key: value for key, value in annotations.items() if key not in (MARKER_NAME, MARKER_STATUS)}
    if not statuses:
        return rest
    worst = min(statuses.values(), key=lambda status: _LEAST_FIRST.index(status) if status in _LEAST_FIRST else -1)
    return {**rest, MARKER_NAME: ",".join(sorted(statuses)), MARKER_STATUS: worst}
